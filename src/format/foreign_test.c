/* Files that are no models are told by what they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "format/foreign.h"

static void every_kind_is_named(void **state)
{
    (void)state;
    static const u8 llama2c[28] = {32, 1, 0, 0, 0, 3, 0, 0,   6, 0, 0, 0, 6, 0,
                                   0,  0, 6, 0, 0, 0, 0, 125, 0, 0, 0, 1, 0, 0};
    const struct {
        const char *path;
        struct str bytes;
        const char *part;
    } cases[] = {
        {"consolidated.00.pth", STR("PK\x03\x04\0\0"), "PyTorch checkpoint"},
        {"pytorch_model.bin", STR("PK\x03\x04\0\0"), "PyTorch checkpoint"},
        {"old.pt", STR("\x80\x02\x8a\x0a"), "pickle"},
        {"a.zip", STR("PK\x03\x04\0\0"), "zip archive"},
        {"a.npz", STR("PK\x03\x04\0\0"), "NumPy arrays"},
        {"a.npy", STR("\x93NUMPY\x01\0"), "NumPy array"},
        {"stories15M.bin", {(const char *)llama2c, sizeof llama2c}, "llama2.c"},
        {"v1.bin", STR("24ka\x01\0\0\0"), "llama2.c"},
        {"model.safetensors", STR("\x02\0\0\0\0\0\0\0{}"), "safetensors"},
        {"x/blobs/sha256-0123", STR("{\"stop\": []}"), "ollama"},
        {"sha256:0123", STR("{{ .Prompt }}"), "ollama"},
        {"model.onnx", STR("\x08\x07\x12\x07pytorch"), "ONNX"},
        {"model", STR("\x08\x07\x12\x07pytorch"), "ONNX"},
        {"a.mlmodel", STR("\x08\x07\x12\x07"), "Core ML"},
        {"a.bin", STR("lmgg\0\0\0\0"), "GGML"},
        {"a.bin", STR("fmgg\x01\0\0\0"), "GGMF"},
        {"a.bin", STR("tjgg\x03\0\0\0"), "GGJT"},
        {"a.bin", STR("algg\x01\0\0\0"), "LoRA"},
        {"a.gguf", STR("version https://git-lfs.github.com/spec/v1\n"), "Git LFS"},
        {"a.gguf", STR("\n <!DOCTYPE html><html>"), "web page"},
        {"a.gguf", STR("<HTML>"), "web page"},
        {"a.gguf", STR("{\"error\": \"gated\"}"), "JSON"},
        {"a.tflite", STR("\x1c\0\0\0TFL3"), "TensorFlow Lite"},
        {"a.h5", STR("\x89HDF\r\n\x1a\n"), "HDF5"},
        {"a.gguf.gz", STR("\x1f\x8b\x08"), "gzip"},
        {"a.gguf.xz",
         STR("\xfd"
             "7zXZ\0"),
         "xz"},
        {"a.gguf.zst", STR("\x28\xb5\x2f\xfd"), "zstd"},
        {"a.gguf", {"", 0}, "empty"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct str b = cases[i].bytes;
        const char *what = foreign_describe(cases[i].path, (const u8 *)b.p, b.n);
        if (!what || !strstr(what, cases[i].part))
            fail_msg("%s: %s, not %s", cases[i].path, what ? what : "nothing", cases[i].part);
        for (size_t n = 0; n < b.n; n++) { /* and nothing is read beyond what there is */
            char copy[64];
            memcpy(copy, b.p, n);
            foreign_describe("a", (const u8 *)copy, n);
        }
    }
    char tar[300] = {0};
    memcpy(tar + 257, "ustar", 5);
    assert_non_null(strstr(foreign_describe("a.tar", (const u8 *)tar, sizeof tar), "tar"));
}

static void others_are_left_alone(void **state)
{
    (void)state;
    const struct str others[] = {STR("just some text"), STR("GGUF"), STR("\0\0\0\0\0\0\0\0\0\0"),
                                 STR("\xff\xff\xff\xff\xff\xff\xff\xff{"), STR("GG")};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_null(foreign_describe("a.gguf", (const u8 *)others[i].p, others[i].n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_named),
        cmocka_unit_test(others_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
