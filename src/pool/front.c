/* SPDX-License-Identifier: MIT
 *
 * Fronts as a whole: who has which, which are open to hits, and their sums. What a hit does with one is in hits.h. All
 * under pool->lock, and each front's lock where something of it is touched.
 *
 * A front whose stream is gone stays with the blocks that it counts, and serves another stream once it has none.
 */
#include "pool/hits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PEAK_SHARE 16u /* the part by which a peak over several fronts may be too low */

_Thread_local unsigned front_of_thread;

/* ---- which are open to hits ---- */

static uint64_t serves_whom(const struct pool *pool, const struct front *front) {
    if (pool->status != POOL_OPEN || pool->looks_ahead || pool->ended || !front->cell || !front->number) return 0;
    if (front->number <= FRONTS_OF_THREADS) return FRONT_SERVES;
    return front->list && !front->list->ending ? front->list->id : 0;
}

void front_gate(struct pool *pool, struct front *front) {
    const struct pool_system *system = pool->system;
    const uint64_t whom = serves_whom(pool, front);
    lock_take(&front->lock);
    front->traced = system->traced;
    front->serves_allocs = system->attended_allocs ? 0 : whom;
    front->serves_frees = system->attended_frees || pool->untraceable ? 0 : whom;
    lock_give(&front->lock);
}

void front_shut(struct front *front) {
    lock_take(&front->lock);
    front->serves_allocs = front->serves_frees = 0;
    lock_give(&front->lock);
}

void fronts_gate(struct pool *pool) {
    for (unsigned i = 0; i < pool->front_count; i++)
        if (pool->fronts[i]) front_gate(pool, pool->fronts[i]);
}

/* ---- making ---- */

static struct front *front_make(struct pool *pool, unsigned number) {
    static _Atomic uint64_t made;
    const int error = errno;
    struct front *front = aligned_alloc(_Alignof(struct front), sizeof *front);
    errno = error;
    if (!front) return NULL;
    memset(front, 0, sizeof *front);
    front->number = (uint16_t)number;
    front->live_tag = block_word_of((struct block_tag){.state = BLOCK_LIVE, .number = number});
    front->first_id = front->next_id = (atomic_fetch_add(&made, 1) + 1) << 40;
    front->pressed = &pool->device->pressed;
    front->round = front->until_round = FENCE_FREES;
    /* Before its first wait is counted: waits_under_way (capture.c) looks without the lock. */
    __atomic_store_n(&pool->fronts[number], front, __ATOMIC_SEQ_CST);
    if (number >= pool->front_count) __atomic_store_n(&pool->front_count, number + 1, __ATOMIC_SEQ_CST);
    return front;
}

bool fronts_init(struct pool *pool) {
    return front_make(pool, 0) != NULL;
}

void fronts_open(struct pool *pool) {
    pool->fronts[0]->cell = stats_cell_open(pool->figures, 0, 0);
}

void fronts_free(struct pool *pool) {
    for (unsigned i = 0; i < pool->front_count; i++) free(pool->fronts[i]);
}

static struct front *front_use(struct pool *pool, struct front *front, struct stream_list *list, uint64_t stream) {
    struct poolcuda_cell *cell = front->cell;
    if (!cell) cell = stats_cell_more(pool->figures, stream, list ? 0 : front->number);
    if (!cell) return NULL;
    lock_take(&front->lock);
    front->cell = cell;
    front->list = list;
    front->stream = stream;
    front_set(&front->newest, 0);
    front->since = fences_open_batch(&pool->system->fences);
    front->round = front->until_round = FENCE_FREES;
    memset(front->bins.requests, 0, sizeof front->bins.requests);
    lock_give(&front->lock);
    front_gate(pool, front);
    return front;
}

/* A front of other threads that is in use: the calling thread shares it from now on. The pool's first when none is. */
static struct front *share_front(const struct pool *pool) {
    for (unsigned i = 1; i <= FRONTS_OF_THREADS && i < pool->front_count; i++) {
        if (!pool->fronts[i] || !pool->fronts[i]->cell) continue;
        front_of_thread = i;
        return pool->fronts[i];
    }
    return pool->fronts[0];
}

struct front *fronts_of_thread(struct pool *pool) {
    enum { ASK_AGAIN = 1024 };
    static _Atomic unsigned threads;
    if (pool->source.kind != SEGMENT_PLAIN) return pool->fronts[0];
    if (!front_of_thread) front_of_thread = atomic_fetch_add(&threads, 1) % FRONTS_OF_THREADS + 1;
    struct front *front = pool->fronts[front_of_thread];
    if (front && front->cell) return front;
    if (!front) front = front_make(pool, front_of_thread);
    if (!front || (front->refused && --front->refused)) return share_front(pool);
    if (front_use(pool, front, NULL, 0)) return front;
    front->refused = ASK_AGAIN;
    return share_front(pool);
}

/* What the front's cell has counted becomes the pool's first cell's, so that it can count for another stream. */
static void give_up_cell(struct pool *pool, struct front *front, uint64_t stream) {
    struct front *first = pool->fronts[0];
    struct poolcuda_cell *from = front->cell, *to = first->cell;
    figures_begin(pool);
    lock_take(&first->lock);
    lock_take(&front->lock);
    const uint64_t at = cell_begin(to), of = cell_begin(from);
#define MOVE(name, unit, kind, help)              \
    stats_add(&to->name, stats_get(&from->name)); \
    stats_set(&from->name, 0);
    POOLCUDA_CELL_FIGURES(MOVE)
    for (unsigned i = 0; i < POOLCUDA_SIZE_CLASSES; i++) {
#define MOVE_CLASS(name, unit, kind, help)                              \
    stats_add(&to->classes[i].name, stats_get(&from->classes[i].name)); \
    stats_set(&from->classes[i].name, 0);
        POOLCUDA_CLASS_FIGURES(MOVE_CLASS)
    }
    stats_set(&from->stream, stream);
    cell_end(from, of);
    cell_end(to, at);
    lock_give(&front->lock);
    lock_give(&first->lock);
    figures_end_hit(pool);
}

/* Is it of a stream that is gone, and counts nothing any more? */
static bool is_spare(const struct front *front) {
    return !front->list && !front_get(&front->held);
}

struct front *fronts_of_stream(struct pool *pool, struct stream_list *list) {
    struct front *spare = NULL, *unused = NULL;
    for (unsigned i = FRONTS_OF_THREADS + 1; i < pool->front_count; i++) {
        struct front *front = pool->fronts[i];
        if (front->list) continue;
        if (!front->cell) {
            unused = front;
        } else if (front->stream == list->id) {
            return front_use(pool, front, list, list->id);
        } else if (!spare && is_spare(front)) {
            spare = front;
        }
    }
    const unsigned next = pool->front_count > FRONTS_OF_THREADS ? pool->front_count : FRONTS_OF_THREADS + 1;
    if (!unused && next < FRONTS_MOST) unused = front_make(pool, next);
    struct front *front = unused ? front_use(pool, unused, list, list->id) : NULL;
    if (front || !spare) return front;
    give_up_cell(pool, spare, list->id);
    return front_use(pool, spare, list, list->id);
}

void front_leave(struct pool *pool, struct front *front) {
    front->list = NULL;
    front_gate(pool, front);
}

/* ---- sums ---- */

void fronts_sum(const struct pool *pool, struct front_sums *sums) {
    *sums = (struct front_sums){0};
    for (unsigned i = 0; i < pool->front_count; i++) {
        const struct front *front = pool->fronts[i];
        if (!front) continue;
        sums->live += front_get(&front->live);
        sums->requested += front_get(&front->requested);
        sums->waiting += front_get(&front->waiting.bytes);
        *(front->number > FRONTS_OF_THREADS ? &sums->ordered : &sums->idle) += front_binned(front);
        sums->served += front_get(&front->next_id) - front->first_id;
    }
}

uint64_t fronts_live_blocks(const struct pool *pool) {
    uint64_t blocks = 0;
    for (unsigned i = 0; i < pool->front_count; i++) {
        struct front *front = pool->fronts[i];
        if (!front) continue;
        lock_take(&front->lock);
        for (unsigned k = 0; front->cell && k < POOLCUDA_SIZE_CLASSES; k++)
            blocks += front->cell->classes[k].allocs - front->cell->classes[k].frees;
        lock_give(&front->lock);
    }
    return blocks;
}

/* A sum of each front's, and what it may become before somebody has to look. */
struct limited {
    uint64_t *now, *most;
};

static struct limited limited_of(struct front *front, bool live) {
    return live ? (struct limited){&front->live, &front->most_live}
                : (struct limited){&front->requested, &front->most_requested};
}

/* The front's sum may become so much more: the peak rises where all together are more than it then. What is left below
 * the peak is the front's to grow by, if no other may grow by it: so the peak of one front is exact. Where others may,
 * looking at every step would be all that threads do, so each may grow by a little more than there is, and those that
 * may grow by much no longer may: all together by PEAK_SHARE at most. No lock of theirs is taken. */
static void allow(struct pool *pool, struct front *front, bool live, uint64_t more, uint64_t *peak) {
    const struct limited own = limited_of(front, live);
    const uint64_t wanted = front_get(own.now) + more;
    if (wanted <= front_get(own.most)) return;
    uint64_t sum = wanted, others_room = 0;
    unsigned count = 1;
    for (unsigned i = 0; i < pool->front_count; i++) {
        struct front *other = pool->fronts[i];
        if (!other || other == front) continue;
        const struct limited its = limited_of(other, live);
        const uint64_t now = front_get(its.now), most = front_get(its.most);
        sum += now;
        others_room += most > now ? most - now : 0;
        count += most > 0;
    }
    if (sum > stats_get(peak)) stats_set(peak, sum);
    const uint64_t room = stats_get(peak) - sum, share = stats_get(peak) / PEAK_SHARE / count;
    front_set(own.most, wanted + (room > others_room ? room - others_room : 0) + (others_room ? share / 2 : 0));
    for (unsigned i = 0; others_room > room && i < pool->front_count; i++) {
        struct front *other = pool->fronts[i];
        if (!other || other == front) continue;
        const struct limited its = limited_of(other, live);
        const uint64_t now = front_get(its.now);
        if (front_get(its.most) > now + share) front_set(its.most, now + share / 2);
    }
}

void front_allow(struct pool *pool, struct front *front, size_t live, size_t requested) {
    allow(pool, front, true, live, &pool->figures->peak_live_bytes);
    allow(pool, front, false, requested, &pool->figures->peak_requested_bytes);
}

void fronts_allow_nothing(struct pool *pool) {
    for (unsigned i = 0; i < pool->front_count; i++) {
        struct front *front = pool->fronts[i];
        if (!front) continue;
        front_set(&front->most_live, front_get(&front->live));
        front_set(&front->most_requested, front_get(&front->requested));
    }
}

/* ---- blocks that come and go by way of the pool's lock ---- */

void front_begin_life(struct pool *pool, struct front *front, struct block *block, size_t requested,
                      enum pool_door door) {
    const size_t size = block->size;
    lock_take(&front->lock);
    front_allow(pool, front, size, requested);
    hit_begin_life(front, block, size, requested);
    front_add(&front->held, size);
    struct poolcuda_size_class *class = &front->cell->classes[stats_size_class(size)];
    const uint64_t at = cell_begin(front->cell);
    hit_count_alloc(front->cell, class, size, requested, door);
    stats_add(&class->held_bytes, size);
    cell_end(front->cell, at);
    lock_give(&front->lock);
}

/* What its hits have freed joins the frees that a mark on its stream, or a fence, is for. Under its lock. */
static void count_joined(struct pool *pool, struct front *front) {
    unsigned *joined = front->list ? &front->list->joined : &pool->joined;
    const unsigned enough = front->list ? front->list->enough : FENCE_FREES;
    *joined += front->round - front->until_round;
    front->round = front->until_round = *joined < enough ? enough - *joined : enough;
}

void front_count_joined(struct pool *pool, struct front *front) {
    lock_take(&front->lock);
    count_joined(pool, front);
    lock_give(&front->lock);
}

struct block *front_live_at(const struct pool *pool, uint64_t address, struct front **front) {
    struct block *block = live_table_entry(&pool->table, address);
    if (__builtin_expect(!block, 0)) return NULL;
    /* Hits leave it with its front, whatever else they do. */
    *front = pool->fronts[block_tag(block).number];
    lock_take(&(*front)->lock);
    if (__builtin_expect(block_tag(block).state == BLOCK_LIVE && block->address == address, 1)) return block;
    lock_give(&(*front)->lock);
    return NULL;
}

struct block *front_end_life(struct pool *pool, uint64_t address, enum pool_door door, unsigned *joined) {
    struct front *front;
    struct block *block = front_live_at(pool, address, &front);
    if (__builtin_expect(!block, 0)) return NULL;
    struct block_tag tag = block_tag(block);
    if (__builtin_expect(pool->system->watched, 0)) watch_free(pool, block, door);
    if (joined) ++*joined;
    count_joined(pool, front);
    tag.state = BLOCK_ENDING;
    block_set_tag(block, tag);
    const size_t size = block->size, requested = block->requested;
    front_add(&front->live, -(uint64_t)size);
    front_add(&front->requested, -(uint64_t)requested);
    front_add(&front->held, -(uint64_t)size);
    struct poolcuda_size_class *class = &front->cell->classes[stats_size_class(size)];
    const uint64_t at = cell_begin(front->cell);
    hit_count_free(front->cell, class, size, requested, door);
    stats_add(&class->held_bytes, -(uint64_t)size);
    cell_end(front->cell, at);
    lock_give(&front->lock);
    return block;
}

/* `size` bytes come to the front, or leave it (modulo 2^64); of them so many to those that wait. Under its lock. */
static void count_held(struct front *front, size_t size, uint64_t held, uint64_t waiting) {
    struct poolcuda_cell *cell = front->cell;
    const uint64_t at = cell_begin(cell);
    front_add(&front->held, held);
    front_add(&front->waiting.bytes, waiting);
    stats_add(&cell->classes[stats_size_class(size)].held_bytes, held);
    stats_set(&cell->waiting_bytes, front_get(&front->waiting.bytes));
    cell_end(cell, at);
}

void front_bin(struct front *front, struct block *block, unsigned class, uint64_t batch) {
    lock_take(&front->lock);
    /* Hits may have freed in a later batch since the caller read its own. */
    const uint64_t newest = front_get(&front->newest);
    hit_bin(front, block, class, batch);
    if (newest > batch) front_set(&front->newest, newest);
    count_held(front, block->size, block->size, 0);
    lock_give(&front->lock);
}

void front_wait(const struct pool *pool, struct front *front, struct block *block) {
    lock_take(&front->lock);
    hit_wait(front, block, fences_open_batch(&pool->system->fences));
    count_held(front, block->size, block->size, block->size);
    lock_give(&front->lock);
}

/* The front's oldest waiting block, if it is of a batch up to `batch`. Under its lock. */
static struct block *pop_waiting(struct front *front, uint64_t batch) {
    struct block *block = front->waiting.first;
    if (!block || block_tag(block).batch > batch) return NULL;
    front->waiting.first = block->next;
    block->next = NULL;
    return block;
}

struct block *front_take_waiting(struct front *front, uint64_t batch) {
    lock_take(&front->lock);
    struct block *block = pop_waiting(front, batch);
    if (block) {
        count_held(front, block->size, -(uint64_t)block->size, -(uint64_t)block->size);
        block_set_tag(block, (struct block_tag){.state = BLOCK_ENDING, .number = front->number});
    }
    lock_give(&front->lock);
    return block;
}

uint64_t front_reclaim(struct pool *pool, struct front *front, uint64_t batch) {
    struct block *others = NULL;
    uint64_t moved = 0;
    lock_take(&front->lock);
    for (struct block *block; (block = pop_waiting(front, batch)); moved++) {
        const size_t size = block->size;
        const unsigned class = index_class(size);
        if (hit_may_bin(front, class)) {
            count_held(front, size, 0, -(uint64_t)size);
            hit_bin(front, block, class, 0);
        } else {
            count_held(front, size, -(uint64_t)size, -(uint64_t)size);
            block_set_tag(block, (struct block_tag){.state = BLOCK_ENDING, .number = front->number});
            block->next = others;
            others = block;
        }
    }
    lock_give(&front->lock);
    while (others) {
        struct block *block = others;
        others = block->next;
        live_table_remove(&pool->table, block->address);
        heap_make_idle(pool, block);
    }
    return moved;
}

uint64_t fronts_waiting_batch(const struct pool *pool) {
    uint64_t batch = pool->waiting.first ? block_tag(pool->waiting.last).batch : 0;
    for (unsigned i = 1; i <= FRONTS_OF_THREADS && i < pool->front_count; i++) {
        struct front *front = pool->fronts[i];
        if (!front || !front_get(&front->waiting.bytes)) continue;
        lock_take(&front->lock);
        const uint64_t its = front->waiting.first ? block_tag(front->waiting.last).batch : 0;
        if (its > batch) batch = its;
        lock_give(&front->lock);
    }
    return batch;
}

/* ---- the end of a life ---- */

void fronts_lock(const struct pool *pool) {
    for (unsigned i = 0; i < pool->front_count; i++)
        if (pool->fronts[i]) lock_take(&pool->fronts[i]->lock);
}

void fronts_unlock(const struct pool *pool) {
    for (unsigned i = 0; i < pool->front_count; i++)
        if (pool->fronts[i]) lock_give(&pool->fronts[i]->lock);
}

void fronts_forget(struct pool *pool) {
    for (unsigned i = 0; i < pool->front_count; i++) {
        struct front *front = pool->fronts[i];
        if (!front) continue;
        front->serves_allocs = front->serves_frees = 0;
        front_set(&front->live, 0);
        front_set(&front->requested, 0);
        front_set(&front->held, 0);
        front_set(&front->waiting.bytes, 0);
        front_set(&front->most_live, 0);
        front_set(&front->most_requested, 0);
        front->waiting.first = front->waiting.last = NULL;
        memset(&front->bins, 0, sizeof front->bins);
        front->list = NULL;
    }
}

void fronts_close(struct pool *pool) {
    for (unsigned i = 0; i < pool->front_count; i++)
        if (pool->fronts[i]) pool->fronts[i]->cell = NULL;
}
