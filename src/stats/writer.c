/* SPDX-License-Identifier: MIT
 *
 * Hands out the records of the figures. Who owns which record is kept in private memory, beside the published one:
 * others of the same user could write to the segment, and nothing is decided from what it holds.
 */
#include "stats/writer.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/guard.h"
#include "stats/segment.h"

/* One storage and the ownership of its records. */
struct image {
    struct segment_storage *storage; /* NULL: not made (yet) */
    struct {
        bool used;
        uint64_t gone; /* 0 while open, else the number of its departure: the least has been gone longest */
    } pools[POOLCUDA_MAX_POOLS];
    const struct poolcuda_pool *cell_owner[POOLCUDA_MAX_CELLS]; /* NULL: free */
    const struct poolcuda_pool *fixed_owner[POOLCUDA_MAX_FIXED];
};

/* The segment, static memory, and further private memory for those that find no room. */
enum { IMAGE_SHARED, IMAGE_STATIC, IMAGE_MORE, IMAGES = IMAGE_MORE + 16 };

static struct segment_storage static_storage;
static struct image images[IMAGES] = {[IMAGE_STATIC] = {.storage = &static_storage}};
static pthread_mutex_t images_lock = PTHREAD_MUTEX_INITIALIZER; /* over `images` and the start */
static uint64_t departures;

/* Where everything goes that finds no host memory: written by many, read by nobody. */
static struct poolcuda_pool dummy_pool;
static struct poolcuda_cell dummy_cell;
static struct poolcuda_fixed dummy_fixed;

enum {
    CELLS_KEPT = POOLCUDA_MAX_POOLS, /* for pools to come, whose first cell must not be lost */
    CELLS_KEPT_FROM_STREAMS = 16 /* besides: a program of many streams has threads that use none, in two pools here */
};

static struct segment_storage *in_force = &static_storage;

static enum { NOT_STARTED, STARTING, STARTED } phase;
static char segment_name[SEGMENT_NAME_BYTES];
static pid_t creator; /* the process that owns the segment, 0 when there is none (any more) */

/* Who writes which event of the ring. A writer that was overtaken by a whole turn leaves the record to the later. */
static struct {
    bool busy;
    uint32_t latest;
} ring[POOLCUDA_MAX_EVENTS];

static struct segment_storage *storage_in_force(void) {
    return __atomic_load_n(&in_force, __ATOMIC_ACQUIRE);
}

struct poolcuda_header *stats_header(void) {
    return &storage_in_force()->header;
}

/* ---- start and end ---- */

static void copy_words(void *to, const void *from, size_t bytes) {
    uint64_t *target = to;
    const uint64_t *source = from;
    for (size_t i = 0; i < bytes / sizeof *target; i++) stats_set(&target[i], stats_get(&source[i]));
}

static void move_counter(uint64_t *to, uint64_t *from) {
    __atomic_fetch_add(to, __atomic_exchange_n(from, 0, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

static void copy_u32(uint32_t *to, const uint32_t *from) {
    __atomic_store_n(to, __atomic_load_n(from, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* What was noted before there was a segment. */
static void take_over(struct segment_storage *shared, struct segment_storage *private) {
    copy_u32(&shared->header.driver_version, &private->header.driver_version);
    copy_u32(&shared->header.runtime_only, &private->header.runtime_only);
    copy_u32(&shared->header.event_next, &private->header.event_next);
    stats_set(&shared->header.in_driver_since_ns, stats_get(&private->header.in_driver_since_ns));
    copy_words(shared->events, private->events, sizeof shared->events);
}

/* Counters grow in any thread: they move after the switch, so that none is counted twice. */
static void move_counters(struct poolcuda_header *to, struct poolcuda_header *from) {
    for (unsigned i = 0; i < POOLCUDA_PASS_COUNT; i++) move_counter(&to->pass_through[i], &from->pass_through[i]);
    move_counter(&to->proc_address_lookups, &from->proc_address_lookups);
    move_counter(&to->symbols_hooked, &from->symbols_hooked);
}

static void start(bool enabled) {
    segment_describe(&static_storage);
    struct segment_storage *shared = enabled ? segment_create(&static_storage.header, segment_name) : NULL;
    if (shared == NULL) return;
    segment_describe(shared);
    take_over(shared, &static_storage);
    stats_set(&shared->header.heartbeat_ns, segment_clock_ns());
    __atomic_store_n(&shared->header.state, POOLCUDA_RUNNING, __ATOMIC_RELEASE);
    images[IMAGE_SHARED].storage = shared;
    creator = getpid();
    __atomic_store_n(&in_force, shared, __ATOMIC_RELEASE);
    move_counters(&shared->header, &static_storage.header);
}

bool stats_published(void) {
    return __atomic_load_n(&phase, __ATOMIC_ACQUIRE) == STARTED && creator == getpid();
}

void stats_start(bool enabled) {
    if (__atomic_load_n(&phase, __ATOMIC_ACQUIRE) == STARTED) return;
    struct guard guard;
    guard_enter(&guard);
    pthread_mutex_lock(&images_lock);
    if (phase != STARTED) {
        __atomic_store_n(&phase, STARTING, __ATOMIC_RELAXED);
        start(enabled);
        __atomic_store_n(&phase, STARTED, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&images_lock);
    guard_leave(&guard);
}

void stats_finish(void) {
    if (__atomic_load_n(&phase, __ATOMIC_ACQUIRE) != STARTED || creator != getpid()) return;
    struct guard guard;
    guard_enter(&guard);
    struct poolcuda_header *header = stats_header();
    if (header->ended_ns == 0) {
        stats_set(&header->ended_ns, segment_clock_ns());
        __atomic_store_n(&header->state, POOLCUDA_ENDED, __ATOMIC_RELEASE);
        segment_unlink(segment_name);
    }
    guard_leave(&guard);
}

void stats_forget_in_child(bool anew) {
    const int error = errno;
    images_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    __atomic_store_n(&in_force, &static_storage, __ATOMIC_RELEASE);
    struct segment_storage *shared = images[IMAGE_SHARED].storage;
    if (shared != NULL) {
        /* Pointers to its records may live on in the child: they lead to private pages now. */
        (void)mmap(shared, sizeof *shared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        memset(&images[IMAGE_SHARED], 0, sizeof images[IMAGE_SHARED]);
    }
    creator = 0;
    memset(ring, 0, sizeof ring);
    memset(static_storage.events, 0, sizeof static_storage.events);
    static_storage.header.event_next = 0;
    memset(static_storage.header.pass_through, 0, sizeof static_storage.header.pass_through);
    static_storage.header.proc_address_lookups = static_storage.header.symbols_hooked = 0;
    if (phase != NOT_STARTED) phase = anew ? NOT_STARTED : STARTED;
    errno = error;
}

/* ---- header counters and events ---- */

void stats_pass(enum poolcuda_pass_reason reason) {
    if ((unsigned)reason >= POOLCUDA_PASS_COUNT) return;
    __atomic_fetch_add(&stats_header()->pass_through[reason], 1, __ATOMIC_RELAXED);
}

void stats_event(const struct poolcuda_event *event) {
    struct segment_storage *storage = storage_in_force();
    const uint32_t index = __atomic_fetch_add(&storage->header.event_next, 1, __ATOMIC_RELAXED);
    const uint32_t slot = index % POOLCUDA_MAX_EVENTS, number = index + 1;
    struct poolcuda_event record = *event, *published = &storage->events[slot];
    if (__atomic_exchange_n(&ring[slot].busy, true, __ATOMIC_ACQUIRE)) return;
    if ((int32_t)(number - ring[slot].latest) > 0) {
        ring[slot].latest = number;
        record.time_ns = segment_clock_ns();
        stats_set(&published->sequence, 0);
        __atomic_thread_fence(__ATOMIC_RELEASE); /* the 0 is seen before any change */
        copy_words(&published->time_ns, &record.time_ns, sizeof record - offsetof(struct poolcuda_event, time_ns));
        __atomic_store_n(&published->sequence, number, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&ring[slot].busy, false, __ATOMIC_RELEASE);
}

/* ---- records of pools and cells; images_lock is held where nothing else is said ---- */

static bool image_holds(const struct image *image, const struct poolcuda_pool *pool) {
    return image->storage != NULL && pool >= image->storage->pools && pool < image->storage->pools + POOLCUDA_MAX_POOLS;
}

static struct image *image_of(const struct poolcuda_pool *pool) {
    for (unsigned i = 0; i < IMAGES; i++) {
        if (image_holds(&images[i], pool)) return &images[i];
    }
    return NULL;
}

/* Make private memory for a further image. */
static bool image_make(struct image *image) {
    if (image->storage != NULL) return true;
    if (image < &images[IMAGE_MORE]) return false;
    void *memory = mmap(NULL, sizeof *image->storage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    image->storage = memory;
    return true;
}

static void clear_words(void *record, size_t bytes) {
    uint64_t *words = record;
    for (size_t i = 0; i < bytes / sizeof *words; i++) stats_set(&words[i], 0);
}

static void cell_free(struct image *image, unsigned index) {
    __atomic_store_n(&image->storage->cells[index].pool, 0, __ATOMIC_RELAXED);
    image->cell_owner[index] = NULL;
}

static void fixed_free(struct image *image, unsigned index) {
    __atomic_store_n(&image->storage->fixed[index].pool, 0, __ATOMIC_RELAXED);
    image->fixed_owner[index] = NULL;
}

/* A pool that is gone makes room: its record and, wherever they are, its cells and fixed-size pools. */
static void pool_retire(struct image *image, unsigned index) {
    struct poolcuda_pool *pool = &image->storage->pools[index];
    stats_write_begin(pool);
    for (unsigned i = 0; i < IMAGES; i++) {
        for (unsigned cell = 0; images[i].storage != NULL && cell < POOLCUDA_MAX_CELLS; cell++) {
            if (images[i].cell_owner[cell] == pool) cell_free(&images[i], cell);
        }
        for (unsigned fixed = 0; images[i].storage != NULL && fixed < POOLCUDA_MAX_FIXED; fixed++) {
            if (images[i].fixed_owner[fixed] == pool) fixed_free(&images[i], fixed);
        }
    }
    const size_t kept = sizeof pool->sequence;
    clear_words((char *)pool + kept, sizeof *pool - kept);
    stats_write_end(pool);
    image->pools[index].used = false;
}

static bool owns_cell(const struct image *image, const struct poolcuda_pool *pool) {
    for (unsigned cell = 0; cell < POOLCUDA_MAX_CELLS; cell++) {
        if (image->cell_owner[cell] == pool) return true;
    }
    return false;
}

/* Retire the pool of `image` that has been gone longest; with `cells`, of those that own a cell there. */
static bool make_room(struct image *image, bool cells) {
    unsigned oldest = POOLCUDA_MAX_POOLS;
    for (unsigned i = 0; i < POOLCUDA_MAX_POOLS; i++) {
        if (!image->pools[i].used || image->pools[i].gone == 0) continue;
        if (cells && !owns_cell(image, &image->storage->pools[i])) continue;
        if (oldest == POOLCUDA_MAX_POOLS || image->pools[i].gone < image->pools[oldest].gone) oldest = i;
    }
    if (oldest == POOLCUDA_MAX_POOLS) return false;
    pool_retire(image, oldest);
    return true;
}

static struct poolcuda_pool *pool_take(struct image *image) {
    do {
        for (unsigned i = 0; i < POOLCUDA_MAX_POOLS; i++) {
            if (image->pools[i].used) continue;
            image->pools[i].used = true;
            image->pools[i].gone = 0;
            return &image->storage->pools[i];
        }
    } while (make_room(image, false));
    return NULL;
}

static struct poolcuda_cell *cell_take(struct image *image, const struct poolcuda_pool *owner, uint32_t number,
                                       uint64_t stream, uint64_t thread) {
    do {
        for (unsigned i = 0; i < POOLCUDA_MAX_CELLS; i++) {
            if (image->cell_owner[i] != NULL) continue;
            struct poolcuda_cell *cell = &image->storage->cells[i];
            image->cell_owner[i] = owner;
            clear_words(cell, sizeof *cell);
            stats_set(&cell->stream, stream);
            stats_set(&cell->thread, thread);
            /* Before it is seen to be in use: a reader that sees no further looks no further. */
            if (i >= image->storage->header.cells.end)
                __atomic_store_n(&image->storage->header.cells.end, i + 1, __ATOMIC_RELAXED);
            __atomic_store_n(&cell->pool, number, __ATOMIC_RELEASE);
            return cell;
        }
    } while (make_room(image, true));
    return NULL;
}

struct poolcuda_pool *stats_pool_open(void) {
    struct poolcuda_pool *pool = NULL;
    const int error = errno;
    pthread_mutex_lock(&images_lock);
    for (unsigned i = 0; i < IMAGES && pool == NULL; i++) {
        if (image_make(&images[i])) pool = pool_take(&images[i]);
    }
    pthread_mutex_unlock(&images_lock);
    errno = error;
    return pool == NULL ? &dummy_pool : pool;
}

void stats_pool_publish(struct poolcuda_pool *pool) {
    __atomic_store_n(&pool->state, POOLCUDA_POOL_OPEN, __ATOMIC_RELEASE);
}

struct poolcuda_cell *stats_cell_more(struct poolcuda_pool *pool, uint64_t stream, uint64_t thread) {
    struct poolcuda_cell *cell = NULL;
    pthread_mutex_lock(&images_lock);
    struct image *home = image_of(pool);
    const unsigned kept = CELLS_KEPT + (stream != 0 ? CELLS_KEPT_FROM_STREAMS : 0);
    unsigned left;
    do {
        left = 0;
        for (unsigned i = 0; home != NULL && i < POOLCUDA_MAX_CELLS; i++) left += home->cell_owner[i] == NULL;
    } while (home != NULL && left <= kept && make_room(home, true));
    if (left > kept) cell = cell_take(home, pool, (uint32_t)(pool - home->storage->pools) + 1, stream, thread);
    pthread_mutex_unlock(&images_lock);
    return cell;
}

struct poolcuda_cell *stats_cell_open(struct poolcuda_pool *pool, uint64_t stream, uint64_t thread) {
    struct poolcuda_cell *cell = NULL;
    const int error = errno;
    pthread_mutex_lock(&images_lock);
    struct image *home = image_of(pool);
    if (home != NULL) {
        const uint32_t number = (uint32_t)(pool - home->storage->pools) + 1;
        /* Cells of a private pool stay private: in the segment they would count for another's record. */
        for (unsigned i = home == &images[IMAGE_SHARED] ? IMAGE_SHARED : IMAGE_STATIC; i < IMAGES && cell == NULL;
             i++) {
            if (image_make(&images[i])) cell = cell_take(&images[i], pool, number, stream, thread);
        }
    }
    pthread_mutex_unlock(&images_lock);
    errno = error;
    return cell == NULL ? &dummy_cell : cell;
}

/* Those of pools that are gone are taken first: they go with their pools, which go one by one. */
static struct poolcuda_fixed *fixed_take(struct image *image, const struct poolcuda_pool *owner, uint32_t number) {
    do {
        for (unsigned i = 0; i < POOLCUDA_MAX_FIXED; i++) {
            if (image->fixed_owner[i] != NULL) continue;
            struct poolcuda_fixed *fixed = &image->storage->fixed[i];
            image->fixed_owner[i] = owner;
            clear_words(fixed, sizeof *fixed);
            __atomic_store_n(&fixed->pool, number, __ATOMIC_RELEASE);
            return fixed;
        }
    } while (make_room(image, false));
    return NULL;
}

struct poolcuda_fixed *stats_fixed_open(struct poolcuda_pool *pool) {
    struct poolcuda_fixed *fixed = NULL;
    const int error = errno;
    pthread_mutex_lock(&images_lock);
    struct image *home = image_of(pool);
    if (home != NULL) {
        const uint32_t number = (uint32_t)(pool - home->storage->pools) + 1;
        /* As with cells: those of a private pool stay private. */
        for (unsigned i = home == &images[IMAGE_SHARED] ? IMAGE_SHARED : IMAGE_STATIC; i < IMAGES && fixed == NULL; i++)
            if (image_make(&images[i])) fixed = fixed_take(&images[i], pool, number);
    }
    pthread_mutex_unlock(&images_lock);
    errno = error;
    return fixed == NULL ? &dummy_fixed : fixed;
}

void stats_pool_gone(struct poolcuda_pool *pool) {
    pthread_mutex_lock(&images_lock);
    struct image *home = image_of(pool);
    if (home != NULL) {
        home->pools[pool - home->storage->pools].gone = ++departures;
        __atomic_store_n(&pool->state, POOLCUDA_POOL_GONE, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&images_lock);
}

uint32_t stats_pool_number(const struct poolcuda_pool *pool) {
    const struct segment_storage *storage = storage_in_force();
    if (storage == &static_storage || pool < storage->pools || pool >= storage->pools + POOLCUDA_MAX_POOLS) return 0;
    return (uint32_t)(pool - storage->pools) + 1;
}
