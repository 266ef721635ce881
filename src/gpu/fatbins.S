/* The CUDA kernels inside the library: gpu_fatbins is an array of pointers to fatbins that ends
 * with NULL. -DFATBINS names them, BLOB("file") each; a build without nvcc has none. */
#ifdef __APPLE__
#define NAME(x) _##x
    .const_data
#else
#define NAME(x) x
    .section .data.rel.ro, "aw"
    .hidden gpu_fatbins
#endif
#define BLOB(file) .pushsection .rodata; .balign 16; 1: .incbin file; .popsection; .quad 1b;
    .globl NAME(gpu_fatbins)
    .balign 8
NAME(gpu_fatbins):
#ifdef FATBINS
    FATBINS
#endif
    .quad 0
#ifdef __linux__
    .section .note.GNU-stack, "", %progbits
#endif
