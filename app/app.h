/* What the commands share: exit codes, messages, files and the way to an open model. Commands are
 * thin: what they do is in libfletch, what they say is here. */
#ifndef APP_H
#define APP_H

#include <jansson.h>
#include <signal.h>

#include "fletch.h"
#include "opts.h"

enum exit_code { EXIT_OK, EXIT_FAIL, EXIT_USAGE, EXIT_FIT, EXIT_MODEL };

extern const struct command cmd_run, cmd_chat, cmd_batch, cmd_eval, cmd_inspect, cmd_explain,
    cmd_plan, cmd_tokenize, cmd_detokenize, cmd_template, cmd_verify, cmd_convert, cmd_synth,
    cmd_bench, cmd_tune, cmd_doctor, cmd_embed, cmd_rerank, cmd_serve, cmd_pull, cmd_list, cmd_rm,
    cmd_ps, cmd_cache;

/* ---- say.c: messages and text for people ---- */

/* A printable copy in 'quotes', for messages. */
struct quoted {
    char text[96];
};
struct quoted quote(const char *s);
#define QUOTE(s) (quote(s).text)

/* Writes s so that it can't speak to the terminal: control and invalid bytes as \n, \t, \xNN.
 * Stops at a character that does not fit; always ends with 0. Returns the bytes of s it took. */
size_t escape(char *out, size_t cap, const char *s, size_t n);
/* The length of the valid UTF-8 character at s, or 0. */
size_t utf8_length(const char *s, size_t n);
/* A JSON string; bytes that are not UTF-8 become U+FFFD. */
json_t *json_text(const char *s, size_t n);
/* The bytes as numbers. */
json_t *json_bytes(const char *s, size_t n);
/* The bytes of a token: a JSON string, or numbers where they are not UTF-8. */
json_t *json_piece(const char *s, size_t n);
/* The text of a JSON string that is to be compared with words of ours; NULL: it is no string, or
 * holds a NUL, which no word has. */
const char *json_word(const json_t *v);
void say_json(const json_t *j);

struct human {
    char text[24];
};
struct human human_bytes(uint64_t n); /* 1.5 GiB */
struct human human_count(uint64_t n); /* 494.0 M */

/* Is it a terminal that escape sequences mean something to? */
bool is_screen(int fd);
/* Its columns; 0: fd is no terminal, or it does not say. */
unsigned terminal_width(int fd);
/* Columns for a text on fd: the terminal's, from 60 to 200; 80 where fd is none. */
unsigned screen_width(int fd);
/* Words and a newline, wrapped to the width of `out`, which stands at column `at`; further lines
 * begin at `indent`. */
void say_wrapped(FILE *out, const char *text, size_t at, size_t indent);
/* Begin and end text that matters less, where fd is one and NO_COLOR is not set; else "". */
const char *style_dim(int fd);
const char *style_end(int fd);

/* Text of unknown origin for a terminal: newlines and tabs stay, other control bytes are shown. */
void say_text(FILE *out, const char *s, size_t n);
/* One line on stderr; returns EXIT_FAIL. */
int say_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The library's text on stderr; the exit code for its code. */
int say_failure(int rc, const char *text);
/* What is no failure, but should be known: a fletch_notice that writes to stderr. */
void say_notice(void *ctx, const char *text);
/* The same where a model was opened: what is wrong in a file is a bad model. */
int say_model_failure(int rc, const char *text);

/* Progress of what takes longer than a second, where stderr is a terminal. */
struct progress {
    const char *what;
    bool on, shown, bytes; /* bytes: shown as a bar with the speed and the time left */
    double began, last;
    double speed, t_speed; /* bytes a second of late, and when n_speed bytes were there */
    uint64_t n_speed;
};
void progress_begin(struct progress *p, const char *what, const struct args *a);
int progress_report(void *progress, uint64_t done, uint64_t total); /* ends at Ctrl-C */
void progress_end(struct progress *p);
double now(void); /* seconds */

/* ---- interrupt.c: Ctrl-C ---- */

extern volatile sig_atomic_t interrupted;
/* From here on Ctrl-C sets it. flags: sigaction's SA_RESETHAND (a second one ends the program) and
 * SA_RESTART (reading and writing go on). */
void interrupt_catch(int flags);

/* ---- io.c: files ---- */

/* Aborts the program with a message when p is NULL: for the few small things the app allocates. */
void *need(void *p);

struct text {
    char *p; /* ends with 0 */
    size_t n;
};
/* Reads all of a file; "-": stdin. Exit code; frees with free. */
int read_text(struct text *out, const char *path);
/* The same, when a text file can't hold a NUL. */
int read_string(char **out, const char *path);
/* Reads stdin, or says that `what` is missing when it is a terminal. */
int read_stdin(struct text *out, const char *command, const char *what);
/* Written beside its name and renamed: what was there before stays until all is written, and a link
 * in a shared folder is replaced rather than followed. Exit code. */
int save_file(const char *path, void (*write)(FILE *out, const json_t *doc), const json_t *doc);
/* Makes the folders that a file's path names, where they are missing; false: errno says why. */
bool make_folders(char *path, mode_t mode);
/* Says so where no file can be made in path's folder, before what it is to hold is computed. */
int check_folder_of(const char *path);
struct ids {
    int32_t *p; /* free */
    size_t n;
};
void ids_add(struct ids *ids, int32_t id);
/* Appends ids separated by commas or blanks; `what` one is, for messages. Exit code. */
int parse_ids(struct ids *ids, const char *command, const char *what, const char *s);
/* The user's folder in a variable, or else under HOME, with `rest` behind it (free it); NULL when
 * neither is set. */
char *user_folder(const char *variable, const char *under_home, const char *rest);
#define MODELS_FOLDER "XDG_DATA_HOME", "/.local/share", "/fletch/models" /* of fletch pull */
#define PREFIX_FOLDER "XDG_CACHE_HOME", "/.cache", "/fletch/prefixes"
#define TUNED_FOLDER  "XDG_CACHE_HOME", "/.cache", "/fletch" /* of what fletch tune found */
/* Flushes stdout; a full disk is said and counted as failure, a reader that left is not said. */
int finish_stdout(int code);

/* ---- models.c: models that were pulled ---- */

/* *path (free) is set for what is no file but the name of one. Exit code. */
int models_resolve(const char *operand, char **path);
/* Of a model that is not here but may be on Hugging Face: offers to download it where a person is
 * asked, or says the command that does. A shape of fletch synth is none. Exit code. */
int models_get(const char *operand, char **path, const struct args *a);
/* fletch pull NAME, as a step of another command. */
int pull_model(const char *name, const struct args *a);
/* fletch chat, with the arguments of another command. */
int chat_run(const struct args *a);

/* ---- host.c: engine, model and session of a command ---- */

/* The built-in model (builtin.S). */
extern const unsigned char builtin_model[];
extern const uint64_t builtin_model_size;

struct host {
    struct fletch_engine *engine;
    struct fletch_model *model;
    struct fletch_session *session;
    struct fletch_model_info info;
    bool text_only;       /* the model is opened for its vocabulary and template */
    fletch_notice notice; /* NULL: stderr */
    void *notice_ctx;
};

extern const struct opt_group opts_place;   /* --backend, --threads */
extern const struct opt_group opts_model;   /* context, memory and so on */
extern const struct opt_group opts_unknown; /* the part of it for commands that only open one */
extern const struct opt_group opts_speculation;
extern const struct opt_group opts_cache;
/* The most that prefix files in a folder may take where the command line does not say. */
uint64_t default_cache_bytes(const char *folder);

/* Each returns an exit code after saying what went wrong. host_close in any case. */
int host_open_engine(struct host *h, const char *backend, const struct args *a);
/* Says so where `path` (NULL: the built-in model) can't be read; of a name that no model has, where
 * models are. Exit code. */
int host_check_path(const char *path);
/* path NULL: the built-in model. When it doesn't fit, the plan is said too. */
int host_open_model(struct host *h, const char *path, const struct args *a);
int host_open_session(struct host *h);
void host_close(struct host *h);
void host_params(struct fletch_model_params *params, const struct args *a);
/* Of one answer. */
struct speed {
    size_t n_prompt;         /* tokens of the prompt */
    size_t n_read, n_cached; /* of them: all, unless Ctrl-C came before; in the session already */
    double prefill_s, decode_s;
    const struct fletch_generated *made;
};
/* "prefill 64 tokens (32 cached), 1200.0/s; decode 20 tokens, 45.1/s", and of draft tokens. */
void say_speed(FILE *out, const struct speed *s);

/* ---- keep.c: conversations in files ---- */

/* Goes on from a file that fletch_session_save wrote, where there is one; any other file is an
 * error, so that it is never written over. Gives the messages that its note holds: an array, maybe
 * empty, also on failure. Exit code. */
int keep_open(struct host *h, const char *path, json_t **messages);
/* Exit code. */
int keep_save(struct host *h, const char *path, const json_t *messages);

/* ---- sampling.c: how tokens are chosen ---- */

extern const struct opt_group opts_sampling;

/* A setting of struct fletch_sampling, as FLETCH_SAMPLING_SETTINGS has it. */
enum setting_kind { SETTING_real, SETTING_count };
struct setting {
    const char *name, *alias, *option, *help;
    enum setting_kind kind;
    size_t at; /* offsetof(struct fletch_sampling, ...) */
    double min, max;
};
extern const struct setting setting_table[];
extern const size_t n_settings;
double setting_get(const struct setting *x, const struct fletch_sampling *s);
void setting_put(const struct setting *x, struct fletch_sampling *s, double v);

struct sampling {
    const struct args *a;
    int32_t *bias_tokens;
    float *bias_values;
};
/* Exit code; sampling_close always. */
int sampling_open(struct sampling *s, const struct args *a, const char *command);
void sampling_close(struct sampling *s);
/* The model's defaults with what the command line says; a random seed where it says none. Borrows
 * from s. */
struct fletch_sampling sampling_over(const struct sampling *s,
                                     const struct fletch_sampling *defaults);

/* ---- chat.c: messages into prompts ---- */

extern const struct opt_group opts_template;

struct chat {
    struct fletch_chat c;
    char *messages, *tools, *args;
};
/* messages: a JSON array; tools may be NULL; both are borrowed. Exit code; chat_close always. */
int chat_open(struct chat *chat, const json_t *messages, const json_t *tools, const struct args *a,
              const char *command);
void chat_close(struct chat *chat);

/* A variable of the model's chat template, as users name it: whether giving it has an effect. */
enum chat_variable { VARIABLE_READ, VARIABLE_OWN, VARIABLE_UNREAD }; /* own: fletch sets it */
enum chat_variable chat_find_variable(const struct fletch_model *m, const char *name);
/* The variable by which the template lets the model think, or NULL. */
const char *chat_think_variable(const struct fletch_model *m);
/* Refuses template options that would have no effect on the open model. Exit code. */
int chat_check_options(const struct host *h, const struct args *a);

/* ---- report*.c: JSON documents for people ---- */

/* The memory of a plan, part by part. */
void report_parts(FILE *out, const json_t *j);

/* ---- man.c ---- */

void man_print(const struct command *const *commands, size_t n);

/* ---- completion.c ---- */

/* The script for a shell on stdout. Exit code. */
int completion_print(const char *shell, const struct command *const *commands, size_t n);

#endif
