/* SPDX-License-Identifier: MIT
 *
 * Blocks and segments: a segment is one driver allocation, or a part of what was preallocated; a block is a piece of
 * it. Included by internal.h alone.
 */
#ifndef POOLCUDA_POOL_BLOCK_H
#define POOLCUDA_POOL_BLOCK_H

#define UNIT ((size_t)512)                /* blocks are multiples of it, aligned to it within their segment */
#define GRANULE ((size_t)2 * 1024 * 1024) /* segments are multiples of it */
#define MIB ((uint64_t)1024 * 1024)

enum block_state {
    BLOCK_LIVE = 1, /* the program's; in the pool's table */
    BLOCK_IDLE,     /* free, the GPU is known to have finished with it; in the pool's index */
    BLOCK_ORDERED,  /* free in the order of one stream; in the index of that stream's list */
    BLOCK_WAITING,  /* free once a fence has passed; in pool->waiting */
    BLOCK_RETIRED,  /* the proof for it failed: never given out again */
    BLOCK_EXPORTED, /* freed, but other processes may have it open; in pool->exported */
    BLOCK_FIXED,    /* free in a fixed-size pool (fixed.c), by next */
    BLOCK_BINNED,   /* free as one that is idle or ordered, but in a bin of its front, and still in the table */
    BLOCK_ENDING    /* live no more; in the hands of the thread that has pool->lock, and in the table */
};

/* One cache line: an operation touches its block and neighbours and little else. */
struct block {
    _Alignas(64) uint64_t address;
    size_t size; /* rounded */
    struct segment *segment;
    struct block *before, *after; /* neighbours in the segment, in the order of addresses */
    union {
        struct {              /* LIVE */
            size_t requested; /* what the program asked for */
            uint64_t id;      /* unique in the process */
        };
        struct { /* IDLE, ORDERED: the list of its class; BINNED (next alone): its bin; WAITING, EXPORTED:
                    pool->waiting, ->exported; unused record: the next one */
            struct block *previous, *next;
        };
    };
    struct block_tag {        /* read and written as a whole: block_tag, block_set_tag */
        uint64_t state : 4;   /* enum block_state */
        uint64_t number : 16; /* LIVE, BINNED, ENDING: its front's; ORDERED: the pool's list that holds it; WAITING:
                                 its front's while it is still in the table, else 0 */
        uint64_t batch : 44;  /* ORDERED, BINNED, WAITING: idle once this batch is proved (fences.c); LIVE, ENDING,
                                 EXPORTED: its notes (notes.c) */
    } tag;
};

_Static_assert(sizeof(struct block) == 64, "a block's record is one cache line");

/* Others may read the tag, the address and the size meanwhile: front.h. */
static inline uint64_t block_tag_word(const struct block *block) {
    return __atomic_load_n((const uint64_t *)(const void *)&block->tag, __ATOMIC_RELAXED);
}
static inline void block_set_tag_word(struct block *block, uint64_t word) {
    __atomic_store_n((uint64_t *)(void *)&block->tag, word, __ATOMIC_RELAXED);
}
static inline struct block_tag block_tag(const struct block *block) {
    const union {
        uint64_t word;
        struct block_tag tag;
    } it = {.word = block_tag_word(block)};
    return it.tag;
}
static inline uint64_t block_word_of(struct block_tag tag) {
    const union {
        struct block_tag tag;
        uint64_t word;
    } it = {.tag = tag};
    return it.word;
}
static inline void block_set_tag(struct block *block, struct block_tag tag) {
    block_set_tag_word(block, block_word_of(tag));
}
static inline uint64_t block_address(const struct block *block) {
    return __atomic_load_n(&block->address, __ATOMIC_RELAXED);
}
static inline size_t block_size(const struct block *block) {
    return __atomic_load_n(&block->size, __ATOMIC_RELAXED);
}
static inline void block_set_size(struct block *block, size_t size) {
    __atomic_store_n(&block->size, size, __ATOMIC_RELAXED);
}
static inline void block_set_address(struct block *block, uint64_t address) {
    __atomic_store_n(&block->address, address, __ATOMIC_RELAXED);
}

struct segment {
    uint64_t address;
    size_t size;
    struct pool *pool;
    struct block *first;
    struct segment *previous, *next;           /* pool->segments, or a caller's list of segments to release */
    struct segment *free_previous, *free_next; /* wholly free: in pool->free_segments */
    unsigned marked;                           /* LIVE blocks with NOTE_SYNC */
    unsigned untraceable;                      /* EXPORTED blocks with NOTE_UNTRACEABLE */
    bool marking;                              /* somebody is in the driver to set or take back the mark */
    struct fixed_size *fixed;                  /* whose blocks it holds, else NULL: fixed.c */

    /* Of what was preallocated (prealloc.c). A whole is what the driver gave: it has no blocks and is in
     * pool->wholes, by next, and in the registry. Its parts are segments that have blocks, and are in pool->segments:
     * `address`, `size`, `first` and `untraceable` are theirs, `marked` and `marking` the whole's. */
    struct segment *whole;     /* a part's; else NULL */
    struct segment *parts;     /* a whole's, by part_next, in the order of addresses */
    struct segment *part_next; /* of the same whole */
    size_t unused;             /* a whole's bytes in no part */
};

/* What the driver marks, exports and takes back. */
static inline struct segment *segment_whole(struct segment *segment) {
    return segment->whole ? segment->whole : segment;
}

#endif
