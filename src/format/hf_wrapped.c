/* The tensors of a directory by name. Models that also see or hear wrap a text model: its
 * configuration is one of several in config.json, its tensors have a prefix, and the rest belongs
 * to towers that make embeddings of pictures and sounds. The text model is read as if it stood
 * alone. */
#include <stdio.h>
#include <string.h>

#include "format/hf_model.h"

const struct st_tensor *hf_find(const struct hf *h, const char *name)
{
    u32 i;
    return strmap_get(&h->index, str_of(name), &i) ? h->tensors[i] : NULL;
}

bool hf_is_wrapped(const json_t *config)
{
    return json_is_object(json_object_get(config, "text_config")) ||
           json_is_object(json_object_get(config, "vision_config"));
}

/* Parts of such models besides the text model, alone or after "model.". */
static const char *const towers[] = {
    "visual.",
    "vision_tower.",
    "vision_model.",
    "vision_encoder.",
    "multi_modal_projector.",
    "mm_projector.",
    "audio_tower.",
    "connector.",
    "aligner.",
    "embed_vision.",
    "embed_audio.",
    "mlp1.",
    "image_newline",
    "vision_adapter.",
    "vision_projection.",
    "perception_emb_norm.",
    "vit_large_projector.",
};

static bool is_tower(struct str name)
{
    if (str_starts(name, "model.")) name = (struct str){name.p + 6, name.n - 6};
    for (size_t i = 0; i < ARRAY_LEN(towers); i++)
        if (str_starts(name, towers[i])) return true;
    return false;
}

/* Embedders are published without the class around the model: its tensors lack "model.". */
static bool is_bare(const struct hf *h)
{
    for (u32 i = 0; i < h->n_files; i++)
        for (u32 k = 0; k < h->files[i].n_tensors; k++)
            if (str_is(h->files[i].tensors[k].name, "embed_tokens.weight")) return true;
    return false;
}

static struct str with_prefix(struct source *s, const char *prefix, struct str rest)
{
    char *name = arena_printf(&s->arena, "%s%.*s", prefix, (int)rest.n, rest.p);
    return name ? str_of(name) : (struct str){0};
}

/* Where the text model's tensors lie, by the age of the class that wrote them. */
static struct str text_name(struct source *s, struct str name)
{
    static const char *const moved[][2] = {{"model.language_model.", "model."},
                                           {"model.text_model.", "model."},
                                           {"language_model.", ""}};
    for (size_t i = 0; i < ARRAY_LEN(moved); i++) {
        size_t n = strlen(moved[i][0]);
        if (!str_starts(name, moved[i][0])) continue;
        return with_prefix(s, moved[i][1], (struct str){name.p + n, name.n - n});
    }
    return name;
}

int hf_pair_scales(struct hf *h, struct err *err)
{
    u32 n = 0;
    for (u32 i = 0; i < h->n_files; i++)
        for (u32 k = 0; k < h->files[i].n_tensors; k++, n++) {
            struct st_tensor *t = &h->files[i].tensors[k];
            char name[320];
            u32 at, last = t->n_dims - 1;
            if (!t->fp8 || h->used[n]) continue;
            snprintf(name, sizeof name, "%.*s_scale_inv", (int)h->names[n].n, h->names[n].p);
            bool found = strmap_get(&h->index, str_of(name), &at);
            const struct st_tensor *s = found ? h->tensors[at] : NULL;
            bool fits = s && t->n_dims >= 2 && s->n_dims == t->n_dims && s->type == QT_F32 &&
                        !s->bytes && !s->fp8;
            for (u32 d = 0; fits && d < t->n_dims; d++) {
                u64 block = d == last ? h->fp8_block[1] : d + 1 == last ? h->fp8_block[0] : 1;
                fits = s->shape[d] == (t->shape[d] + block - 1) / block;
            }
            if (!fits)
                return err_set(err, FLETCH_E_FORMAT,
                               "tensor %s: there is no tensor of that name and _scale_inv with a "
                               "number in F32 for each block",
                               QUOTE(t->name));
            h->used[at] = true;
            t->scales = s;
            memcpy(t->block, h->fp8_block, sizeof t->block);
        }
    return 0;
}

int hf_index_tensors(struct source *s, struct hf *h, struct err *err)
{
    size_t n = 0, n_left = 0;
    const bool bare = !h->wrapped && is_bare(h);
    for (u32 i = 0; i < h->n_files; i++) n += h->files[i].n_tensors;
    h->tensors = arena_alloc(&s->arena, n, sizeof *h->tensors);
    h->names = arena_alloc(&s->arena, n, sizeof *h->names);
    h->used = arena_alloc(&s->arena, n, sizeof *h->used);
    if (!h->tensors || !h->names || !h->used) return err_nomem(err, "the list of tensors");
    for (u32 i = 0; i < h->n_files; i++)
        for (u32 k = 0; k < h->files[i].n_tensors; k++) {
            const struct st_tensor *t = &h->files[i].tensors[k];
            bool tower = h->wrapped && is_tower(t->name);
            struct str name = h->wrapped && !tower ? text_name(s, t->name) : t->name;
            if (bare && !str_is(name, "lm_head.weight") && !str_is(name, "score.weight"))
                name = with_prefix(s, "model.", name);
            if (str_starts(name, "backbone.")) /* Nemotron */
                name = with_prefix(s, "model.", (struct str){name.p + 9, name.n - 9});
            if (!name.p) return err_nomem(err, "the list of tensors");
            if (!strmap_add(&h->index, name, h->n_tensors) && strmap_ok(&h->index))
                return err_set(err, FLETCH_E_FORMAT, "tensor %s appears in two files",
                               QUOTE(t->name));
            h->used[h->n_tensors] = tower;
            h->names[h->n_tensors] = name;
            h->tensors[h->n_tensors++] = t;
            n_left += tower;
        }
    if (!strmap_ok(&h->index)) return err_nomem(err, "the list of tensors");
    if (!n_left) return 0;
    s->left_out = arena_printf(
        &s->arena,
        "this model also accepts images or audio: fletch runs its text model and skips %zu tensors",
        n_left);
    return s->left_out ? 0 : err_nomem(err, "the list of tensors");
}
