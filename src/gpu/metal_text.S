/* The kernels as Metal compiles them (tools/gpu-text), inside the library, ended by a NUL. */
#ifdef __APPLE__
#define NAME(x) _##x
    .const
    .private_extern NAME(gpu_metal_text)
#else
#define NAME(x) x
    .section .rodata
    .hidden NAME(gpu_metal_text)
#endif
    .globl NAME(gpu_metal_text)
NAME(gpu_metal_text):
    .incbin METAL_TEXT
    .byte 0
#ifdef __linux__
    .section .note.GNU-stack, "", %progbits
#endif
