/* SPDX-License-Identifier: MIT
 *
 * The free blocks of one state, by size, in two levels of classes (segregated fit).
 * Included by internal.h alone. Guarded by the lock of their pool.
 */
#ifndef POOLCUDA_POOL_INDEX_H
#define POOLCUDA_POOL_INDEX_H

#define INDEX_FIRST_LEVELS 40 /* powers of two of units */
#define INDEX_SECOND_LEVELS 32
#define INDEX_LISTS (INDEX_FIRST_LEVELS * INDEX_SECOND_LEVELS)
#define INDEX_SCAN 16 /* blocks of one list that a search looks at: keeps it O(1) */

struct free_index {
    uint64_t first_map;
    uint32_t second_map[INDEX_FIRST_LEVELS];
    struct block *heads[INDEX_FIRST_LEVELS][INDEX_SECOND_LEVELS];
    size_t largest; /* size of the largest block, 0 when empty */
    size_t count;
};

void index_insert(struct free_index *index, struct block *block);
void index_remove(struct free_index *index, struct block *block);
/* A block of the index gets another size of the same class. */
void index_resize(struct free_index *index, struct block *block, size_t size);
/* What a request may take: the largest block, and the largest segment that the block may be in. SIZE_MAX: any. */
struct fit_bounds {
    size_t block, segment;
};
/* A block of at least `size` bytes: of the lowest class that holds one; there the lowest address among the first
 * INDEX_SCAN. NULL when none is found. */
struct block *index_find(const struct free_index *index, size_t size, struct fit_bounds most);
/* The list that a block of this size belongs to, as first * INDEX_SECOND_LEVELS + second. Sizes below 32 units have a
 * class each; above, five bits behind the leading one name the second level. */
static inline unsigned index_class(size_t size) {
    const uint64_t units = size / UNIT;
    const unsigned shift = 58u - (unsigned)__builtin_clzll(units | INDEX_SECOND_LEVELS);
    const uint64_t class = INDEX_SECOND_LEVELS * shift + (units >> shift);
    return class < INDEX_LISTS ? (unsigned)class : INDEX_LISTS - 1;
}

#endif
