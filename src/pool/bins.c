/* SPDX-License-Identifier: MIT
 *
 * What the bins hold is merged into the free index: see bins.h.
 */
#include "pool/hits.h"

/* Takes a block out of its front; NULL when there is none of the class. Under the front's lock. */
static struct block *end_binned(struct front *front, unsigned class) {
    struct block **bin = &front->bins.heads[class];
    if (!*bin) return NULL;
    struct block *block = bins_take(bin);
    struct block_tag tag = block_tag(block);
    tag.state = BLOCK_ENDING;
    block_set_tag(block, tag);
    front_add(&front->held, -(uint64_t)block->size);
    stats_add(&front->cell->classes[stats_size_class(block->size)].held_bytes, -(uint64_t)block->size);
    return block;
}

void bins_merge_front(struct pool *pool, struct front *front) {
    lock_take(&front->lock);
    struct stream_list *list = front->list;
    if (front->cell && front_binned(front)) {
        const uint64_t at = cell_begin(front->cell);
        for (unsigned class = 0; class < BIN_CLASSES; class ++) {
            for (struct block *block; (block = end_binned(front, class));) {
                live_table_remove(&pool->table, block->address);
                if (list)
                    heap_make_ordered(pool, block, list, block_tag(block).batch);
                else
                    heap_make_idle(pool, block);
            }
        }
        cell_end(front->cell, at);
    }
    front->since = fences_open_batch(&pool->system->fences);
    lock_give(&front->lock);
}

void bins_merge_idle(struct pool *pool) {
    for (unsigned i = 0; i < pool->front_count && i <= FRONTS_OF_THREADS; i++)
        if (pool->fronts[i]) bins_merge_front(pool, pool->fronts[i]);
}

void bins_merge(struct pool *pool) {
    for (unsigned i = 0; i < pool->front_count; i++)
        if (pool->fronts[i]) bins_merge_front(pool, pool->fronts[i]);
}
