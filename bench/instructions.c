/* SPDX-License-Identifier: MIT
 *
 * instructions: the loads of pair, each played warm and then once more inside one function, for a tool that counts what
 * runs inside that function: valgrind --tool=callgrind --toggle-collect=instructions_measured. A line for each load
 * tells what was played, in the order in which it was. scripts/instructions.sh runs it and makes the table.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "cell_sizes.h"
#include "churn.h"
#include "options.h"
#include "own_figures.h"

#define MEASURED __attribute__((noinline))

enum { LEAST_PAIRS = 2000, WARM_PASSES = 2, MOST_LIVE = 1000000, MOST_COUNTS = 8 };

/* The tool knows it by its name. */
void instructions_measured(const struct churn_plan *plan, struct churn_side *side);

MEASURED void instructions_measured(const struct churn_plan *plan, struct churn_side *side) {
    churn_run(plan, 0, plan->pair_count, side);
}

static bool play(const struct cell_sizes *sizes, enum churn_order order, size_t live, struct churn_side *side) {
    struct churn_plan plan;
    struct own_figures before = {0}, after = {0};
    side->failures = 0;
    side->blocks = calloc(live, sizeof *side->blocks);
    bool ready = side->blocks != NULL && churn_plan_make(&plan, order, live, LEAST_PAIRS, sizes->values, sizes->count);
    if (ready) {
        churn_fill(&plan, side);
        for (int i = 0; i < WARM_PASSES; i++) churn_run(&plan, 0, plan.pair_count, side);
        own_figures_read(&before);
        instructions_measured(&plan, side);
        own_figures_read(&after);
        churn_empty(&plan, side);
        printf("%s\t%s\t%zu\t%zu\t%llu\t%llu\n", churn_calls_names[side->calls], churn_order_names[order], live,
               plan.pair_count, (unsigned long long)(after.misses - before.misses),
               (unsigned long long)(after.fences - before.fences));
        churn_plan_free(&plan);
    } else {
        fputs("instructions: out of memory\n", stderr);
    }
    free(side->blocks);
    if (side->failures > 0)
        fprintf(stderr, "instructions: %zu allocations failed with %zu blocks live\n", side->failures, live);
    return ready && side->failures == 0;
}

static void usage(FILE *out) {
    fputs(
        "Usage: instructions [OPTION…] TRACE…\n"
        "\n"
        "Plays each load warm, and once more in the function instructions_measured, whose instructions a tool counts\n"
        "(see scripts/instructions.sh). The sizes are drawn from the traces. For each load, in the order in which\n"
        "they are played, a line: calls, order, live blocks, pairs measured, misses and fences among them.\n"
        "\n"
        "  -c, --calls CALLS   plain (cudaMalloc and cudaFree, the default), async (cudaMallocAsync and cudaFreeAsync\n"
        "                      on one stream), or malloc (malloc and free of glibc); may be given more than once\n"
        "  -l, --live N[,N…]   blocks that are live: multiples of 10 (default 100,1000)\n"
        "  -h, --help          this text\n"
        "\n"
        "Exit status: 0; 1 something failed; 2 wrong usage.\n",
        out);
}

static bool make_stream(cudaStream_t *stream) {
    cudaError_t result = cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
    if (result != cudaSuccess) fprintf(stderr, "instructions: no CUDA device: %s\n", cudaGetErrorString(result));
    return result == cudaSuccess;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"calls", required_argument, NULL, 'c'},
        {"live", required_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct cell_sizes sizes;
    enum churn_calls ways[CHURN_CALLS] = {CHURN_PLAIN};
    size_t counts[MOST_COUNTS] = {100, 1000}, count = 2, way_count = 0;
    cudaStream_t stream = NULL;
    int option;

    while ((option = getopt_long(argc, argv, "c:l:h", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            if (way_count == CHURN_CALLS) {
                fprintf(stderr, "instructions: --calls is given more than %d times\n", CHURN_CALLS);
                return 2;
            }
            ways[way_count++] = (enum churn_calls)options_name("--calls", optarg, churn_calls_names, CHURN_CALLS);
            break;
        case 'l':
            count = options_numbers("--live", optarg, CHURN_PARTS, MOST_LIVE, counts, MOST_COUNTS);
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    if (optind == argc) {
        usage(stderr);
        return 2;
    }
    if (way_count == 0) way_count = 1;
    bool played =
        cell_sizes_read(&sizes, argv + optind, (size_t)(argc - optind), "instructions") && make_stream(&stream);
    for (size_t i = 0; played && i < way_count * count * CHURN_ORDERS; i++) {
        struct churn_side side = {.calls = ways[i / CHURN_ORDERS / count], .stream = stream};
        played = play(&sizes, i % CHURN_ORDERS, counts[i / CHURN_ORDERS % count], &side);
    }
    if (stream != NULL) cudaStreamDestroy(stream);
    free(sizes.values);
    return played ? 0 : 1;
}
