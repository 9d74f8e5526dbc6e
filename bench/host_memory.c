/* SPDX-License-Identifier: MIT
 *
 * host_memory: how much host memory the process costs for each live block, and in all with one. What of that is the
 * pool's, a run without the pool tells.
 *
 * Counted is what is the process's own: anonymous pages (heap, mappings, changed pages of libraries) as the kernel
 * counts them in smaps_rollup, to the page; and the figures' segment. Not the code of libraries, which processes share,
 * nor device memory, which the simulated CUDA keeps in a shared mapping.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "cell_sizes.h"
#include "churn.h"
#include "options.h"
#include "own_figures.h"

enum { BLOCK_BYTES = 512, MOST_LIVE = 1000000, PASSES = 2 };

static bool own_bytes(uint64_t *bytes) {
    char line[256];
    uint64_t kib;
    bool found = false;
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = sscanf(line, "Anonymous: %" SCNu64 " kB", &kib) == 1;
    if (file != NULL) fclose(file);
    if (found)
        *bytes = kib * 1024;
    else
        fputs("host_memory: the kernel does not tell (/proc/self/smaps_rollup)\n", stderr);
    return found;
}

struct measured {
    uint64_t with_one; /* block live */
    double bytes_per_block;
};

/* Blocks of one size, taken once. */
static bool hold(size_t live, struct measured *measured) {
    uint64_t after;
    size_t taken = 0;
    void **blocks = malloc(live * sizeof *blocks);
    if (blocks == NULL) return false;
    memset(blocks, 0xFF, live * sizeof *blocks); /* its pages are there before the first measurement */
    bool worked = own_bytes(&measured->with_one);
    while (worked && taken < live && cudaMalloc(&blocks[taken], BLOCK_BYTES) == cudaSuccess) taken++;
    worked = worked && taken == live && own_bytes(&after);
    for (size_t i = 0; i < taken; i++) cudaFree(blocks[i]);
    if (worked) measured->bytes_per_block = (double)(int64_t)(after - measured->with_one) / (double)live;
    free(blocks);
    return worked;
}

/* Blocks of the traces' sizes, all of them freed and taken anew some times on one stream. */
static bool churn(size_t live, const struct cell_sizes *sizes, struct measured *measured) {
    uint64_t after = 0;
    struct churn_plan plan;
    struct churn_side side = {.calls = CHURN_ASYNC, .blocks = malloc(live * sizeof(void *))};
    if (side.blocks == NULL || !churn_plan_make(&plan, CHURN_RANDOM, live, live, sizes->values, sizes->count)) {
        free(side.blocks);
        return false;
    }
    memset(side.blocks, 0xFF, live * sizeof(void *));
    bool worked =
        cudaStreamCreateWithFlags(&side.stream, cudaStreamNonBlocking) == cudaSuccess && own_bytes(&measured->with_one);
    if (worked) {
        churn_fill(&plan, &side);
        for (int i = 0; side.failures == 0 && i < PASSES; i++) churn_run(&plan, 0, plan.pair_count, &side);
        worked = side.failures == 0 && own_bytes(&after);
        churn_empty(&plan, &side);
        cudaStreamDestroy(side.stream);
        measured->bytes_per_block = (double)(int64_t)(after - measured->with_one) / (double)live;
    }
    churn_plan_free(&plan);
    free(side.blocks);
    return worked;
}

static void usage(FILE *out) {
    fputs("Usage: host_memory [OPTION…] [TRACE…]\n"
          "\n"
          "Measures the host memory that device memory costs, and prints a JSON document: bytes for each of so many "
          "live\n"
          "blocks of 512 bytes from cudaMalloc, or, with traces, of sizes drawn from them, from cudaMallocAsync and "
          "taken\n"
          "anew in random order; and the process's own bytes with one block, figures included.\n"
          "\n"
          "  -l, --live N   blocks: a multiple of 10 (default 100000)\n"
          "  -h, --help     this text\n"
          "\n"
          "Exit status: 0 measured; 1 something failed; 2 wrong usage.\n",
          out);
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"live", required_argument, NULL, 'l'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    size_t live = 100000;
    int option;
    while ((option = getopt_long(argc, argv, "l:h", options, NULL)) != -1) {
        switch (option) {
        case 'l':
            live = options_number("--live", optarg, CHURN_PARTS, MOST_LIVE);
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    struct cell_sizes sizes = {0};
    struct measured measured = {0};
    struct own_figures figures = {0};
    void *first = NULL;
    const size_t traces = (size_t)(argc - optind);
    if (traces > 0 && !cell_sizes_read(&sizes, argv + optind, traces, "host_memory")) return 1;
    bool worked = cudaMalloc(&first, BLOCK_BYTES) == cudaSuccess &&
                  (traces > 0 ? churn(live, &sizes, &measured) : hold(live, &measured));
    const bool pooled = own_figures_read(&figures);
    if (!worked) fputs("host_memory: an allocation failed, or nothing could be measured\n", stderr);
    cudaFree(first);
    free(sizes.values);
    if (!worked) return 1;
    printf("{\"live\": %zu, \"pooled\": %s, \"bytes_per_block\": %.2f, \"bytes_with_one\": %ju}\n", live,
           pooled ? "true" : "false", measured.bytes_per_block, (uintmax_t)(measured.with_one + figures.segment_bytes));
    return 0;
}
