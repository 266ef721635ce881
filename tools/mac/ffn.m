/* A feed-forward block, down(silu(gate·x) · (up·x)), in halves by Apple's MPSGraph: the yardstick
 * for our own kernels of prompts, never part of fletch. tools/mac/compare builds it and times both.
 *   ffn WIDTH INNER ROWS…   prints microseconds and TFLOP/s of a run and its wait, median of RUNS
 */
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM = 3, RUNS = 15 };

static double now(void)
{
    return [[NSProcessInfo processInfo] systemUptime];
}

/* rows × cols halves between -1/16 and 1/16. */
static MPSGraphTensorData *halves(id<MTLDevice> device, unsigned long rows, unsigned long cols)
{
    id<MTLBuffer> b = [device newBufferWithLength:rows * cols * sizeof(__fp16)
                                          options:MTLResourceStorageModeShared];
    __fp16 *p = [b contents];
    unsigned x = 1;
    for (unsigned long i = 0; i < rows * cols; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (__fp16)((float)(int)x * 0x1p-35f);
    }
    return [[MPSGraphTensorData alloc] initWithMTLBuffer:b
                                                   shape:@[ @(rows), @(cols) ]
                                                dataType:MPSDataTypeFloat16];
}

static MPSGraphTensor *input(MPSGraph *g, unsigned long rows, unsigned long cols)
{
    return [g placeholderWithShape:@[ @(rows), @(cols) ] dataType:MPSDataTypeFloat16 name:nil];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(id<MTLDevice> device, unsigned long width, unsigned long inner,
                    unsigned long rows)
{
    id<MTLCommandQueue> queue = [device newCommandQueue];
    MPSGraph *g = [[MPSGraph alloc] init];
    MPSGraphTensor *x = input(g, rows, width), *gate = input(g, width, inner);
    MPSGraphTensor *up = input(g, width, inner), *down = input(g, inner, width);
    MPSGraphTensor *a = [g matrixMultiplicationWithPrimaryTensor:x secondaryTensor:gate name:nil];
    MPSGraphTensor *b = [g matrixMultiplicationWithPrimaryTensor:x secondaryTensor:up name:nil];
    MPSGraphTensor *s = [g sigmoidWithTensor:a name:nil];
    MPSGraphTensor *silu = [g multiplicationWithPrimaryTensor:a secondaryTensor:s name:nil];
    MPSGraphTensor *glu = [g multiplicationWithPrimaryTensor:silu secondaryTensor:b name:nil];
    MPSGraphTensor *y = [g matrixMultiplicationWithPrimaryTensor:glu secondaryTensor:down name:nil];
    NSDictionary *feeds = @{
        x : halves(device, rows, width),
        gate : halves(device, width, inner),
        up : halves(device, width, inner),
        down : halves(device, inner, width)
    };
    double took[RUNS];
    for (int i = -WARM; i < RUNS; i++) {
        @autoreleasepool {
            double begin = now();
            [g runWithMTLCommandQueue:queue feeds:feeds targetTensors:@[ y ] targetOperations:nil];
            if (i >= 0) took[i] = now() - begin;
        }
    }
    qsort(took, RUNS, sizeof *took, by_value);
    double seconds = took[RUNS / 2], work = 6.0 * (double)width * (double)inner * (double)rows;
    printf("MPSGraph ffn %lu x %lu, %lu rows: %.1f us, %.2f TFLOP/s\n", width, inner, rows,
           seconds * 1e6, work / seconds / 1e12);
}

int main(int argc, char **argv)
{
    @autoreleasepool {
        id<MTLDevice> device = MTLCreateSystemDefaultDevice();
        if (!device || argc < 4) {
            fprintf(stderr, "%s\n",
                    device ? "ffn WIDTH INNER ROWS..." : "there is no Metal device");
            return 1;
        }
        for (int i = 3; i < argc; i++)
            measure(device, strtoul(argv[1], NULL, 10), strtoul(argv[2], NULL, 10),
                    strtoul(argv[i], NULL, 10));
    }
    return 0;
}
