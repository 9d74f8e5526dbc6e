/* SPDX-License-Identifier: MIT
 *
 * The rows of the block map: which segment has which. There are more segments than rows in a large pool, so the largest
 * have them; but a pool is not left without its largest few, however large those of others are. Whose a row is, is kept
 * in private memory, as with the other records.
 */
#include <pthread.h>
#include <string.h>

#include "stats/segment.h"
#include "stats/writer.h"

/* Rows that no pool takes from another. Where all rows are taken and a pool has fewer, another has more. */
#define ROWS_KEPT (POOLCUDA_MAX_MAP_ROWS / POOLCUDA_MAX_POOLS)

/* In a forked child no pool has a number until it has a segment of its own, which it has only where the parent had no
 * pool: so it finds nothing owned, and takes no lock that another thread may have held. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over all that follows, and the rows */
static struct {
    uint64_t address, size;
    uint32_t pool; /* number of the pool; 0: free */
} owners[POOLCUDA_MAX_MAP_ROWS];
static unsigned rows_of[POOLCUDA_MAX_POOLS + 1]; /* by number of the pool */
static unsigned high;                            /* no row from this one on was ever taken */

enum { NO_ROW = POOLCUDA_MAX_MAP_ROWS };

static unsigned find_row(uint32_t pool, uint64_t address) {
    for (unsigned i = 0; i < high; i++)
        if (owners[i].address == address && owners[i].pool == pool) return i;
    return NO_ROW;
}

/* Low rows first: a reader need not go beyond the last one in use. */
static unsigned free_row(void) {
    unsigned i = 0;
    while (i < POOLCUDA_MAX_MAP_ROWS && owners[i].pool != 0) i++;
    return i;
}

/* The smallest of those that a segment of the pool may take, if it is smaller than that, or the pool has too few. */
static unsigned weakest_row(uint32_t pool, uint64_t size) {
    const bool few = rows_of[pool] < ROWS_KEPT;
    unsigned weakest = NO_ROW;
    for (unsigned i = 0; i < POOLCUDA_MAX_MAP_ROWS; i++) {
        const bool own = owners[i].pool == pool;
        if (!own && rows_of[owners[i].pool] <= ROWS_KEPT) continue;
        if (own && few) continue;
        if (weakest == NO_ROW || owners[i].size < owners[weakest].size) weakest = i;
    }
    return weakest != NO_ROW && (few || owners[weakest].size < size) ? weakest : NO_ROW;
}

static unsigned row_for(uint32_t pool, uint64_t address, uint64_t size) {
    unsigned row = find_row(pool, address);
    if (row == NO_ROW) row = free_row();
    return row == NO_ROW ? weakest_row(pool, size) : row;
}

static void own(unsigned row, uint32_t pool, uint64_t address, uint64_t size) {
    if (owners[row].pool != 0) rows_of[owners[row].pool]--;
    if (pool != 0) rows_of[pool]++;
    owners[row].pool = pool;
    owners[row].address = address;
    owners[row].size = size;
    if (row >= high) high = row + 1;
}

/* `from`: NULL for a row that is nobody's. */
static void write_row(unsigned index, uint32_t pool, const struct poolcuda_map_row *from) {
    struct poolcuda_map_row *row = &((struct segment_storage *)(void *)stats_header())->map[index];
    const size_t first = offsetof(struct poolcuda_map_row, address) / sizeof(uint64_t);
    const uint64_t odd = stats_get(&row->sequence) | 1;
    uint64_t *to = (uint64_t *)(void *)row;
    stats_set(&row->sequence, odd);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the odd number is seen before any change */
    __atomic_store_n(&row->pool, pool, __ATOMIC_RELAXED);
    if (from != NULL) {
        __atomic_store_n(&row->kind, from->kind, __ATOMIC_RELAXED);
        for (size_t i = first; i < sizeof(*row) / sizeof(*to); i++) {
            uint64_t word;
            memcpy(&word, (const char *)from + i * sizeof(word), sizeof(word));
            stats_set(&to[i], word);
        }
    }
    __atomic_store_n(&row->sequence, odd + 1, __ATOMIC_RELEASE);
}

bool stats_map_admits(const struct poolcuda_pool *pool, uint64_t address, uint64_t size) {
    const uint32_t number = stats_pool_number(pool);
    if (number == 0) return false;
    pthread_mutex_lock(&lock);
    const bool admits = row_for(number, address, size) != NO_ROW;
    pthread_mutex_unlock(&lock);
    return admits;
}

void stats_map_put(const struct poolcuda_pool *pool, const struct poolcuda_map_row *row) {
    const uint32_t number = stats_pool_number(pool);
    if (number == 0) return;
    pthread_mutex_lock(&lock);
    const unsigned index = row_for(number, row->address, row->size_bytes);
    if (index != NO_ROW) {
        own(index, number, row->address, row->size_bytes);
        write_row(index, number, row);
    }
    pthread_mutex_unlock(&lock);
}

void stats_map_drop(const struct poolcuda_pool *pool, uint64_t address) {
    const uint32_t number = stats_pool_number(pool);
    if (number == 0) return;
    pthread_mutex_lock(&lock);
    const unsigned index = find_row(number, address);
    if (index != NO_ROW) {
        own(index, 0, 0, 0);
        write_row(index, 0, NULL);
    }
    pthread_mutex_unlock(&lock);
}
