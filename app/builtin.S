/* The built-in model, a GGUF file named by -DBUILTIN_MODEL. It is mapped with the program: pages
 * that are not used cost nothing. */
#ifdef __APPLE__
#define NAME(x) _##x
    .const_data
#else
#define NAME(x) x
    .section .rodata
#endif
    .globl NAME(builtin_model)
    .globl NAME(builtin_model_size)
    .balign 64
NAME(builtin_model):
    .incbin BUILTIN_MODEL
end:
    .balign 8
NAME(builtin_model_size):
    .quad end - NAME(builtin_model)
#ifdef __linux__
    .section .note.GNU-stack, "", %progbits
#endif
