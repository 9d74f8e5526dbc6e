/* SPDX-License-Identifier: MIT
 *
 * pair: what a cudaMalloc/cudaFree pair costs on a hit, next to malloc/free of glibc under the same load, and what the
 * pool costs in host memory; each with its bound. Meant for the simulated CUDA without latencies, where all that is
 * left of a hit is the pool's own work and one synchronise; that is measured beside it and subtracted.
 */
#include <dlfcn.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <jansson.h>

#include "churn.h"
#include "host_memory.h"
#include "measure.h"
#include "own_figures.h"
#include "trace.h"

#define BOUND_RATIO 8.0         /* of a pair to glibc's */
#define BOUND_BLOCK_BYTES 256.0 /* of host memory per live block */
#define BOUND_FIXED_BYTES (4 << 20)
#define REPORT_MEMORY "--report-memory"

/* A slice is short, so that few are disturbed by other work on the machine and the median is of undisturbed ones. */
enum { PAIRS = 20000, SLICE = 1000, SLICES = PAIRS / SLICE, SYNCHRONISES = 1000 };
enum { WARM_PASSES = 2, MOST_REPETITIONS = 1000 };

static const size_t live_counts[] = {100, 1000, 10000};
static const size_t memory_counts[] = {1000, 10000, 100000};
enum { LIVE_COUNTS = sizeof live_counts / sizeof live_counts[0] };
enum { MEMORY_COUNTS = sizeof memory_counts / sizeof memory_counts[0] };

/* Nanoseconds are medians over the slices of all repetitions. */
struct cell {
    enum churn_order order;
    size_t live;
    double pair_ns, sync_ns, host_ns;
    uint64_t allocs, hits; /* while it was measured; 0 when the process is not on the pool */
    size_t failures;
};

struct results {
    struct cell cells[CHURN_ORDERS * LIVE_COUNTS];
    size_t cell_count;
    double block_bytes[MEMORY_COUNTS];
    int64_t fixed_bytes;
    bool pooled, memory_known, fixed_known;
    char machine[512];
};

struct sizes {
    size_t *values, count;
};

typedef CUresult (*synchronize_function)(void);

static double cell_net_ns(const struct cell *cell) {
    return cell->pair_ns - cell->sync_ns;
}
static double cell_ratio(const struct cell *cell) {
    return cell_net_ns(cell) / cell->host_ns;
}

static bool add_sizes(const char *path, struct sizes *sizes) {
    struct trace trace;
    char error[512];
    if (!trace_read(path, &trace, error, sizeof error)) {
        fprintf(stderr, "%s\n", error);
        return false;
    }
    size_t *values = realloc(sizes->values, (sizes->count + trace.blocks + 1) * sizeof *values);
    if (values != NULL) {
        sizes->values = values;
        for (size_t i = 0; i < trace.count; i++) {
            if (trace.events[i].op == TRACE_ALLOC) values[sizes->count++] = trace.events[i].size;
        }
    }
    trace_free(&trace);
    return values != NULL;
}

static double synchronise_run(synchronize_function synchronize) {
    uint64_t start = measure_thread_ns();
    for (int i = 0; i < SYNCHRONISES; i++) synchronize();
    return (double)(measure_thread_ns() - start) / SYNCHRONISES;
}

/* Both sides and the synchronise take turns, so that what disturbs the machine disturbs all three. */
static bool measure_cell(struct cell *cell, const struct sizes *sizes, synchronize_function synchronize,
                         size_t repetitions) {
    struct churn_plan plan;
    struct own_figures before = {0}, after = {0};
    size_t samples = repetitions * SLICES;
    double *times = calloc(3 * samples, sizeof *times);
    struct churn_side device = {.device = true, .blocks = calloc(cell->live, sizeof(void *))};
    struct churn_side host = {.blocks = calloc(cell->live, sizeof(void *))};
    bool ready = times != NULL && device.blocks != NULL && host.blocks != NULL &&
                 churn_plan_make(&plan, cell->order, cell->live, PAIRS, sizes->values, sizes->count);
    if (ready) {
        double *pair_ns = times, *sync_ns = times + samples, *host_ns = times + 2 * samples;
        churn_fill(&plan, &device);
        churn_fill(&plan, &host);
        for (int i = 0; i < WARM_PASSES; i++) {
            churn_run(&plan, 0, plan.pair_count, &device);
            churn_run(&plan, 0, plan.pair_count, &host);
        }
        own_figures_read(&before);
        for (size_t i = 0; i < samples; i++) {
            size_t first = i % SLICES * SLICE;
            pair_ns[i] = churn_run(&plan, first, SLICE, &device);
            sync_ns[i] = synchronise_run(synchronize);
            host_ns[i] = churn_run(&plan, first, SLICE, &host);
        }
        own_figures_read(&after);
        churn_empty(&plan, &device);
        churn_empty(&plan, &host);
        churn_plan_free(&plan);
        cell->pair_ns = measure_median(pair_ns, samples);
        cell->sync_ns = measure_median(sync_ns, samples);
        cell->host_ns = measure_median(host_ns, samples);
        cell->allocs = after.allocs - before.allocs;
        cell->hits = after.hits - before.hits;
        cell->failures = device.failures + host.failures;
    }
    free(device.blocks);
    free(host.blocks);
    free(times);
    return ready;
}

static bool measure_all(struct results *results, const struct sizes *sizes, size_t repetitions) {
    struct own_figures figures;
    if (cudaFree(NULL) != cudaSuccess) {
        fprintf(stderr, "pair: no CUDA device: %s\n", cudaGetErrorString(cudaGetLastError()));
        return false;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    synchronize_function synchronize = driver != NULL ? (synchronize_function)dlsym(driver, "cuCtxSynchronize") : NULL;
    if (synchronize == NULL) {
        fputs("pair: no driver (libcuda.so.1) to measure a synchronise of\n", stderr);
        return false;
    }
    measure_machine(results->machine, sizeof results->machine);
    /* Memory first: what the loads leave behind would be used again, and not be seen. */
    results->memory_known = true;
    for (size_t i = 0; i < MEMORY_COUNTS; i++) {
        if (!host_memory_per_block(memory_counts[i], &results->block_bytes[i])) results->memory_known = false;
    }
    results->pooled = own_figures_read(&figures);
    results->fixed_known = results->pooled && host_memory_fixed(REPORT_MEMORY, &results->fixed_bytes);
    for (size_t live = 0; live < LIVE_COUNTS; live++) {
        for (int order = 0; order < CHURN_ORDERS; order++) {
            struct cell *cell = &results->cells[results->cell_count++];
            cell->order = order;
            cell->live = live_counts[live];
            if (!measure_cell(cell, sizes, synchronize, repetitions)) {
                fputs("pair: out of memory\n", stderr);
                return false;
            }
            if (cell->failures > 0) {
                fprintf(stderr, "pair: %zu allocations failed with %zu blocks live (the device is too small?)\n",
                        cell->failures, cell->live);
                return false;
            }
        }
    }
    return true;
}

static const struct cell *worst_cell(const struct results *results) {
    const struct cell *worst = &results->cells[0];
    for (size_t i = 1; i < results->cell_count; i++) {
        if (cell_ratio(&results->cells[i]) > cell_ratio(worst)) worst = &results->cells[i];
    }
    return worst;
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

static void print_text(const struct results *results) {
    const struct cell *worst = worst_cell(results);
    printf("machine  %s\n", results->machine);
    printf(
        "\nNanoseconds per cudaMalloc/cudaFree pair, medians; net: less the driver's synchronise in each cudaFree.\n");
    printf("%-7s %7s %9s %9s %9s %9s %7s %9s\n", "order", "live", "pair", "sync", "net", "glibc", "ratio", "hits");
    for (size_t i = 0; i < results->cell_count; i++) {
        const struct cell *cell = &results->cells[i];
        printf("%-7s %7zu %9.1f %9.1f %9.1f %9.1f %7.2f ", churn_order_names[cell->order], cell->live, cell->pair_ns,
               cell->sync_ns, cell_net_ns(cell), cell->host_ns, cell_ratio(cell));
        if (results->pooled)
            printf("%8.3f%%\n", cell->allocs > 0 ? 100.0 * (double)cell->hits / (double)cell->allocs : 0);
        else
            printf("%9s\n", "-");
    }
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
    printf("bound  a pair at most %g times glibc's: %s (worst %.2f: %s, %zu live)\n", BOUND_RATIO,
           verdict(true, cell_ratio(worst) <= BOUND_RATIO), cell_ratio(worst), churn_order_names[worst->order],
           worst->live);
    printf("bound  at most %g bytes of host memory per live block: %s\n", BOUND_BLOCK_BYTES,
           verdict(results->memory_known, worst_block_bytes(results) <= BOUND_BLOCK_BYTES));
    printf("bound  at most %d MiB of host memory fixed: %s\n", BOUND_FIXED_BYTES >> 20,
           verdict(results->fixed_known, results->fixed_bytes <= BOUND_FIXED_BYTES));
}

/* null where the bound does not apply or could not be judged. */
static json_t *json_verdict(const struct results *results, bool known, bool holds) {
    return results->pooled && known ? json_boolean(holds) : json_null();
}

static bool print_json(const struct results *results) {
    json_t *cells = json_array(), *blocks = json_array();
    for (size_t i = 0; i < results->cell_count; i++) {
        const struct cell *cell = &results->cells[i];
        json_t *hits = results->pooled ? json_integer((json_int_t)cell->hits) : json_null();
        json_t *allocs = results->pooled ? json_integer((json_int_t)cell->allocs) : json_null();
        json_array_append_new(cells, json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "order",
                                               churn_order_names[cell->order], "live", (json_int_t)cell->live,
                                               "pair_ns", cell->pair_ns, "synchronise_ns", cell->sync_ns, "net_ns",
                                               cell_net_ns(cell), "glibc_ns", cell->host_ns, "ratio", cell_ratio(cell),
                                               "allocs", allocs, "hits", hits));
    }
    for (size_t i = 0; i < MEMORY_COUNTS; i++) {
        json_t *bytes = results->memory_known ? json_real(results->block_bytes[i]) : json_null();
        json_array_append_new(blocks, json_pack("{s:I, s:o}", "live", (json_int_t)memory_counts[i], "bytes", bytes));
    }
    json_t *fixed = results->fixed_known ? json_integer(results->fixed_bytes) : json_null();
    json_t *document = json_pack(
        "{s:i, s:s, s:b, s:o, s:o, s:o, s:{s:{s:f, s:f, s:o}, s:{s:f, s:o}, s:{s:i, s:o}}}", "schema", 1, "machine",
        results->machine, "pooled", results->pooled, "pairs", cells, "host_bytes_per_block", blocks, "host_bytes_fixed",
        fixed, "bounds", "ratio", "bound", BOUND_RATIO, "worst", cell_ratio(worst_cell(results)), "holds",
        json_verdict(results, true, cell_ratio(worst_cell(results)) <= BOUND_RATIO), "bytes_per_block", "bound",
        BOUND_BLOCK_BYTES, "holds",
        json_verdict(results, results->memory_known, worst_block_bytes(results) <= BOUND_BLOCK_BYTES), "bytes_fixed",
        "bound", BOUND_FIXED_BYTES, "holds",
        json_verdict(results, results->fixed_known, results->fixed_bytes <= BOUND_FIXED_BYTES));
    bool printed = document != NULL && json_dumpf(document, stdout, JSON_INDENT(2)) == 0;
    if (printed) putchar('\n');
    json_decref(document);
    return printed;
}

static void usage(FILE *out) {
    fputs("Usage: pair [OPTION…] TRACE…\n"
          "\n"
          "Measures cudaMalloc/cudaFree against malloc/free of glibc under one load, and the host memory of the pool.\n"
          "The sizes are drawn from the traces; those of glibc are divided by 1,024, and 16 to 1,024 bytes.\n"
          "\n"
          "  -n, --repetitions N   play each load N times (default 15); medians of its slices of 1,000 pairs\n"
          "  -j, --json            print one JSON document\n"
          "      " REPORT_MEMORY "   allocate one block and print the process's own bytes\n"
          "  -h, --help            this text\n"
          "\n"
          "Exit status: 0 it was measured, whether the bounds hold or not; 1 something failed; 2 wrong usage.\n",
          out);
}

int main(int argc, char **argv) {
    enum { MEMORY = 256 };
    static const struct option options[] = {
        {"repetitions", required_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},
        {"report-memory", no_argument, NULL, MEMORY},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct sizes sizes = {0};
    struct results results = {0};
    long repetitions = 15;
    bool json = false, measured = true;
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
    for (int i = optind; measured && i < argc; i++) measured = add_sizes(argv[i], &sizes);
    if (measured && sizes.count == 0) {
        fputs("pair: the traces hold no allocation\n", stderr);
        measured = false;
    }
    measured = measured && measure_all(&results, &sizes, (size_t)repetitions);
    if (measured && json)
        measured = print_json(&results);
    else if (measured)
        print_text(&results);
    free(sizes.values);
    return measured ? 0 : 1;
}
