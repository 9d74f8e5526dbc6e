/* SPDX-License-Identifier: MIT
 *
 * Copies a segment while its owner writes: each pool's record, cells and fixed-size pools are taken between two equal,
 * even sequence numbers, retried for about a millisecond, and then as they come, frees before allocations, so that no
 * difference is negative.
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

#define RETRY_NS 1000000u    /* for consistent copies of all pools together */
#define STARTING_RETRIES 20u /* of a millisecond each, for an owner that is just making its segment */
#define STARTING_RETRY_NS 1000000

struct reading {
    int fd;
    char *why;
    const struct poolcuda_header *header;
    char *cells, *cells_again, *fixed; /* copies of whole sections */
    uint64_t deadline_ns;
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

static uint64_t section_bytes(const struct poolcuda_section *section) {
    return (uint64_t)section->count * section->stride;
}

static enum segment_result read_section(const struct reading *reading, const struct poolcuda_section *section,
                                        void *to) {
    return section->count == 0 ? SEGMENT_READ : read_at(reading, to, section_bytes(section), section->offset);
}

static struct poolcuda_cell *cell_at(const struct reading *reading, char *cells, uint32_t index) {
    return (struct poolcuda_cell *)(void *)(cells + (size_t)index * reading->header->cells.stride);
}

/* The record, then all fixed-size pools and all cells, once. */
static enum segment_result read_pool_once(const struct reading *reading, uint64_t offset, struct poolcuda_pool *record,
                                          char *cells) {
    enum segment_result result = read_at(reading, record, sizeof(*record), offset);
    if (result == SEGMENT_READ) result = read_section(reading, &reading->header->fixed, reading->fixed);
    return result != SEGMENT_READ ? result : read_section(reading, &reading->header->cells, cells);
}

/* In `late` what a later copy has, except the counters that another counter bounds: those as the earlier copy has them,
 * so that they stay below it. */
static void keep_early_counters(struct poolcuda_pool *late, const struct poolcuda_pool *early) {
    if (late->generation != early->generation) return;
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
        late->classes[i].frees = early->classes[i].frees;
        late->classes[i].hits = early->classes[i].hits;
        late->classes[i].freed_bytes = early->classes[i].freed_bytes;
    }
}

static void keep_early_cell_counters(struct poolcuda_cell *late, const struct poolcuda_cell *early) {
    if (late->pool != early->pool || late->stream != early->stream || late->thread != early->thread) return;
    late->frees = early->frees;
    late->freed_requested_bytes = early->freed_requested_bytes;
    late->freed_live_bytes = early->freed_live_bytes;
    late->hits = early->hits;
    late->misses = early->misses;
}

static enum segment_result read_pool_approximately(const struct reading *reading, uint64_t offset,
                                                   struct poolcuda_pool *record) {
    struct poolcuda_pool early;
    enum segment_result result = read_pool_once(reading, offset, &early, reading->cells_again);
    if (result != SEGMENT_READ) return result;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    result = read_pool_once(reading, offset, record, reading->cells);
    if (result != SEGMENT_READ) return result;
    keep_early_counters(record, &early);
    for (uint32_t i = 0; i < reading->header->cells.count; i++)
        keep_early_cell_counters(cell_at(reading, reading->cells, i), cell_at(reading, reading->cells_again, i));
    return SEGMENT_READ;
}

static enum segment_result read_pool_record(const struct reading *reading, uint64_t offset,
                                            struct poolcuda_pool *record, bool *approximate) {
    for (;;) {
        uint64_t before, after;
        enum segment_result result = read_at(reading, &before, sizeof(before), offset);
        if (result != SEGMENT_READ) return result;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        result = read_pool_once(reading, offset, record, reading->cells);
        if (result != SEGMENT_READ) return result;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        result = read_at(reading, &after, sizeof(after), offset);
        if (result != SEGMENT_READ) return result;
        *approximate = before != after || before % 2 != 0;
        if (!*approximate) return SEGMENT_READ;
        if (now_ns() >= reading->deadline_ns) return read_pool_approximately(reading, offset, record);
        sched_yield(); /* a writer is inside for nanoseconds, unless it lost its processor there */
    }
}

static void keep_cells(const struct reading *reading, struct segment_pool *pool) {
    const uint32_t count = reading->header->cells.count;
    pool->cells = memory_new(count, sizeof(*pool->cells));
    for (uint32_t i = 0; i < count; i++) {
        const struct poolcuda_cell *cell = cell_at(reading, reading->cells, i);
        if (cell->pool == pool->number) pool->cells[pool->cell_count++] = *cell;
    }
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

/* Sums that do not fit are the sign of garbage, so they need only be noticed. */
static bool figures_add_up(const struct segment_pool *pool) {
    const struct poolcuda_pool *record = &pool->record;
    uint64_t allocated = 0, freed = 0, held;
    for (size_t i = 0; i < pool->cell_count; i++) {
        const struct poolcuda_cell *cell = &pool->cells[i];
        if (__builtin_add_overflow(allocated, cell->alloc_live_bytes, &allocated) ||
            __builtin_add_overflow(freed, cell->freed_live_bytes, &freed))
            return false;
    }
    return freed <= allocated && !__builtin_add_overflow(allocated - freed, record->idle_bytes, &held) &&
           !__builtin_add_overflow(held, record->ordered_bytes, &held) &&
           !__builtin_add_overflow(held, record->waiting_bytes, &held) &&
           !__builtin_add_overflow(held, record->retired_bytes, &held) &&
           !__builtin_add_overflow(held, record->exported_bytes, &held) &&
           !__builtin_add_overflow(held, record->prealloc_unused_bytes, &held) &&
           !__builtin_add_overflow(held, record->fixed_free_bytes, &held) && held <= record->reserved_bytes;
}

static enum segment_result read_pools(struct reading *reading, struct segment *segment) {
    const struct poolcuda_section *pools = &reading->header->pools;
    const uint64_t cells_bytes = section_bytes(&reading->header->cells);
    enum segment_result result = SEGMENT_READ;
    segment->pools = memory_new(pools->count, sizeof(*segment->pools));
    reading->cells = memory_new(cells_bytes, 1);
    reading->cells_again = memory_new(cells_bytes, 1);
    reading->fixed = memory_new(section_bytes(&reading->header->fixed), 1);
    for (uint32_t i = 0; result == SEGMENT_READ && i < pools->count; i++) {
        struct segment_pool *pool = &segment->pools[segment->pool_count];
        const uint64_t offset = pools->offset + (uint64_t)i * pools->stride;
        pool->number = i + 1;
        result = read_at(reading, &pool->record.state, sizeof(pool->record.state),
                         offset + offsetof(struct poolcuda_pool, state));
        if (result == SEGMENT_READ && pool->record.state == POOLCUDA_POOL_OPEN)
            result = read_pool_record(reading, offset, &pool->record, &pool->approximate);
        if (result != SEGMENT_READ) break;
        if (pool->record.state > POOLCUDA_POOL_GONE) {
            snprintf(reading->why, SEGMENT_WHY_SIZE, "is damaged: the state %u of pool %u is none", pool->record.state,
                     pool->number);
            result = SEGMENT_DAMAGED;
        }
        if (result != SEGMENT_READ || pool->record.state != POOLCUDA_POOL_OPEN) continue;
        keep_cells(reading, pool);
        keep_fixed(reading, pool);
        if (!figures_add_up(pool)) pool->approximate = true;
        segment->pool_count++;
    }
    free(reading->cells);
    free(reading->cells_again);
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
    const struct poolcuda_section *section = &reading->header->events;
    enum { BEFORE, RECORDS, AFTER, COPIES };
    char *copies[COPIES];
    enum segment_result result = SEGMENT_READ;
    for (unsigned i = 0; i < COPIES; i++) {
        copies[i] = memory_new(section_bytes(section), 1);
        if (result == SEGMENT_READ) result = read_section(reading, section, copies[i]);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    }
    segment->events = memory_new(section->count, sizeof(*segment->events));
    for (uint32_t i = 0; result == SEGMENT_READ && i < section->count; i++) {
        struct poolcuda_event copy[COPIES];
        for (unsigned k = 0; k < COPIES; k++)
            memcpy(&copy[k], copies[k] + (size_t)i * section->stride, sizeof(copy[k]));
        const uint64_t number = copy[BEFORE].sequence;
        if (number == 0 || number != copy[AFTER].sequence || (number - 1) % section->count != i) continue;
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

enum segment_result segment_read(int fd, struct segment **out, char why[SEGMENT_WHY_SIZE]) {
    struct segment *segment = memory_new(1, sizeof(*segment));
    struct reading reading = {.fd = fd, .why = why, .header = &segment->header};
    enum segment_result result = read_header(&reading, &segment->header);
    for (unsigned i = 0; result == SEGMENT_STARTING && i < STARTING_RETRIES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = STARTING_RETRY_NS}, NULL);
        result = read_header(&reading, &segment->header);
    }
    reading.deadline_ns = now_ns() + RETRY_NS;
    if (result == SEGMENT_READ) result = read_config(&reading, segment);
    if (result == SEGMENT_READ) result = read_pools(&reading, segment);
    if (result == SEGMENT_READ) result = read_events(&reading, segment);
    segment->read_ns = now_ns();
    if (result != SEGMENT_READ) {
        segment_free(segment);
        segment = NULL;
    }
    *out = segment;
    return result;
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
    free(segment);
}
