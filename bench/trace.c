/* SPDX-License-Identifier: MIT
 *
 * Reads an allocation trace; see trace.h. Frees are paired with their allocations by a hash of the live ids.
 */
#include "trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "recording.h"
#include "text_file.h"

#define HEADER "seq,op,id,size,stream,thread,t_us"
enum { FIELDS = 7 };

/* A piece of the text. */
struct piece {
    const char *at;
    size_t length;
};

struct live_id {
    uint64_t id, size;
    uint32_t block;
    UT_hash_handle hh;
};

struct known_stream {
    uint64_t stream;
    uint32_t lane;
    UT_hash_handle hh;
};

struct reader {
    const char *path;
    size_t line; /* from 1 */
    char *error;
    size_t error_size;
    struct trace *trace;
    size_t room; /* of trace->events */
    struct live_id *live;
    struct known_stream *streams;
    uint64_t live_bytes;
};

static bool out_of_memory(struct reader *reader) {
    snprintf(reader->error, reader->error_size, "%s: out of memory", reader->path);
    return false;
}

/* Complain about a field, with what it holds: its first bytes, with ? for what cannot be shown. */
static bool wrong_field(struct reader *reader, const char *name, struct piece text, const char *expected) {
    char shown[40];
    size_t length = text.length < sizeof shown - 1 ? text.length : sizeof shown - 1;
    for (size_t i = 0; i < length; i++) shown[i] = text.at[i] >= ' ' && text.at[i] <= '~' ? text.at[i] : '?';
    shown[length] = '\0';
    snprintf(reader->error, reader->error_size, "%s:%zu: %s is \"%s\": expected %s", reader->path, reader->line, name,
             shown, expected);
    return false;
}

static bool parse_number(struct piece text, uint64_t *value) {
    uint64_t number = 0;
    for (size_t i = 0; i < text.length; i++) {
        unsigned digit = (unsigned)text.at[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, digit, &number))
            return false;
    }
    *value = number;
    return text.length > 0;
}

static size_t split_fields(struct piece line, struct piece fields[FIELDS]) {
    size_t count = 0;
    for (;;) {
        const char *comma = memchr(line.at, ',', line.length);
        size_t length = comma != NULL ? (size_t)(comma - line.at) : line.length;
        if (count < FIELDS) fields[count] = (struct piece){line.at, length};
        count++;
        if (comma == NULL) return count;
        line.at += length + 1;
        line.length -= length + 1;
    }
}

static struct live_id *live_find(struct reader *reader, uint64_t id) {
    struct live_id *found;
    HASH_FIND(hh, reader->live, &id, sizeof id, found);
    return found;
}

static bool live_add(struct reader *reader, uint64_t id, const struct trace_event *event) {
    struct live_id *entry = calloc(1, sizeof *entry);
    if (entry == NULL) return out_of_memory(reader);
    entry->id = id;
    entry->size = event->size;
    entry->block = event->block;
    HASH_ADD(hh, reader->live, id, sizeof entry->id, entry);
    if (entry->hh.tbl == NULL) {
        free(entry);
        return out_of_memory(reader);
    }
    return true;
}

static void live_remove(struct reader *reader, struct live_id *entry) {
    HASH_DEL(reader->live, entry);
    free(entry);
}

static bool find_lane(struct reader *reader, uint64_t stream, uint32_t *lane) {
    struct known_stream *known;
    HASH_FIND(hh, reader->streams, &stream, sizeof stream, known);
    if (known == NULL) {
        known = calloc(1, sizeof *known);
        if (known == NULL) return out_of_memory(reader);
        known->stream = stream;
        known->lane = reader->trace->lanes;
        HASH_ADD(hh, reader->streams, stream, sizeof known->stream, known);
        if (known->hh.tbl == NULL) {
            free(known);
            return out_of_memory(reader);
        }
        reader->trace->lanes++;
    }
    *lane = known->lane;
    return true;
}

static bool append_event(struct reader *reader, const struct trace_event *event) {
    struct trace *trace = reader->trace;
    if (trace->count == reader->room) {
        size_t room = reader->room > 0 ? 2 * reader->room : 4096;
        struct trace_event *events = realloc(trace->events, room * sizeof *events);
        if (events == NULL) return out_of_memory(reader);
        trace->events = events;
        reader->room = room;
    }
    trace->events[trace->count] = *event;
    return find_lane(reader, event->stream, &trace->events[trace->count++].lane);
}

/* The block's bytes are counted already. */
static bool begin_life(struct reader *reader, uint64_t id, struct trace_event *event) {
    struct trace *trace = reader->trace;
    event->block = (uint32_t)trace->blocks++;
    if (!live_add(reader, id, event) || !append_event(reader, event)) return false;
    if (reader->live_bytes > trace->peak_bytes) {
        trace->peak_bytes = reader->live_bytes;
        trace->peak_event = trace->count - 1;
    }
    return true;
}

static bool end_life(struct reader *reader, struct live_id *entry, struct trace_event *event) {
    event->size = entry->size;
    event->block = entry->block;
    reader->live_bytes -= entry->size;
    live_remove(reader, entry);
    return append_event(reader, event);
}

static bool take_alloc(struct reader *reader, struct piece id_text, uint64_t id, struct piece size_text,
                       struct trace_event *event) {
    struct trace *trace = reader->trace;
    if (event->size == 0) return wrong_field(reader, "size", size_text, "a number of bytes above 0");
    if (live_find(reader, id) != NULL)
        return wrong_field(reader, "id", id_text, "one that is not live (this one was allocated and not yet freed)");
    if (trace->blocks == UINT32_MAX || __builtin_add_overflow(reader->live_bytes, event->size, &reader->live_bytes))
        return wrong_field(reader, "size", size_text, "live bytes below 2^64 in fewer than 2^32 allocations");
    return begin_life(reader, id, event);
}

static bool take_free(struct reader *reader, struct piece id_text, uint64_t id, struct piece size_text,
                      struct trace_event *event) {
    struct live_id *entry = live_find(reader, id);
    if (entry == NULL) return wrong_field(reader, "id", id_text, "one that is live (allocated before, not yet freed)");
    if (event->size != 0 && event->size != entry->size) {
        char expected[64];
        snprintf(expected, sizeof expected, "0 or the size of its allocation, %" PRIu64, entry->size);
        return wrong_field(reader, "size", size_text, expected);
    }
    return end_life(reader, entry, event);
}

static bool take_line(struct reader *reader, struct piece line) {
    static const char *const names[FIELDS] = {"seq", "op", "id", "size", "stream", "thread", "t_us"};
    struct trace *trace = reader->trace;
    struct trace_event event = {0};
    struct piece fields[FIELDS];
    uint64_t id = 0;
    uint64_t *const numbers[FIELDS] = {&event.seq, NULL, &id, &event.size, &event.stream, &event.thread, &event.t_us};

    size_t count = split_fields(line, fields);
    if (count != FIELDS) {
        snprintf(reader->error, reader->error_size, "%s:%zu: %zu field%s: expected %d, %s", reader->path, reader->line,
                 count, count == 1 ? "" : "s", FIELDS, HEADER);
        return false;
    }
    for (size_t i = 0; i < FIELDS; i++) {
        if (numbers[i] != NULL && !parse_number(fields[i], numbers[i]))
            return wrong_field(reader, names[i], fields[i], "a whole number from 0 to 2^64 - 1");
    }
    if (trace->count > 0 && event.seq <= trace->events[trace->count - 1].seq) {
        char expected[64];
        snprintf(expected, sizeof expected, "a number above the last one, %" PRIu64,
                 trace->events[trace->count - 1].seq);
        return wrong_field(reader, "seq", fields[0], expected);
    }
    if (fields[1].length == 1 && fields[1].at[0] == TRACE_ALLOC) {
        event.op = TRACE_ALLOC;
        return take_alloc(reader, fields[2], id, fields[3], &event);
    }
    if (fields[1].length == 1 && fields[1].at[0] == TRACE_FREE) {
        event.op = TRACE_FREE;
        return take_free(reader, fields[2], id, fields[3], &event);
    }
    return wrong_field(reader, "op", fields[1], "a (allocate) or f (free)");
}

static bool take_text(struct reader *reader, const char *text, size_t size) {
    const char *end = text + size;
    if (size == 0) {
        snprintf(reader->error, reader->error_size, "%s:1: the file is empty: expected the header %s", reader->path,
                 HEADER);
        return false;
    }
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *next = newline != NULL ? newline + 1 : end;
        struct piece line = {text, newline != NULL ? (size_t)(newline - text) : (size_t)(end - text)};
        if (line.length > 0 && line.at[line.length - 1] == '\r') line.length--;
        reader->line++;
        if (reader->line > 1) {
            if (!take_line(reader, line)) return false;
        } else if (line.length != strlen(HEADER) || memcmp(line.at, HEADER, line.length) != 0) {
            return wrong_field(reader, "the first line", line, "the header " HEADER);
        }
        text = next;
    }
    return true;
}

/* ---- recordings ---- */

#define NOT_NUMBERED (UINT64_C(1) << 63) /* keeps addresses and handles apart from numbers */

static struct trace_event event_of(const struct reader *reader, const struct recorded *call, enum trace_op op) {
    return (struct trace_event){
        .seq = reader->trace->count,
        .size = call->size,
        .stream = call->stream_kind == POOLCUDA_TRACE_STREAM_HANDLE ? call->stream | NOT_NUMBERED : call->stream,
        .thread = call->thread,
        .t_us = call->ns / 1000,
        .op = op,
    };
}

/* What happened to the allocations that are not in the trace. */
struct left_out {
    size_t repeated, unknown;
};

static bool take_call(struct reader *reader, const struct recorded *call, struct left_out *left_out) {
    const uint64_t id = call->number != 0 ? call->number : call->address | NOT_NUMBERED;
    struct live_id *entry = live_find(reader, id);
    if (call->code != 0 || (call->number == 0 && call->address == 0)) return true;
    if (call->operation == POOLCUDA_TRACE_RELEASE || (entry != NULL && call->number == 0)) {
        struct trace_event end = event_of(reader, call, TRACE_FREE);
        left_out->unknown += entry == NULL;
        if (entry != NULL && !end_life(reader, entry, &end)) return false;
        if (call->operation == POOLCUDA_TRACE_RELEASE) return true;
        entry = NULL;
    }
    uint64_t bytes;
    struct trace_event begin = event_of(reader, call, TRACE_ALLOC);
    if (entry != NULL || call->size == 0 || reader->trace->blocks == UINT32_MAX ||
        __builtin_add_overflow(reader->live_bytes, call->size, &bytes)) {
        left_out->repeated++;
        return true;
    }
    reader->live_bytes = bytes;
    return begin_life(reader, id, &begin);
}

static void add_note(struct trace *trace, size_t count, const char *what) {
    const size_t length = strlen(trace->note);
    if (count > 0)
        snprintf(trace->note + length, sizeof trace->note - length, "%s%zu %s", length > 0 ? "; " : "", count, what);
}

static bool take_recording(struct reader *reader, const void *data, size_t size) {
    struct recording recording;
    struct left_out left_out = {0};
    if (!recording_read(reader->path, data, size, &recording, reader->error, reader->error_size)) return false;
    bool taken = true;
    for (size_t i = 0; taken && i < recording.count; i++) taken = take_call(reader, &recording.calls[i], &left_out);
    snprintf(reader->trace->note, sizeof reader->trace->note, "%s", recording.note);
    add_note(reader->trace, left_out.unknown, "frees are of memory whose allocation is not in it");
    add_note(reader->trace, left_out.repeated, "allocations make no sense, and were dropped");
    recording_free(&recording);
    return taken;
}

bool trace_read(const char *path, struct trace *trace, char *error, size_t error_size) {
    struct reader reader = {.path = path, .error = error, .error_size = error_size, .trace = trace};
    struct live_id *entry, *next;
    struct known_stream *stream, *next_stream;
    char *text;
    size_t size;

    *trace = (struct trace){0};
    if (!text_file_read(path, &text, &size, error, error_size)) return false;
    bool read = recording_is_one(text, size) ? take_recording(&reader, text, size) : take_text(&reader, text, size);
    free(text);
    trace->live_at_end = HASH_COUNT(reader.live);
    HASH_ITER (hh, reader.live, entry, next) live_remove(&reader, entry);
    HASH_ITER (hh, reader.streams, stream, next_stream) {
        HASH_DEL(reader.streams, stream);
        free(stream);
    }
    if (!read) trace_free(trace);
    return read;
}

void trace_free(struct trace *trace) {
    free(trace->events);
    *trace = (struct trace){0};
}
