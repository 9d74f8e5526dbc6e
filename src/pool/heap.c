/* SPDX-License-Identifier: MIT
 *
 * Blocks within segments: split, merge, the sums over them, and which segments are wholly free. Everything here is
 * under the pool's lock and touches no device.
 */
#include "pool/internal.h"

#include <assert.h>
#include <string.h>

/* A segment is wholly free when its one block is idle. */
static bool block_is_segment(const struct block *block) {
    return block->size == block->segment->size;
}

static struct segment **free_list_of(struct pool *pool, const struct segment *segment) {
    return segment->whole ? &pool->free_parts : &pool->free_segments;
}

static void free_segments_push(struct pool *pool, struct segment *segment) {
    struct segment **list = free_list_of(pool, segment);
    segment->free_previous = NULL;
    segment->free_next = *list;
    if (*list) (*list)->free_previous = segment;
    *list = segment;
    pool->releasable += segment->size;
}

static void free_segments_remove(struct pool *pool, struct segment *segment) {
    if (segment->free_previous)
        segment->free_previous->free_next = segment->free_next;
    else
        *free_list_of(pool, segment) = segment->free_next;
    if (segment->free_next) segment->free_next->free_previous = segment->free_previous;
    segment->free_previous = segment->free_next = NULL;
    pool->releasable -= segment->size;
}

static uint64_t *cached_of(struct pool *pool, size_t size) {
    return &pool->figures->classes[stats_size_class(size)].cached_bytes;
}

static void count_cached(struct pool *pool, const struct block *block, uint64_t sign) {
    stats_add(cached_of(pool, block->size), sign * (uint64_t)block->size);
}
#define GAINED UINT64_C(1)
#define LOST UINT64_MAX /* -1 */

static void idle_insert(struct pool *pool, struct block *block) {
    block->tag = (struct block_tag){.state = BLOCK_IDLE};
    index_insert(&pool->idle, block);
    pool->idle_bytes += block->size;
    count_cached(pool, block, GAINED);
    if (block_is_segment(block)) free_segments_push(pool, block->segment);
}

static void idle_remove(struct pool *pool, struct block *block) {
    index_remove(&pool->idle, block);
    pool->idle_bytes -= block->size;
    count_cached(pool, block, LOST);
    if (block_is_segment(block)) free_segments_remove(pool, block->segment);
}

static void find_ordered_largest(struct pool *pool) {
    pool->ordered_largest = 0;
    for (unsigned i = 1; i < pool->list_count; i++)
        if (pool->lists[i]->index->largest > pool->ordered_largest)
            pool->ordered_largest = pool->lists[i]->index->largest;
}

static void ordered_insert(struct pool *pool, struct block *block) {
    struct stream_list *list = pool->lists[block->number];
    if (!list->bytes || block->batch < list->oldest) list->oldest = block->batch;
    if (!list->bytes || block->batch > list->newest) list->newest = block->batch;
    index_insert(list->index, block);
    list->bytes += block->size;
    pool->ordered_bytes += block->size;
    pool->ordered_blocks++;
    if (block->size > pool->ordered_largest) pool->ordered_largest = block->size;
    count_cached(pool, block, GAINED);
}

static void ordered_remove(struct pool *pool, struct block *block) {
    struct stream_list *list = pool->lists[block->number];
    index_remove(list->index, block);
    list->bytes -= block->size;
    pool->ordered_bytes -= block->size;
    pool->ordered_blocks--;
    if (block->size == pool->ordered_largest) find_ordered_largest(pool);
    count_cached(pool, block, LOST);
}

void heap_unlist(struct pool *pool, struct block *block) {
    assert((block->state == BLOCK_IDLE || block->state == BLOCK_ORDERED) && "only these are in an index");
    if (block->state == BLOCK_IDLE)
        idle_remove(pool, block);
    else
        ordered_remove(pool, block);
}

size_t heap_largest(const struct pool *pool) {
    return pool->idle.largest > pool->ordered_largest ? pool->idle.largest : pool->ordered_largest;
}

/* `block` takes over the bytes of its neighbour behind it, whose record is given back. */
static void block_absorb(struct pool *pool, struct block *block) {
    struct block *gone = block->after;
    block->size += gone->size;
    block->after = gone->after;
    if (block->after) block->after->before = block;
    records_put_block(&pool->records, gone);
    stats_add(&pool->cell->merges, 1);
}

/* Cut the end of `block` off as a block of its own, free as the whole was. Left alone when host memory ran out. */
static void block_split(struct pool *pool, struct block *block, size_t size) {
    struct block *rest = records_block(&pool->records);
    if (!rest) return;
    rest->address = block->address + size;
    rest->size = block->size - size;
    rest->segment = block->segment;
    rest->tag = block->tag;
    rest->before = block;
    rest->after = block->after;
    if (rest->after) rest->after->before = rest;
    block->after = rest;
    block->size = size;
    stats_add(&pool->cell->splits, 1);
    if (rest->state == BLOCK_ORDERED)
        ordered_insert(pool, rest);
    else
        idle_insert(pool, rest);
}

/* A free block in an index grows or shrinks to `size`, which is of the same class: its place in its list stays. */
static void block_resize(struct pool *pool, struct block *block, size_t size) {
    const uint64_t change = (uint64_t)size - block->size; /* modulo 2^64 */
    uint64_t *const now = cached_of(pool, size), *const before = cached_of(pool, block->size);
    if (now == before) {
        stats_add(now, change);
    } else {
        stats_add(before, -(uint64_t)block->size);
        stats_add(now, size);
    }
    if (block->state == BLOCK_IDLE) {
        if (block_is_segment(block)) free_segments_remove(pool, block->segment);
        index_resize(&pool->idle, block, size);
        pool->idle_bytes += change;
        if (block_is_segment(block)) free_segments_push(pool, block->segment);
    } else {
        struct stream_list *list = pool->lists[block->number];
        const bool largest = block->size == pool->ordered_largest;
        index_resize(list->index, block, size);
        list->bytes += change;
        pool->ordered_bytes += change;
        if (size > pool->ordered_largest)
            pool->ordered_largest = size;
        else if (largest)
            find_ordered_largest(pool);
    }
}

/* The low end of a free block as a block of its own, in no list, while the rest keeps its place: the common way to
 * split. NULL when the rest belongs elsewhere, or host memory ran out. */
static struct block *block_carve(struct pool *pool, struct block *block, size_t size) {
    const size_t rest = block->size - size;
    if (index_class(rest) != index_class(block->size)) return NULL;
    struct block *piece = records_block(&pool->records);
    if (!piece) return NULL;
    piece->address = block->address;
    piece->size = size;
    piece->segment = block->segment;
    piece->tag = block->tag;
    piece->before = block->before;
    piece->after = block;
    block_resize(pool, block, rest);
    block->address += size;
    block->before = piece;
    if (piece->before)
        piece->before->after = piece;
    else
        piece->segment->first = piece;
    stats_add(&pool->cell->splits, 1);
    return piece;
}

/* A block in no list joins its neighbour in an index, which keeps its place: the common way to merge. False when
 * together they belong elsewhere. */
static bool block_join(struct pool *pool, struct block *neighbour, struct block *block) {
    const size_t size = neighbour->size + block->size;
    if (index_class(size) != index_class(neighbour->size)) return false;
    block_resize(pool, neighbour, size);
    if (neighbour->after == block) {
        neighbour->after = block->after;
        if (neighbour->after) neighbour->after->before = neighbour;
    } else {
        neighbour->address = block->address;
        neighbour->before = block->before;
        if (neighbour->before)
            neighbour->before->after = neighbour;
        else
            neighbour->segment->first = neighbour;
    }
    records_put_block(&pool->records, block);
    stats_add(&pool->cell->merges, 1);
    return true;
}

static struct fit_bounds bounds_of(const struct pool *pool, size_t size, bool any) {
    return any ? (struct fit_bounds){SIZE_MAX, SIZE_MAX}
               : policy_fit(size, pool->device->max_split, pool->thrash.saves, &pool->system->options);
}

struct block *heap_take(struct pool *pool, const struct stream_list *list, size_t size, bool any) {
    const struct fit_bounds most = bounds_of(pool, size, any);
    struct block *block = list ? index_find(list->index, size, most) : NULL;
    if (!block) block = index_find(&pool->idle, size, most);
    if (!block) return NULL;
    const bool split = policy_split(block->size, size, pool->device->max_split);
    struct block *piece = split ? block_carve(pool, block, size) : NULL;
    if (piece) return piece;
    heap_unlist(pool, block);
    return block;
}

/* May it be joined to what the list's stream takes? */
static bool is_for_list(const struct block *block, const struct stream_list *list) {
    return block && (block->state == BLOCK_IDLE || (block->state == BLOCK_ORDERED && block->number == list->number));
}

/* The run of such neighbours around `block` becomes one ordered block, in no list. */
static struct block *join_run(struct pool *pool, const struct stream_list *list, struct block *block) {
    uint64_t batch = 0;
    while (is_for_list(block->before, list)) block = block->before;
    for (struct block *part = block; is_for_list(part, list); part = part->after) {
        heap_unlist(pool, part);
        if (part->state == BLOCK_ORDERED && part->batch > batch) batch = part->batch;
    }
    while (is_for_list(block->after, list)) block_absorb(pool, block);
    block->tag = (struct block_tag){.state = BLOCK_ORDERED, .number = list->number, .batch = batch};
    return block;
}

struct block *heap_take_run(struct pool *pool, const struct stream_list *list, size_t size, bool any) {
    const struct fit_bounds most = bounds_of(pool, size, any);
    const struct free_index *index = list->index;
    for (uint64_t firsts = index->first_map; firsts; firsts &= firsts - 1) {
        const unsigned first = (unsigned)__builtin_ctzll(firsts);
        for (uint32_t seconds = index->second_map[first]; seconds; seconds &= seconds - 1) {
            for (struct block *block = index->heads[first][__builtin_ctz(seconds)]; block; block = block->next) {
                if (block->segment->size > most.segment) continue;
                size_t sum = block->size;
                for (const struct block *side = block->after; is_for_list(side, list); side = side->after)
                    sum += side->size;
                for (const struct block *side = block->before; is_for_list(side, list); side = side->before)
                    sum += side->size;
                if (sum >= size) return join_run(pool, list, block);
            }
        }
    }
    return NULL;
}

static void make_free_again(struct pool *pool, struct block *block) {
    if (block->state == BLOCK_ORDERED)
        heap_make_ordered(pool, block, pool->lists[block->number], block->batch);
    else
        heap_make_idle(pool, block);
}

struct block *heap_hand_out(struct pool *pool, struct block *block, size_t size, size_t requested, unsigned cell) {
    assert(block->size >= size && "a block holds what it is handed out for");
    if (policy_split(block->size, size, pool->device->max_split)) block_split(pool, block, size);
    if (!live_table_add(&pool->table, block)) {
        make_free_again(pool, block);
        return NULL;
    }
    heap_begin_life(pool, block, requested, cell);
    return block;
}

void heap_begin_life(struct pool *pool, struct block *block, size_t requested, unsigned cell) {
    block->tag = (struct block_tag){.state = BLOCK_LIVE, .number = cell & UINT16_MAX};
    block->requested = requested;
    block->id = pool->generation << 40 | pool->next_id++;
    pool->live += block->size;
    pool->requested += requested;
    pool->live_blocks++;
}

struct block *heap_live_at(const struct pool *pool, const struct segment *segment, uint64_t address) {
    struct block *block = live_table_find(&pool->table, address);
    if (!block && segment->parts) segment = prealloc_part(segment, address);
    if (!block && segment)
        for (block = segment->first; block && address - block->address >= block->size;) block = block->after;
    return block && block->state == BLOCK_LIVE && address - block->address < block->requested ? block : NULL;
}

void heap_end_life(struct pool *pool, struct block *block) {
    assert(block->state == BLOCK_LIVE && "only a live block ends its life");
    pool->live -= block->size;
    pool->requested -= block->requested;
    pool->live_blocks--;
}

static bool is_idle(const struct block *block) {
    return block && block->state == BLOCK_IDLE;
}

void heap_make_idle(struct pool *pool, struct block *block) {
    if (__builtin_expect(pool->looks_ahead, 0) && fixed_put(pool, block)) return;
    if (is_idle(block->after)) {
        if (!is_idle(block->before) && block_join(pool, block->after, block)) return;
        idle_remove(pool, block->after);
        block_absorb(pool, block);
    }
    if (is_idle(block->before)) {
        if (block_join(pool, block->before, block)) return;
        block = block->before;
        idle_remove(pool, block);
        block_absorb(pool, block);
    }
    idle_insert(pool, block);
}

static bool is_in_list(const struct block *block, const struct stream_list *list) {
    return block && block->state == BLOCK_ORDERED && block->number == list->number;
}

/* The same for two blocks of one list: the later batch counts. */
static bool ordered_join(struct pool *pool, struct stream_list *list, struct block *neighbour, struct block *block,
                         uint64_t batch) {
    if (!block_join(pool, neighbour, block)) return false;
    if (batch > neighbour->batch) neighbour->batch = batch;
    if (batch > list->newest) list->newest = batch;
    return true;
}

void heap_make_ordered(struct pool *pool, struct block *block, struct stream_list *list, uint64_t batch) {
    if (is_in_list(block->after, list)) {
        if (!is_in_list(block->before, list) && ordered_join(pool, list, block->after, block, batch)) return;
        if (block->after->batch > batch) batch = block->after->batch;
        ordered_remove(pool, block->after);
        block_absorb(pool, block);
    }
    if (is_in_list(block->before, list)) {
        if (ordered_join(pool, list, block->before, block, batch)) return;
        block = block->before;
        if (block->batch > batch) batch = block->batch;
        ordered_remove(pool, block);
        block_absorb(pool, block);
    }
    block->tag = (struct block_tag){.state = BLOCK_ORDERED, .number = list->number, .batch = batch};
    ordered_insert(pool, block);
}

void heap_bin_idle(struct pool *pool, struct block *block, unsigned class) {
    block->tag = (struct block_tag){.state = BLOCK_BINNED};
    bins_push(&pool->bins, class, block);
    pool->idle_bytes += block->size;
    count_cached(pool, block, GAINED);
}

void heap_bin_ordered(struct pool *pool, struct block *block, struct stream_list *list, uint64_t batch,
                      unsigned class) {
    block->tag = (struct block_tag){.state = BLOCK_BINNED, .number = list->number, .batch = batch};
    bins_push(list->bins, class, block);
    if (!list->bytes) list->oldest = list->newest = batch;
    if (batch > list->newest) list->newest = batch;
    list->bytes += block->size;
    pool->ordered_bytes += block->size;
    pool->ordered_blocks++;
    count_cached(pool, block, GAINED);
}

void heap_end_binned(struct pool *pool, struct block *block) {
    assert(block->state == BLOCK_BINNED && "only a block of a bin leaves it");
    if (block->number) {
        pool->lists[block->number]->bytes -= block->size;
        pool->ordered_bytes -= block->size;
        pool->ordered_blocks--;
    } else {
        pool->idle_bytes -= block->size;
    }
    count_cached(pool, block, LOST);
}

void heap_make_waiting(struct pool *pool, struct block *block, uint64_t batch, bool kept) {
    assert((!pool->waiting || pool->waiting_last->batch <= batch) && "waiting blocks stand in the order of batches");
    block->tag = (struct block_tag){.state = BLOCK_WAITING, .number = kept, .batch = batch};
    block->next = NULL;
    if (pool->waiting)
        pool->waiting_last->next = block;
    else
        pool->waiting = block;
    pool->waiting_last = block;
    pool->waiting_bytes += block->size;
    count_cached(pool, block, GAINED);
}

struct block *heap_pop_waiting(struct pool *pool) {
    struct block *block = pool->waiting;
    pool->waiting = block->next;
    pool->waiting_bytes -= block->size;
    count_cached(pool, block, LOST);
    block->next = NULL;
    return block;
}

void heap_retire(struct pool *pool, struct block *block) {
    block->state = BLOCK_RETIRED;
    pool->retired_bytes += block->size;
}

void heap_end_retired(struct pool *pool, struct block *block) {
    pool->retired_bytes -= block->size;
}

void heap_make_exported(struct pool *pool, struct block *block, uint64_t notes) {
    block->tag = (struct block_tag){.state = BLOCK_EXPORTED, .batch = notes};
    block->next = NULL;
    block->previous = pool->exported_last;
    if (pool->exported)
        pool->exported_last->next = block;
    else
        pool->exported = block;
    pool->exported_last = block;
    pool->exported_bytes += block->size;
    if (notes & NOTE_UNTRACEABLE) {
        pool->untraceable++;
        block->segment->untraceable++;
    } else {
        pool->traceable++;
    }
}

void heap_end_exported(struct pool *pool, struct block *block) {
    if (block->previous)
        block->previous->next = block->next;
    else
        pool->exported = block->next;
    if (block->next)
        block->next->previous = block->previous;
    else
        pool->exported_last = block->previous;
    block->previous = block->next = NULL;
    pool->exported_bytes -= block->size;
    if (block->batch & NOTE_UNTRACEABLE) {
        pool->untraceable--;
        block->segment->untraceable--;
    } else {
        pool->traceable--;
    }
}

/* `whole`: what it is a part of, or NULL. */
static struct block *add_segment(struct pool *pool, struct segment *whole, uint64_t address, size_t size) {
    struct segment *segment = records_segment(&pool->records);
    struct block *block = records_block(&pool->records);
    if (segment && block) {
        *segment = (struct segment){.address = address, .size = size, .pool = pool, .first = block, .whole = whole};
        *block = (struct block){.address = address, .size = size, .segment = segment};
        if (whole || registry_add(&pool->system->registry, segment)) {
            segment->next = pool->segments;
            if (pool->segments) pool->segments->previous = segment;
            pool->segments = segment;
            pool->segment_count += !whole;
            pool->reserved += size;
            return block;
        }
    }
    if (segment) records_put_segment(&pool->records, segment);
    if (block) records_put_block(&pool->records, block);
    return NULL;
}

struct block *heap_add_segment(struct pool *pool, uint64_t address, size_t size) {
    return add_segment(pool, NULL, address, size);
}

struct block *heap_add_part(struct pool *pool, struct segment *whole, uint64_t address, size_t size) {
    return add_segment(pool, whole, address, size);
}

static void unlink_segment(struct pool *pool, struct segment *segment) {
    if (!segment->whole) registry_remove(&pool->system->registry, segment);
    if (segment->previous)
        segment->previous->next = segment->next;
    else
        pool->segments = segment->next;
    if (segment->next) segment->next->previous = segment->previous;
    segment->previous = segment->next = NULL;
    pool->segment_count -= !segment->whole;
    pool->reserved -= segment->size;
}

void heap_detach_segment(struct pool *pool, struct segment *segment) {
    struct block *block = segment->first;
    assert(block->state == BLOCK_IDLE && block_is_segment(block) && "only a wholly free segment is given back");
    idle_remove(pool, block);
    records_put_block(&pool->records, block);
    segment->first = NULL;
    unlink_segment(pool, segment);
}

void heap_forget(struct pool *pool) {
    while (pool->segments) {
        struct segment *segment = pool->segments;
        for (struct block *block = segment->first, *after; block; block = after) {
            after = block->after;
            records_put_block(&pool->records, block);
        }
        unlink_segment(pool, segment);
        records_put_segment(&pool->records, segment);
    }
    prealloc_forget(pool);
    fixed_forget(pool);
    live_table_free(&pool->table);
    streams_forget(pool);
    memset(&pool->idle, 0, sizeof pool->idle); /* large: nothing of it on the caller's stack */
    memset(&pool->bins, 0, sizeof pool->bins);
    pool->waiting = pool->waiting_last = NULL;
    pool->exported = pool->exported_last = NULL;
    pool->traceable = pool->untraceable = 0;
    pool->joined = 0;
    pool->joined_bytes = 0;
    pool->free_segments = pool->free_parts = NULL;
    pool->live = pool->requested = pool->live_blocks = pool->releasable = 0;
    pool->idle_bytes = pool->ordered_bytes = pool->waiting_bytes = pool->retired_bytes = pool->exported_bytes = 0;
    pool->ordered_blocks = 0;
}
