/* SPDX-License-Identifier: MIT
 *
 * Runs random programs, one after another in one process: see usage(). Whether they run natively or over the pool is
 * decided by who preloads what.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "doors.h"
#include "figures.h"
#include "importer.h"
#include "kernels.h"
#include "model.h"
#include "program.h"
#include "sharing.h"
#include "tally.h"

enum { LIMIT_S = 60, RESETS_ONE_IN = 8, SHRINK_RUNS = 3, FAILED = 1, WRONG_USE = 2 };

static struct {
    uint64_t seed, count;
    bool event, natively, scarce, no_holds, no_sharing, print, shrink, wait, importer;
    unsigned limit_s;
} options = {.limit_s = LIMIT_S};

static void usage(FILE *to) {
    fputs("Usage: random_programs [OPTION...] SEED COUNT\n"
          "\n"
          "Runs the programs of the seeds SEED, SEED+1, ... Names each on stdout before it runs, says what went wrong "
          "with\n"
          "it in lines that begin with #, and then \"failed SEED\"; at the end, what was done, one figure a line. Exit "
          "status\n"
          "0 when none failed, 1 when one did, 2 for a wrong use.\n"
          "\n"
          "  --mode sync|event  programs for this POOL_FREE; without event they may lean on the wait of cudaFree\n"
          "  --natively         no pool beneath: kernels that would wait for a release take a while instead\n"
          "  --scarce           device memory is short: allocations may fail, and may wait for what has not ended\n"
          "  --no-holds         no kernel goes on until it is released: any call may wait for it\n"
          "  --no-sharing       no memory is given to other processes\n"
          "  --limit SECONDS    a program that takes longer is ended, and the process with it\n"
          "  --print            print the programs, run none\n"
          "  --shrink           make the first program smaller as long as it fails, and print what is left\n"
          "  --wait             at the end print \"ready\" and wait for a line, while others look at the figures\n"
          "  --importer         be the other process that opens the memory of one of these: stdin is a socket from it\n"
          "  --help             this text\n",
          to);
}

static uint64_t number_of(const char *text) {
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (errno == 0 && *text >= '0' && *text <= '9' && *end == '\0') return number;
    fprintf(stderr, "random_programs: not a number: %s\n", text);
    exit(WRONG_USE);
}

static void options_read(int argc, char **argv) {
    static const struct option known[] = {
        {"mode", required_argument, NULL, 'm'}, {"natively", no_argument, NULL, 'n'},
        {"scarce", no_argument, NULL, 'c'},     {"no-holds", no_argument, NULL, 'o'},
        {"no-sharing", no_argument, NULL, 'x'}, {"limit", required_argument, NULL, 'l'},
        {"print", no_argument, NULL, 'p'},      {"shrink", no_argument, NULL, 's'},
        {"wait", no_argument, NULL, 'w'},       {"importer", no_argument, NULL, 'i'},
        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'm':
            options.event = strcmp(optarg, "event") == 0;
            if (options.event || strcmp(optarg, "sync") == 0) break;
            fprintf(stderr, "random_programs: --mode takes sync or event, not: %s\n", optarg);
            exit(WRONG_USE);
        case 'n':
            options.natively = true;
            break;
        case 'c':
            options.scarce = true;
            break;
        case 'o':
            options.no_holds = true;
            break;
        case 'x':
            options.no_sharing = true;
            break;
        case 'l':
            options.limit_s = (unsigned)number_of(optarg);
            break;
        case 'p':
            options.print = true;
            break;
        case 's':
            options.shrink = true;
            break;
        case 'i':
            options.importer = true;
            return;
        case 'w':
            options.wait = true;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(WRONG_USE);
        }
    }
    if (argc - optind != 2) {
        usage(stderr);
        exit(WRONG_USE);
    }
    options.seed = number_of(argv[optind]);
    options.count = number_of(argv[optind + 1]);
}

static bool graphs_work(void) {
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    if (cudaStreamCreate(&stream) != cudaSuccess) return false;
    const bool work = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess &&
                      cudaStreamEndCapture(stream, &graph) == cudaSuccess &&
                      cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess &&
                      cudaGraphLaunch(executable, stream) == cudaSuccess &&
                      cudaStreamSynchronize(stream) == cudaSuccess && cudaGraphExecDestroy(executable) == cudaSuccess;
    if (graph != NULL) cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    cudaGetLastError();
    return work;
}

static bool async_works(void) {
    void *pointer = NULL;
    const bool works = cudaMallocAsync(&pointer, 1, NULL) == cudaSuccess &&
                       cudaFreeAsync(pointer, NULL) == cudaSuccess && cudaStreamSynchronize(NULL) == cudaSuccess;
    cudaGetLastError();
    return works;
}

static bool contexts_work(void) {
    CUcontext context = NULL;
    return door_context_create(&context, 0) == CUDA_SUCCESS && cuCtxDestroy(context) == CUDA_SUCCESS;
}

/* Only devices that can use one another's memory. */
static bool settings_read(struct settings *settings) {
    int devices = 0;
    size_t bytes = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1 || cuDeviceTotalMem(&bytes, 0) != CUDA_SUCCESS) {
        printf("# there is no device\n");
        return false;
    }
    for (int i = 1; i < devices; i++) {
        int there = 0, back = 0;
        cudaDeviceCanAccessPeer(&there, 0, i);
        cudaDeviceCanAccessPeer(&back, i, 0);
        if (!there || !back) devices = 1;
    }
    *settings = (struct settings){.free_waits = !options.event,
                                  .holds = options.event && !options.scarce && !options.no_holds,
                                  .releases = !options.natively,
                                  .graphs = graphs_work(),
                                  .async = async_works(),
                                  .contexts = contexts_work(),
                                  .ipc = !options.no_sharing,
                                  .frees_open = !options.natively,
                                  .devices = (unsigned)devices,
                                  .device_bytes = bytes,
                                  .scarce = options.scarce};
    return true;
}

static struct program *program_new(void) {
    struct program *program = calloc(1, sizeof *program);
    if (program == NULL) abort();
    return program;
}

static bool run_limited(const struct program *program) {
    alarm(options.limit_s);
    const bool passed = program_run(program);
    alarm(0);
    return passed;
}

static void tallies_print(void) {
#define PRINT_TALLY(name) printf(#name " %" PRIu64 "\n", atomic_load(&tally.name));
    TALLIES(PRINT_TALLY)
#undef PRINT_TALLY
#define PRINT_PROGRAMS(name) printf("programs_" #name " %" PRIu64 "\n", programs_tally.name.programs);
    PROGRAMS_DID(PRINT_PROGRAMS)
#undef PRINT_PROGRAMS
    if (!figures_open()) return;
#define PRINT_FIGURE(name) printf(#name " %" PRIu64 "\n", figures_noted()->name);
    FIGURES_SUMMED(PRINT_FIGURE)
#undef PRINT_FIGURE
}

static int run_all(void) {
    struct program *program = program_new();
    struct settings settings;
    bool failed = false;
    if (!settings_read(&settings)) return FAILED;
    for (uint64_t i = 0; i < options.count; i++) {
        const uint64_t seed = options.seed + i;
        program_generate(program, seed, &settings);
        if (options.print) {
            program_print(program);
            continue;
        }
        printf("program %" PRIu64 "\n", seed);
        fflush(stdout);
        if (!settings.async) PROGRAM_DID(without_stream_order);
        if (!run_limited(program)) {
            /* What it left behind is not to be blamed on the next one. */
            printf("failed %" PRIu64 "\n", seed);
            failed = true;
            break;
        }
        if (seed % RESETS_ONE_IN == 0) {
            for (unsigned k = 0; k < program->devices; k++)
                if (cudaSetDevice((int)k) == cudaSuccess) cudaDeviceReset();
        }
    }
    if (!sharing_finish() && !failed) {
        printf("# another process did not end well\n");
        failed = true;
    }
    if (!options.print) tallies_print();
    if (options.wait) {
        puts("ready");
        fflush(stdout);
        (void)getchar();
    }
    free(program);
    return failed ? FAILED : 0;
}

/* ---- shrinking: each try is a process of its own, begun before this one ever called CUDA ---- */

static bool fails(const struct program *program) {
    for (unsigned i = 0; i < SHRINK_RUNS; i++) {
        int status = 0;
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            if (freopen("/dev/null", "w", stdout) == NULL) _exit(0);
            _exit(run_limited(program) ? 0 : FAILED);
        }
        if (child < 0 || waitpid(child, &status, 0) != child) return false;
        if (status != 0) return true;
    }
    return false;
}

static bool settings_of_child(struct settings *settings) {
    int status = 0;
    struct settings *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return false;
    const pid_t child = fork();
    if (child == 0) _exit(settings_read(shared) ? 0 : FAILED);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return false;
    *settings = *shared;
    munmap(shared, sizeof *shared);
    return true;
}

/* The program without `count` operations from `first` on, and without those that are not correct any more. */
static void cut(struct model *model, const struct program *whole, size_t first, size_t count, struct program *rest) {
    *rest = *whole;
    model_begin(model, rest);
    for (size_t i = 0; i < whole->count; i++)
        if (i < first || i >= first + count) model_offer(model, &whole->operations[i]);
    model_finish(model);
}

static int shrink(void) {
    struct program *program = program_new(), *smaller = program_new();
    struct model *model = calloc(1, sizeof *model);
    struct settings settings;
    if (model == NULL || !settings_of_child(&settings)) return FAILED;
    program_generate(program, options.seed, &settings);
    if (!fails(program)) {
        printf("# program %" PRIu64 " does not fail by itself\n", options.seed);
        return 0;
    }
    for (size_t step = program->count / 2; step > 0;) {
        bool cut_any = false;
        for (size_t first = 0; first < program->count;) {
            cut(model, program, first, step, smaller);
            if (smaller->count < program->count && fails(smaller)) {
                *program = *smaller;
                cut_any = true;
            } else {
                first += step;
            }
        }
        if (!cut_any || step > 1) step /= 2;
    }
    program_print(program);
    fflush(stdout);
    run_limited(program);
    free(model);
    free(smaller);
    free(program);
    return FAILED;
}

int main(int argc, char **argv) {
    options_read(argc, argv);
    if (options.importer) return importer_run();
    return options.shrink ? shrink() : run_all();
}
