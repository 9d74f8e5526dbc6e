/* SPDX-License-Identifier: MIT
 *
 * pair: what an allocation and its free cost on a hit, next to malloc/free of glibc under the same load, and what the
 * pool costs in host memory; each with its bound. Three ways: cudaMalloc/cudaFree, cudaMallocAsync/cudaFreeAsync on
 * one stream, and cudaMalloc/cudaFree with POOL_FREE=event, in a copy of the process. Meant for the simulated CUDA
 * without latencies, where all that is left of a hit is the pool's own work and, in the first way, one synchronise in
 * each free; that is measured beside it and subtracted.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>
#include <jansson.h>

#include "cell_sizes.h"
#include "cells.h"
#include "host_memory.h"
#include "measure.h"
#include "own_copy.h"
#include "own_figures.h"

#define BOUND_RATIO 8.0         /* of a pair to glibc's; of the sync and the async ones */
#define BOUND_BLOCK_BYTES 256.0 /* of host memory per live block */
#define BOUND_FIXED_BYTES (4 << 20)
#define REPORT_MEMORY "--report-memory"
#define REPORT_EVENT "--report-event"

enum { MOST_REPETITIONS = 1000 };

static const size_t memory_counts[] = {1000, 10000, 100000};
enum { MEMORY_COUNTS = sizeof memory_counts / sizeof memory_counts[0] };

struct results {
    struct cell cells[CELL_WAYS][CELLS_PER_WAY];
    unsigned ways; /* measured: all, or without the pool all but the last */
    double block_bytes[MEMORY_COUNTS];
    int64_t fixed_bytes;
    bool pooled, memory_known, fixed_known;
    char machine[512];
};

static bool device_is_there(void) {
    if (cudaFree(NULL) == cudaSuccess) return true;
    fprintf(stderr, "pair: no CUDA device: %s\n", cudaGetErrorString(cudaGetLastError()));
    return false;
}

/* In the copy that runs with POOL_FREE=event: its cells, as they are, to stdout. */
static bool report_event(const struct cell_sizes *sizes, size_t repetitions) {
    struct cell cells[CELLS_PER_WAY];
    return device_is_there() && cells_measure(CELL_EVENT, sizes, repetitions, cells) &&
           fwrite(cells, sizeof cells, 1, stdout) == 1;
}

/* In a copy, since a process has one POOL_FREE for all its life. `traces`: as on the command line, up to its NULL. */
static bool measure_event(char *const *traces, long repetitions, struct cell *cells) {
    char count[32];
    size_t traces_count = 0;
    while (traces[traces_count] != NULL) traces_count++;
    snprintf(count, sizeof count, "--repetitions=%ld", repetitions);
    char **arguments = calloc(traces_count + 4, sizeof *arguments);
    if (arguments == NULL) return false;
    arguments[0] = (char[]){"pair"};
    arguments[1] = (char[]){REPORT_EVENT};
    arguments[2] = count;
    memcpy(arguments + 3, traces, traces_count * sizeof *arguments);
    const struct own_copy copy = {.arguments = arguments, .preload = true, .setting = "POOL_FREE=event"};
    const size_t bytes = CELLS_PER_WAY * sizeof *cells;
    bool measured = own_copy_run(&copy, cells, bytes) == bytes;
    free(arguments);
    if (!measured) fputs("pair: the copy that runs with POOL_FREE=event failed\n", stderr);
    return measured;
}

static bool measure_all(struct results *results, const struct cell_sizes *sizes, long repetitions,
                        char *const *traces) {
    struct own_figures figures;
    if (!device_is_there()) return false;
    measure_machine(results->machine, sizeof results->machine);
    /* Memory first: what the loads leave behind would be used again, and not be seen. */
    results->memory_known = true;
    for (size_t i = 0; i < MEMORY_COUNTS; i++) {
        if (!host_memory_per_block(memory_counts[i], &results->block_bytes[i])) results->memory_known = false;
    }
    results->pooled = own_figures_read(&figures);
    results->fixed_known = results->pooled && host_memory_fixed(REPORT_MEMORY, &results->fixed_bytes);
    results->ways = results->pooled ? CELL_WAYS : CELL_EVENT;
    return cells_measure(CELL_SYNC, sizes, (size_t)repetitions, results->cells[CELL_SYNC]) &&
           cells_measure(CELL_ASYNC, sizes, (size_t)repetitions, results->cells[CELL_ASYNC]) &&
           (!results->pooled || measure_event(traces, repetitions, results->cells[CELL_EVENT]));
}

static const struct cell *worst_cell(const struct results *results, enum cell_way way) {
    const struct cell *worst = &results->cells[way][0];
    for (size_t i = 1; i < CELLS_PER_WAY; i++) {
        if (cell_ratio(&results->cells[way][i]) > cell_ratio(worst)) worst = &results->cells[way][i];
    }
    return worst;
}

static bool ratio_holds(const struct results *results, enum cell_way way) {
    return cell_ratio(worst_cell(results, way)) <= BOUND_RATIO;
}

static double worst_block_bytes(const struct results *results) {
    double worst = results->block_bytes[0];
    for (size_t i = 1; i < MEMORY_COUNTS; i++) {
        if (results->block_bytes[i] > worst) worst = results->block_bytes[i];
    }
    return worst;
}

static const char *verdict(bool known, bool holds) {
    return !known ? "unknown" : holds ? "holds" : "MISSED";
}

static double per_thousand(uint64_t count, const struct cell *cell) {
    return 1000.0 * (double)count / (double)cell->pairs;
}

static void print_cell(const struct cell *cell, bool pooled) {
    printf("%-7s %7zu %9.1f ", churn_order_names[cell->order], cell->live, cell->pair_ns);
    if (cell->way == CELL_SYNC)
        printf("%9.1f", cell->sync_ns);
    else
        printf("%9s", "-");
    printf(" %9.1f %9.1f %7.2f ", cell_net_ns(cell), cell->host_ns, cell_ratio(cell));
    if (pooled)
        printf("%8.2f %8.2f %8.2f\n", per_thousand(cell->misses, cell), per_thousand(cell->fences, cell),
               per_thousand(cell->stream_marks, cell));
    else
        printf("%8s %8s %8s\n", "-", "-", "-");
}

static void print_cells(const struct results *results) {
    static const char *const titles[CELL_WAYS] = {
        "sync: cudaMalloc and cudaFree; net: less the driver's synchronise in each cudaFree.",
        "async: cudaMallocAsync and cudaFreeAsync on one stream.",
        "event: cudaMalloc and cudaFree with POOL_FREE=event.",
    };
    puts("\nNanoseconds per pair, medians; misses, fences and marks on streams per 1,000 pairs.");
    for (unsigned way = 0; way < results->ways; way++) {
        printf("\n%s\n%-7s %7s %9s %9s %9s %9s %7s %8s %8s %8s\n", titles[way], "order", "live", "pair", "sync", "net",
               "glibc", "ratio", "misses", "fences", "marks");
        for (size_t i = 0; i < CELLS_PER_WAY; i++) print_cell(&results->cells[way][i], results->pooled);
    }
}

static void print_ratio_bound(const struct results *results, enum cell_way way, const char *what) {
    const struct cell *worst = worst_cell(results, way);
    printf("bound  %s at most %g times glibc's: %s (worst %.2f: %s, %zu live)\n", what, BOUND_RATIO,
           verdict(true, ratio_holds(results, way)), cell_ratio(worst), churn_order_names[worst->order], worst->live);
}

static void print_text(const struct results *results) {
    printf("machine  %s\n", results->machine);
    print_cells(results);
    printf("\nHost memory per live block");
    for (size_t i = 0; results->memory_known && i < MEMORY_COUNTS; i++)
        printf("%s %.1f bytes (%zu live)", i > 0 ? "," : ":", results->block_bytes[i], memory_counts[i]);
    puts(results->memory_known ? "" : ": unknown");
    printf("Host memory, fixed: ");
    if (results->fixed_known)
        printf("%.1f KiB\n", (double)results->fixed_bytes / 1024);
    else
        puts("unknown");
    putchar('\n');
    if (!results->pooled) {
        puts("This process is not on the pool: these are the figures of the runtime below, and no bound applies.");
        return;
    }
    print_ratio_bound(results, CELL_SYNC, "a pair");
    print_ratio_bound(results, CELL_ASYNC, "an async pair");
    printf("bound  at most %g bytes of host memory per live block: %s\n", BOUND_BLOCK_BYTES,
           verdict(results->memory_known, worst_block_bytes(results) <= BOUND_BLOCK_BYTES));
    printf("bound  at most %d MiB of host memory fixed: %s\n", BOUND_FIXED_BYTES >> 20,
           verdict(results->fixed_known, results->fixed_bytes <= BOUND_FIXED_BYTES));
}

/* null where the bound does not apply or could not be judged. */
static json_t *json_verdict(const struct results *results, bool known, bool holds) {
    return results->pooled && known ? json_boolean(holds) : json_null();
}

static json_t *json_cell(const struct cell *cell, bool pooled) {
    json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "way", cell_way_names[cell->way],
                               "order", churn_order_names[cell->order], "live", (json_int_t)cell->live, "pairs",
                               (json_int_t)cell->pairs, "pair_ns", cell->pair_ns, "synchronise_ns", cell->sync_ns,
                               "net_ns", cell_net_ns(cell), "glibc_ns", cell->host_ns, "ratio", cell_ratio(cell));
#define SET(name) json_object_set_new(object, #name, pooled ? json_integer((json_int_t)cell->name) : json_null());
    SET(allocs)
    SET(hits)
    SET(misses)
    SET(fences)
    SET(miss_fences)
    SET(stream_marks)
#undef SET
    return object;
}

static json_t *json_ratio_bound(const struct results *results, enum cell_way way) {
    return json_pack("{s:f, s:f, s:o}", "bound", BOUND_RATIO, "worst", cell_ratio(worst_cell(results, way)), "holds",
                     json_verdict(results, true, ratio_holds(results, way)));
}

static bool print_json(const struct results *results) {
    json_t *cells = json_array(), *blocks = json_array();
    for (unsigned way = 0; way < results->ways; way++) {
        for (size_t i = 0; i < CELLS_PER_WAY; i++)
            json_array_append_new(cells, json_cell(&results->cells[way][i], results->pooled));
    }
    for (size_t i = 0; i < MEMORY_COUNTS; i++) {
        json_t *bytes = results->memory_known ? json_real(results->block_bytes[i]) : json_null();
        json_array_append_new(blocks, json_pack("{s:I, s:o}", "live", (json_int_t)memory_counts[i], "bytes", bytes));
    }
    json_t *fixed = results->fixed_known ? json_integer(results->fixed_bytes) : json_null();
    json_t *document =
        json_pack("{s:i, s:s, s:b, s:o, s:o, s:o, s:{s:o, s:o, s:{s:f, s:o}, s:{s:i, s:o}}}", "schema", 2, "machine",
                  results->machine, "pooled", results->pooled, "pairs", cells, "host_bytes_per_block", blocks,
                  "host_bytes_fixed", fixed, "bounds", "ratio", json_ratio_bound(results, CELL_SYNC), "async_ratio",
                  json_ratio_bound(results, CELL_ASYNC), "bytes_per_block", "bound", BOUND_BLOCK_BYTES, "holds",
                  json_verdict(results, results->memory_known, worst_block_bytes(results) <= BOUND_BLOCK_BYTES),
                  "bytes_fixed", "bound", BOUND_FIXED_BYTES, "holds",
                  json_verdict(results, results->fixed_known, results->fixed_bytes <= BOUND_FIXED_BYTES));
    bool printed = document != NULL && json_dumpf(document, stdout, JSON_INDENT(2)) == 0;
    if (printed) putchar('\n');
    json_decref(document);
    return printed;
}

static void usage(FILE *out) {
    fputs(
        "Usage: pair [OPTION…] TRACE…\n"
        "\n"
        "Measures allocation and free against malloc/free of glibc under one load, by cudaMalloc and cudaFree, by\n"
        "cudaMallocAsync and cudaFreeAsync on one stream, and by the former with POOL_FREE=event; and the host memory\n"
        "of the pool. The sizes are drawn from the traces; those of glibc are divided by 1,024, and 16 to 1,024\n"
        "bytes.\n"
        "\n"
        "  -n, --repetitions N   play each load N times (default 15); medians of its slices of 1,000 pairs\n"
        "  -j, --json            print one JSON document\n"
        "      " REPORT_MEMORY "   allocate one block and print the process's own bytes\n"
        "      " REPORT_EVENT "    measure as under POOL_FREE=event, and write the result for itself to read\n"
        "  -h, --help            this text\n"
        "\n"
        "Exit status: 0 it was measured, whether the bounds hold or not; 1 something failed; 2 wrong usage.\n",
        out);
}

int main(int argc, char **argv) {
    enum { MEMORY = 256, EVENT };
    static const struct option options[] = {
        {"repetitions", required_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},
        {"report-memory", no_argument, NULL, MEMORY},
        {"report-event", no_argument, NULL, EVENT},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct cell_sizes sizes;
    struct results results = {0};
    long repetitions = 15;
    bool json = false, event = false;
    int option;
    char *end;

    while ((option = getopt_long(argc, argv, "n:jh", options, NULL)) != -1) {
        switch (option) {
        case 'n':
            repetitions = strtol(optarg, &end, 10);
            if (*end != '\0' || repetitions < 1 || repetitions > MOST_REPETITIONS) {
                fprintf(stderr, "pair: --repetitions is \"%s\": expected a whole number from 1 to %d\n", optarg,
                        MOST_REPETITIONS);
                return 2;
            }
            break;
        case 'j':
            json = true;
            break;
        case MEMORY:
            return host_memory_report();
        case EVENT:
            event = true;
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
    bool measured = cell_sizes_read(&sizes, argv + optind, (size_t)(argc - optind), "pair");
    if (measured && event) {
        measured = report_event(&sizes, (size_t)repetitions);
    } else {
        measured = measured && measure_all(&results, &sizes, repetitions, argv + optind);
        if (measured && json)
            measured = print_json(&results);
        else if (measured)
            print_text(&results);
    }
    free(sizes.values);
    return measured ? 0 : 1;
}
