/* SPDX-License-Identifier: MIT
 *
 * Writes a segment of known contents for itself, as a program under the pool would, says "ready PID PATH", and stays
 * until its standard input ends. Knows the public header alone. The words after the folder vary the contents:
 *
 *   odd       the record of pool 1 is for ever in the midst of a write
 *   odd-cell  likewise its last cell
 *   busy      a thread goes on moving bytes between two cells and the record, each time under their sequences
 *   torn      a thread goes on allocating and freeing without ever completing a write
 *   joining   a thread goes on opening cells and moving bytes from the record to each, then takes all of them back
 *   sized     as many cells as the library has room for, most of them unused
 *   grown     records are longer than the layout's, as a later release may make them
 *   ring      more events than the ring holds
 *   bare      no pool yet
 *   old       of a release that knew no fixed-size pools and no block map, nor when the pool grows
 *   unmapped  no segment has a row of the block map yet
 *   map-torn  a thread goes on writing a row of it
 *   map-wild  some of its rows cannot be
 *   negative  more was freed than allocated
 *   unheld    a cell has more than it holds
 *   lagging   the peaks are as they were when nothing had happened
 *   retired   more is held than reserved, by that figure; likewise exported, prealloc_unused, fixed_free
 *   remade    half of the time it is just being completed
 *   hostile   strings with control characters, invalid UTF-8, direction marks, and no terminator
 *   in-driver for 2 s; stuck: for 12 s
 *   =NAME     says that this is its command
 *   unlinks   removes its segment at its end, as the library does
 *   exec      becomes another program (sleep)
 *   drops     gives up root
 *   headless  its first thread ends
 *   ended, starting, other-version, other-magic
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "poolcuda/stats.h"

#define MIB (UINT64_C(1) << 20)
#define CONFIG 4u
#define POOLS 6u
#define CELLS 10u
#define JOINING 24u /* more cells */
#define EVENTS 16u
#define FIXED 4u
#define MAP_ROWS 8u

static char *segment;
static size_t segment_bytes;
static int word_count;
static char **words;

static int has(const char *word) {
    for (int i = 0; i < word_count; i++)
        if (strcmp(words[i], word) == 0) return 1;
    return 0;
}

static uint64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static unsigned long long start_ticks(void) {
    char line[1024];
    unsigned long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "r");
    if (file == NULL || fgets(line, sizeof(line), file) == NULL) exit(3);
    fclose(file);
    const char *at = strrchr(line, ')') + 2;
    for (int field = 3; field < 22; field++) at = strchr(at, ' ') + 1;
    sscanf(at, "%llu", &ticks);
    return ticks;
}

static struct poolcuda_section section(uint32_t count, size_t bytes) {
    const uint32_t stride = (uint32_t)((bytes + 63) / 64 * 64) + (has("grown") ? 128 : 0);
    const struct poolcuda_section made = {.offset = (uint32_t)segment_bytes, .count = count, .stride = stride};
    segment_bytes += (size_t)count * stride;
    return made;
}

static void *record_at(const struct poolcuda_section *of, uint32_t index) {
    return segment + of->offset + (size_t)index * of->stride;
}

static void fill_config(struct poolcuda_header *header) {
    static const struct poolcuda_config_entry entries[] = {
        {"POOL_ENABLE", "1", 0, 0}, {"POOL_SEGMENT_MB", "32 MiB", 1, 0}, {"POOL_LIMIT_MB", "none", 0, 0}};
    for (uint32_t i = 0; i < 3; i++) memcpy(record_at(&header->config, i), &entries[i], sizeof(entries[i]));
    if (!has("hostile")) return;
    struct poolcuda_config_entry *entry = record_at(&header->config, 3);
    memset(entry->name, 'N', sizeof(entry->name));
    memset(entry->value, '\x1b', sizeof(entry->value));
}

static struct poolcuda_pool *open_pool(struct poolcuda_header *header, uint32_t index, int device,
                                       enum poolcuda_kind kind) {
    struct poolcuda_pool *pool = record_at(&header->pools, index);
    pool->state = POOLCUDA_POOL_OPEN;
    pool->kind = kind;
    pool->device = device;
    pool->context = UINT64_C(0xffff800000001000) + index;
    pool->generation = index + 1;
    pool->max_split_bytes = UINT64_MAX;
    return pool;
}

static struct poolcuda_cell *open_cell(struct poolcuda_header *header, uint32_t index, uint32_t pool, uint64_t stream,
                                       uint64_t thread) {
    struct poolcuda_cell *cell = record_at(&header->cells, index);
    cell->pool = pool;
    cell->stream = stream;
    cell->thread = thread;
    return cell;
}

/* Device 0, plain: reserved 64 MiB = live 40 + idle 16 + waiting 8; requested 36. Of the idle bytes cells of no stream
 * have 5 MiB, of the waiting ones 3, and of the waits 6. */
static void fill_plain_pool(struct poolcuda_header *header) {
    struct poolcuda_pool *pool = open_pool(header, 0, 0, POOLCUDA_KIND_PLAIN);
    for (unsigned i = 0; i < sizeof(pool->uuid); i++) pool->uuid[i] = (uint8_t)(0xa0 + i);
    strcpy(pool->pci, "0000:17:00.0");
    pool->device_total_bytes = UINT64_C(8) << 30;
    pool->limited = 1;
    pool->limit_bytes = UINT64_C(4) << 30;
    pool->reserved_bytes = 64 * MIB;
    pool->idle_bytes = 11 * MIB;
    pool->waiting_bytes = 5 * MIB;
    pool->largest_free_bytes = 12 * MIB;
    pool->releasable_bytes = 6 * MIB;
    pool->segments = 4;
    pool->free_blocks = 3;
    pool->waits = 40;
    pool->splits = 21;
    pool->merges = 14;
    pool->bad_frees = 2;
    if (!has("lagging")) {
        pool->peak_live_bytes = 60 * MIB;
        pool->peak_reserved_bytes = 80 * MIB;
        pool->peak_idle_bytes = 30 * MIB;
    }
    pool->driver_ns = 2500000;
    pool->class_cached_bytes[15] = 16 * MIB;
    pool->hit_ns[8] = 20;
    pool->hit_ns[9] = 5;
    pool->miss_ns[17] = 100;
    pool->miss_ns[POOLCUDA_LATENCY_BUCKETS - 1] = 1;
    struct poolcuda_cell *none = open_cell(header, 0, 1, 0, 0), *seven = open_cell(header, 1, 1, 7, 0),
                         *thread = open_cell(header, 8, 1, 0, 1);
    none->classes[0] = (struct poolcuda_size_class){.allocs = 600,
                                                    .alloc_bytes = UINT64_C(600) * 512,
                                                    .frees = 590,
                                                    .freed_bytes = UINT64_C(590) * 512,
                                                    .misses = 60,
                                                    .held_bytes = UINT64_C(10) * 512};
    none->classes[15] = (struct poolcuda_size_class){.allocs = 150,
                                                     .alloc_bytes = 100 * MIB - UINT64_C(600) * 512,
                                                     .frees = 140,
                                                     .freed_bytes = 76 * MIB - UINT64_C(590) * 512,
                                                     .misses = 15,
                                                     .held_bytes = 31 * MIB - UINT64_C(10) * 512};
    none->alloc_requested_bytes = 92 * MIB;
    none->freed_requested_bytes = 69 * MIB;
    none->waiting_bytes = 3 * MIB;
    none->driver_door = 480;
    none->free_waits = 4;
    thread->classes[15] = (struct poolcuda_size_class){
        .allocs = 49, .alloc_bytes = 10 * MIB, .frees = 30, .freed_bytes = 2 * MIB, .misses = 5, .held_bytes = 9 * MIB};
    thread->classes[POOLCUDA_SIZE_CLASSES - 1].allocs = 1;
    thread->alloc_requested_bytes = 8 * MIB;
    thread->freed_requested_bytes = MIB;
    thread->free_waits = 2;
    seven->classes[14] = (struct poolcuda_size_class){.allocs = 200,
                                                      .alloc_bytes = 12 * MIB,
                                                      .frees = 200,
                                                      .freed_bytes = 4 * MIB,
                                                      .misses = 20,
                                                      .held_bytes = 8 * MIB};
    seven->alloc_requested_bytes = 10 * MIB;
    seven->freed_requested_bytes = 4 * MIB;
    if (!has("old")) pool->growths = 12;
    pool->growth_ns = 3400000;
    if (has("prealloc_unused")) pool->prealloc_unused_bytes = MIB;
    if (has("fixed_free")) pool->fixed_free_bytes = MIB;
    if (has("odd")) pool->sequence = 4711;
    if (has("odd-cell")) thread->sequence = 4711;
    if (has("retired")) pool->retired_bytes = MIB;
    if (has("exported")) pool->exported_bytes = MIB;
    if (has("negative")) none->classes[15].freed_bytes = 1000 * MIB;
    if (has("unheld")) none->waiting_bytes = 8 * MIB;
}

static void fill_stream(struct poolcuda_header *header, uint32_t index, uint64_t stream, uint64_t allocs, uint64_t hits,
                        uint64_t live, uint64_t kept) {
    struct poolcuda_cell *cell = open_cell(header, index, 2, stream, 0);
    cell->classes[12] = (struct poolcuda_size_class){
        .allocs = allocs, .alloc_bytes = live, .frees = allocs / 2, .misses = allocs - hits, .held_bytes = live + kept};
    cell->alloc_requested_bytes = live;
}

/* Device 0, async: reserved 32 MiB = live 8 + ordered 20 + waiting 4, over a stream of each kind. Of the ordered bytes
 * cells have 7 MiB. */
static void fill_async_pool(struct poolcuda_header *header) {
    struct poolcuda_pool *pool = open_pool(header, 1, 0, POOLCUDA_KIND_ASYNC);
    pool->reserved_bytes = pool->peak_reserved_bytes = 32 * MIB;
    pool->ordered_bytes = 13 * MIB;
    pool->largest_free_bytes = 20 * MIB;
    pool->waiting_bytes = 4 * MIB;
    pool->fences = 5;
    pool->miss_fences = 2;
    pool->stream_marks = 31;
    pool->proved_blocks = 17;
    open_cell(header, 2, 2, 0, 0); /* of no stream: nothing */
    fill_stream(header, 3, 11, 10, 5, MIB, 0);
    fill_stream(header, 4, POOLCUDA_STREAM_LEGACY | 1, 20, 10, MIB, MIB);
    fill_stream(header, 5, POOLCUDA_STREAM_LEGACY | 2, 10, 5, MIB, 0);
    fill_stream(header, 6, POOLCUDA_STREAM_PER_THREAD | UINT64_C(3) << POOLCUDA_STREAM_THREAD_SHIFT | 1, 20, 10, MIB,
                0);
    fill_stream(header, 7, POOLCUDA_STREAM_DRIVER | 12, 10, 5, MIB, 0);
    fill_stream(header, 9, 9, 30, 10, 3 * MIB, 6 * MIB);
}

/* Both of pool 1: of the live bytes there 16 MiB and half a KiB are in such blocks. */
static void fill_fixed(struct poolcuda_header *header) {
    static const struct poolcuda_fixed records[] = {
        {.pool = 1,
         .size_bytes = 8 * MIB,
         .asked_blocks = 3,
         .blocks = 2,
         .in_use = 2,
         .peak_in_use = 2,
         .hits = 5,
         .misses = 1},
        {.pool = 0, .size_bytes = 4 * MIB, .blocks = 999}, /* nobody's */
        {.pool = 1, .size_bytes = 512, .asked_blocks = 1, .blocks = 1, .in_use = 1, .peak_in_use = 1, .hits = 70},
        {.pool = 4, .size_bytes = 4 * MIB, .blocks = 999}, /* of a pool that is gone */
    };
    for (uint32_t i = 0; i < header->fixed.count; i++)
        memcpy(record_at(&header->fixed, i), &records[i], sizeof(records[i]));
}

/* Of a row's cells from `from` to before `to`. */
static void fill_cells(struct poolcuda_map_row *row, unsigned from, unsigned to, struct poolcuda_map_cell cell) {
    for (unsigned i = from; i < to; i++) row->cells[i] = cell;
}

static struct poolcuda_map_row *open_row(struct poolcuda_header *header, uint32_t index, uint32_t pool,
                                         uint64_t address, uint64_t size) {
    struct poolcuda_map_row *row = record_at(&header->map, index);
    row->pool = pool;
    row->address = address;
    row->size_bytes = size;
    row->began_ns = row->refreshed_ns = now_ns(CLOCK_MONOTONIC) - 3000000000u;
    return row;
}

/* Of pool 1 three segments of four, 56 MiB of 64: what is live, waiting and half of what is idle. Of pool 2 its one
 * segment. */
static void fill_map(struct poolcuda_header *header) {
    const struct poolcuda_map_cell live = {.live = 255, .size_class = 16}, idle = {.idle = 255, .size_class = 15},
                                   waiting = {.waiting = 255, .size_class = 15};
    if (has("old") || has("unmapped")) return;
    struct poolcuda_map_row *row = open_row(header, 4, 1, UINT64_C(0x7f0002000000), 16 * MIB);
    row->live_bytes = 8 * MIB;
    row->waiting_bytes = 8 * MIB;
    row->live_blocks = 1;
    row->free_blocks = 2;
    fill_cells(row, 0, 32, live);
    fill_cells(row, 32, 64, waiting);
    row->cells[0].blocks = row->cells[32].blocks = row->cells[40].blocks = 1;
    row = open_row(header, 0, 1, UINT64_C(0x7f0000000000), 32 * MIB);
    row->live_bytes = 32 * MIB;
    row->live_blocks = 1;
    fill_cells(row, 0, 64, live);
    row->cells[0].blocks = 1;
    row = open_row(header, 1, 1, UINT64_C(0x7f0004000000), 8 * MIB);
    row->kind = POOLCUDA_MAP_FIXED;
    row->idle_bytes = 6 * MIB;
    row->fixed_bytes = 2 * MIB;
    row->largest_free_bytes = 6 * MIB;
    row->free_blocks = 2;
    fill_cells(row, 0, 47, idle);
    fill_cells(row, 47, 48, (struct poolcuda_map_cell){.idle = 200, .fixed = 55, .size_class = 15, .blocks = 255});
    fill_cells(row, 48, 64, (struct poolcuda_map_cell){.fixed = 255, .size_class = 40});
    row = open_row(header, 5, 2, UINT64_C(0x7f0008000000), 32 * MIB);
    row->kind = POOLCUDA_MAP_PREALLOCATED;
    row->live_bytes = 8 * MIB;
    row->ordered_bytes = 20 * MIB;
    row->kept_bytes = MIB;
    fill_cells(row, 0, 16, live);
    fill_cells(row, 16, 56, (struct poolcuda_map_cell){.ordered = 255, .size_class = 1});
    fill_cells(row, 56, 58, (struct poolcuda_map_cell){.kept = 255, .size_class = 12});
    fill_cells(row, 58, 59, (struct poolcuda_map_cell){.kept = 50, .size_class = 12});
    if (!has("map-wild")) return;
    open_row(header, 2, 99, 64 * MIB, MIB)->live_bytes = MIB; /* of a pool that there is not */
    open_row(header, 3, 4, 64 * MIB, MIB)->live_bytes = MIB;  /* of one that is gone */
    open_row(header, 6, 1, UINT64_MAX - MIB, 2 * MIB)->live_bytes = 1;
    open_row(header, 7, 1, 64 * MIB, MIB)->kept_bytes = UINT64_MAX;
}

static void fill_pools(struct poolcuda_header *header) {
    fill_plain_pool(header);
    fill_async_pool(header);
    fill_fixed(header);
    fill_map(header);
    open_pool(header, 2, 1, POOLCUDA_KIND_PLAIN); /* device 1: nothing happened yet */
    struct poolcuda_pool *gone = open_pool(header, 3, 5, POOLCUDA_KIND_PLAIN);
    gone->state = POOLCUDA_POOL_GONE;
    gone->reserved_bytes = 999 * MIB;
}

static void put_event(struct poolcuda_header *header, const struct poolcuda_event *event) {
    struct poolcuda_event *to = record_at(&header->events, header->event_next % EVENTS);
    *to = *event;
    to->time_ns = now_ns(CLOCK_MONOTONIC) - 1000000000u;
    to->sequence = ++header->event_next;
}

static void fill_events(struct poolcuda_header *header) {
    const struct poolcuda_event growth = {
        .type = POOLCUDA_EVENT_growth, .pool = 1, .requested_bytes = 32 * MIB, .device_free_bytes = UINT64_MAX};
    const struct poolcuda_event oom = {.type = POOLCUDA_EVENT_oom,
                                       .pool = 1,
                                       .reason = POOLCUDA_OOM_LIMIT,
                                       .requested_bytes = 100 * MIB,
                                       .live_bytes = 40 * MIB,
                                       .cached_bytes = 24 * MIB,
                                       .largest_free_bytes = 12 * MIB,
                                       .device_free_bytes = 1024 * MIB,
                                       .fragmentation_ppm = 500000};
    const struct poolcuda_event fallback = {.type = POOLCUDA_EVENT_fallback, .device = -1, .reason = 801};
    for (int i = 0; has("ring") && i < 21; i++) put_event(header, &growth);
    put_event(header, &growth);
    put_event(header, &oom);
    put_event(header, &fallback);
    /* One that is being written, and one in a wrong place: neither may be shown. */
    if (has("ring")) return;
    ((struct poolcuda_event *)record_at(&header->events, 4))->type = POOLCUDA_EVENT_oom;
    ((struct poolcuda_event *)record_at(&header->events, 5))->sequence = 99;
}

static void fill_header(struct poolcuda_header *header, unsigned long long ticks) {
    struct stat namespace;
    memcpy(header->magic, has("other-magic") ? "POOLCUDB" : POOLCUDA_MAGIC, sizeof(header->magic));
    header->version = has("other-version") ? POOLCUDA_LAYOUT_VERSION + 1 : POOLCUDA_LAYOUT_VERSION;
    header->header_bytes = sizeof(*header);
    header->total_bytes = segment_bytes;
    header->pid = (uint32_t)getpid();
    header->uid = getuid();
    header->start_ticks = ticks;
    header->pid_namespace = stat("/proc/self/ns/pid", &namespace) == 0 ? namespace.st_ino : 0;
    header->created_ns = now_ns(CLOCK_MONOTONIC) - 2000000000u;
    header->created_unix_ns = now_ns(CLOCK_REALTIME) - 2000000000u;
    header->heartbeat_ns = now_ns(CLOCK_MONOTONIC) - 1000000000u;
    header->driver_version = 13000;
    header->proc_address_lookups = 440;
    header->symbols_hooked = 21;
    header->pass_through[POOLCUDA_PASS_async] = 12;
    header->pass_through[POOLCUDA_PASS_foreign] = 3;
    strcpy(header->library_version, "0.1.0");
    strcpy(header->command, "synthetic");
    for (int i = 0; i < word_count; i++)
        if (words[i][0] == '=') snprintf(header->command, sizeof(header->command), "%s", words[i] + 1);
    if (has("in-driver")) header->in_driver_since_ns = now_ns(CLOCK_MONOTONIC) - 2000000000u;
    if (has("stuck")) header->in_driver_since_ns = now_ns(CLOCK_MONOTONIC) - 12000000000u;
    if (has("hostile")) {
        memset(header->command, 'x', sizeof(header->command));
        memcpy(header->command, "a\x1b[31m\n\"\\\xff\xc3\xa9\xe2\x80\xae\xc2\x85", 17);
    }
}

static void move(uint64_t bytes, uint64_t *from, uint64_t *to) {
    __atomic_store_n(from, *from - bytes, __ATOMIC_RELAXED);
    for (volatile int pause = 0; pause < 200; pause++) continue;
    __atomic_store_n(to, *to + bytes, __ATOMIC_RELAXED);
}

static void step(uint64_t *const sequences[], unsigned count, uint64_t by) {
    for (unsigned i = 0; i < count; i++) __atomic_store_n(sequences[i], *sequences[i] + by, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Each time from what a reader copies later to what it copies earlier: it would miss what moves meanwhile. */
static void *write_for_ever(void *argument) {
    struct poolcuda_header *header = argument;
    struct poolcuda_pool *pool = record_at(&header->pools, 0);
    struct poolcuda_cell *one = record_at(&header->cells, 0), *other = record_at(&header->cells, 8);
    uint64_t *const cells[] = {&one->sequence, &other->sequence}, *const with_one[] = {&pool->sequence, &one->sequence},
                    *const with_other[] = {&pool->sequence, &other->sequence};
    for (;;) {
        step(cells, 2, 1);
        move(MIB, &other->classes[15].held_bytes, &one->classes[15].held_bytes);
        step(cells, 2, 1);
        for (volatile int pause = 0; pause < 8000; pause++) continue;
        step(with_one, 2, 1);
        move(MIB, &one->classes[15].held_bytes, &pool->idle_bytes);
        step(with_one, 2, 1);
        for (volatile int pause = 0; pause < 8000; pause++) continue;
        step(with_other, 2, 1);
        move(MIB, &pool->idle_bytes, &other->classes[15].held_bytes);
        step(with_other, 2, 1);
    }
    return NULL;
}

/* In a class whose two figures lie in different cache lines. */
static void *tear_for_ever(void *argument) {
    struct poolcuda_header *header = argument;
    struct poolcuda_size_class *class = &((struct poolcuda_cell *)record_at(&header->cells, 0))->classes[13];
    for (;;) {
        __atomic_store_n(&class->alloc_bytes, class->alloc_bytes + MIB, __ATOMIC_RELAXED);
        __atomic_store_n(&class->freed_bytes, class->freed_bytes + MIB, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* A copy without the newest cell lacks what was moved to it, and no sequence that it knows tells. */
static void *join_for_ever(void *argument) {
    struct poolcuda_header *header = argument;
    struct poolcuda_pool *pool = record_at(&header->pools, 0);
    const uint64_t bytes = MIB / 4;
    for (;;) {
        for (uint32_t i = 0; i < JOINING; i++) {
            struct poolcuda_cell *cell = open_cell(header, CELLS + i, 1, 0, 2 + i);
            uint64_t *const sequences[] = {&pool->sequence, &cell->sequence};
            step(sequences, 2, 1);
            move(bytes, &pool->idle_bytes, &cell->classes[9].held_bytes);
            step(sequences, 2, 1);
            for (volatile int pause = 0; pause < 20000; pause++) continue;
        }
        step((uint64_t *const[]){&pool->sequence}, 1, 1);
        for (uint32_t i = 0; i < JOINING; i++) {
            struct poolcuda_cell *cell = record_at(&header->cells, CELLS + i);
            __atomic_store_n(&cell->pool, 0, __ATOMIC_RELAXED);
            move(bytes, &cell->classes[9].held_bytes, &pool->idle_bytes);
        }
        step((uint64_t *const[]){&pool->sequence}, 1, 1);
    }
    return NULL;
}

static void *write_row_for_ever(void *argument) {
    struct poolcuda_header *header = argument;
    struct poolcuda_map_row *row = record_at(&header->map, 0);
    for (;;) {
        step((uint64_t *const[]){&row->sequence}, 1, 1);
        move(8 * MIB, &row->live_bytes, &row->idle_bytes);
        step((uint64_t *const[]){&row->sequence}, 1, 1);
        step((uint64_t *const[]){&row->sequence}, 1, 1);
        move(8 * MIB, &row->idle_bytes, &row->live_bytes);
        step((uint64_t *const[]){&row->sequence}, 1, 1);
    }
    return NULL;
}

static void *restart_for_ever(void *argument) {
    struct poolcuda_header *header = argument;
    for (uint32_t state = POOLCUDA_STARTING;; state ^= POOLCUDA_STARTING ^ POOLCUDA_RUNNING) {
        __atomic_store_n(&header->state, state, __ATOMIC_RELAXED);
        usleep(500);
    }
    return NULL;
}

static void *stay(void *path) {
    for (char byte; read(STDIN_FILENO, &byte, 1) > 0;) continue;
    if (has("unlinks")) unlink(path);
    exit(0);
    return NULL;
}

static void say_ready(const char *path) {
    printf("ready %d %s\n", getpid(), path);
    fflush(stdout);
}

/* Says so when the first thread is gone. */
static void *stay_alone(void *path) {
    char state = ' ', line[256];
    while (state != 'Z') {
        FILE *file = fopen("/proc/self/stat", "r");
        if (file == NULL || fgets(line, sizeof(line), file) == NULL) exit(3);
        fclose(file);
        state = strrchr(line, ')')[2];
    }
    say_ready(path);
    return stay(path);
}

int main(int argc, char **argv) {
    static char path[4096];
    const unsigned long long ticks = start_ticks();
    struct poolcuda_header sections;
    pthread_t writer;
    if (argc < 2) return 2;
    word_count = argc - 2;
    words = argv + 2;
    segment_bytes = sizeof(struct poolcuda_header);
    sections.config = section(CONFIG, sizeof(struct poolcuda_config_entry));
    sections.pools = section(POOLS, sizeof(struct poolcuda_pool));
    sections.cells = section(has("sized") ? POOLCUDA_MAX_CELLS : CELLS + (has("joining") ? JOINING : 0),
                             sizeof(struct poolcuda_cell));
    sections.events = section(EVENTS, sizeof(struct poolcuda_event));
    sections.fixed = section(has("old") ? 0 : FIXED, sizeof(struct poolcuda_fixed));
    sections.map = section(has("old") ? 0 : MAP_ROWS, sizeof(struct poolcuda_map_row));
    if (has("old")) sections.fixed = sections.map = (struct poolcuda_section){0};
    snprintf(path, sizeof(path), "%s/" POOLCUDA_SHM_PREFIX "%u-%d-%llu", argv[1], getuid(), getpid(), ticks);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)segment_bytes) != 0) return 3;
    segment = mmap(NULL, segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (segment == MAP_FAILED) return 3;
    struct poolcuda_header *header = (struct poolcuda_header *)(void *)segment;
    header->config = sections.config;
    header->pools = sections.pools;
    header->cells = sections.cells;
    if (has("sized")) header->cells.end = CELLS;
    header->events = sections.events;
    header->fixed = sections.fixed;
    header->map = sections.map;
    fill_header(header, ticks);
    fill_config(header);
    if (!has("bare")) fill_pools(header);
    fill_events(header);
    header->state = has("ended") ? POOLCUDA_ENDED : has("starting") ? POOLCUDA_STARTING : POOLCUDA_RUNNING;
    if (has("torn")) ((struct poolcuda_pool *)record_at(&header->pools, 0))->sequence = 1; /* from the first look on */
    if (has("torn") && pthread_create(&writer, NULL, tear_for_ever, header) != 0) return 3;
    if (has("busy") && pthread_create(&writer, NULL, write_for_ever, header) != 0) return 3;
    if (has("map-torn") && pthread_create(&writer, NULL, write_row_for_ever, header) != 0) return 3;
    if (has("joining") && pthread_create(&writer, NULL, join_for_ever, header) != 0) return 3;
    if (has("drops") && setresuid(65534, 65534, 65534) != 0) return 3;
    if (has("remade") && pthread_create(&writer, NULL, restart_for_ever, header) != 0) return 3;
    if (has("headless")) {
        pthread_create(&writer, NULL, stay_alone, path);
        pthread_exit(NULL);
    }
    say_ready(path);
    if (has("exec")) execl("/bin/sleep", "sleep", "60", (char *)NULL);
    stay(path);
}
