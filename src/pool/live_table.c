/* SPDX-License-Identifier: MIT
 *
 * The table of a pool's blocks that the program has, or may have again as they are, by their exact address: open
 * addressing with linear probes, at most half full, so that a look-up mostly costs one cache line. Removal shifts what
 * follows back, so nothing else is ever stored and the table never degrades.
 *
 * A hit looks without the lock. What it finds may be out of date, or not be found while something is moved, so it looks
 * at the block under its front's lock, and otherwise again under the pool's. So what it reads stays mapped: a room that
 * has become too small gives back its pages alone, and reads as empty.
 */
#include "pool/internal.h"

#include <errno.h>
#include <sys/mman.h>

#define LEAST_ROOM ((size_t)256)

static size_t room_bytes(const struct live_room *room) {
    return (room->mask + 1) * sizeof(struct live_slot);
}

static void slot_set(struct live_slot *slot, uint64_t address, struct block *block) {
    __atomic_store_n(&slot->address, address, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->block, block, __ATOMIC_RELEASE);
}

static struct live_slot slot_get(const struct live_slot *slot) {
    return (struct live_slot){__atomic_load_n(&slot->address, __ATOMIC_RELAXED),
                              __atomic_load_n(&slot->block, __ATOMIC_RELAXED)};
}

/* Its slots read as empty from now on. */
static void room_clear(const struct live_room *room) {
    const int error = errno;
    /* Pages that the program has locked (mlockall) stay as they are. */
    if (madvise(room->slots, room_bytes(room), MADV_DONTNEED) != 0)
        for (size_t i = 0; i <= room->mask; i++) slot_set(&room->slots[i], 0, NULL);
    errno = error;
}

static bool table_grow(struct live_table *table) {
    const struct live_room *old = live_table_room(table);
    struct live_room *room = old ? table->room + 1 : table->rooms;
    if (room == table->rooms + LIVE_ROOMS) return false;
    room->mask = old ? 2 * old->mask + 1 : LEAST_ROOM - 1;
    room->shift = 64u - (unsigned)__builtin_ctzll(room->mask + 1);
    room->slots = records_pages(room_bytes(room));
    if (!room->slots) return false;
    for (size_t i = 0; old && i <= old->mask; i++) {
        const struct live_slot slot = slot_get(&old->slots[i]);
        if (!slot.block) continue;
        size_t at = live_table_home(room, slot.address);
        while (room->slots[at].block) at = (at + 1) & room->mask;
        room->slots[at] = slot;
    }
    __atomic_store_n(&table->room, room, __ATOMIC_RELEASE);
    if (old) room_clear(old);
    return true;
}

bool live_table_add(struct live_table *table, struct block *block) {
    const struct live_room *room = live_table_room(table);
    if ((!room || 2 * (table->count + 1) > room->mask + 1) && !table_grow(table)) return false;
    room = live_table_room(table);
    size_t at = live_table_home(room, block->address);
    while (slot_get(&room->slots[at]).block) at = (at + 1) & room->mask;
    slot_set(&room->slots[at], block->address, block);
    table->count++;
    return true;
}

struct block *live_table_find(const struct live_table *table, uint64_t address) {
    struct block *block = live_table_entry(table, address);
    return block && block_tag(block).state == BLOCK_LIVE ? block : NULL;
}

struct block *live_table_remove(struct live_table *table, uint64_t address) {
    const struct live_room *room = live_table_room(table);
    if (!room) return NULL;
    const size_t mask = room->mask;
    size_t hole = live_table_home(room, address);
    struct live_slot slot;
    while ((slot = slot_get(&room->slots[hole])).block && slot.address != address) hole = (hole + 1) & mask;
    struct block *block = slot.block;
    if (!block) return NULL;
    /* Whoever was pushed past the hole moves back into it. */
    for (size_t at = (hole + 1) & mask; (slot = slot_get(&room->slots[at])).block; at = (at + 1) & mask) {
        const size_t wanted = live_table_home(room, slot.address);
        if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
        slot_set(&room->slots[hole], slot.address, slot.block);
        hole = at;
    }
    slot_set(&room->slots[hole], 0, NULL);
    table->count--;
    return block;
}

void live_table_clear(struct live_table *table) {
    if (table->count) room_clear(live_table_room(table));
    table->count = 0;
}

void live_table_free(struct live_table *table) {
    for (struct live_room *room = table->rooms; room < table->rooms + LIVE_ROOMS && room->slots; room++)
        munmap(room->slots, room_bytes(room));
    *table = (struct live_table){0};
}
