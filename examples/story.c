/* Continues a text: the smallest whole program on libfletch.
 *   cc story.c $(pkg-config --cflags --libs fletch) -o story
 *   ./story MODEL "Once upon a time" */
#include <fletch.h>
#include <stdio.h>
#include <string.h>

/* Called with each piece of text; a non-zero return would end the story. */
static int show(void *ctx, int32_t token, const char *text, size_t n)
{
    (void)ctx;
    (void)token;
    fwrite(text, 1, n, stdout);
    return fflush(stdout);
}

/* Sampled as the makers of the model advise, 100 tokens at most. */
static struct fletch_generate settings(const struct fletch_model *model)
{
    struct fletch_model_info info;
    fletch_model_info(model, &info);
    return (struct fletch_generate){
        .max_tokens = 100,
        .sampling = info.sampling,
        .on_text = show,
    };
}

/* What went wrong, or NULL. */
static const char *tell(struct fletch_model *model, struct fletch_session *session,
                        const char *prompt)
{
    int32_t *ids = NULL;
    size_t n = 0;
    struct fletch_generate generate = settings(model);
    struct fletch_generated made;
    if (fletch_tokenize(model, prompt, strlen(prompt), FLETCH_BOS, &ids, &n))
        return fletch_model_error(model);
    int rc = fletch_session_append(session, ids, n, NULL);
    fletch_free(ids);
    printf("%s", prompt);
    if (!rc) rc = fletch_session_generate(session, &generate, &made);
    printf("\n");
    return rc ? fletch_session_error(session) : NULL;
}

int main(int argc, char **argv)
{
    struct fletch_engine *engine = NULL;
    struct fletch_model *model = NULL;
    struct fletch_session *session = NULL;
    const char *wrong = NULL;
    if (argc != 3)
        wrong = "usage: story MODEL TEXT";
    else if (fletch_engine_open(&engine, NULL))
        wrong = engine ? fletch_engine_error(engine) : "out of memory";
    else if (fletch_model_open(&model, engine, argv[1], NULL))
        wrong = fletch_engine_error(engine);
    else if (fletch_session_open(&session, model))
        wrong = fletch_model_error(model);
    else
        wrong = tell(model, session, argv[2]);
    if (wrong) fprintf(stderr, "story: %s\n", wrong);
    fletch_session_close(session);
    fletch_model_close(model);
    fletch_engine_close(engine);
    return wrong != NULL;
}
