/* The built-in model, a GGUF file named by -DBUILTIN_MODEL. It is mapped with the program: pages
 * that are not used cost nothing. */
#ifdef __APPLE__
#define NAME(x) _##x
    .const_data
#else
#define NAME(x) x
    .section .rodata
#endif
    .globl NAME(builtin_model_begin)
    .globl NAME(builtin_model_end)
    .balign 64
NAME(builtin_model_begin):
    .incbin BUILTIN_MODEL
NAME(builtin_model_end):
    .byte 0
#ifdef __linux__
    .section .note.GNU-stack, "", %progbits
#endif
