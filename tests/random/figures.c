/* SPDX-License-Identifier: MIT
 *
 * Reads the segment of figures; see include/poolcuda/stats.h.
 */
#include "figures.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cell_sums.h"
#include "poolcuda/stats.h"
#include "tally.h"

/* Of one pool, with its cells. */
struct sums {
    struct poolcuda_pool pool; /* completed by them */
    struct cell_sums cells;
};

static const struct poolcuda_header *header;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct figures noted;
static struct {
    uint64_t generation;
    struct figures figures;
} last[POOLCUDA_MAX_POOLS];

static unsigned long long start_ticks(void) {
    char text[1024] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    if (file == NULL) return 0;
    const size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    const char *field = strrchr(text, ')');
    for (int i = 2; field != NULL && i < 22; i++) field = strchr(field + 1, ' ');
    return field != NULL ? strtoull(field, NULL, 10) : 0;
}

bool figures_open(void) {
    char path[128];
    struct stat status;
    if (header != NULL) return true;
    snprintf(path, sizeof path, "/dev/shm/%s%u-%u-%llu", POOLCUDA_SHM_PREFIX, (unsigned)getuid(), (unsigned)getpid(),
             start_ticks());
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    if (fstat(fd, &status) == 0) {
        void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (map != MAP_FAILED) header = map;
    }
    close(fd);
    return header != NULL;
}

static const void *record(struct poolcuda_section section, uint32_t i) {
    return (const char *)header + section.offset + (size_t)i * section.stride;
}

static void pool_read(uint32_t index, struct sums *sums) {
    memset(sums, 0, sizeof *sums);
    memcpy(&sums->pool, record(header->pools, index), sizeof sums->pool);
    for (uint32_t i = 0; i < header->cells.count; i++) {
        const struct poolcuda_cell *cell = record(header->cells, i);
        if (cell->pool == index + 1) cell_sums_add(&sums->cells, cell);
    }
    cell_sums_complete(&sums->pool, &sums->cells);
}

void figures_note(void) {
    struct sums sums;
    if (!figures_open()) return;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < header->pools.count && i < POOLCUDA_MAX_POOLS; i++) {
        pool_read(i, &sums);
        if (sums.pool.state == POOLCUDA_POOL_UNUSED) continue;
        const struct figures now = {
            .fences = sums.pool.fences,
            .waits = sums.pool.waits,
            .segment_allocs = sums.pool.segment_allocs,
            .oom_retries = sums.pool.oom_retries,
            .allocs = sums.cells.allocs,
            .hits = sums.cells.hits,
            .frees = sums.cells.frees,
        };
        if (last[i].generation != sums.pool.generation) memset(&last[i].figures, 0, sizeof last[i].figures);
#define ADD_GROWTH(name) \
    if (now.name >= last[i].figures.name) noted.name += now.name - last[i].figures.name;
        FIGURES_SUMMED(ADD_GROWTH)
#undef ADD_GROWTH
        last[i].generation = sums.pool.generation;
        last[i].figures = now;
    }
    pthread_mutex_unlock(&lock);
}

const struct figures *figures_noted(void) {
    return &noted;
}

static uint64_t cached_of(const struct poolcuda_pool *pool) {
    return pool->idle_bytes + pool->ordered_bytes + pool->waiting_bytes + pool->retired_bytes;
}

/* Reserved ahead, and free. */
static uint64_t ahead_of(const struct poolcuda_pool *pool) {
    return pool->prealloc_unused_bytes + pool->fixed_free_bytes;
}

/* A sentence about the first thing that is wrong with one pool; NULL when nothing is. */
static const char *pool_broken(const struct sums *sums, uint64_t *is, uint64_t *should) {
    const struct poolcuda_pool *pool = &sums->pool;
    const struct cell_sums *cells = &sums->cells;
    const uint64_t cached = cached_of(pool);
    const struct {
        const char *text;
        uint64_t is, should;
    } equal[] = {
        {"blocks freed, and blocks handed out", cells->frees, cells->allocs},
        {"bytes freed, and bytes handed out", cells->freed_live_bytes, cells->alloc_live_bytes},
        {"requested bytes freed, and handed out", cells->freed_requested_bytes, cells->alloc_requested_bytes},
        {"bytes that waiting failed for", pool->retired_bytes, 0},
        {"segments taken less those given back, and those held", pool->segment_allocs - pool->segment_releases,
         pool->segments},
        {"bytes taken less those given back, and those held", pool->segment_alloc_bytes - pool->segment_release_bytes,
         pool->reserved_bytes},
    };
    const struct {
        const char *text;
        uint64_t is, most;
    } bounded[] = {
        {"allocations that took a segment, and all", cells->misses, cells->allocs},
        {"calls by the driver door, and all", cells->driver_door, cells->allocs + cells->frees},
        {"cached bytes, and reserved ones", cached, pool->reserved_bytes},
        {"the largest free block, and the cached bytes", pool->largest_free_bytes, cached},
        {"releasable bytes, and the cached bytes", pool->releasable_bytes, cached},
        {"reserved bytes, and their peak", pool->reserved_bytes, pool->peak_reserved_bytes},
        {"frees refused, and wrong ones", pool->bad_frees, atomic_load(&tally.wrong_frees)},
        {"the peak of live bytes, and of reserved ones", pool->peak_live_bytes, pool->peak_reserved_bytes},
    };
    for (size_t i = 0; i < sizeof equal / sizeof equal[0]; i++) {
        *is = equal[i].is, *should = equal[i].should;
        if (*is != *should) return equal[i].text;
    }
    for (size_t i = 0; i < sizeof bounded / sizeof bounded[0]; i++) {
        *is = bounded[i].is, *should = bounded[i].most;
        if (*is > *should) return bounded[i].text;
    }
    return NULL;
}

/* Cells that found no room are not published, and then the sums lack something. */
static bool all_published(void) {
    for (uint32_t i = 0; i < header->cells.count; i++)
        if (((const struct poolcuda_cell *)record(header->cells, i))->pool == 0) return true;
    return false;
}

bool figures_broken(char *text, size_t size) {
    struct sums sums;
    uint64_t is, should, others = 0;
    if (!figures_open() || !all_published()) return false;
    for (uint32_t i = 0; i < header->pools.count; i++) {
        pool_read(i, &sums);
        if (sums.pool.state != POOLCUDA_POOL_OPEN) continue;
        others += sums.pool.reserved_bytes - cached_of(&sums.pool) - ahead_of(&sums.pool);
        const char *broken = pool_broken(&sums, &is, &should);
        if (broken == NULL) continue;
        snprintf(text, size, "figures of pool %u (device %d, kind %u): %s: %" PRIu64 ", %" PRIu64, i, sums.pool.device,
                 sums.pool.kind, broken, is, should);
        return true;
    }
    /* Bytes that other processes may have open are nobody's in the figures. */
    uint64_t (*exported_bytes)(void);
    *(void **)&exported_bytes = dlsym(RTLD_DEFAULT, "poolcuda_exported_bytes");
    const uint64_t exported = exported_bytes != NULL ? exported_bytes() : 0;
    if (others == exported) return false;
    snprintf(text, size, "reserved bytes that are not cached, and those that were exported: %" PRIu64 ", %" PRIu64,
             others, exported);
    return true;
}
