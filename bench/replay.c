/* SPDX-License-Identifier: MIT
 *
 * replay: plays an allocation trace with the CUDA runtime, as an ordinary CUDA program would make those calls, and
 * prints how long it took, what failed, and what cudaMemGetInfo said. See usage() and player.h.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "measure.h"
#include "player.h"
#include "trace.h"

enum exit_status { STATUS_OK = 0, STATUS_VIOLATED = 1, STATUS_USAGE = 2, STATUS_CUDA = 3 };

enum { MOST_THREADS = 256, MOST_STREAMS = 1024, MOST_REPEAT = 1000000, MOST_KERNEL_US = 1000000 };

static void usage(FILE *out) {
    fputs(
        "Usage: replay [OPTION…] TRACE\n"
        "\n"
        "Plays an allocation trace (seq,op,id,size,stream,thread,t_us, or a recording of POOL_TRACE; plain or xz) with "
        "cudaMalloc and cudaFree. "
        "Each\n"
        "block is filled by a memset and stamped at both ends; the stamps are read before it is freed, and compared "
        "at\n"
        "the end. Blocks still live at the end of the trace are freed then.\n"
        "\n"
        "  -t, --threads N          deal the blocks to N synthetic threads (default 1)\n"
        "      --streams N          deal the blocks to N streams, those that the trace names or synthetic ones "
        "(default:\n"
        "                           the default stream; one for each of several threads)\n"
        "      --async              cudaMallocAsync and cudaFreeAsync on the block's stream\n"
        "      --kernel-us D        on the simulated CUDA: a kernel of D microseconds uses each block, in the place of "
        "the\n"
        "                           memset (default: 10 with --streams, else 0: the memset)\n"
        "  -r, --repeat K           play the trace K times (default 1)\n"
        "  -s, --scale F            multiply every size by F (default 1)\n"
        "      --no-work            no work and no stamps: the allocations alone\n"
        "      --hold-at-end S      wait S seconds at the end, before the blocks still live are freed; for onlookers\n"
        "      --wait-fd FD         likewise until FD can be read or is closed at its other end\n"
        "  -j, --json               print one JSON document\n"
        "  -h, --help               this text\n"
        "\n"
        "Exit status: 0 it was played (allocations may have failed: see the count); 1 a live block was overwritten or\n"
        "shares addresses with another; 2 wrong usage or a malformed trace; 3 another CUDA call failed.\n",
        out);
}

__attribute__((noreturn)) static void bad_usage(const char *option, const char *value, const char *expected) {
    fprintf(stderr, "replay: %s is \"%s\": expected %s\n", option, value, expected);
    exit(STATUS_USAGE);
}

static double number_option(const char *option, const char *text, double low, double high, const char *expected) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !(value >= low && value <= high))
        bad_usage(option, text, expected);
    return value;
}

static unsigned count_option(const char *option, const char *text, unsigned low, unsigned high) {
    char expected[64], *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < (long)low || value > (long)high) {
        snprintf(expected, sizeof expected, "a whole number from %u to %u", low, high);
        bad_usage(option, text, expected);
    }
    return (unsigned)value;
}

struct arguments {
    struct player_options player;
    const char *path;
    bool json;
};

static struct arguments parse_arguments(int argc, char **argv) {
    enum { NO_WORK = 256, HOLD_AT_END, WAIT_FD, STREAMS, ASYNC, KERNEL_US };
    static const struct option options[] = {
        {"threads", required_argument, NULL, 't'},
        {"streams", required_argument, NULL, STREAMS},
        {"async", no_argument, NULL, ASYNC},
        {"kernel-us", required_argument, NULL, KERNEL_US},
        {"repeat", required_argument, NULL, 'r'},
        {"scale", required_argument, NULL, 's'},
        {"no-work", no_argument, NULL, NO_WORK},
        {"hold-at-end", required_argument, NULL, HOLD_AT_END},
        {"wait-fd", required_argument, NULL, WAIT_FD},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct arguments arguments = {
        .player = {.threads = 1, .repeat = 1, .scale = 1, .work = true, .kernel_us = -1, .wait_fd = -1},
    };
    int option;
    while ((option = getopt_long(argc, argv, "t:r:s:jh", options, NULL)) != -1) {
        switch (option) {
        case 't':
            arguments.player.threads = count_option("--threads", optarg, 1, MOST_THREADS);
            break;
        case 'r':
            arguments.player.repeat = count_option("--repeat", optarg, 1, MOST_REPEAT);
            break;
        case 's':
            arguments.player.scale = number_option("--scale", optarg, 1e-9, 1e3, "a number from 1e-9 to 1000");
            break;
        case STREAMS:
            arguments.player.streams = count_option("--streams", optarg, 1, MOST_STREAMS);
            break;
        case ASYNC:
            arguments.player.async = true;
            break;
        case KERNEL_US:
            arguments.player.kernel_us = (int)count_option("--kernel-us", optarg, 0, MOST_KERNEL_US);
            break;
        case NO_WORK:
            arguments.player.work = false;
            break;
        case HOLD_AT_END:
            arguments.player.hold_s = number_option("--hold-at-end", optarg, 0, 86400, "seconds from 0 to 86400");
            break;
        case WAIT_FD:
            arguments.player.wait_fd = (int)count_option("--wait-fd", optarg, 0, 1u << 20);
            break;
        case 'j':
            arguments.json = true;
            break;
        case 'h':
            usage(stdout);
            exit(STATUS_OK);
        default:
            usage(stderr);
            exit(STATUS_USAGE);
        }
    }
    if (argc - optind != 1) {
        usage(stderr);
        exit(STATUS_USAGE);
    }
    /* Threads that share the default stream would wait for each other. */
    if (arguments.player.streams == 0 && arguments.player.threads > 1) {
        arguments.player.streams = arguments.player.threads;
        if (arguments.player.kernel_us < 0) arguments.player.kernel_us = 0;
    }
    arguments.path = argv[optind];
    return arguments;
}

static double mib(uint64_t bytes) {
    return (double)bytes / (1024.0 * 1024.0);
}

static void print_pool(const struct player_report *report) {
    const struct own_figures *figures = &report->figures;
    printf("pool         %ju hits, %ju misses; peak reserved %.1f MiB, live %.1f, waiting %.1f, ordered %.1f\n",
           (uintmax_t)figures->hits, (uintmax_t)figures->misses, mib(figures->peak_reserved_bytes),
           mib(figures->peak_live_bytes), mib(figures->peak_waiting_bytes), mib(figures->peak_ordered_bytes));
    printf("proofs       %ju fences (%ju before a miss), %ju marks on streams, %ju waits", (uintmax_t)figures->fences,
           (uintmax_t)figures->miss_fences, (uintmax_t)figures->stream_marks, (uintmax_t)figures->waits);
    if (report->simulated)
        printf("; events created: %ju the first time, %ju later", (uintmax_t)report->events_first,
               (uintmax_t)report->events_later);
    putchar('\n');
}

static void print_text(const struct arguments *arguments, const struct trace *trace,
                       const struct player_report *report) {
    const struct player_options *options = &arguments->player;
    printf("trace        %s: %zu events, %zu allocations, peak live %.1f MiB, %zu live at its end\n", arguments->path,
           trace->count, trace->blocks, mib(trace->peak_bytes), trace->live_at_end);
    printf("played       %u %s, %u time%s", options->threads, options->threads == 1 ? "thread" : "synthetic threads",
           options->repeat, options->repeat == 1 ? "" : "s");
    if (options->streams > 0)
        printf(" over %u %sstream%s", options->streams, trace->lanes > 1 ? "" : "synthetic ",
               options->streams == 1 ? "" : "s");
    if (options->async) printf(", by cudaMallocAsync and cudaFreeAsync");
    if (report->kernel_us > 0) printf(", kernels of %u us", report->kernel_us);
    if (options->scale != 1) printf(", sizes times %g", options->scale);
    puts(options->work ? "" : ", without work and stamps");
    double first = options->repeat_s[0];
    printf("time         %.3f s", first);
    if (options->repeat > 1)
        printf(" the first time, %.3f s the others (median)",
               measure_median(options->repeat_s + 1, options->repeat - 1));
    printf("; in allocations %.3f s, in frees %.3f s in all\n", (double)report->alloc_ns / 1e9,
           (double)report->free_ns / 1e9);
    printf("operations   %ju allocations, %ju frees, %ju memsets, %ju kernels\n", (uintmax_t)report->allocs,
           (uintmax_t)report->frees, (uintmax_t)report->memsets, (uintmax_t)report->kernels);
    printf("failures     %ju allocations, %ju other calls\n", (uintmax_t)report->alloc_failures,
           (uintmax_t)report->other_errors);
    printf("stamps       %ju blocks checked, %ju overwritten; %ju allocations at addresses of a live block\n",
           (uintmax_t)report->stamps_checked, (uintmax_t)report->stamps_violated, (uintmax_t)report->overlaps);
    if (options->streams > 1)
        printf("streams      %ju allocations of memory that another stream's block had before\n",
               (uintmax_t)report->crossed);
    if (report->pooled) print_pool(report);
    printf("free memory  %.1f MiB before, %.1f at the peak, %.1f after, of %.1f MiB\n", mib(report->before.free_bytes),
           mib(report->at_peak.free_bytes), mib(report->after.free_bytes), mib(report->before.total_bytes));
    for (size_t i = 0; i < report->message_count; i++) printf("  %s\n", report->messages[i]);
}

static json_t *json_pool(const struct player_report *report) {
    if (!report->pooled) return json_null();
    json_t *object = json_object();
#define SET(name) json_object_set_new(object, #name, json_integer((json_int_t)report->figures.name));
    OWN_FIGURES_CELLS(SET)
    OWN_FIGURES_POOLS(SET)
#undef SET
    return object;
}

static json_t *json_events(const struct player_report *report) {
    if (!report->simulated) return json_null();
    return json_pack("{s:I, s:I}", "first", (json_int_t)report->events_first, "later",
                     (json_int_t)report->events_later);
}

static json_t *json_options(const struct arguments *arguments, const struct trace *trace, unsigned kernel_us) {
    const struct player_options *options = &arguments->player;
    return json_pack("{s:I, s:b, s:I, s:b, s:b, s:I, s:I, s:f, s:b}", "threads", (json_int_t)options->threads,
                     "threads_synthetic", options->threads > 1, "streams", (json_int_t)options->streams,
                     "streams_synthetic", options->streams > 0 && trace->lanes <= 1, "async", (int)options->async,
                     "kernel_us", (json_int_t)kernel_us, "repeat", (json_int_t)options->repeat, "scale", options->scale,
                     "work", (int)options->work);
}

static bool print_json(const struct arguments *arguments, const struct trace *trace,
                       const struct player_report *report) {
    json_t *seconds = json_array(), *messages = json_array();
    for (unsigned i = 0; i < arguments->player.repeat; i++)
        json_array_append_new(seconds, json_real(arguments->player.repeat_s[i]));
    for (size_t i = 0; i < report->message_count; i++)
        json_array_append_new(messages, json_string(report->messages[i]));
    json_t *document = json_pack(
        "{s:i, s:{s:s, s:I, s:I, s:I, s:I}, s:o, s:o, s:{s:I, s:I, s:I, s:I, s:I, s:I}, s:{s:I, s:I},"
        " s:{s:I, s:I, s:I}, s:I, s:o, s:o, s:{s:I, s:I, s:I, s:I}, s:o}",
        "schema", 2,                                                          //
        "trace", "path", arguments->path, "events", (json_int_t)trace->count, //
        "allocations", (json_int_t)trace->blocks, "peak_live_bytes", (json_int_t)trace->peak_bytes, "live_at_end",
        (json_int_t)trace->live_at_end,                                                              //
        "options", json_options(arguments, trace, report->kernel_us), "repetition_seconds", seconds, //
        "operations", "allocs", (json_int_t)report->allocs, "frees", (json_int_t)report->frees, "memsets",
        (json_int_t)report->memsets, "kernels", (json_int_t)report->kernels, "alloc_ns", (json_int_t)report->alloc_ns,
        "free_ns", (json_int_t)report->free_ns, //
        "failures", "allocs", (json_int_t)report->alloc_failures, "other_calls", (json_int_t)report->other_errors,
        "stamps", "checked", (json_int_t)report->stamps_checked, "violated", (json_int_t)report->stamps_violated,
        "overlaps", (json_int_t)report->overlaps, //
        "crossed_streams", (json_int_t)report->crossed, "pool", json_pool(report), "events_created",
        json_events(report), //
        "memory", "total_bytes", (json_int_t)report->before.total_bytes, "free_before_bytes",
        (json_int_t)report->before.free_bytes, "free_at_peak_bytes", (json_int_t)report->at_peak.free_bytes,
        "free_after_bytes", (json_int_t)report->after.free_bytes, "messages", messages);
    bool printed = document != NULL && json_dumpf(document, stdout, JSON_INDENT(2)) == 0;
    if (printed) putchar('\n');
    json_decref(document);
    return printed;
}

int main(int argc, char **argv) {
    struct arguments arguments = parse_arguments(argc, argv);
    struct trace trace;
    struct player_report report;
    char error[512];
    enum exit_status status = STATUS_OK;

    if (!trace_read(arguments.path, &trace, error, sizeof error)) {
        fprintf(stderr, "%s\n", error);
        return STATUS_USAGE;
    }
    if (trace.note[0] != '\0') fprintf(stderr, "%s: %s\n", arguments.path, trace.note);
    arguments.player.repeat_s = calloc(arguments.player.repeat, sizeof(double));
    if (arguments.player.repeat_s == NULL) {
        fputs("replay: out of memory\n", stderr);
        status = STATUS_CUDA;
    } else if (!player_play(&trace, &arguments.player, &report)) {
        fprintf(stderr, "replay: %s\n", report.messages[0]);
        status = STATUS_CUDA;
    } else {
        if (report.other_errors > 0) status = STATUS_CUDA;
        if (report.stamps_violated > 0 || report.overlaps > 0) status = STATUS_VIOLATED;
        if (!arguments.json) {
            print_text(&arguments, &trace, &report);
        } else if (!print_json(&arguments, &trace, &report)) {
            fputs("replay: the JSON document could not be written\n", stderr);
            status = STATUS_CUDA;
        }
    }
    free(arguments.player.repeat_s);
    trace_free(&trace);
    return status;
}
