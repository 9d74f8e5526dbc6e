/* SPDX-License-Identifier: MIT
 *
 * capacity: how small a GPU the jobs of some allocation traces fit on, with the pool's policy. See usage() and fit.h.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "config/config.h"
#include "fit.h"
#include "stats/writer.h"
#include "trace.h"

enum exit_status { STATUS_OK = 0, STATUS_USAGE = 2, STATUS_POOL = 3 };

#define MIB_BYTES (UINT64_C(1) << 20)

static void usage(FILE *out) {
    fputs(
        "Usage: capacity [OPTION…] TRACE…\n"
        "\n"
        "Plays allocation traces (as replay does: CSV, plain or xz) through the pool, without a GPU and without data: "
        "one\n"
        "stream, freed memory idle at once, no headroom. Says of each trace how little device memory suffices, and "
        "what\n"
        "the pool asks of the driver.\n"
        "\n"
        "      --traces DIR         also the traces in DIR (*.csv, *.csv.xz, *.trace), by name\n"
        "      --segment-mb N       POOL_SEGMENT_MB (default: the library's)\n"
        "      --max-split-mb N     POOL_MAX_SPLIT_MB: auto, none, or a number (default: the library's)\n"
        "  -j, --json               print one JSON document, a list of objects\n"
        "  -h, --help               this text\n"
        "\n"
        "  peak live        most bytes that are live at once\n"
        "  capacity         the smallest device memory on which the trace completes, over its peak live\n"
        "  3 times          the same for the trace played three times over\n"
        "  reserved         peak reserved over peak live, on an unlimited device\n"
        "  stranded         there at the peak of the live bytes: free bytes in segments that also hold live blocks\n"
        "  calls            driver allocations + releases: on an unlimited device, the first time; there in one\n"
        "                   repetition once warm; on a device of 1.10 times the peak live; on the smallest device\n"
        "\n"
        "Exit status: 0 measured; 2 wrong usage or a malformed trace; 3 the pool failed otherwise.\n",
        out);
}

__attribute__((noreturn)) static void bad_usage(const char *option, const char *value, const char *expected) {
    fprintf(stderr, "capacity: %s is \"%s\": expected %s\n", option, value, expected);
    exit(STATUS_USAGE);
}

static uint64_t mib_option(const char *option, const char *text, const char *expected) {
    enum { LEAST = 2, MOST = 1 << 20 };
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < LEAST || value > MOST) bad_usage(option, text, expected);
    return (uint64_t)value * MIB_BYTES;
}

static uint64_t split_option(const char *text) {
    if (strcmp(text, "auto") == 0) return CONFIG_AUTO;
    if (strcmp(text, "none") == 0) return CONFIG_NONE;
    return mib_option("--max-split-mb", text, "auto, none, or a whole number from 2 to 1048576");
}

__attribute__((noreturn)) static void no_host_memory(void) {
    fputs("capacity: out of memory\n", stderr);
    exit(STATUS_POOL);
}

struct paths {
    char **items;
    size_t count;
};

static void paths_add(struct paths *paths, char *path) {
    char **items = realloc(paths->items, (paths->count + 1) * sizeof *items);
    if (items == NULL || path == NULL) no_host_memory();
    paths->items = items;
    paths->items[paths->count++] = path;
}

static bool ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), of_end = strlen(end);
    return length > of_end && strcmp(name + length - of_end, end) == 0;
}

static int is_trace(const struct dirent *entry) {
    return ends_with(entry->d_name, ".csv") || ends_with(entry->d_name, ".csv.xz") ||
           ends_with(entry->d_name, ".trace");
}

static void paths_add_folder(struct paths *paths, const char *folder) {
    struct dirent **entries;
    const int count = scandir(folder, &entries, is_trace, alphasort);
    if (count < 0) {
        fprintf(stderr, "capacity: %s: %s\n", folder, strerror(errno));
        exit(STATUS_USAGE);
    }
    if (count == 0) bad_usage("--traces", folder, "a folder with traces (*.csv, *.csv.xz, *.trace)");
    for (int i = 0; i < count; i++) {
        const size_t size = strlen(folder) + strlen(entries[i]->d_name) + 2;
        char *path = malloc(size);
        if (path != NULL) snprintf(path, size, "%s/%s", folder, entries[i]->d_name);
        paths_add(paths, path);
        free(entries[i]);
    }
    free(entries);
}

struct arguments {
    struct pool_options pool;
    struct paths paths;
    bool json;
};

static struct arguments parse_arguments(int argc, char **argv) {
    enum { TRACES = 256, SEGMENT, MAX_SPLIT };
    static const struct option options[] = {
        {"traces", required_argument, NULL, TRACES},
        {"segment-mb", required_argument, NULL, SEGMENT},
        {"max-split-mb", required_argument, NULL, MAX_SPLIT},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    static char *const no_environment[] = {NULL};
    struct config defaults;
    config_parse(no_environment, &defaults, NULL, NULL);
    struct arguments arguments = {.pool = {.segment_bytes = defaults.segment,
                                           .max_split_bytes = defaults.max_split,
                                           .limit_bytes = defaults.limit,
                                           .headroom_bytes = 0,
                                           .trim_bytes = defaults.trim}};
    int option;
    while ((option = getopt_long(argc, argv, "jh", options, NULL)) != -1) {
        switch (option) {
        case TRACES:
            paths_add_folder(&arguments.paths, optarg);
            break;
        case SEGMENT:
            arguments.pool.segment_bytes = mib_option("--segment-mb", optarg, "a whole number from 2 to 1048576");
            break;
        case MAX_SPLIT:
            arguments.pool.max_split_bytes = split_option(optarg);
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
    for (int i = optind; i < argc; i++) paths_add(&arguments.paths, strdup(argv[i]));
    if (arguments.paths.count == 0) {
        usage(stderr);
        exit(STATUS_USAGE);
    }
    return arguments;
}

/* The file's name without folder and form. */
static void trace_name(const char *path, char *name, size_t size) {
    static const char *const forms[] = {".xz", ".csv", ".trace"};
    const char *slash = strrchr(path, '/');
    snprintf(name, size, "%s", slash != NULL ? slash + 1 : path);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (ends_with(name, forms[i])) name[strlen(name) - strlen(forms[i])] = '\0';
}

static double ratio(uint64_t bytes, const struct trace *trace) {
    return (double)bytes / (double)trace->peak_bytes;
}

/* Once: where nothing can be measured, there is no table. */
static void print_head(void) {
    static bool printed;
    if (printed) return;
    printed = true;
    printf("                                                                                     calls: allocations + "
           "releases\n");
    printf("%-28s %9s %9s %7s %9s %9s %12s %6s %12s %12s\n", "trace", "peak live", "capacity", "3 times", "reserved",
           "stranded", "unlimited", "warm", "at 1.10", "at capacity");
}

static void print_row(const char *name, const struct trace *trace, const struct fit_report *report) {
    char at_110[48] = "does not fit", calls[48], at_capacity[48];
    print_head();
    snprintf(calls, sizeof calls, "%ju + %ju", (uintmax_t)report->once.allocs, (uintmax_t)report->once.frees);
    if (report->fits_110)
        snprintf(at_110, sizeof at_110, "%ju + %ju", (uintmax_t)report->at_110.allocs, (uintmax_t)report->at_110.frees);
    snprintf(at_capacity, sizeof at_capacity, "%ju + %ju", (uintmax_t)report->at_capacity.allocs,
             (uintmax_t)report->at_capacity.frees);
    printf("%-28s %5.0f MiB %9.3f %7.3f %9.3f %5.1f MiB %12s %6ju %12s %12s\n", name,
           (double)trace->peak_bytes / MIB_BYTES, ratio(report->capacity, trace),
           ratio(report->capacity_repeated, trace), ratio(report->peak_reserved, trace),
           (double)report->stranded / MIB_BYTES, calls, (uintmax_t)report->warm_calls, at_110, at_capacity);
}

static json_t *json_of(const char *name, const struct trace *trace, const struct fit_report *report) {
    const bool fits = report->fits_110;
    return json_pack(
        "{s:s, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I}", //
        "trace", name, "allocations", (json_int_t)trace->blocks,                       //
        "peak_live", (json_int_t)trace->peak_bytes, "capacity_ratio", ratio(report->capacity, trace),
        "capacity_ratio_3", ratio(report->capacity_repeated, trace), "reserved_ratio",
        ratio(report->peak_reserved, trace), //
        "driver_allocs", (json_int_t)report->once.allocs, "driver_frees", (json_int_t)report->once.frees,
        "stranded_bytes", (json_int_t)report->stranded, "warm_driver_calls", (json_int_t)report->warm_calls, //
        "driver_allocs_110", fits ? json_integer((json_int_t)report->at_110.allocs) : json_null(), "driver_frees_110",
        fits ? json_integer((json_int_t)report->at_110.frees) : json_null(), //
        "driver_calls_110_repeated",
        report->fits_110_repeated ? json_integer((json_int_t)report->repeated_110) : json_null(), //
        "driver_allocs_at_capacity", (json_int_t)report->at_capacity.allocs, "driver_frees_at_capacity",
        (json_int_t)report->at_capacity.frees);
}

/* Measure one file, and print its row, or append it to `list`. */
static enum exit_status measure(const struct arguments *arguments, const char *path, json_t *list) {
    struct trace trace;
    struct fit_report report;
    char error[512], name[256];
    enum exit_status status = STATUS_OK;
    if (!trace_read(path, &trace, error, sizeof error)) {
        fprintf(stderr, "capacity: %s\n", error);
        return STATUS_USAGE;
    }
    if (trace.note[0] != '\0') fprintf(stderr, "capacity: %s: %s\n", path, trace.note);
    trace_name(path, name, sizeof name);
    if (!fit_measure(&trace, &arguments->pool, &report, error, sizeof error)) {
        fprintf(stderr, "capacity: %s: %s\n", path, error);
        status = trace.blocks == 0 ? STATUS_USAGE : STATUS_POOL;
    } else if (list == NULL) {
        print_row(name, &trace, &report);
    } else if (json_array_append_new(list, json_of(name, &trace, &report)) != 0) {
        no_host_memory();
    }
    trace_free(&trace);
    return status;
}

int main(int argc, char **argv) {
    struct arguments arguments = parse_arguments(argc, argv);
    json_t *list = arguments.json ? json_array() : NULL;
    enum exit_status status = STATUS_OK;

    stats_start(false);
    for (size_t i = 0; i < arguments.paths.count && status == STATUS_OK; i++) {
        status = measure(&arguments, arguments.paths.items[i], list);
        fflush(stdout);
    }
    if (arguments.json && status == STATUS_OK) {
        if (json_dumpf(list, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) != 0) status = STATUS_POOL;
        putchar('\n');
    }
    json_decref(list);
    for (size_t i = 0; i < arguments.paths.count; i++) free(arguments.paths.items[i]);
    free(arguments.paths.items);
    return status;
}
