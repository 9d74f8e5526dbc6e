/* SPDX-License-Identifier: MIT
 *
 * Pointer → block of one pool: the LIVE, ENDING, BINNED and some WAITING ones. Changed under pool->lock.
 * Included by internal.h alone.
 */
#ifndef POOLCUDA_POOL_LIVE_TABLE_H
#define POOLCUDA_POOL_LIVE_TABLE_H

struct live_slot {
    uint64_t address;
    struct block *block; /* NULL: empty */
};

/* Made once, and then it stays. */
struct live_room {
    struct live_slot *slots; /* a power of two of them */
    size_t mask;             /* their number less one */
    unsigned shift;
};

#define LIVE_ROOMS 40u /* each twice as large as the one before */

/* What hits read stands apart from what each change writes. */
struct live_table {
    _Alignas(64) struct live_room *room; /* in use; NULL: none yet */
    struct live_room rooms[LIVE_ROOMS];
    _Alignas(64) size_t count;
};

static inline const struct live_room *live_table_room(const struct live_table *table) {
    return __atomic_load_n(&table->room, __ATOMIC_ACQUIRE);
}
/* Where the probes for an address begin. Multiplication by 2^64 / golden ratio: the top bits are well mixed. */
static inline size_t live_table_home(const struct live_room *room, uint64_t address) {
    return (size_t)((address / UNIT * UINT64_C(0x9E3779B97F4A7C15)) >> room->shift);
}

/* False when host memory ran out. */
bool live_table_add(struct live_table *table, struct block *block);
/* The block that begins at exactly `address`, NULL when there is none; without the lock also one that began there. */
static inline struct block *live_table_entry(const struct live_table *table, uint64_t address) {
    const struct live_room *room = live_table_room(table);
    if (__builtin_expect(!room, 0)) return NULL;
    for (size_t at = live_table_home(room, address);; at = (at + 1) & room->mask) {
        const struct live_slot *slot = &room->slots[at];
        const uint64_t found = __atomic_load_n(&slot->address, __ATOMIC_RELAXED);
        struct block *block = __atomic_load_n(&slot->block, __ATOMIC_ACQUIRE);
        if (found == address || !block) return block;
    }
}
/* The same only if it is live. */
struct block *live_table_find(const struct live_table *table, uint64_t address);
struct block *live_table_remove(struct live_table *table, uint64_t address);
void live_table_clear(struct live_table *table);
void live_table_free(struct live_table *table);

#endif
