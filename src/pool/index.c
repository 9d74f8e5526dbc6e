/* SPDX-License-Identifier: MIT
 *
 * The free index: segregated fit with two levels of size classes and a bitmap for each, as in TLSF (Masmano et al.,
 * ECRTS 2004). The first level is the power of two of the size in units, the second divides it in 32. Insert, remove
 * and find are O(1): a search looks at no more than INDEX_SCAN blocks of a list.
 */
#include "pool/internal.h"

#include <assert.h>

static void class_of(size_t size, unsigned *first, unsigned *second) {
    assert(size >= UNIT && "a free block has a size");
    const unsigned class = index_class(size);
    *first = class / INDEX_SECOND_LEVELS;
    *second = class % INDEX_SECOND_LEVELS;
}

void index_insert(struct free_index *index, struct block *block) {
    unsigned first, second;
    class_of(block->size, &first, &second);
    struct block **head = &index->heads[first][second];
    block->previous = NULL;
    block->next = *head;
    if (*head) (*head)->previous = block;
    *head = block;
    index->second_map[first] |= 1u << second;
    index->first_map |= 1ull << first;
    index->count++;
    if (block->size > index->largest) index->largest = block->size;
}

/* The largest block is in the highest list; blocks there differ by 3 % at most, and equal ones end the walk. */
static size_t largest_below(const struct free_index *index, size_t bound) {
    if (!index->first_map) return 0;
    unsigned first = 63u - (unsigned)__builtin_clzll(index->first_map);
    unsigned second = 31u - (unsigned)__builtin_clz(index->second_map[first]);
    size_t largest = 0;
    for (const struct block *block = index->heads[first][second]; block && largest < bound; block = block->next)
        if (block->size > largest) largest = block->size;
    return largest;
}

void index_remove(struct free_index *index, struct block *block) {
    unsigned first, second;
    class_of(block->size, &first, &second);
    if (block->previous) {
        block->previous->next = block->next;
    } else {
        assert(index->heads[first][second] == block && "a block without a predecessor heads its list");
        index->heads[first][second] = block->next;
        if (!block->next) {
            index->second_map[first] &= ~(1u << second);
            if (!index->second_map[first]) index->first_map &= ~(1ull << first);
        }
    }
    if (block->next) block->next->previous = block->previous;
    block->previous = block->next = NULL;
    index->count--;
    if (block->size == index->largest) index->largest = largest_below(index, block->size);
}

void index_resize(struct free_index *index, struct block *block, size_t size) {
    assert(index_class(size) == index_class(block->size) && "a block that keeps its place keeps its class");
    const size_t old = block->size;
    block_set_size(block, size);
    if (size > index->largest)
        index->largest = size;
    else if (old == index->largest)
        index->largest = largest_below(index, old);
}

static bool is_within(const struct block *block, struct fit_bounds most) {
    return block->size <= most.block && (most.segment == SIZE_MAX || block->segment->size <= most.segment);
}

static struct block *lowest_fit(struct block *head, size_t size, struct fit_bounds most) {
    struct block *best = NULL;
    unsigned seen = 0;
    for (struct block *block = head; block && seen < INDEX_SCAN; block = block->next, seen++)
        if (block->size >= size && (!best || block->address < best->address) && is_within(block, most)) best = block;
    return best;
}

/* Are the blocks of all later classes larger? */
static bool is_beyond(unsigned first, unsigned second, size_t largest) {
    unsigned last_first, last_second;
    class_of(largest, &last_first, &last_second);
    return first > last_first || (first == last_first && second >= last_second);
}

struct block *index_find(const struct free_index *index, size_t size, struct fit_bounds most) {
    if (size > index->largest) return NULL;
    unsigned first, second;
    class_of(size, &first, &second);
    uint32_t seconds = index->second_map[first] & (~0u << second);
    for (;;) {
        while (!seconds) {
            uint64_t firsts = first + 1 < 64 ? index->first_map & (~0ull << (first + 1)) : 0;
            if (!firsts) return NULL;
            first = (unsigned)__builtin_ctzll(firsts);
            seconds = index->second_map[first];
        }
        second = (unsigned)__builtin_ctz(seconds);
        struct block *fit = lowest_fit(index->heads[first][second], size, most);
        if (fit) return fit;
        if (is_beyond(first, second, most.block)) return NULL;
        seconds &= seconds - 1;
    }
}
