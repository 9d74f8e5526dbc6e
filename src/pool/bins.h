/* SPDX-License-Identifier: MIT
 *
 * Bins: small freed blocks that are kept whole, by their size class, for the next request of their size; in front of
 * the free index, one set in each front. A hit from a bin costs neither a split nor a merge, and the block's record and
 * its place in the table stay. Only sizes that are asked for over and over are kept: a program's first requests, and
 * rare ones, go through the index. When a request finds nothing, or memory is to go back, what the bins hold is merged
 * into the index first, so they do not make the pool larger. Larger blocks are merged at once: kept whole, they make
 * others cut up what is large, and the pool grows (bench/RESULTS.md); and so is everything where less than a quarter of
 * the device's memory is left, since then a good fit is worth more than a quick one.
 *
 * Included by front.h alone. All under the lock of their front.
 */
#ifndef POOLCUDA_POOL_BINS_H
#define POOLCUDA_POOL_BINS_H

#define BIN_CLASSES 128u /* of blocks below 128 KiB: a class is 1/32 of a power of two wide, or one unit */
#define BIN_BYTES ((size_t)128 * 1024)
#define BIN_EXACT 32u /* classes below hold one size each */
#define BIN_WARM 8u   /* requests of a class after which it is kept */

struct bins {
    struct block *heads[BIN_CLASSES + 1]; /* by next, the last freed first; there is none above the highest class */
    uint8_t requests[BIN_CLASSES];        /* that went through the index, at most BIN_WARM */
};

/* Is a free block of this class kept? */
static inline bool bins_keep(const struct bins *bins, unsigned class) {
    return class < BIN_CLASSES && bins->requests[class] == BIN_WARM;
}

/* A request of the class went through the index. */
static inline void bins_note_request(struct bins *bins, unsigned class) {
    if (class < BIN_CLASSES && bins->requests[class] < BIN_WARM) bins->requests[class]++;
}

/* The bin to take a block of at least `size` bytes from: of the size's class, which is one of bins, or the one above,
 * so that no more than a sixteenth is wasted, as where the index does not split; NULL when there is none. */
static inline struct block **bins_find(struct bins *bins, unsigned class, size_t size) {
    struct block **head = &bins->heads[class];
    if (__builtin_expect(*head && (*head)->size >= size, 1)) return head;
    return class >= BIN_EXACT && *++head ? head : NULL;
}

/* Takes the first block of a bin that is not empty. The sums over it are the caller's. */
static inline struct block *bins_take(struct block **head) {
    struct block *block = *head;
    *head = block->next;
    return block;
}

static inline void bins_push(struct bins *bins, unsigned class, struct block *block) {
    block->next = bins->heads[class];
    bins->heads[class] = block;
}

#endif
