/* Models that were pulled: kept in the user's data folder as OWNER/REPO/FILE, named
 * OWNER/REPO[:FILE]. */
#ifndef APP_MODELS_H
#define APP_MODELS_H

#include "app.h"

/* OWNER/REPO[@REVISION][:FILE], taken apart; both are copies. */
struct model_name {
    char repo[300]; /* with @REVISION, unless that is main: so the folder is called too */
    char file[400]; /* "": not said */
};
/* Takes addresses of a repository or a file on huggingface.co or hf.co too. False: that is no such
 * name. */
bool model_name_parse(struct model_name *out, const char *text);
/* Would it stay inside the folder it is put in, on every system? */
bool model_path_is_safe(const char *path);
/* Is `path` (of a GGUF file) what `wanted` means: itself, or a part of its name? */
bool model_path_matches(const char *path, const char *wanted);
bool model_is_gguf(const char *path);
/* Part of a set NAME-00001-of-00003.gguf: 1 and the length of NAME; 0: a file on its own. */
unsigned model_set_part(const char *path, size_t *n_name);

/* Calls for each model below a folder that is laid out as pull does, or below the folder of one
 * owner there, with its name and its path (of a set its first file), until one call gives an exit
 * code other than 0. The name is OWNER/REPO[:FILE], which fletch list prints, or REPO[:FILE]. */
int models_each(const char *root, int (*each)(void *ctx, const char *name, const char *path),
                void *ctx);

/* Folder of all, or of one repository; free. NULL after saying that there is no home. */
char *models_folder(const char *repo);

#endif
