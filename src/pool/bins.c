/* SPDX-License-Identifier: MIT
 *
 * What the bins hold is merged into the free index: see bins.h.
 */
#include "pool/internal.h"

void bins_merge_list(struct pool *pool, struct stream_list *list) {
    struct bins *bins = list ? list->bins : &pool->bins;
    for (unsigned class = 0; bins->count && class < BIN_CLASSES; class ++) {
        for (struct block *block; (block = bins->heads[class]);) {
            bins->heads[class] = block->next;
            bins->count--;
            heap_end_binned(pool, block);
            live_table_remove(&pool->table, block->address);
            if (list)
                heap_make_ordered(pool, block, list, block->batch);
            else
                heap_make_idle(pool, block);
        }
    }
}

bool bins_merge(struct pool *pool) {
    bool any = pool->bins.count > 0;
    bins_merge_list(pool, NULL);
    for (unsigned i = 1; i < pool->list_count; i++) {
        any |= pool->lists[i]->bins->count > 0;
        bins_merge_list(pool, pool->lists[i]);
    }
    return any;
}
