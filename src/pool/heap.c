/* SPDX-License-Identifier: MIT
 *
 * Blocks within segments: split, merge, the sums over them, and which segments are wholly free. Everything here is
 * under the pool's lock and touches no device.
 */
#include "pool/hits.h"

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
    return &pool->figures->class_cached_bytes[stats_size_class(size)];
}

static void count_cached(struct pool *pool, const struct block *block, uint64_t sign) {
    stats_add(cached_of(pool, block->size), sign * (uint64_t)block->size);
}
#define GAINED UINT64_C(1)
#define LOST UINT64_MAX /* -1 */

static void idle_insert(struct pool *pool, struct block *block) {
    block_set_tag(block, (struct block_tag){.state = BLOCK_IDLE});
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
    struct stream_list *list = pool->lists[block_tag(block).number];
    const uint64_t batch = block_tag(block).batch;
    if (!list->bytes || batch < list->oldest) list->oldest = batch;
    if (!list->bytes || batch > list->newest) list->newest = batch;
    index_insert(list->index, block);
    list->bytes += block->size;
    pool->ordered_bytes += block->size;
    pool->ordered_blocks++;
    if (block->size > pool->ordered_largest) pool->ordered_largest = block->size;
    count_cached(pool, block, GAINED);
}

static void ordered_remove(struct pool *pool, struct block *block) {
    struct stream_list *list = pool->lists[block_tag(block).number];
    index_remove(list->index, block);
    list->bytes -= block->size;
    pool->ordered_bytes -= block->size;
    pool->ordered_blocks--;
    if (block->size == pool->ordered_largest) find_ordered_largest(pool);
    count_cached(pool, block, LOST);
}

void heap_unlist(struct pool *pool, struct block *block) {
    const unsigned state = block_tag(block).state;
    assert((state == BLOCK_IDLE || state == BLOCK_ORDERED) && "only these are in an index");
    if (state == BLOCK_IDLE)
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
    block_set_size(block, block->size + gone->size);
    block->after = gone->after;
    if (block->after) block->after->before = block;
    records_put_block(&pool->records, gone);
    stats_add(&pool->figures->merges, 1);
}

/* Cut the end of `block` off as a block of its own, free as the whole was. Left alone when host memory ran out. */
static void block_split(struct pool *pool, struct block *block, size_t size) {
    struct block *rest = records_block(&pool->records);
    if (!rest) return;
    const struct block_tag tag = block_tag(block);
    block_set_address(rest, block->address + size);
    block_set_size(rest, block->size - size);
    rest->segment = block->segment;
    block_set_tag(rest, tag);
    rest->before = block;
    rest->after = block->after;
    if (rest->after) rest->after->before = rest;
    block->after = rest;
    block_set_size(block, size);
    stats_add(&pool->figures->splits, 1);
    if (tag.state == BLOCK_ORDERED)
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
    if (block_tag(block).state == BLOCK_IDLE) {
        if (block_is_segment(block)) free_segments_remove(pool, block->segment);
        index_resize(&pool->idle, block, size);
        pool->idle_bytes += change;
        if (block_is_segment(block)) free_segments_push(pool, block->segment);
    } else {
        struct stream_list *list = pool->lists[block_tag(block).number];
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
    block_set_address(piece, block->address);
    block_set_size(piece, size);
    piece->segment = block->segment;
    block_set_tag(piece, block_tag(block));
    piece->before = block->before;
    piece->after = block;
    block_resize(pool, block, rest);
    block_set_address(block, block->address + size);
    block->before = piece;
    if (piece->before)
        piece->before->after = piece;
    else
        piece->segment->first = piece;
    stats_add(&pool->figures->splits, 1);
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
        block_set_address(neighbour, block->address);
        neighbour->before = block->before;
        if (neighbour->before)
            neighbour->before->after = neighbour;
        else
            neighbour->segment->first = neighbour;
    }
    records_put_block(&pool->records, block);
    stats_add(&pool->figures->merges, 1);
    return true;
}

static struct fit_bounds bounds_of(const struct pool *pool, size_t size, bool any) {
    return any ? (struct fit_bounds){SIZE_MAX, SIZE_MAX}
               : policy_fit(size, device_max_split(pool->device), pool->thrash.saves, &pool->system->options);
}

struct block *heap_take(struct pool *pool, const struct stream_list *list, size_t size, bool any) {
    const struct fit_bounds most = bounds_of(pool, size, any);
    struct block *block = list ? index_find(list->index, size, most) : NULL;
    if (!block) block = index_find(&pool->idle, size, most);
    if (!block) return NULL;
    const bool split = policy_split(block->size, size, device_max_split(pool->device));
    struct block *piece = split ? block_carve(pool, block, size) : NULL;
    if (piece) return piece;
    heap_unlist(pool, block);
    return block;
}

/* May it be joined to what the list's stream takes? */
static bool is_for_list(const struct block *block, const struct stream_list *list) {
    const struct block_tag tag = block ? block_tag(block) : (struct block_tag){0};
    return tag.state == BLOCK_IDLE || (tag.state == BLOCK_ORDERED && tag.number == list->number);
}

/* The run of such neighbours around `block` becomes one ordered block, in no list. */
static struct block *join_run(struct pool *pool, const struct stream_list *list, struct block *block) {
    uint64_t batch = 0;
    while (is_for_list(block->before, list)) block = block->before;
    for (struct block *part = block; is_for_list(part, list); part = part->after) {
        heap_unlist(pool, part);
        const struct block_tag tag = block_tag(part);
        if (tag.state == BLOCK_ORDERED && tag.batch > batch) batch = tag.batch;
    }
    while (is_for_list(block->after, list)) block_absorb(pool, block);
    block_set_tag(block, (struct block_tag){.state = BLOCK_ORDERED, .number = list->number, .batch = batch});
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
    const struct block_tag tag = block_tag(block);
    if (tag.state == BLOCK_ORDERED)
        heap_make_ordered(pool, block, pool->lists[tag.number], tag.batch);
    else
        heap_make_idle(pool, block);
}

struct block *heap_hand_out(const struct request *request, struct block *block) {
    struct pool *pool = request->pool;
    assert(block->size >= request->size && "a block holds what it is handed out for");
    if (block->size != request->size && policy_split(block->size, request->size, device_max_split(pool->device)))
        block_split(pool, block, request->size);
    if (!live_table_add(&pool->table, block)) {
        make_free_again(pool, block);
        return NULL;
    }
    struct front *front = request->front;
    if (!front) {
        const struct stream_list *list = request->on ? streams_list(pool, request->on) : NULL;
        front = request->on ? pool->fronts[0] : fronts_of_thread(pool);
        if (list && list->front) front = list->front;
    }
    front_begin_life(pool, front, block, request->requested, request->door);
    return block;
}

struct block *heap_live_at(const struct pool *pool, const struct segment *segment, uint64_t address,
                           struct front **front) {
    struct block *block = live_table_entry(&pool->table, address);
    if (!block && segment->parts) segment = prealloc_part(segment, address);
    if (!block && segment)
        for (block = segment->first; block && address - block->address >= block->size;) block = block->after;
    if (!block) return NULL;
    const struct block_tag tag = block_tag(block);
    if (tag.state != BLOCK_LIVE) return NULL;
    *front = pool->fronts[tag.number];
    lock_take(&(*front)->lock);
    if (block_tag(block).state == BLOCK_LIVE && address - block->address < block->requested) return block;
    lock_give(&(*front)->lock);
    return NULL;
}

static bool is_idle(const struct block *block) {
    return block && block_tag(block).state == BLOCK_IDLE;
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
    const struct block_tag tag = block ? block_tag(block) : (struct block_tag){0};
    return tag.state == BLOCK_ORDERED && tag.number == list->number;
}

/* The same for two blocks of one list: the later batch counts. */
static bool ordered_join(struct pool *pool, struct stream_list *list, struct block *neighbour, struct block *block,
                         uint64_t batch) {
    if (!block_join(pool, neighbour, block)) return false;
    struct block_tag tag = block_tag(neighbour);
    if (batch > tag.batch) tag.batch = batch;
    block_set_tag(neighbour, tag);
    if (batch > list->newest) list->newest = batch;
    return true;
}

void heap_make_ordered(struct pool *pool, struct block *block, struct stream_list *list, uint64_t batch) {
    if (is_in_list(block->after, list)) {
        if (!is_in_list(block->before, list) && ordered_join(pool, list, block->after, block, batch)) return;
        const uint64_t its = block_tag(block->after).batch;
        if (its > batch) batch = its;
        ordered_remove(pool, block->after);
        block_absorb(pool, block);
    }
    if (is_in_list(block->before, list)) {
        if (ordered_join(pool, list, block->before, block, batch)) return;
        block = block->before;
        const uint64_t its = block_tag(block).batch;
        if (its > batch) batch = its;
        ordered_remove(pool, block);
        block_absorb(pool, block);
    }
    block_set_tag(block, (struct block_tag){.state = BLOCK_ORDERED, .number = list->number, .batch = batch});
    ordered_insert(pool, block);
}

void heap_make_waiting(struct pool *pool, struct block *block, uint64_t batch) {
    struct waiting_queue *waiting = &pool->waiting;
    assert((!waiting->first || block_tag(waiting->last).batch <= batch) &&
           "waiting blocks stand in the order of batches");
    block_set_tag(block, (struct block_tag){.state = BLOCK_WAITING, .batch = batch});
    block->next = NULL;
    if (waiting->first)
        waiting->last->next = block;
    else
        waiting->first = block;
    waiting->last = block;
    waiting->bytes += block->size;
    count_cached(pool, block, GAINED);
}

struct block *heap_pop_waiting(struct pool *pool) {
    struct block *block = pool->waiting.first;
    pool->waiting.first = block->next;
    pool->waiting.bytes -= block->size;
    count_cached(pool, block, LOST);
    block->next = NULL;
    return block;
}

void heap_retire(struct pool *pool, struct block *block) {
    struct block_tag tag = block_tag(block);
    tag.state = BLOCK_RETIRED;
    block_set_tag(block, tag);
    pool->retired_bytes += block->size;
}

void heap_end_retired(struct pool *pool, struct block *block) {
    pool->retired_bytes -= block->size;
}

void heap_make_exported(struct pool *pool, struct block *block, uint64_t notes) {
    block_set_tag(block, (struct block_tag){.state = BLOCK_EXPORTED, .batch = notes});
    block->next = NULL;
    block->previous = pool->exported_last;
    if (pool->exported)
        pool->exported_last->next = block;
    else
        pool->exported = block;
    pool->exported_last = block;
    pool->exported_bytes += block->size;
    if (notes & NOTE_UNTRACEABLE) {
        if (pool->untraceable++ == 0) fronts_gate(pool);
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
    if (block_tag(block).batch & NOTE_UNTRACEABLE) {
        if (--pool->untraceable == 0) fronts_gate(pool);
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
        block_set_address(block, address);
        block_set_size(block, size);
        block->segment = segment;
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
    map_forget(pool, segment);
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
    assert(block_tag(block).state == BLOCK_IDLE && block_is_segment(block) &&
           "only a wholly free segment is given back");
    idle_remove(pool, block);
    records_put_block(&pool->records, block);
    unlink_segment(pool, segment);
    segment->first = NULL;
}

void heap_forget(struct pool *pool) {
    fronts_lock(pool);
    while (pool->segments) {
        struct segment *segment = pool->segments;
        for (struct block *block = segment->first, *after; block; block = after) {
            after = block->after;
            records_put_block(&pool->records, block);
        }
        unlink_segment(pool, segment);
        records_put_segment(&pool->records, segment);
    }
    live_table_clear(&pool->table);
    fronts_forget(pool);
    fronts_unlock(pool);
    prealloc_forget(pool);
    fixed_forget(pool);
    streams_forget(pool);
    memset(&pool->idle, 0, sizeof pool->idle); /* large: nothing of it on the caller's stack */
    pool->waiting = (struct waiting_queue){0};
    pool->exported = pool->exported_last = NULL;
    pool->traceable = pool->untraceable = 0;
    pool->joined = 0;
    pool->joined_bytes = 0;
    pool->free_segments = pool->free_parts = NULL;
    pool->releasable = pool->idle_bytes = pool->ordered_bytes = pool->retired_bytes = pool->exported_bytes = 0;
    pool->ordered_blocks = 0;
}
