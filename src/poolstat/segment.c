/* SPDX-License-Identifier: MIT
 *
 * Copies a segment while its owner writes: a pool's record, cells and fixed-size pools are taken between two looks at
 * all their sequence numbers, equal and even, retried for about a millisecond, and then as they come, frees before
 * allocations, so that no difference is negative.
 */
#include "segment.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "segment_map.h"

#define RETRY_NS 1000000u    /* for consistent copies of all pools together */
#define STARTING_RETRIES 20u /* of a millisecond each, for an owner that is just making its segment */
#define STARTING_RETRY_NS 1000000

struct reading {
    int fd;
    char *why;
    const struct poolcuda_header *header;
    char *cells, *fixed; /* copies of whole sections */
    uint64_t deadline_ns;
    bool gone_too; /* pools that are gone, and have figures */
};

/* The pool that is being copied. */
struct copying {
    uint64_t offset;  /* of its record */
    uint32_t *places; /* of its cells in their section */
    size_t place_count;
    uint64_t *sequences; /* the record's, then those of its cells */
    struct segment_pool *pool;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static enum segment_result read_at(const struct reading *reading, void *to, uint64_t size, uint64_t offset) {
    char *at = to;
    while (size > 0) {
        const ssize_t got = pread(reading->fd, at, size, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            snprintf(reading->why, SEGMENT_WHY_SIZE, "could not be read: %s", strerror(errno));
            return SEGMENT_FAILED;
        }
        if (got == 0) {
            snprintf(reading->why, SEGMENT_WHY_SIZE, "became shorter while it was read");
            return SEGMENT_DAMAGED;
        }
        at += got;
        offset += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return SEGMENT_READ;
}

static enum segment_result read_for_map(const void *reading, void *to, uint64_t size, uint64_t offset) {
    return read_at(reading, to, size, offset);
}

static uint64_t section_bytes(const struct poolcuda_section *section) {
    return (uint64_t)section->count * section->stride;
}

static enum segment_result read_section(const struct reading *reading, const struct poolcuda_section *section,
                                        void *to) {
    return section->count == 0 ? SEGMENT_READ : read_at(reading, to, section_bytes(section), section->offset);
}

/* The cells that may be in use, asked anew: what was opened since lies perhaps beyond those that were. */
static enum segment_result read_cells(const struct reading *reading, uint32_t *count) {
    const struct poolcuda_section *section = &reading->header->cells;
    uint32_t end = 0;
    const enum segment_result result = read_at(reading, &end, sizeof(end), offsetof(struct poolcuda_header, cells.end));
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    *count = end == 0 || end > section->count ? section->count : end;
    return result != SEGMENT_READ
               ? result
               : read_at(reading, reading->cells, (uint64_t)*count * section->stride, section->offset);
}

/* Which cells are the pool's. True in *same when they were known as such. */
static enum segment_result find_cells(const struct reading *reading, struct copying *copying, bool *same) {
    const struct poolcuda_section *section = &reading->header->cells;
    uint32_t in_use;
    const enum segment_result result = read_cells(reading, &in_use);
    size_t count = 0;
    *same = true;
    for (uint32_t i = 0; result == SEGMENT_READ && i < in_use; i++) {
        const void *record = reading->cells + (size_t)i * section->stride;
        if (((const struct poolcuda_cell *)record)->pool != copying->pool->number) continue;
        *same &= count < copying->place_count && copying->places[count] == i;
        copying->places[count++] = i;
    }
    *same &= count == copying->place_count;
    copying->place_count = copying->pool->cell_count = count;
    return result;
}

static uint64_t cell_offset(const struct reading *reading, const struct copying *copying, size_t cell) {
    const struct poolcuda_section *section = &reading->header->cells;
    return section->offset + (uint64_t)copying->places[cell] * section->stride;
}

/* In *settled: all of them are even, and, when `again`, the same as at the first look. */
static enum segment_result look_at_sequences(const struct reading *reading, struct copying *copying, bool again,
                                             bool *settled) {
    enum segment_result result = SEGMENT_READ;
    *settled = true;
    for (size_t i = 0; result == SEGMENT_READ && *settled && i <= copying->place_count; i++) {
        const uint64_t at = i == 0 ? copying->offset + offsetof(struct poolcuda_pool, sequence)
                                   : cell_offset(reading, copying, i - 1) + offsetof(struct poolcuda_cell, sequence);
        uint64_t sequence = 0;
        result = read_at(reading, &sequence, sizeof(sequence), at);
        *settled = sequence % 2 == 0 && (!again || sequence == copying->sequences[i]);
        copying->sequences[i] = sequence;
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return result;
}

/* The record, then all fixed-size pools and the pool's cells, once. */
static enum segment_result read_pool_once(const struct reading *reading, const struct copying *copying,
                                          struct poolcuda_pool *record, struct poolcuda_cell *cells) {
    enum segment_result result = read_at(reading, record, sizeof(*record), copying->offset);
    if (result == SEGMENT_READ) result = read_section(reading, &reading->header->fixed, reading->fixed);
    for (size_t i = 0; result == SEGMENT_READ && i < copying->place_count; i++)
        result = read_at(reading, &cells[i], sizeof(cells[i]), cell_offset(reading, copying, i));
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return result;
}

/* In `late` what a later copy has, except the counters that another counter bounds: those as the earlier copy has them,
 * so that they stay below it. */
static void keep_early_counters(struct poolcuda_cell *late, const struct poolcuda_cell *early) {
    if (late->pool != early->pool || late->stream != early->stream || late->thread != early->thread) return;
    late->freed_requested_bytes = early->freed_requested_bytes;
    late->driver_door = early->driver_door;
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        late->classes[i].frees = early->classes[i].frees;
        late->classes[i].freed_bytes = early->classes[i].freed_bytes;
        late->classes[i].misses = early->classes[i].misses;
    }
}

static enum segment_result read_pool_approximately(const struct reading *reading, const struct copying *copying) {
    struct segment_pool *pool = copying->pool;
    struct poolcuda_pool early;
    struct poolcuda_cell *early_cells = memory_new(copying->place_count, sizeof(*early_cells));
    enum segment_result result = read_pool_once(reading, copying, &early, early_cells);
    if (result == SEGMENT_READ) result = read_pool_once(reading, copying, &pool->record, pool->cells);
    pool->cell_count = 0;
    for (size_t i = 0; result == SEGMENT_READ && i < copying->place_count; i++) {
        if (pool->cells[i].pool != pool->number) continue; /* it became another's */
        keep_early_counters(&pool->cells[i], &early_cells[i]);
        pool->cells[pool->cell_count++] = pool->cells[i];
    }
    free(early_cells);
    pool->approximate = true;
    return result;
}

/* A cell that was opened meanwhile may have what the others lack: so which are the pool's is asked again at the end. */
static enum segment_result read_pool_consistently(const struct reading *reading, struct copying *copying,
                                                  bool *consistent) {
    struct segment_pool *pool = copying->pool;
    enum segment_result result = look_at_sequences(reading, copying, false, consistent);
    if (result != SEGMENT_READ || !*consistent) return result;
    result = read_pool_once(reading, copying, &pool->record, pool->cells);
    if (result == SEGMENT_READ) result = look_at_sequences(reading, copying, true, consistent);
    return result != SEGMENT_READ || !*consistent ? result : find_cells(reading, copying, consistent);
}

static enum segment_result read_pool_record(const struct reading *reading, uint64_t offset, struct segment_pool *pool) {
    const size_t cells = reading->header->cells.count;
    struct copying copying = {.offset = offset, .pool = pool};
    bool consistent = false, same;
    copying.places = memory_new(cells, sizeof(*copying.places));
    copying.sequences = memory_new(cells + 1, sizeof(*copying.sequences));
    pool->cells = memory_raw(cells, sizeof(*pool->cells));
    enum segment_result result = find_cells(reading, &copying, &same);
    while (result == SEGMENT_READ && !consistent) {
        result = read_pool_consistently(reading, &copying, &consistent);
        if (result != SEGMENT_READ || consistent) break;
        if (now_ns() >= reading->deadline_ns) {
            result = read_pool_approximately(reading, &copying);
            break;
        }
        sched_yield(); /* a writer is inside for nanoseconds, unless it lost its processor there */
    }
    pool->cells = memory_grow(pool->cells, pool->cell_count, sizeof(*pool->cells)); /* to its size */
    free(copying.places);
    free(copying.sequences);
    return result;
}

static void keep_fixed(const struct reading *reading, struct segment_pool *pool) {
    const struct poolcuda_section *section = &reading->header->fixed;
    pool->fixed = memory_new(section->count, sizeof(*pool->fixed));
    for (uint32_t i = 0; i < section->count; i++) {
        const void *record = reading->fixed + (size_t)i * section->stride;
        const struct poolcuda_fixed *fixed = record;
        if (fixed->pool == pool->number) pool->fixed[pool->fixed_count++] = *fixed;
    }
}

/* Of one cell: what it holds in all, when it holds what is live and what waits, and no more is asked for than is live.
 * Sums that do not fit are the sign of garbage, so they need only be noticed. */
static bool cell_adds_up(const struct poolcuda_cell *cell, uint64_t *held) {
    uint64_t live = 0;
    *held = 0;
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        const struct poolcuda_size_class *class = &cell->classes[i];
        if (class->frees > class->allocs || class->misses > class->allocs || class->freed_bytes > class->alloc_bytes ||
            class->alloc_bytes - class->freed_bytes > class->held_bytes ||
            __builtin_add_overflow(live, class->alloc_bytes - class->freed_bytes, &live) ||
            __builtin_add_overflow(*held, class->held_bytes, held))
            return false;
    }
    return live <= *held && cell->waiting_bytes <= *held - live &&
           cell->alloc_requested_bytes >= cell->freed_requested_bytes &&
           cell->alloc_requested_bytes - cell->freed_requested_bytes <= live;
}

static uint64_t sum(uint64_t a, uint64_t b) {
    uint64_t result;
    return __builtin_add_overflow(a, b, &result) ? UINT64_MAX : result;
}

static void lower_to(uint64_t *value, uint64_t most) {
    if (*value > most) *value = most;
}

/* A later count less an earlier one: what was handed out and freed between the two seems to be live. No more is than
 * the cell holds. */
static void bound_cell(struct poolcuda_cell *cell) {
    uint64_t live = 0, held = 0;
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        struct poolcuda_size_class *class = &cell->classes[i];
        lower_to(&class->alloc_bytes, sum(class->freed_bytes, class->held_bytes));
        if (class->alloc_bytes > class->freed_bytes) live = sum(live, class->alloc_bytes - class->freed_bytes);
        held = sum(held, class->held_bytes);
    }
    lower_to(&cell->waiting_bytes, held - live);
    lower_to(&cell->alloc_requested_bytes, sum(cell->freed_requested_bytes, live));
}

static bool figures_add_up(const struct segment_pool *pool) {
    const struct poolcuda_pool *record = &pool->record;
    uint64_t held = 0, of_cell;
    for (size_t i = 0; i < pool->cell_count; i++)
        if (!cell_adds_up(&pool->cells[i], &of_cell) || __builtin_add_overflow(held, of_cell, &held)) return false;
    return !__builtin_add_overflow(held, record->idle_bytes, &held) &&
           !__builtin_add_overflow(held, record->ordered_bytes, &held) &&
           !__builtin_add_overflow(held, record->waiting_bytes, &held) &&
           !__builtin_add_overflow(held, record->retired_bytes, &held) &&
           !__builtin_add_overflow(held, record->exported_bytes, &held) &&
           !__builtin_add_overflow(held, record->prealloc_unused_bytes, &held) &&
           !__builtin_add_overflow(held, record->fixed_free_bytes, &held) && held <= record->reserved_bytes;
}

static bool is_wanted(const struct reading *reading, const struct poolcuda_pool *record) {
    return record->state == POOLCUDA_POOL_OPEN || (reading->gone_too && record->state == POOLCUDA_POOL_GONE);
}

static enum segment_result read_pools(struct reading *reading, struct segment *segment) {
    const struct poolcuda_section *pools = &reading->header->pools;
    enum segment_result result = SEGMENT_READ;
    segment->pools = memory_new(pools->count, sizeof(*segment->pools));
    reading->cells = memory_raw(section_bytes(&reading->header->cells), 1);
    reading->fixed = memory_raw(section_bytes(&reading->header->fixed), 1);
    for (uint32_t i = 0; result == SEGMENT_READ && i < pools->count; i++) {
        struct segment_pool *pool = &segment->pools[segment->pool_count];
        const uint64_t offset = pools->offset + (uint64_t)i * pools->stride;
        *pool = (struct segment_pool){.number = i + 1};
        result = read_at(reading, &pool->record.state, sizeof(pool->record.state),
                         offset + offsetof(struct poolcuda_pool, state));
        if (result == SEGMENT_READ && is_wanted(reading, &pool->record))
            result = read_pool_record(reading, offset, pool);
        if (result == SEGMENT_READ && pool->record.state > POOLCUDA_POOL_GONE) {
            snprintf(reading->why, SEGMENT_WHY_SIZE, "is damaged: the state %u of pool %u is none", pool->record.state,
                     pool->number);
            result = SEGMENT_DAMAGED;
        }
        if (result != SEGMENT_READ || !is_wanted(reading, &pool->record)) {
            free(pool->cells);
            continue;
        }
        keep_fixed(reading, pool);
        if (!figures_add_up(pool)) pool->approximate = true;
        for (size_t k = 0; pool->approximate && k < pool->cell_count; k++) bound_cell(&pool->cells[k]);
        segment->pool_count++;
    }
    free(reading->cells);
    free(reading->fixed);
    return result;
}

static enum segment_result read_config(const struct reading *reading, struct segment *segment) {
    const struct poolcuda_section *section = &reading->header->config;
    char *records = memory_new(section_bytes(section), 1);
    const enum segment_result result = read_section(reading, section, records);
    segment->config = memory_new(section->count, sizeof(*segment->config));
    for (uint32_t i = 0; result == SEGMENT_READ && i < section->count; i++) {
        struct poolcuda_config_entry *entry = &segment->config[segment->config_count];
        memcpy(entry, records + (size_t)i * section->stride, sizeof(*entry));
        entry->name[sizeof(entry->name) - 1] = entry->value[sizeof(entry->value) - 1] = '\0';
        if (entry->name[0] != '\0') segment->config_count++;
    }
    free(records);
    return result;
}

static int by_sequence(const void *a, const void *b) {
    const uint64_t left = ((const struct poolcuda_event *)a)->sequence;
    const uint64_t right = ((const struct poolcuda_event *)b)->sequence;
    return left < right ? -1 : left > right;
}

/* An event is whole when its number was there before and after it was copied: within one copy nothing comes first. */
static enum segment_result read_events(const struct reading *reading, struct segment *segment) {
    struct poolcuda_section used = reading->header->events, *section = &used;
    enum { BEFORE, RECORDS, AFTER, COPIES };
    char *copies[COPIES];
    enum segment_result result = SEGMENT_READ;
    const uint32_t size = used.count; /* of the ring, of which a part may not have been used yet */
    if (used.count > reading->header->event_next) used.count = reading->header->event_next;
    for (unsigned i = 0; i < COPIES; i++) {
        copies[i] = memory_raw(section_bytes(section), 1);
        if (result == SEGMENT_READ) result = read_section(reading, section, copies[i]);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    }
    segment->events = memory_new(section->count, sizeof(*segment->events));
    for (uint32_t i = 0; result == SEGMENT_READ && i < section->count; i++) {
        struct poolcuda_event copy[COPIES];
        for (unsigned k = 0; k < COPIES; k++)
            memcpy(&copy[k], copies[k] + (size_t)i * section->stride, sizeof(copy[k]));
        const uint64_t number = copy[BEFORE].sequence;
        if (number == 0 || number != copy[AFTER].sequence || (number - 1) % size != i) continue;
        segment->events[segment->event_count] = copy[RECORDS];
        segment->events[segment->event_count++].sequence = number;
    }
    for (unsigned i = 0; i < COPIES; i++) free(copies[i]);
    qsort(segment->events, segment->event_count, sizeof(*segment->events), by_sequence);
    return result;
}

static enum segment_result read_header(const struct reading *reading, struct poolcuda_header *header) {
    struct stat status;
    if (fstat(reading->fd, &status) != 0) {
        snprintf(reading->why, SEGMENT_WHY_SIZE, "could not be read: %s", strerror(errno));
        return SEGMENT_FAILED;
    }
    if (status.st_size == 0) {
        snprintf(reading->why, SEGMENT_WHY_SIZE, "is empty; try again");
        return SEGMENT_STARTING;
    }
    if (status.st_size < (off_t)sizeof(*header)) {
        snprintf(reading->why, SEGMENT_WHY_SIZE, "is cut short: its %lld bytes do not hold its header",
                 (long long)status.st_size);
        return SEGMENT_DAMAGED;
    }
    const enum segment_result result = read_at(reading, header, sizeof(*header), 0);
    return result != SEGMENT_READ ? result : segment_check_header(header, (uint64_t)status.st_size, reading->why);
}

static enum segment_result read_segment(int fd, bool gone_too, struct segment **out, char why[SEGMENT_WHY_SIZE]) {
    struct segment *segment = memory_new(1, sizeof(*segment));
    struct reading reading = {.fd = fd, .why = why, .header = &segment->header, .gone_too = gone_too};
    enum segment_result result = read_header(&reading, &segment->header);
    for (unsigned i = 0; result == SEGMENT_STARTING && i < STARTING_RETRIES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = STARTING_RETRY_NS}, NULL);
        result = read_header(&reading, &segment->header);
    }
    reading.deadline_ns = now_ns() + RETRY_NS;
    if (result == SEGMENT_READ) result = read_config(&reading, segment);
    if (result == SEGMENT_READ) result = read_pools(&reading, segment);
    if (result == SEGMENT_READ) result = read_events(&reading, segment);
    if (result == SEGMENT_READ) result = segment_map_read(segment, read_for_map, &reading);
    segment->read_ns = now_ns();
    if (result != SEGMENT_READ) {
        segment_free(segment);
        segment = NULL;
    }
    *out = segment;
    return result;
}

enum segment_result segment_read(int fd, struct segment **out, char why[SEGMENT_WHY_SIZE]) {
    return read_segment(fd, false, out, why);
}

enum segment_result segment_read_whole(int fd, struct segment **out, char why[SEGMENT_WHY_SIZE]) {
    return read_segment(fd, true, out, why);
}

void segment_free(struct segment *segment) {
    if (segment == NULL) return;
    for (size_t i = 0; i < segment->pool_count; i++) {
        free(segment->pools[i].cells);
        free(segment->pools[i].fixed);
    }
    free(segment->pools);
    free(segment->config);
    free(segment->events);
    free(segment->map);
    free(segment);
}
