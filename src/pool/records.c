/* SPDX-License-Identifier: MIT
 *
 * Host memory for the pool's records, in slabs from mmap: the guest's own malloc may be anything, and its heap is not
 * ours to fill. Records are kept once made, so that nothing is allocated on a hit after warm-up.
 */
#include "pool/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define SLAB_BYTES ((size_t)64 * 1024)

struct record_slab {
    struct record_slab *next;
};

void *records_pages(size_t bytes) {
    const int error = errno;
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages != MAP_FAILED) return pages;
    errno = error;
    return NULL;
}

/* Cuts a fresh slab into records of `size` bytes, calling `put` for each. */
static bool slab_add(struct record_store *store, size_t size, void (*put)(struct record_store *store, void *record)) {
    char *slab = records_pages(SLAB_BYTES);
    if (!slab) return false;
    ((struct record_slab *)slab)->next = store->slabs;
    store->slabs = (struct record_slab *)slab;
    /* From the end, so that records are taken in the order of their addresses. */
    size_t count = (SLAB_BYTES - 64) / size;
    while (count-- > 0) put(store, slab + 64 + count * size);
    return true;
}

static void put_block(struct record_store *store, void *record) {
    records_put_block(store, record);
}
static void put_segment(struct record_store *store, void *record) {
    records_put_segment(store, record);
}

struct block *records_block(struct record_store *store) {
    if (!store->free_blocks && !slab_add(store, sizeof(struct block), put_block)) return NULL;
    struct block *block = store->free_blocks;
    store->free_blocks = block->next;
    block->next = NULL;
    return block;
}

struct segment *records_segment(struct record_store *store) {
    if (!store->free_segments && !slab_add(store, sizeof(struct segment), put_segment)) return NULL;
    struct segment *segment = store->free_segments;
    store->free_segments = segment->next;
    segment->next = NULL;
    return segment;
}

void records_put_block(struct record_store *store, struct block *block) {
    if (__builtin_expect(block == store->walked, 0)) store->walked = block->before ? block->before : block->after;
    block_set_tag_word(block, 0);
    block_set_address(block, 0);
    block_set_size(block, 0);
    block->segment = NULL;
    block->before = block->after = block->previous = NULL;
    block->next = store->free_blocks;
    store->free_blocks = block;
}

void records_put_segment(struct record_store *store, struct segment *segment) {
    memset(segment, 0, sizeof *segment);
    segment->next = store->free_segments;
    store->free_segments = segment;
}

void records_free_all(struct record_store *store) {
    while (store->slabs) {
        struct record_slab *slab = store->slabs;
        store->slabs = slab->next;
        munmap(slab, SLAB_BYTES);
    }
    *store = (struct record_store){0};
}
