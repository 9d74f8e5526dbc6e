/* SPDX-License-Identifier: MIT
 *
 * Blocks within segments: split, merge, handed out. All under pool->lock.
 * Included by internal.h alone.
 */
#ifndef POOLCUDA_POOL_HEAP_H
#define POOLCUDA_POOL_HEAP_H

/* Hand out of the free block `block`, which is in no list any more, what the request wants: splits it where the policy
 * says so, registers it, and counts it as a hit. NULL when host memory ran out: the block is free again. */
struct block *heap_hand_out(const struct request *request, struct block *block);
/* Take a fitting block out of its index, NULL when there is none: one of `list` (which may be NULL) before an idle one.
 * `any`: of any size, in any segment. */
struct block *heap_take(struct pool *pool, const struct stream_list *list, size_t size, bool any);
/* The same out of neighbours, some of the list, some idle, that together would fit: they become one. */
struct block *heap_take_run(struct pool *pool, const struct stream_list *list, size_t size, bool any);
/* A block that is in no list becomes free: merged with neighbours in the same state, into its index or queue. */
void heap_make_idle(struct pool *pool, struct block *block);
void heap_make_ordered(struct pool *pool, struct block *block, struct stream_list *list, uint64_t batch);
/* It is not in the table: those that are wait in their front (front_wait). */
void heap_make_waiting(struct pool *pool, struct block *block, uint64_t batch);
/* It is never given out again. */
void heap_retire(struct pool *pool, struct block *block);
/* It was meant for a while only. */
void heap_end_retired(struct pool *pool, struct block *block);
/* A freed block that others may have open, last in the queue; and out of the queue, in no list. */
void heap_make_exported(struct pool *pool, struct block *block, uint64_t notes);
void heap_end_exported(struct pool *pool, struct block *block);
/* Take an ordered block out of its list; the oldest of the pool's waiting ones out of the queue. */
void heap_unlist(struct pool *pool, struct block *block);
struct block *heap_pop_waiting(struct pool *pool);
/* Size of the largest block that may be given to somebody. */
size_t heap_largest(const struct pool *pool);
/* The live block of the segment, or of the whole, that holds `address`, with the lock of its front; NULL when none
 * does. Walks the segment unless it is a block's start. */
struct block *heap_live_at(const struct pool *pool, const struct segment *segment, uint64_t address,
                           struct front **front);
/* A fresh segment as one block in no list; NULL when host memory ran out. */
struct block *heap_add_segment(struct pool *pool, uint64_t address, size_t size);
/* The same for a part of `whole`, which prealloc.c puts in its place there. */
struct block *heap_add_part(struct pool *pool, struct segment *whole, uint64_t address, size_t size);
/* Take a wholly free segment out of the pool: nothing refers to it any more. The record is the caller's until
 * records_put_segment. */
void heap_detach_segment(struct pool *pool, struct segment *segment);
/* All blocks and segments are no more. */
void heap_forget(struct pool *pool);

#endif
