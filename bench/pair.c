/* SPDX-License-Identifier: MIT
 *
 * pair: what an allocation and its free cost on a hit, next to malloc/free of glibc under the same load in the same
 * process. One load each time, so that none finds what another left behind, in the pool or in glibc's heap. Meant for
 * the simulated CUDA without latencies, where all that is left of a hit is the pool's own work and what it asks of the
 * driver, which is measured beside it. scripts/bench.sh plays all loads and judges.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>
#include <jansson.h>

#include "cells.h"
#include "measure.h"
#include "options.h"

enum { MOST_SLICES = 100000, MOST_STREAMS = 1000, MOST_LIVE = 1000000 };

static void usage(FILE *out) {
    fputs(
        "Usage: pair [OPTION…] TRACE…\n"
        "\n"
        "Measures allocation and free against malloc/free of glibc under one load, and prints a JSON document. So "
        "many\n"
        "blocks stay live while a tenth of them at a time is freed and allocated anew. The sizes are drawn from the\n"
        "traces; those of glibc are divided by 1,024, and 16 to 1,024 bytes.\n"
        "\n"
        "  -w, --way WAY       sync (cudaMalloc and cudaFree, which waits; the default), async (cudaMallocAsync and\n"
        "                      cudaFreeAsync on one stream), or event (as sync, and the process has POOL_FREE=event)\n"
        "  -o, --order ORDER   in which blocks are freed: LIFO (the default), FIFO, random\n"
        "  -l, --live N        blocks that are live: a multiple of 10 (default 100)\n"
        "  -s, --streams N     streams that exist (default 1); with event each has work between what is measured\n"
        "  -n, --slices N      what is measured: N times 2,000 pairs, or a tenth of the live blocks (default 100)\n"
        "  -h, --help          this text\n"
        "\n"
        "Exit status: 0 measured; 1 something failed; 2 wrong usage.\n",
        out);
}

static struct cell_options parse_options(int argc, char **argv) {
    static const struct option long_options[] = {
        {"way", required_argument, NULL, 'w'},
        {"order", required_argument, NULL, 'o'},
        {"live", required_argument, NULL, 'l'},
        {"streams", required_argument, NULL, 's'},
        {"slices", required_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct cell_options options = {.live = 100, .streams = 1, .slices = 100};
    int option;
    while ((option = getopt_long(argc, argv, "w:o:l:s:n:h", long_options, NULL)) != -1) {
        switch (option) {
        case 'w':
            options.way = (enum cell_way)options_name("--way", optarg, cell_way_names, CELL_WAYS);
            break;
        case 'o':
            options.order = (enum churn_order)options_name("--order", optarg, churn_order_names, CHURN_ORDERS);
            break;
        case 'l':
            options.live = options_number("--live", optarg, CHURN_PARTS, MOST_LIVE);
            break;
        case 's':
            options.streams = (unsigned)options_number("--streams", optarg, 1, MOST_STREAMS);
            break;
        case 'n':
            options.slices = options_number("--slices", optarg, 1, MOST_SLICES);
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }
    }
    if (optind == argc) {
        usage(stderr);
        exit(2);
    }
    return options;
}

static bool device_is_there(void) {
    if (cudaFree(NULL) == cudaSuccess) return true;
    fprintf(stderr, "pair: no CUDA device: %s\n", cudaGetErrorString(cudaGetLastError()));
    return false;
}

static bool print_cell(const struct cell_options *options, const struct cell *cell) {
    char machine[512];
    measure_machine(machine, sizeof machine);
    json_t *document = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:b, s:I, s:f, s:f, s:f, s:f, s:o, s:o}", "machine", machine, "way",
        cell_way_names[options->way], "order", churn_order_names[options->order], "live", (json_int_t)options->live,
        "streams", (json_int_t)options->streams, "pooled", (int)cell->pooled, "pairs", (json_int_t)cell->pairs, "ns",
        cell->ns, "malloc_ns", cell->host_ns, "mean_ns", cell->mean_ns, "malloc_mean_ns", cell->host_mean_ns,
        "synchronise_ns", options->way == CELL_SYNC ? json_real(cell->synchronise_ns) : json_null(),
        "current_context_ns", options->way != CELL_ASYNC ? json_real(cell->current_ns) : json_null());
#define SET(name) \
    json_object_set_new(document, #name, cell->pooled ? json_integer((json_int_t)cell->name) : json_null());
    SET(allocs)
    SET(misses)
    SET(fences)
    SET(miss_fences)
    SET(stream_marks)
    SET(waits)
    SET(peak_live_bytes)
    SET(peak_reserved_bytes)
#undef SET
    bool printed = document != NULL && json_dumpf(document, stdout, JSON_INDENT(2)) == 0;
    if (printed) putchar('\n');
    json_decref(document);
    return printed;
}

int main(int argc, char **argv) {
    const struct cell_options options = parse_options(argc, argv);
    struct cell_sizes sizes = {0};
    struct cell cell = {0};
    bool measured = cell_sizes_read(&sizes, argv + optind, (size_t)(argc - optind), "pair") && device_is_there() &&
                    cell_measure(&options, &sizes, &cell) && print_cell(&options, &cell);
    free(sizes.values);
    return measured ? 0 : 1;
}
