/* SPDX-License-Identifier: MIT
 *
 * threads: how many pairs of allocation and free threads get done together, each on a stream of its own with blocks of
 * its own, by the clock on the wall. Numbers of threads take turns, so that what disturbs the machine disturbs all.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>
#include <jansson.h>

#include "cell_sizes.h"
#include "churn.h"
#include "measure.h"
#include "options.h"

enum { PAIRS = 20000, CHUNK = 1000, MOST_THREADS = 64, MOST_ROUNDS = 1000, MOST_MS = 10000, MOST_LIVE = 1000000 };
enum { MOST_COUNTS = 8, MOST_WAITS = 100 };

struct arguments {
    enum churn_calls calls;
    size_t live, rounds, milliseconds;
    size_t counts[MOST_COUNTS], count_of;
};

/* One thread. `done` is written by it alone and read while it runs: a cache line of its own. */
struct worker {
    _Alignas(128) _Atomic uint64_t done;
    pthread_t thread;
    const struct churn_plan *plan;
    struct churn_side side;
    pthread_barrier_t *begin;
    const _Atomic bool *stop;
    bool ready;
};

static void *work(void *argument) {
    struct worker *worker = argument;
    const struct churn_plan *plan = worker->plan;
    struct churn_side *side = &worker->side;
    const size_t chunk = plan->batch < CHUNK ? CHUNK / plan->batch * plan->batch : plan->batch;
    side->blocks = calloc(plan->live, sizeof *side->blocks);
    worker->ready = side->blocks != NULL && cudaFree(NULL) == cudaSuccess &&
                    cudaStreamCreateWithFlags(&side->stream, cudaStreamNonBlocking) == cudaSuccess;
    if (worker->ready) {
        churn_fill(plan, side);
        worker->ready = side->failures == 0;
    }
    if (worker->ready) churn_run(plan, 0, plan->pair_count, side);
    pthread_barrier_wait(worker->begin);
    for (size_t first = 0; worker->ready && !atomic_load_explicit(worker->stop, memory_order_relaxed);) {
        churn_run(plan, first, chunk, side);
        first += chunk;
        if (first + chunk > plan->pair_count) first = 0;
        atomic_store_explicit(&worker->done, worker->done + chunk, memory_order_relaxed);
    }
    if (side->failures == 0 && worker->ready) churn_empty(plan, side);
    worker->ready = worker->ready && side->failures == 0;
    if (side->stream != NULL) cudaStreamDestroy(side->stream);
    free(side->blocks);
    return NULL;
}

static uint64_t done_by(const struct worker *workers, size_t count) {
    uint64_t done = 0;
    for (size_t i = 0; i < count; i++) done += atomic_load_explicit(&workers[i].done, memory_order_relaxed);
    return done;
}

static void sleep_ms(size_t milliseconds) {
    struct timespec rest = {.tv_sec = (time_t)(milliseconds / 1000), .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) continue;
}

static uint64_t process_ns(void) {
    struct timespec spent;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * UINT64_C(1000000000) + (uint64_t)spent.tv_nsec;
}

struct sample {
    double pairs_per_second;
    double processors; /* that the process had on average: fewer than it wanted where the machine was busy */
};

/* While all of them run: nothing of how they begin and end is in it. */
static bool sample_threads(const struct arguments *arguments, const struct churn_plan *plan, size_t count,
                           struct sample *sample) {
    pthread_barrier_t begin;
    _Atomic bool stop = false;
    struct worker *workers = aligned_alloc(_Alignof(struct worker), count * sizeof *workers);
    if (workers == NULL || pthread_barrier_init(&begin, NULL, (unsigned)count + 1) != 0) {
        fputs("threads: out of memory\n", stderr);
        free(workers);
        return false;
    }
    memset(workers, 0, count * sizeof *workers);
    for (size_t i = 0; i < count; i++) {
        workers[i].plan = plan;
        workers[i].side.calls = arguments->calls;
        workers[i].begin = &begin;
        workers[i].stop = &stop;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            fputs("threads: a thread could not be started\n", stderr);
            exit(1);
        }
    }
    pthread_barrier_wait(&begin);
    sleep_ms(arguments->milliseconds / 10);
    const uint64_t before = done_by(workers, count), start_ns = measure_now_ns(), spent_ns = process_ns();
    uint64_t after = before;
    /* On a machine that is busy with other things it may take longer than asked for until anything is done. */
    for (int i = 0; i < MOST_WAITS && after == before; i++) {
        sleep_ms(arguments->milliseconds);
        after = done_by(workers, count);
    }
    const uint64_t took_ns = measure_now_ns() - start_ns;
    sample->processors = (double)(process_ns() - spent_ns) / (double)took_ns;
    sample->pairs_per_second = (double)(after - before) * 1e9 / (double)took_ns;
    atomic_store(&stop, true);
    bool ready = true;
    for (size_t i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        ready = ready && workers[i].ready;
    }
    pthread_barrier_destroy(&begin);
    free(workers);
    if (!ready) fprintf(stderr, "threads: an allocation or a stream failed with %zu threads\n", count);
    return ready;
}

static void usage(FILE *out) {
    fputs("Usage: threads [OPTION…] TRACE…\n"
          "\n"
          "Measures how many pairs of allocation and free threads get done together, and prints a JSON document. The\n"
          "sizes are drawn from the traces; blocks are freed in random order.\n"
          "\n"
          "  -c, --calls CALLS      async (cudaMallocAsync and cudaFreeAsync, each thread on its own stream; the\n"
          "                         default), plain (cudaMalloc and cudaFree) or malloc (of glibc)\n"
          "  -l, --live N           blocks that are live in each thread: a multiple of 10 (default 1000)\n"
          "  -t, --threads N[,N…]   how many threads (default 1,2,8)\n"
          "  -r, --rounds N         in turns, so many times each (default 5)\n"
          "  -m, --milliseconds N   for so long each time (default 200)\n"
          "  -h, --help             this text\n"
          "\n"
          "Exit status: 0 measured; 1 something failed; 2 wrong usage.\n",
          out);
}

static struct arguments parse_arguments(int argc, char **argv) {
    static const struct option options[] = {
        {"calls", required_argument, NULL, 'c'},
        {"live", required_argument, NULL, 'l'},
        {"threads", required_argument, NULL, 't'},
        {"rounds", required_argument, NULL, 'r'},
        {"milliseconds", required_argument, NULL, 'm'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct arguments arguments = {
        .calls = CHURN_ASYNC, .live = 1000, .rounds = 5, .milliseconds = 200, .counts = {1, 2, 8}, .count_of = 3};
    int option;
    while ((option = getopt_long(argc, argv, "c:l:t:r:m:h", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            arguments.calls = (enum churn_calls)options_name("--calls", optarg, churn_calls_names, CHURN_CALLS);
            break;
        case 'l':
            arguments.live = options_number("--live", optarg, CHURN_PARTS, MOST_LIVE);
            break;
        case 't':
            arguments.count_of = options_numbers("--threads", optarg, 1, MOST_THREADS, arguments.counts, MOST_COUNTS);
            break;
        case 'r':
            arguments.rounds = options_number("--rounds", optarg, 1, MOST_ROUNDS);
            break;
        case 'm':
            arguments.milliseconds = options_number("--milliseconds", optarg, 1, MOST_MS);
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
    return arguments;
}

static bool measure(const struct arguments *arguments, const struct churn_plan *plan, json_t *rows) {
    for (size_t i = 0; i < arguments->count_of; i++)
        json_array_append_new(rows, json_pack("{s:I, s:[], s:[]}", "threads", (json_int_t)arguments->counts[i],
                                              "pairs_per_second", "processors"));
    for (size_t round = 0; round < arguments->rounds; round++) {
        for (size_t i = 0; i < arguments->count_of; i++) {
            struct sample sample;
            if (!sample_threads(arguments, plan, arguments->counts[i], &sample)) return false;
            json_t *row = json_array_get(rows, i);
            json_array_append_new(json_object_get(row, "pairs_per_second"), json_real(sample.pairs_per_second));
            json_array_append_new(json_object_get(row, "processors"), json_real(sample.processors));
        }
    }
    return true;
}

int main(int argc, char **argv) {
    const struct arguments arguments = parse_arguments(argc, argv);
    struct cell_sizes sizes = {0};
    struct churn_plan plan = {0};
    json_t *rows = json_array();
    bool measured = cell_sizes_read(&sizes, argv + optind, (size_t)(argc - optind), "threads");
    if (measured) {
        measured = churn_plan_make(&plan, CHURN_RANDOM, arguments.live, PAIRS, sizes.values, sizes.count);
        if (!measured) fputs("threads: out of memory\n", stderr);
    }
    measured = measured && measure(&arguments, &plan, rows);
    if (measured) {
        json_t *document = json_pack("{s:s, s:I, s:O}", "calls", churn_calls_names[arguments.calls], "live",
                                     (json_int_t)arguments.live, "runs", rows);
        measured = document != NULL && json_dumpf(document, stdout, JSON_INDENT(2)) == 0;
        if (measured) putchar('\n');
        json_decref(document);
    }
    json_decref(rows);
    churn_plan_free(&plan);
    free(sizes.values);
    return measured ? 0 : 1;
}
