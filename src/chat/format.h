/* How models write thinking, content and tool calls: a table with a row per format. The parser
 * (tools.c) and the grammars (tools_choice.c) follow the rows; a new model family is a new row.
 * Formats are told apart by the text of the chat template. */
#ifndef FLETCH_CHAT_FORMAT_H
#define FLETCH_CHAT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

enum chat_format_id {
    CHAT_HERMES, /* Qwen 2.5 and 3, Hermes, Granite 4; also for models that know no format */
    CHAT_HARMONY,
    CHAT_GEMMA4,
    CHAT_MISTRAL_ID,
    CHAT_MISTRAL_ARGS,
    CHAT_MISTRAL,
    CHAT_KIMI_K2,
    CHAT_DEEPSEEK_R1, /* and V3 */
    CHAT_DEEPSEEK_V31,
    CHAT_DEEPSEEK_V32,
    CHAT_DEEPSEEK_V4,
    CHAT_MINIMAX_M2,
    CHAT_MUSE,
    CHAT_SEED_OSS,
    CHAT_QWEN_XML, /* Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5 */
    CHAT_GLM,      /* GLM 4.5 and later, Laguna */
    CHAT_HY3,
    CHAT_SOLAR,
    CHAT_APERTUS,
    CHAT_LFM2,
    CHAT_NEMOTRON_V2,
    CHAT_APRIEL,
    CHAT_COHERE,
    CHAT_FIREFUNCTION,
    CHAT_GRANITE3,
    CHAT_FUNCTIONARY2, /* v3.2 */
    CHAT_FUNCTIONARY,  /* v3.1 */
    CHAT_LLAMA,
    N_CHAT_FORMATS,
};

enum chat_syntax {
    CHAT_OBJECT,   /* JSON that names the tool, or a list of such objects */
    CHAT_NAMED,    /* the tool's name, then its arguments as JSON */
    CHAT_PAIRS,    /* the tool's name, then each argument between markers */
    CHAT_PYTHON,   /* [name(argument=value, ..), ..] */
    CHAT_QUOTED,   /* name{argument:value, ..} with a marker around each string */
    CHAT_CHANNELS, /* messages with a header that names channel and recipient */
};

/* Markers are texts; NULL where a format has none. Blanks beside them belong to them. */
struct chat_format {
    const char *name;
    const char *any[3];  /* a template of this format has one of these, */
    const char *all[2];  /* all of these */
    const char *without; /* and not this */
    enum chat_syntax syntax;
    const char *think, *think_end; /* around thinking */
    const char *after_think;       /* written after thinking, before anything else */
    const char *say, *say_end;     /* around content, also among `drop` */
    const char *drop[4];           /* what belongs to no part wherever it stands in content */
    const char *open, *close;      /* around all calls; models may leave them out */
    const char *call, *call_end;   /* around one call, or around the object or list */
    const char *before_name;       /* ends what may stand before the name */
    const char *id;                /* of a call, as a grammar; after after_name, or at the front */
    const char *name_end;          /* pairs: NULL when the first argument's marker ends it */
    const char *after_name;        /* begins what may stand between the name and name_end */
    const char *args_end;          /* before call_end, may be left out */
    const char *key, *key_end;     /* pairs: around an argument's name */
    const char *value, *value_end; /* pairs: around its value */
    const char *json_value;        /* pairs: instead of `value` where the value is JSON */
    const char *quote;             /* quoted: around strings */
    const char *name_key, *args_key; /* objects: the keys that the template teaches */
    const char *between;             /* what may stand between two calls, besides blanks */
    bool each;                       /* the template writes open and close around each call */
    bool list;                       /* objects: the template teaches a list */
    bool name_is_key;                /* objects: {"NAME": {arguments}} */
    bool headers; /* messages begin with a header that names who is addressed; drop[0] ends them */
    bool lines;   /* pairs: a line end on both sides of a value belongs to the markers */
    bool bare;    /* an answer that begins with an object may be a call */
    bool named;   /* the answer begins with a tool's name, or the one in `say` for content */
    bool thinks_anywhere; /* thinking may also follow content */
};

extern const struct chat_format chat_formats[N_CHAT_FORMATS];

/* What is known of a model by its template. */
struct tools_format {
    const struct chat_format *row;
    bool knows_tools; /* the template shows them to the model */
    bool thinks;      /* it has markers for thinking */
};
/* From the text of a chat template; n is 0 when there is none. */
struct tools_format tools_detect(const char *template_text, size_t n);

enum { CHAT_MAX_MARKERS = 28 };
/* All markers of a row; how many. */
size_t chat_markers(const struct chat_format *row, const char *markers[CHAT_MAX_MARKERS]);

#endif
