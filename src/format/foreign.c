#include "format/foreign.h"

#include <string.h>
#include <strings.h>

static const struct {
    u32 at;
    struct str magic;
    const char *what;
} known[] = {
    {0, STR("version https://git-lfs.github.com/"),
     "this is a Git LFS pointer, not the file itself; run git lfs pull in its repository, or fetch "
     "the model with fletch pull"},
    {0, STR("\x93NUMPY"),
     "this is a NumPy array, not a model; fletch reads GGUF files and Hugging "
     "Face directories"},
    {0, STR("\x89HDF\r\n"),
     "this is an HDF5 (Keras) file; save the model as a Hugging Face "
     "directory with safetensors"},
    {0, STR("lmgg"), "this is a GGML file, an obsolete predecessor of GGUF; get the model as GGUF"},
    {0, STR("fmgg"), "this is a GGMF file, an obsolete predecessor of GGUF; get the model as GGUF"},
    {0, STR("tjgg"), "this is a GGJT file, an obsolete predecessor of GGUF; get the model as GGUF"},
    {0, STR("algg"),
     "this is a LoRA adapter in a format older than GGUF; merge it into its base model, then "
     "convert the merged model"},
    {0, STR("24ka"),
     "this is a checkpoint of llama2.c; export the model as a Hugging Face "
     "directory, then fletch convert it"},
    {4, STR("TFL3"), "this is a TensorFlow Lite model; get the model as GGUF or safetensors"},
    {0, STR("\x1f\x8b"), "this is a gzip archive; unpack it first"},
    {0,
     STR("\xfd"
         "7zXZ"),
     "this is an xz archive; unpack it first"},
    {0, STR("\x28\xb5\x2f\xfd"), "this is a zstd archive; unpack it first"},
    {257, STR("ustar"), "this is a tar archive; unpack it first"},
};

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n >= k && strcasecmp(path + n - k, end) == 0;
}

static u64 get_le(const u8 *p, u32 n)
{
    u64 v = 0;
    while (n--) v = v << 8 | p[n];
    return v;
}

static const char *describe_zip(const char *path)
{
    if (ends_with(path, ".npz"))
        return "this is an archive of NumPy arrays, not a model; fletch reads GGUF files and "
               "Hugging Face directories";
    if (ends_with(path, ".pth") || ends_with(path, ".pt") || ends_with(path, ".bin") ||
        ends_with(path, ".ckpt"))
        return "this is a PyTorch checkpoint, which can run code when it is loaded; save the model "
               "as safetensors (save_pretrained) and give its directory";
    return "this is a zip archive (the format of PyTorch checkpoints); unpack it, or save the "
           "model as safetensors and give its directory";
}

/* A page or a message that was saved instead of the file. */
static const char *describe_text(const u8 *p, u64 n)
{
    u64 at = 0;
    if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) at = 3;
    while (at < n && (p[at] == ' ' || (p[at] >= '\t' && p[at] <= '\r'))) at++;
    const char *text = (const char *)p + at;
    u64 left = n - at;
    if ((left >= 9 && strncasecmp(text, "<!doctype", 9) == 0) ||
        (left >= 5 && strncasecmp(text, "<html", 5) == 0) ||
        (left >= 5 && strncasecmp(text, "<?xml", 5) == 0))
        return "this is a web page, probably an error or login page that was saved under the "
               "model's name; download the file again, for example with fletch pull";
    if (left && (text[0] == '{' || text[0] == '['))
        return "this is a JSON file, not a model; for a Hugging Face model, give its directory";
    return NULL;
}

/* Seven numbers of 32 bits: widths, layers, heads, vocabulary (negative: untied), context. */
static bool is_llama2c(const u8 *p, u64 n)
{
    i32 v[7];
    if (n < sizeof v) return false;
    for (u32 i = 0; i < 7; i++) v[i] = (i32)(u32)get_le(p + 4 * i, 4);
    i64 vocab = v[5] < 0 ? -(i64)v[5] : v[5];
    return v[0] >= 8 && v[0] <= 1 << 16 && v[1] >= v[0] && v[1] <= 1 << 20 && v[2] >= 1 &&
           v[2] <= 1024 && v[3] >= 1 && v[3] <= 1024 && v[0] % v[3] == 0 && v[4] >= 1 &&
           v[4] <= v[3] && vocab >= 16 && vocab <= 1 << 24 && v[6] >= 1 && v[6] <= 1 << 24;
}

static const char *describe_binary(const char *path, const u8 *p, u64 n)
{
    if (n > 9 && get_le(p, 8) <= n - 8 && p[8] == '{')
        return "this is a single safetensors file; give the directory that contains it, with "
               "config.json and the tokenizer (fletch pull OWNER/REPO downloads all of them)";
    if (n >= 4 && memcmp(p, "PK\x03\x04", 4) == 0) return describe_zip(path);
    if (n >= 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5)
        return "this is a Python pickle (an old PyTorch checkpoint), which can run code when it is "
               "loaded; save the model as safetensors and give its directory";
    if (ends_with(path, ".mlmodel"))
        return "this is a Core ML model; get the model as GGUF or safetensors";
    if (ends_with(path, ".onnx") ||
        (n >= 4 && p[0] == 8 && p[1] >= 1 && p[1] <= 16 && (p[2] == 0x12 || p[2] == 0x3a)))
        return "this is an ONNX model; get the model as GGUF or safetensors";
    if (is_llama2c(p, n))
        return "this is a checkpoint of llama2.c; export the model as a Hugging Face directory, "
               "then fletch convert it";
    return NULL;
}

const char *foreign_describe(const char *path, const u8 *p, u64 n)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (n == 0) return "the file is empty; its download may have failed";
    if (strncmp(name, "sha256-", 7) == 0 || strncmp(name, "sha256:", 7) == 0)
        return "this ollama blob contains no weights, but a template, parameters or a license; the "
               "weights are in the blob with the type application/vnd.ollama.image.model in the "
               "manifest";
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct str m = known[i].magic;
        if (known[i].what && n >= known[i].at + m.n && memcmp(p + known[i].at, m.p, m.n) == 0)
            return known[i].what;
    }
    const char *what = describe_binary(path, p, n);
    return what ? what : describe_text(p, n);
}
