/* SPDX-License-Identifier: MIT
 *
 * The table of a pool's blocks that the program has, or may have again as they are, by their exact address: open
 * addressing with linear probes, at most half full, so that a look-up mostly costs one cache line. Removal shifts what
 * follows back, so nothing else is ever stored and the table never degrades.
 */
#include "pool/internal.h"

#include <string.h>
#include <sys/mman.h>

#define LEAST_ROOM ((size_t)256)

static size_t home(const struct live_table *table, uint64_t address) {
    /* Multiplication by 2^64 / golden ratio: the top bits are well mixed. */
    return (size_t)((address / UNIT * UINT64_C(0x9E3779B97F4A7C15)) >> table->shift);
}

static bool table_resize(struct live_table *table, size_t room) {
    struct live_slot *slots = records_pages(room * sizeof *slots);
    if (!slots) return false;
    struct live_table old = *table;
    table->slots = slots;
    table->room = room;
    table->shift = 64u - (unsigned)__builtin_ctzll(room);
    for (size_t i = 0; i < old.room; i++) {
        if (!old.slots[i].block) continue;
        size_t at = home(table, old.slots[i].address);
        while (slots[at].block) at = (at + 1) & (room - 1);
        slots[at] = old.slots[i];
    }
    if (old.slots) munmap(old.slots, old.room * sizeof *old.slots);
    return true;
}

bool live_table_add(struct live_table *table, struct block *block) {
    if (2 * (table->count + 1) > table->room && !table_resize(table, table->room ? 2 * table->room : LEAST_ROOM))
        return false;
    size_t at = home(table, block->address);
    while (table->slots[at].block) at = (at + 1) & (table->room - 1);
    table->slots[at] = (struct live_slot){block->address, block};
    table->count++;
    return true;
}

/* The slot of `address`, or the empty one that ends its probe. */
static size_t probe(const struct live_table *table, uint64_t address) {
    size_t at = home(table, address);
    while (table->slots[at].block && table->slots[at].address != address) at = (at + 1) & (table->room - 1);
    return at;
}

struct block *live_table_entry(const struct live_table *table, uint64_t address) {
    return table->room ? table->slots[probe(table, address)].block : NULL;
}

struct block *live_table_find(const struct live_table *table, uint64_t address) {
    struct block *block = live_table_entry(table, address);
    return block && block->state == BLOCK_LIVE ? block : NULL;
}

struct block *live_table_remove(struct live_table *table, uint64_t address) {
    if (!table->room) return NULL;
    size_t mask = table->room - 1, hole = probe(table, address);
    struct block *block = table->slots[hole].block;
    if (!block) return NULL;
    /* Whoever was pushed past the hole moves back into it. */
    for (size_t at = (hole + 1) & mask; table->slots[at].block; at = (at + 1) & mask) {
        size_t wanted = home(table, table->slots[at].address);
        if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
        table->slots[hole] = table->slots[at];
        hole = at;
    }
    table->slots[hole].block = NULL;
    table->count--;
    return block;
}

void live_table_free(struct live_table *table) {
    if (table->slots) munmap(table->slots, table->room * sizeof *table->slots);
    *table = (struct live_table){0};
}
