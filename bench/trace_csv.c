/* SPDX-License-Identifier: MIT
 *
 * trace-csv: an allocation trace as text, a line for each event: what bench/trace.h reads, or with --calls all that a
 * recording of POOL_TRACE holds.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "recording.h"
#include "text_file.h"
#include "trace.h"

static void usage(FILE *out) {
    fputs(
        "Usage: trace-csv [OPTION…] TRACE\n"
        "\n"
        "Prints an allocation trace (a recording of POOL_TRACE, or seq,op,id,size,stream,thread,t_us; plain or xz) as\n"
        "seq,op,id,size,stream,thread,t_us. What a recording lacks is said on stderr.\n"
        "\n"
        "  -c, --calls  of a recording: every call, those that failed too, as\n"
        "               seq,t_ns,op,number,address,size,memory,stream,thread,device,door,served,code\n"
        "  -h, --help   this text\n",
        out);
}

static void print_trace(const struct trace *trace) {
    puts("seq,op,id,size,stream,thread,t_us");
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_event *event = &trace->events[i];
        printf("%" PRIu64 ",%c,%" PRIu32 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", event->seq,
               (char)event->op, event->block, event->size, event->stream, event->thread, event->t_us);
    }
}

static void print_calls(const struct recording *recording) {
    static const char *const served[] = {"", "hit", "miss", "driver", "refused"};
    static const char *const streams[] = {"", "#", "0x"};
    puts("seq,t_ns,op,number,address,size,memory,stream,thread,device,door,served,code");
    for (size_t i = 0; i < recording->count; i++) {
        const struct recorded *call = &recording->calls[i];
        char stream[32] = "";
        if (call->stream_kind != POOLCUDA_TRACE_NO_STREAM)
            snprintf(stream, sizeof stream, call->stream_kind == POOLCUDA_TRACE_STREAM_ID ? "%s%" PRIu64 : "%s%" PRIx64,
                     streams[call->stream_kind], call->stream);
        printf("%zu,%" PRIu64 ",%c,%" PRIu64 ",0x%" PRIx64 ",%" PRIu64 ",%s,%s,%" PRIu32 ",%" PRId32 ",%s,%s,%u\n", i,
               call->ns, call->operation == POOLCUDA_TRACE_ALLOC ? TRACE_ALLOC : TRACE_FREE, call->number,
               call->address, call->size, call->memory == POOLCUDA_TRACE_ASYNC ? "async" : "plain", stream,
               call->thread, call->device, call->runtime_door ? "runtime" : "driver", served[call->served], call->code);
    }
}

static bool convert(const char *path, char *error, size_t error_size) {
    struct trace trace;
    if (!trace_read(path, &trace, error, error_size)) return false;
    print_trace(&trace);
    if (trace.note[0] != '\0') fprintf(stderr, "%s: %s\n", path, trace.note);
    trace_free(&trace);
    return true;
}

static bool list_calls(const char *path, char *error, size_t error_size) {
    struct recording recording;
    char *data;
    size_t size;
    if (!text_file_read(path, &data, &size, error, error_size)) return false;
    bool read = recording_is_one(data, size);
    if (!read)
        snprintf(error, error_size, "%s: no recording of POOL_TRACE", path);
    else
        read = recording_read(path, data, size, &recording, error, error_size);
    free(data);
    if (!read) return false;
    print_calls(&recording);
    if (recording.note[0] != '\0') fprintf(stderr, "%s: %s\n", path, recording.note);
    recording_free(&recording);
    return true;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"calls", no_argument, NULL, 'c'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    bool calls = false;
    char error[512];
    int option;
    while ((option = getopt_long(argc, argv, "ch", options, NULL)) != -1) {
        if (option == 'c') {
            calls = true;
            continue;
        }
        usage(option == 'h' ? stdout : stderr);
        return option == 'h' ? 0 : 2;
    }
    if (argc - optind != 1) {
        usage(stderr);
        return 2;
    }
    if (!(calls ? list_calls : convert)(argv[optind], error, sizeof error)) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    if (fflush(stdout) != 0) {
        fputs("trace-csv: the text could not be written\n", stderr);
        return 1;
    }
    return 0;
}
