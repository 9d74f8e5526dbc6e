/* SPDX-License-Identifier: MIT
 *
 * Who used which bytes: the memory that was ever in a block, cut into regions whose bytes have the same history, in
 * the order of their addresses. A region knows its last write and the reads since; what came before those is ordered
 * before them, or was reported. What the host has observed is forgotten.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "race.h"

struct region {
    uint64_t address, end;
    struct race_block *block; /* the last one here */
    struct race_use *write;   /* NULL: none that is not observed */
    struct race_use **reads;
    uint32_t read_count, read_capacity;
};

enum { COMPACT_FROM = 65536 };

static struct region **regions;
static size_t region_count, region_capacity;
static size_t compact_at = COMPACT_FROM;
static uint64_t lives;

/* Uses and blocks. */

struct race_use *race_use_new(uint32_t track, uint64_t position, const struct sim_race_side *side) {
    struct race_use *const use = malloc(sizeof(*use));
    if (use == NULL) abort(); /* going on would miss a race */
    *use = (struct race_use){.references = 1, .track = track, .position = position, .side = *side};
    return use;
}

static struct race_use *use_hold(struct race_use *use) {
    if (use != NULL) use->references++;
    return use;
}

void race_use_drop(struct race_use *use) {
    if (use != NULL && --use->references == 0) free(use);
}

/* The same use of another block. Takes over the reference. */
static struct race_use *use_in_life(struct race_use *use, uint64_t life) {
    struct race_use *const other = race_use_new(use->track, use->position, &use->side);
    other->side.life = life;
    race_use_drop(use);
    return other;
}

static struct race_block *block_hold(struct race_block *block) {
    block->references++;
    return block;
}

static void block_drop(struct race_block *block) {
    if (--block->references > 0) return;
    race_use_drop(block->allocated);
    race_use_drop(block->freed);
    free(block);
}

static bool block_is_live(const struct race_block *block) {
    return block->kind == RACE_GRAPH || block->freed == NULL;
}

/* The history of a region. */

typedef bool (*use_test)(const struct race_use *use);

static bool is_observed(const struct race_use *use) {
    return race_clock_observed(use->track, use->position);
}

static bool is_before(const struct race_use *use) {
    return race_clock_covers(use->track, use->position);
}

static void history_clear(struct region *region) {
    race_use_drop(region->write);
    region->write = NULL;
    while (region->read_count > 0) race_use_drop(region->reads[--region->read_count]);
}

/* Forgets the reads for which `done` holds. */
static void reads_filter(struct region *region, use_test done) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < region->read_count; i++) {
        if (done(region->reads[i]))
            race_use_drop(region->reads[i]);
        else
            region->reads[kept++] = region->reads[i];
    }
    region->read_count = kept;
}

static void history_filter(struct region *region, use_test done) {
    if (region->write != NULL && done(region->write)) {
        race_use_drop(region->write);
        region->write = NULL;
    }
    reads_filter(region, done);
}

static void history_write(struct region *region, struct race_use *use) {
    history_clear(region);
    region->write = use_hold(use);
}

static void history_add(struct region *region, struct race_use *use) {
    if (region->read_count == region->read_capacity) {
        region->read_capacity = region->read_capacity == 0 ? 4 : region->read_capacity * 2;
        region->reads = realloc(region->reads, region->read_capacity * sizeof(struct race_use *));
        if (region->reads == NULL) abort(); /* going on would miss a race */
    }
    region->reads[region->read_count++] = use_hold(use);
}

/* A later write that comes after this read comes after those before it too. */
static void history_read(struct region *region, struct race_use *use) {
    reads_filter(region, is_before);
    history_add(region, use);
}

static bool history_is_same(const struct region *a, const struct region *b) {
    return a->write == b->write && a->read_count == b->read_count &&
           (a->read_count == 0 || memcmp(a->reads, b->reads, a->read_count * sizeof(struct race_use *)) == 0);
}

static void region_discard(struct region *region) {
    history_clear(region);
    free(region->reads);
    block_drop(region->block);
    free(region);
}

/* The map. */

/* The first region that ends beyond the address. */
static size_t map_find(uint64_t address) {
    size_t low = 0, high = region_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (regions[middle]->end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* A region that is still to be filled in. */
static struct region *map_insert(size_t index) {
    if (region_count == region_capacity) {
        region_capacity = region_capacity == 0 ? 256 : region_capacity * 2;
        regions = realloc(regions, region_capacity * sizeof(struct region *));
    }
    struct region *const region = calloc(1, sizeof(*region));
    if (regions == NULL || region == NULL) abort(); /* going on would miss a race */
    memmove(&regions[index + 1], &regions[index], (region_count - index) * sizeof(struct region *));
    region_count++;
    regions[index] = region;
    return region;
}

/* Cuts the region that holds the address in its inside, if there is one. */
static void map_split(uint64_t address) {
    const size_t index = map_find(address);
    if (index == region_count || regions[index]->address >= address) return;
    struct region *const region = regions[index], *const rest = map_insert(index + 1);
    *rest = (struct region){
        .address = address, .end = region->end, .block = block_hold(region->block), .write = use_hold(region->write)};
    region->end = address;
    for (uint32_t i = 0; i < region->read_count; i++) history_add(rest, region->reads[i]);
}

static bool regions_may_join(const struct region *left, const struct region *right, bool any_dead) {
    if (left->end != right->address || !history_is_same(left, right)) return false;
    return left->block == right->block || (any_dead && left->write == NULL && left->read_count == 0 &&
                                           !block_is_live(left->block) && !block_is_live(right->block));
}

/* Joins neighbours with the same history, from one before `first` to one beyond `end`; `any_dead`: blocks that are gone
 * need not be told apart. */
static void map_join(size_t first, uint64_t end, bool any_dead) {
    if (first > 0) first--;
    size_t kept = first, next = first + 1;
    for (; next < region_count && regions[next]->address <= end; next++) {
        if (regions_may_join(regions[kept], regions[next], any_dead)) {
            regions[kept]->end = regions[next]->end;
            region_discard(regions[next]);
        } else {
            regions[++kept] = regions[next];
        }
    }
    if (kept + 1 == next) return;
    memmove(&regions[kept + 1], &regions[next], (region_count - next) * sizeof(struct region *));
    region_count -= next - kept - 1;
}

/* Bounds the memory that a long program's dead blocks take. */
static void map_compact(void) {
    for (size_t i = 0; i < region_count; i++) history_filter(regions[i], is_observed);
    map_join(0, UINT64_MAX, true);
    compact_at = region_count * 2 > COMPACT_FROM ? region_count * 2 : COMPACT_FROM;
}

void race_map_forget(uint64_t address, size_t bytes) {
    const uint64_t end = address + bytes;
    map_split(address);
    map_split(end);
    const size_t first = map_find(address);
    for (size_t i = first; i < region_count && regions[i]->address < end; i++) history_filter(regions[i], is_before);
    map_join(first, end, false);
}

void race_map_reset(void) {
    while (region_count > 0) region_discard(regions[--region_count]);
    compact_at = COMPACT_FROM;
    lives = 0;
}

/* Uses. */

static bool check_block(const struct race_use *use, const struct race_block *block, enum race_liveness liveness) {
    if (!block_is_live(block)) {
        if (liveness == RACE_NOT_JUDGED) return true;
        race_report(SIM_RACE_USED_FREED, block->freed, use);
        return false;
    }
    if (block->kind != RACE_GRAPH && !is_before(block->allocated))
        race_report(SIM_RACE_USED_EARLY, block->allocated, use);
    return true;
}

static void check_history(const struct race_use *use, const struct region *region) {
    if (region->write != NULL && !is_before(region->write)) race_report(SIM_RACE_CONFLICT, region->write, use);
    for (uint32_t i = 0; use->side.writes && i < region->read_count; i++)
        if (!is_before(region->reads[i])) race_report(SIM_RACE_CONFLICT, region->reads[i], use);
}

/* Are there bytes of it in no region? */
static bool has_gap(uint64_t address, uint64_t end, size_t index) {
    for (; index < region_count && regions[index]->address <= address && address < end; index++)
        address = regions[index]->end;
    return address < end;
}

void race_map_use(struct race_use *use, enum race_liveness liveness) {
    const uint64_t address = use->side.address, end = address + use->side.bytes;
    const size_t touched = map_find(address);
    const bool noted = touched < region_count && regions[touched]->address < end;
    if (noted) use->side.life = regions[touched]->block->life;
    if ((noted ? liveness != RACE_NOT_JUDGED : liveness == RACE_ALL_NOTED) && has_gap(address, end, touched))
        race_report(SIM_RACE_NOT_ALLOCATED, NULL, use);
    if (noted) {
        map_split(address);
        map_split(end);
        const size_t first = map_find(address);
        for (size_t i = first; i < region_count && regions[i]->address < end; i++) {
            struct region *const region = regions[i];
            history_filter(region, is_observed);
            if (use->side.life != region->block->life) use = use_in_life(use, region->block->life);
            if (!check_block(use, region->block, liveness)) continue;
            check_history(use, region);
            if (use->side.writes)
                history_write(region, use);
            else
                history_read(region, use);
        }
        map_join(first, end, false);
    }
    race_use_drop(use);
    if (region_count > compact_at) map_compact();
}

/* Blocks. */

static bool check_use(enum sim_race_kind kind, const struct race_use *use, const struct race_use *later, uint64_t life,
                      use_test is_over) {
    if (is_over(use) || (life != 0 && use->side.life != life)) return true;
    race_report(kind, use, later);
    return false;
}

/* Reports what used the region, in this life or in any (0), and is not over at `later`; and forgets it. */
static void check_over(enum sim_race_kind kind, struct region *region, const struct race_use *later, uint64_t life,
                       use_test is_over) {
    if (region->write != NULL && !check_use(kind, region->write, later, life, is_over)) {
        race_use_drop(region->write);
        region->write = NULL;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < region->read_count; i++) {
        if (check_use(kind, region->reads[i], later, life, is_over))
            region->reads[kept++] = region->reads[i];
        else
            race_use_drop(region->reads[i]);
    }
    region->read_count = kept;
}

static struct race_block *block_new(struct race_use *use, enum race_block_kind kind, const void *owner,
                                    uint64_t owner_id) {
    struct race_block *const block = malloc(sizeof(*block));
    if (block == NULL) abort(); /* going on would miss a race */
    *block = (struct race_block){.kind = kind,
                                 .address = use->side.address,
                                 .bytes = use->side.bytes,
                                 .life = ++lives,
                                 .owner = owner,
                                 .owner_id = owner_id,
                                 .allocated = use,
                                 .references = 1};
    use->side.life = block->life;
    return block;
}

/* Makes one region, without a history, of the bytes from `address` to that with this index, or to `end`. */
static size_t fill_gap(size_t index, uint64_t address, uint64_t end, struct race_block *block) {
    if (index < region_count && regions[index]->address < end) end = regions[index]->address;
    if (address >= end) return index;
    *map_insert(index) = (struct region){.address = address, .end = end, .block = block_hold(block)};
    return index + 1;
}

/* In an order that is only the stream's, the history stays: it may be that nothing was submitted there, and the next
 * uses must come after the old ones themselves. */
void race_map_allocate(struct race_use *use, enum race_block_kind kind, const void *owner, uint64_t owner_id) {
    struct race_block *const block = block_new(use, kind, owner, owner_id);
    uint64_t address = use->side.address;
    const uint64_t end = address + use->side.bytes;
    map_split(address);
    map_split(end);
    const size_t first = map_find(address);
    size_t i = first;
    for (; i < region_count && regions[i]->address < end; i++) {
        i = fill_gap(i, address, end, block);
        struct region *const region = regions[i];
        history_filter(region, is_observed);
        if (region->block->kind != RACE_GRAPH && block_is_live(region->block))
            race_report(SIM_RACE_GIVEN_TWICE, region->block->allocated, use);
        if (kind == RACE_PLAIN) check_over(SIM_RACE_GIVEN_EARLY, region, use, 0, is_observed);
        if (kind == RACE_ASYNC) check_over(SIM_RACE_GIVEN_EARLY, region, use, 0, is_before);
        block_drop(region->block);
        region->block = block_hold(block);
        address = region->end;
    }
    fill_gap(i, address, end, block);
    map_join(first, end, false);
    block_drop(block);
    if (region_count > compact_at) map_compact();
}

static struct race_block *block_at(uint64_t address) {
    const size_t index = map_find(address);
    const bool begins =
        index < region_count && regions[index]->address == address && regions[index]->block->address == address;
    return begins ? regions[index]->block : NULL;
}

bool race_map_free(struct race_use *use, bool ordered) {
    struct race_block *const block = block_at(use->side.address);
    if (block == NULL || !block_is_live(block) || block->kind == RACE_GRAPH) {
        race_use_drop(use);
        return block != NULL && block->kind == RACE_GRAPH;
    }
    use->side.bytes = block->bytes;
    use->side.life = block->life;
    for (size_t i = map_find(block->address); ordered && i < region_count && regions[i]->block == block; i++)
        check_over(SIM_RACE_FREED_EARLY, regions[i], use, block->life, is_before);
    if (ordered && !is_before(block->allocated)) race_report(SIM_RACE_FREED_EARLY, block->allocated, use);
    block->freed = use;
    return true;
}

bool race_map_unfree(uint64_t address) {
    struct race_block *const block = block_at(address);
    if (block == NULL || block->freed == NULL) return false;
    race_use_drop(block->freed);
    block->freed = NULL;
    return true;
}

void race_map_end_owner(struct race_use *use, const void *owner, uint64_t owner_id) {
    for (size_t i = 0; i < region_count; i++) {
        struct race_block *const block = regions[i]->block;
        if (block->kind == RACE_PLAIN && block->freed == NULL && block->owner == owner && block->owner_id == owner_id)
            block->freed = use_hold(use);
    }
    race_use_drop(use);
}
