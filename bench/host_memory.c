/* SPDX-License-Identifier: MIT
 *
 * How much host memory the process costs; see host_memory.h.
 */
#include "host_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "own_copy.h"
#include "own_figures.h"

enum { BLOCK_BYTES = 512 };

bool host_memory_now(uint64_t *bytes) {
    char line[256];
    uint64_t kib;
    bool found = false;
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    if (file == NULL) return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = sscanf(line, "Anonymous: %" SCNu64 " kB", &kib) == 1;
    fclose(file);
    if (found) *bytes = kib * 1024;
    return found;
}

bool host_memory_per_block(size_t count, double *bytes_per_block) {
    uint64_t before, after;
    void *warm;
    size_t taken = 0;
    void **blocks = malloc(count * sizeof *blocks);
    if (blocks == NULL) return false;
    memset(blocks, 0xFF, count * sizeof *blocks); /* its pages are there before the first measurement */

    bool measured = cudaMalloc(&warm, BLOCK_BYTES) == cudaSuccess && host_memory_now(&before);
    while (measured && taken < count && cudaMalloc(&blocks[taken], BLOCK_BYTES) == cudaSuccess) taken++;
    measured = measured && taken == count && host_memory_now(&after);
    for (size_t i = 0; i < taken; i++) cudaFree(blocks[i]);
    if (measured) {
        cudaFree(warm);
        *bytes_per_block = (double)(int64_t)(after - before) / (double)count;
    }
    free(blocks);
    return measured;
}

int host_memory_report(void) {
    void *block;
    uint64_t bytes;
    struct own_figures figures = {0};
    if (cudaMalloc(&block, BLOCK_BYTES) != cudaSuccess || !host_memory_now(&bytes)) return 1;
    own_figures_read(&figures);
    printf("%" PRIu64 "\n", bytes + figures.segment_bytes);
    return 0;
}

static bool run_copy(const char *argument, bool preload, int64_t *bytes) {
    char text[64];
    char *arguments[] = {program_invocation_name, (char *)(uintptr_t)argument, NULL};
    size_t length = own_copy_run(&(struct own_copy){.arguments = arguments, .preload = preload}, text, sizeof text - 1);
    text[length] = '\0';
    return sscanf(text, "%" SCNd64, bytes) == 1;
}

bool host_memory_fixed(const char *argument, int64_t *bytes) {
    int64_t with, without;
    if (!run_copy(argument, true, &with) || !run_copy(argument, false, &without)) return false;
    *bytes = with - without;
    return true;
}
