/* SPDX-License-Identifier: MIT
 *
 * Reads a recording; see recording.h.
 */
#include "recording.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct numbered {
    uint64_t number;
    size_t call; /* the allocation */
    UT_hash_handle hh;
};

struct reader {
    struct recording *recording;
    size_t room;                         /* of recording->calls */
    struct poolcuda_trace_moment latest; /* of the blocks */
    uint64_t blocks, lost;
    bool ended; /* in order */
    struct poolcuda_trace_place places[POOLCUDA_TRACE_PLACES];
    bool known[POOLCUDA_TRACE_PLACES];
};

bool recording_is_one(const void *data, size_t size) {
    return size >= sizeof POOLCUDA_TRACE_MAGIC && memcmp(data, POOLCUDA_TRACE_MAGIC, sizeof POOLCUDA_TRACE_MAGIC) == 0;
}

static void __attribute__((format(printf, 2, 3))) note(struct recording *recording, const char *format, ...) {
    size_t length = strlen(recording->note);
    va_list arguments;
    if (length > 0 && length + 2 < sizeof recording->note) {
        memcpy(recording->note + length, "; ", 3);
        length += 2;
    }
    va_start(arguments, format);
    vsnprintf(recording->note + length, sizeof recording->note - length, format, arguments);
    va_end(arguments);
}

/* ---- one block ---- */

static bool append(struct reader *reader, struct recorded call) {
    struct recording *recording = reader->recording;
    if (recording->count == reader->room) {
        const size_t room = reader->room > 0 ? 2 * reader->room : 4096;
        struct recorded *calls = realloc(recording->calls, room * sizeof *calls);
        if (calls == NULL) return false;
        recording->calls = calls;
        reader->room = room;
    }
    /* Odd numbers, so that one can be put before another. */
    call.order = 2 * (uint64_t)recording->count + 1;
    recording->calls[recording->count++] = call;
    return true;
}

static void put_where(struct recorded *call, const struct poolcuda_trace_place *place) {
    call->stream = place->stream;
    call->device = place->where.device;
    call->memory = place->where.memory;
    call->stream_kind = place->where.stream_kind;
    call->served = POOLCUDA_TRACE_BY_HIT;
}

static struct recorded hit_of(const uint64_t *words, const struct poolcuda_trace_place *place) {
    struct recorded call = {.operation = POOLCUDA_TRACE_ALLOC};
    put_where(&call, place);
    call.number = place->first + (words[0] >> 48);
    call.size = words[1] & UINT32_MAX;
    call.address = ((words[0] >> 40 & 0xff) << 32 | words[1] >> 32) * 512;
    return call;
}

/* The number that ends in these bits and is nearest to the place's first. */
static struct recorded free_of(const uint64_t *words, const struct poolcuda_trace_place *place) {
    const uint64_t mask = (UINT64_C(1) << POOLCUDA_TRACE_FREE_BITS) - 1, half = UINT64_C(1)
                                                                                << (POOLCUDA_TRACE_FREE_BITS - 1);
    struct recorded call = {.operation = POOLCUDA_TRACE_RELEASE};
    put_where(&call, place);
    const uint64_t bits = words[0] >> (64 - POOLCUDA_TRACE_FREE_BITS);
    call.number = place->first - half + ((bits - (place->first - half)) & mask);
    return call;
}

static bool call_of(const uint64_t *words, struct recorded *call) {
    struct poolcuda_trace_call record;
    memcpy(&record, words, sizeof record);
    *call = (struct recorded){
        .address = record.address,
        .size = record.size,
        .number = record.number,
        .stream = record.stream,
        .device = record.device,
        .code = record.code,
        .operation = record.operation,
        .served = record.served,
        .memory = record.memory,
        .stream_kind = record.stream_kind,
    };
    return (record.operation == POOLCUDA_TRACE_ALLOC || record.operation == POOLCUDA_TRACE_RELEASE) &&
           record.served >= POOLCUDA_TRACE_BY_HIT && record.served <= POOLCUDA_TRACE_BY_NONE &&
           record.memory <= POOLCUDA_TRACE_ASYNC && record.stream_kind <= POOLCUDA_TRACE_STREAM_HANDLE;
}

enum taken { TAKEN, TAKEN_NOT_WHOLE, TAKEN_NO_MEMORY };

/* A block whose records are not what they should be is as good as none: nothing of it is taken. */
static enum taken take_records(struct reader *reader, const struct poolcuda_trace_block *head, const uint64_t *words,
                               size_t count) {
    static const size_t lengths[8] = {[POOLCUDA_TRACE_HIT] = 2,
                                      [POOLCUDA_TRACE_FREE] = 1,
                                      [POOLCUDA_TRACE_PLACE] = sizeof(struct poolcuda_trace_place) / 8,
                                      [POOLCUDA_TRACE_CALL] = sizeof(struct poolcuda_trace_call) / 8};
    const struct poolcuda_trace_header *header = &reader->recording->header;
    memset(reader->known, 0, sizeof reader->known);
    for (size_t at = 0; at < count;) {
        const uint64_t word = words[at];
        const unsigned kind = word >> POOLCUDA_TRACE_KIND_SHIFT & 7;
        const unsigned number = word >> POOLCUDA_TRACE_PLACE_SHIFT & (POOLCUDA_TRACE_PLACES - 1);
        struct recorded call;
        if (lengths[kind] == 0 || lengths[kind] > count - at) return TAKEN_NOT_WHOLE;
        if (kind == POOLCUDA_TRACE_PLACE) {
            memcpy(&reader->places[number], &words[at], sizeof reader->places[number]);
            reader->known[number] = true;
        } else if (kind == POOLCUDA_TRACE_CALL) {
            if (!call_of(&words[at], &call)) return TAKEN_NOT_WHOLE;
        } else {
            if (!reader->known[number]) return TAKEN_NOT_WHOLE;
            call = kind == POOLCUDA_TRACE_HIT ? hit_of(&words[at], &reader->places[number])
                                              : free_of(&words[at], &reader->places[number]);
        }
        if (kind != POOLCUDA_TRACE_PLACE) {
            const uint64_t time = word & ((UINT64_C(1) << POOLCUDA_TRACE_TIME_BITS) - 1);
            call.thread = head->thread;
            call.runtime_door = word >> POOLCUDA_TRACE_DOOR_SHIFT & 1;
            call.time = head->base + (time << header->time_shift);
            if (!append(reader, call)) return TAKEN_NO_MEMORY;
        }
        at += lengths[kind];
    }
    return TAKEN;
}

static bool is_head(const struct poolcuda_trace_block *head, uint64_t number, size_t left) {
    return head->magic == POOLCUDA_TRACE_BLOCK_MAGIC && head->bytes >= sizeof *head &&
           head->bytes <= POOLCUDA_TRACE_BLOCK_BYTES && head->bytes % 8 == 0 && head->bytes <= left &&
           head->number == number;
}

static bool take_blocks(struct reader *reader, const unsigned char *data, size_t size) {
    struct recording *recording = reader->recording;
    uint64_t words[POOLCUDA_TRACE_BLOCK_BYTES / 8];
    size_t at = sizeof recording->header;
    while (size - at >= sizeof(struct poolcuda_trace_block)) {
        struct poolcuda_trace_block head;
        memcpy(&head, data + at, sizeof head);
        if (!is_head(&head, reader->blocks, size - at)) break;
        const size_t bytes = head.bytes - sizeof head, before = recording->count;
        memcpy(words, data + at + sizeof head, bytes);
        const enum taken taken = take_records(reader, &head, words, bytes / 8);
        if (taken == TAKEN_NO_MEMORY) return false;
        if (taken == TAKEN_NOT_WHOLE) {
            recording->count = before;
            break;
        }
        at += head.bytes;
        reader->blocks++;
        reader->lost = head.lost;
        reader->ended = reader->ended || (head.flags & POOLCUDA_TRACE_LAST) != 0;
        if (head.end.counter > reader->latest.counter) reader->latest = head.end;
    }
    if (at < size) note(recording, "%zu bytes after the last whole block were dropped", size - at);
    return true;
}

/* ---- all of them ---- */

static int by_time(const void *one, const void *other) {
    const struct recorded *a = one, *b = other;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Processors may read their counter a little early: an allocation that seems to come after its free in another thread
 * goes before it. */
static bool put_before_their_frees(struct recording *recording) {
    struct numbered *table = NULL, *entry, *next;
    bool enough = true;
    for (size_t i = 0; enough && i < recording->count; i++) {
        const struct recorded *call = &recording->calls[i];
        if (call->operation != POOLCUDA_TRACE_ALLOC || call->number == 0) continue;
        entry = calloc(1, sizeof *entry);
        enough = entry != NULL;
        if (!enough) break;
        entry->number = call->number;
        entry->call = i;
        HASH_ADD(hh, table, number, sizeof entry->number, entry);
        enough = entry->hh.tbl != NULL;
        if (!enough) free(entry);
    }
    for (size_t i = 0; enough && i < recording->count; i++) {
        struct recorded *call = &recording->calls[i];
        if (call->operation != POOLCUDA_TRACE_RELEASE || call->number == 0) continue;
        HASH_FIND(hh, table, &call->number, sizeof call->number, entry);
        if (entry == NULL) continue;
        struct recorded *allocation = &recording->calls[entry->call];
        if (call->address == 0) call->address = allocation->address;
        if (by_time(allocation, call) < 0) continue;
        allocation->time = call->time;
        allocation->order = call->order - 1;
    }
    HASH_ITER (hh, table, entry, next) {
        HASH_DEL(table, entry);
        free(entry);
    }
    return enough;
}

static void tell_times(struct reader *reader) {
    struct recording *recording = reader->recording;
    const struct poolcuda_trace_moment begin = recording->header.begin;
    double ns_per_count = 1;
    if (reader->latest.counter > begin.counter && reader->latest.ns > begin.ns)
        ns_per_count = (double)(reader->latest.ns - begin.ns) / (double)(reader->latest.counter - begin.counter);
    for (size_t i = 0; i < recording->count; i++) {
        struct recorded *call = &recording->calls[i];
        const double ns = call->time > begin.counter ? (double)(call->time - begin.counter) * ns_per_count : 0;
        call->ns = ns < 0x1p63 ? (uint64_t)ns : UINT64_C(1) << 63;
    }
}

static void say_what_is_missing(const struct reader *reader) {
    struct recording *recording = reader->recording;
    if (!reader->ended)
        note(recording,
             "the process was killed, its disk was full, or it still runs: the last calls of each of its threads are "
             "missing");
    if (reader->lost > 0) note(recording, "%" PRIu64 " calls could not be recorded", reader->lost);
}

bool recording_read(const char *path, const void *data, size_t size, struct recording *recording, char *error,
                    size_t error_size) {
    struct reader reader = {.recording = recording};
    struct poolcuda_trace_header *header = &recording->header;
    *recording = (struct recording){0};
    if (size < sizeof *header) {
        snprintf(error, error_size, "%s: a recording of %zu bytes: expected at least its header of %zu", path, size,
                 sizeof *header);
        return false;
    }
    memcpy(header, data, sizeof *header);
    if (header->version != POOLCUDA_TRACE_VERSION || header->header_bytes != sizeof *header ||
        header->time_shift > 16) {
        snprintf(error, error_size, "%s: a recording of version %" PRIu32 ": expected %u", path, header->version,
                 POOLCUDA_TRACE_VERSION);
        return false;
    }
    header->library_version[sizeof header->library_version - 1] = '\0';
    header->command[sizeof header->command - 1] = '\0';
    if (!take_blocks(&reader, data, size) || !put_before_their_frees(recording)) {
        snprintf(error, error_size, "%s: out of memory", path);
        recording_free(recording);
        return false;
    }
    if (recording->count > 0) qsort(recording->calls, recording->count, sizeof *recording->calls, by_time);
    tell_times(&reader);
    say_what_is_missing(&reader);
    return true;
}

void recording_free(struct recording *recording) {
    free(recording->calls);
    recording->calls = NULL;
    recording->count = 0;
}
