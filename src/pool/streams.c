/* SPDX-License-Identifier: MIT
 *
 * Blocks that were freed in the order of a stream: a list for each pool and stream. On that stream they are given out
 * again at once; to anybody else once a mark on the stream, recorded after their batch was sealed, has passed, or a
 * fence has. So a stream that runs for long keeps back what was freed on it, and nothing else.
 *
 * A stream that is destroyed leaves its list behind without a name, marked for the last time: no stream finds it any
 * more, whatever handle comes back.
 */
#include "pool/hits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config/log.h"

/* ---- who a stream is ---- */

_Thread_local struct stream_ref stream_refs[STREAM_REFS];

/* The handle that names the stream whatever the entry point: 1 and 2 for the default streams. */
static uintptr_t key_of(struct device_stream stream) {
    if (stream.handle) return (uintptr_t)stream.handle;
    return stream.per_thread_default ? 2 : 1;
}

static bool is_default(uintptr_t key) {
    return key <= 2;
}

/* `ref` is the thread's place for such streams, with something older in it. */
static bool COLD fill_ref(const struct device_ops *ops, struct stream_ref *ref, const struct stream_ref *wanted,
                          int *code) {
    struct stream_ref found = *wanted;
    const int error = errno;
    *code = ops->stream_identify(ops->self, found.called, &found.identity);
    errno = error;
    if (*code != DEVICE_OK) return false;
    /* A stream whose end nobody tells has to be identified each time; the rest of what was found stays. */
    if (found.identity.id == ref->identity.id && ref->epoch == found.epoch) {
        found.pool = ref->pool;
        found.list = ref->list;
    }
    if (!found.identity.lasting) found.handle = 0;
    *ref = found;
    return true;
}

struct stream_ref *streams_find_ref(struct pool_system *system, struct device_stream stream, int *code) {
    const uintptr_t key = key_of(stream);
    const uint64_t epoch = atomic_load_explicit(&system->streams_epoch, memory_order_acquire);
    struct stream_ref *ref = stream_ref_place(key);
    void *context = NULL;
    *code = DEVICE_OK;
    if (is_default(key)) {
        *code = system->ops->current_handle(system->ops->self, &context);
        if (*code != DEVICE_OK) return NULL;
    }
    if (ref->handle == key && ref->epoch == epoch && ref->context == context) return ref;
    const struct stream_ref wanted = {
        .epoch = epoch, .handle = key, .context = context, .called = {(void *)key, false}};
    return fill_ref(system->ops, ref, &wanted, code) ? ref : NULL;
}

/* ---- lists ---- */

static struct stream_list **bucket_of(const struct pool *pool, uint64_t id) {
    return (struct stream_list **)&pool->list_buckets[(id * UINT64_C(0x9E3779B97F4A7C15)) >> 58];
}

struct stream_list *streams_find(const struct pool *pool, uint64_t id) {
    struct stream_list *list = *bucket_of(pool, id);
    while (list && list->id != id) list = list->next;
    return list;
}

/* No stream finds the list any more. What was in its bins is in its index. Inside figures_begin … figures_end. */
static void take_name(struct pool *pool, struct stream_list *list) {
    if (!list->id) return;
    if (list->front) {
        front_shut(list->front); /* so that nothing comes into a bin after the merge */
        bins_merge_front(pool, list->front);
        front_leave(pool, list->front);
        list->front = NULL;
    }
    struct stream_list **link = bucket_of(pool, list->id);
    while (*link != list) link = &(*link)->next;
    *link = list->next;
    list->id = 0;
    list->next = NULL;
    list->recordable = false;
}

static bool has_binned(const struct stream_list *list) {
    return list->front && front_binned(list->front) > 0;
}

/* Has the list blocks, in its index or in its bins? */
static bool has_blocks(const struct stream_list *list) {
    return list->bytes || has_binned(list);
}

/* No block of it is of an earlier batch, and of a later one. Where it has some. */
static uint64_t oldest_of(const struct stream_list *list) {
    const uint64_t index = list->bytes ? list->oldest : UINT64_MAX,
                   bins = has_binned(list) ? list->front->since : UINT64_MAX;
    return index < bins ? index : bins;
}
static uint64_t newest_of(const struct stream_list *list) {
    const uint64_t index = list->bytes ? list->newest : 0,
                   bins = has_binned(list) ? front_get(&list->front->newest) : 0;
    return index > bins ? index : bins;
}

bool streams_hold(const struct pool *pool) {
    for (unsigned i = 1; i < pool->list_count; i++)
        if (has_blocks(pool->lists[i])) return true;
    return false;
}

static bool is_unused(const struct stream_list *list) {
    return !has_blocks(list) && !list->mark && !list->busy && !list->ending;
}

static void make_spare(struct pool *pool, struct stream_list *list) {
    list->next = pool->spare_lists;
    pool->spare_lists = list;
}

void streams_list_emptied(struct pool *pool, struct stream_list *list) {
    if (!list->id && is_unused(list)) make_spare(pool, list);
}

/* An unused list; NULL when host memory ran out or there are too many. */
static struct stream_list *new_list(struct pool *pool) {
    if (pool->list_count > LISTS_MOST) return NULL;
    if (pool->list_count == pool->list_room) {
        const unsigned room = pool->list_room ? 2 * pool->list_room : 16;
        struct stream_list **grown = realloc(pool->lists, room * sizeof(struct stream_list *));
        if (!grown) return NULL;
        if (!pool->lists) grown[pool->list_count++] = NULL;
        pool->lists = grown;
        pool->list_room = room;
    }
    struct stream_list *list = calloc(1, sizeof *list);
    if (!list) return NULL;
    list->index = records_pages(sizeof *list->index);
    if (!list->index) {
        free(list);
        return NULL;
    }
    list->number = (uint16_t)pool->list_count;
    pool->lists[pool->list_count++] = list;
    return list;
}

/* A list to be used for a stream: one that was left behind, or beyond the first few one that is merely empty. */
static struct stream_list *take_list(struct pool *pool) {
    if (!pool->spare_lists && pool->list_count > LISTS_FEW) {
        for (unsigned i = 1; i < pool->list_count && !pool->spare_lists; i++) {
            struct stream_list *list = pool->lists[i];
            if (!list->id || !is_unused(list)) continue;
            /* Hits go on meanwhile: only what is shut stays unused. */
            if (list->front) {
                front_shut(list->front);
                if (!is_unused(list)) {
                    front_gate(pool, list->front);
                    continue;
                }
            }
            figures_begin(pool);
            take_name(pool, list);
            figures_end(pool);
            make_spare(pool, list);
        }
    }
    struct stream_list *list = pool->spare_lists;
    if (!list) return new_list(pool);
    pool->spare_lists = list->next;
    return list;
}

struct stream_list *streams_find_list(struct pool *pool, const struct stream_ref *ref) {
    const struct device_stream_identity *identity = &ref->identity;
    struct stream_list *list = streams_find(pool, identity->id);
    if (list) return list->ending ? NULL : list;
    const int error = errno;
    list = take_list(pool);
    errno = error;
    if (!list) return NULL;
    list->id = identity->id;
    list->oldest = list->newest = list->passed = list->marked = 0;
    list->joined = 0;
    list->enough = FENCE_FREES;
    list->joined_bytes = 0;
    list->front = fronts_of_stream(pool, list);
    list->recordable = identity->recordable;
    list->context = identity->context;
    list->stream = ref->called;
    list->next = *bucket_of(pool, identity->id);
    *bucket_of(pool, identity->id) = list;
    return list;
}

void streams_await_rest(struct pool *pool) {
    for (unsigned i = 1; i < pool->list_count; i++) {
        if (!pool->lists[i]->busy) continue;
        pool_await_change(pool);
        i = 0;
    }
}

void streams_forget(struct pool *pool) {
    for (unsigned i = 1; i < pool->list_count; i++) {
        struct stream_list *list = pool->lists[i];
        const bool spare = !list->id && is_unused(list);
        memset(list->index, 0, sizeof *list->index);
        list->bytes = 0;
        if (list->mark) pool->system->ops->fence_drop(pool->system->ops->self, list->mark);
        list->mark = NULL;
        list->ending = false;
        if (spare) continue;
        take_name(pool, list);
        make_spare(pool, list);
    }
    pool->ordered_largest = 0;
}

void streams_free(struct pool *pool) {
    for (unsigned i = 1; i < pool->list_count; i++) {
        struct stream_list *list = pool->lists[i];
        if (list->mark) pool->system->ops->fence_drop(pool->system->ops->self, list->mark);
        munmap(list->index, sizeof *list->index);
        free(list);
    }
    free(pool->lists);
}

/* ---- what is proved becomes idle ---- */

static unsigned reclaim_list(struct pool *pool, struct stream_list *list, uint64_t passed) {
    unsigned moved = 0;
    uint64_t oldest = UINT64_MAX;
    const struct free_index *index = list->index;
    if (list->front) bins_merge_front(pool, list->front);
    for (uint64_t firsts = index->first_map; firsts; firsts &= firsts - 1) {
        const unsigned first = (unsigned)__builtin_ctzll(firsts);
        for (uint32_t seconds = index->second_map[first]; seconds; seconds &= seconds - 1) {
            for (struct block *block = index->heads[first][__builtin_ctz(seconds)], *next; block; block = next) {
                next = block->next;
                const uint64_t batch = block_tag(block).batch;
                if (batch > passed) {
                    if (batch < oldest) oldest = batch;
                    continue;
                }
                heap_unlist(pool, block);
                heap_make_idle(pool, block);
                moved++;
            }
        }
    }
    list->oldest = oldest;
    return moved;
}

bool streams_reclaim(struct pool *pool) {
    const uint64_t passed = fences_passed(pool);
    uint64_t moved = 0;
    for (; pool->waiting.first && block_tag(pool->waiting.first).batch <= passed; moved++)
        heap_make_idle(pool, heap_pop_waiting(pool));
    for (unsigned i = 1; i <= FRONTS_OF_THREADS && i < pool->front_count; i++)
        if (pool->fronts[i]) moved += front_reclaim(pool, pool->fronts[i], passed);
    for (unsigned i = 1; i < pool->list_count; i++) {
        struct stream_list *list = pool->lists[i];
        const uint64_t proved = list->passed > passed ? list->passed : passed;
        if (oldest_of(list) > proved) continue;
        moved += reclaim_list(pool, list, proved);
        streams_list_emptied(pool, list);
    }
    if (moved) stats_add(&pool->figures->proved_blocks, moved);
    return moved > 0;
}

/* ---- marks ---- */

/* Nobody is in the driver for the list any more. Under pool->lock. */
static void list_rest(struct pool *pool, struct stream_list *list) {
    list->busy = false;
    pool_change(pool);
    streams_list_emptied(pool, list);
}

/* A recording on a default stream harms other streams' captures. */
static bool mark_begin(struct pool_system *system, struct device_stream stream) {
    return is_default(key_of(stream)) ? capture_record_begin(system) : capture_mark_begin(system);
}

static void mark_end(struct pool_system *system, struct device_stream stream) {
    if (is_default(key_of(stream))) {
        capture_record_end(system);
    } else {
        capture_mark_end(system);
    }
}

bool streams_mark(struct pool *pool, struct stream_list *list) {
    struct pool_system *system = pool->system;
    const struct device_ops *ops = system->ops;
    if (list->busy || list->mark || list->ending || !mark_begin(system, list->stream)) {
        lock_give(&pool->lock);
        return false;
    }
    list->busy = true;
    if (list->front) front_count_joined(pool, list->front);
    list->joined = 0;
    list->joined_bytes = 0;
    if (list->front) front_count_joined(pool, list->front);
    const struct device_context context = list->context;
    const struct device_stream stream = list->stream;
    const uint64_t batch = fences_seal(&system->fences);
    lock_give(&pool->lock);

    struct device_fence *mark = NULL;
    const int code = ops->fence_record_stream(ops->self, context, stream, &mark);
    mark_end(system, stream);

    lock_take(&pool->lock);
    if (code == DEVICE_OK) {
        list->mark = mark;
        list->mark_batch = list->marked = batch;
        figures_begin(pool);
        stats_add(&pool->figures->stream_marks, 1);
        figures_end(pool);
    }
    list_rest(pool, list);
    lock_give(&pool->lock);
    return code == DEVICE_OK;
}

/* Ask about the mark of one list. Under pool->lock, which it leaves meanwhile. */
static bool poll_list(struct pool *pool, struct stream_list *list) {
    const struct device_ops *ops = pool->system->ops;
    list->busy = true;
    struct device_fence *mark = list->mark;
    lock_give(&pool->lock);
    const bool asks = capture_ask_begin(pool->system);
    const int code = asks ? ops->fence_query(ops->self, mark, -1) : DEVICE_NOT_READY;
    if (asks) capture_ask_end(pool->system);
    lock_take(&pool->lock);
    if (code != DEVICE_NOT_READY) list->mark = NULL;
    if (code == DEVICE_OK && list->passed < list->mark_batch) list->passed = list->mark_batch;
    list_rest(pool, list);
    if (code == DEVICE_NOT_READY) return false;
    ops->fence_drop(ops->self, mark);        /* calls no driver */
    if (code != DEVICE_OK) list->marked = 0; /* its blocks want another */
    if (code != DEVICE_OK)
        log_line(LOG_WARNING, "device %d: the driver answered %d about a mark on a stream", pool->device->ordinal,
                 code);
    return code == DEVICE_OK;
}

bool streams_poll(struct pool *pool) {
    bool passed = false;
    lock_take(&pool->lock);
    for (unsigned i = 1; i < pool->list_count; i++) {
        struct stream_list *list = pool->lists[i];
        list->enough = FENCE_FREES; /* somebody asks */
        if (list->front) front_count_joined(pool, list->front);
        if (list->mark && !list->busy && !list->ending) passed |= poll_list(pool, list);
    }
    lock_give(&pool->lock);
    return passed;
}

static bool reclaim(struct pool *pool) {
    lock_take(&pool->lock);
    figures_begin(pool);
    const bool moved = streams_reclaim(pool);
    figures_end(pool);
    lock_give(&pool->lock);
    return moved;
}

bool streams_unmarked(const struct pool *pool) {
    const uint64_t fenced = fences_marked(&pool->system->fences);
    if (fronts_waiting_batch(pool) > fenced) return true;
    for (unsigned i = 1; i < pool->list_count; i++) {
        const uint64_t newest = newest_of(pool->lists[i]);
        if (newest > pool->lists[i]->marked && newest > fenced) return true;
    }
    return false;
}

/* Record marks where some are missing, but for the list `own`. *fence: are there blocks that only a fence can prove? */
static bool record_marks(struct pool *pool, uint64_t own, bool *fence) {
    bool recorded = false;
    lock_take(&pool->lock);
    const uint64_t fenced = fences_marked(&pool->system->fences);
    *fence = fronts_waiting_batch(pool) > fenced;
    for (unsigned i = 1; i < pool->list_count; i++) {
        struct stream_list *list = pool->lists[i];
        const uint64_t newest = newest_of(list);
        if ((list->id == own && own) || newest <= list->marked || newest <= fenced) continue;
        if (list->recordable) {
            recorded |= streams_mark(pool, list);
            lock_take(&pool->lock);
        } else {
            *fence = true;
        }
    }
    lock_give(&pool->lock);
    return recorded;
}

bool streams_prove(struct pool *pool, uint64_t own, bool record) {
    const bool closed = notes_ask_exports(pool);
    streams_poll(pool);
    fences_poll(pool->system, pool->device);
    const bool moved = reclaim(pool) || closed;
    if (!record) return moved;
    bool fence;
    bool recorded = record_marks(pool, own, &fence);
    if (fence) recorded |= fences_close(pool, true);
    if (!recorded) return moved;
    streams_poll(pool);
    fences_poll(pool->system, pool->device);
    return reclaim(pool) || moved;
}

/* ---- the end of streams ---- */

/* Nothing else can prove its blocks: they wait for a fence. Under pool->lock. */
static void list_to_waiting(struct pool *pool, struct stream_list *list) {
    const uint64_t batch = fences_open_batch(&pool->system->fences);
    figures_begin(pool);
    if (list->front) bins_merge_front(pool, list->front);
    for (unsigned first = 0; first < INDEX_FIRST_LEVELS; first++) {
        for (unsigned second = 0; second < INDEX_SECOND_LEVELS; second++) {
            struct block *const *head = &list->index->heads[first][second];
            while (*head) {
                struct block *block = *head;
                heap_unlist(pool, block);
                heap_make_waiting(pool, block, batch);
            }
        }
    }
    figures_end(pool);
}

static void forget_name(struct pool *pool, struct stream_list *list) {
    figures_begin(pool);
    take_name(pool, list);
    figures_end(pool);
}

/* The stream is about to be destroyed: a last mark on it proves what was freed in its order. Under pool->lock, which it
 * leaves meanwhile. */
static void end_list(struct pool *pool, struct stream_list *list) {
    const uint64_t fenced = fences_marked(&pool->system->fences), id = list->id;
    while (list->busy) pool_await_change(pool);
    if (list->id != id) return;               /* taken over meanwhile, since it was empty */
    list->recordable = false;                 /* by anybody but the thread that destroys the stream */
    if (list->front) front_shut(list->front); /* what the last mark is for is complete */
    const uint64_t newest = newest_of(list);
    if (newest > list->marked && newest > fenced) {
        struct device_fence *old = list->mark;
        list->mark = NULL;
        const bool recorded = streams_mark(pool, list);
        lock_take(&pool->lock);
        if (old) pool->system->ops->fence_drop(pool->system->ops->self, old);
        if (list->id != id) return; /* the mark has passed meanwhile, and the list is another stream's */
        if (!recorded) list_to_waiting(pool, list);
    }
    forget_name(pool, list);
    streams_list_emptied(pool, list);
}

/* The lists of a stream, or of all streams of a context. */
static void end_lists(struct pool_system *system, const void *handle, const void *context) {
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        lock_take(&pool->lock);
        for (unsigned i = 1; i < pool->list_count; i++) {
            struct stream_list *list = pool->lists[i];
            if (list->id && (context ? list->context.handle == context : list->stream.handle == handle))
                end_list(pool, list);
        }
        const bool many = pool->list_count > LISTS_FEW;
        const bool open = fronts_waiting_batch(pool) > fences_marked(&system->fences);
        lock_give(&pool->lock);
        /* Whether a fence covers what a destroyed stream has not finished is not documented: so it comes before. */
        if (open) fences_close(pool, false);
        /* So that lists without a name do not pile up. */
        if (many && streams_poll(pool)) reclaim(pool);
    }
    atomic_fetch_add(&system->streams_epoch, 1);
}

void pool_stream_end(struct pool_system *system, void *handle) {
    end_lists(system, handle, NULL);
}

void pool_context_streams_end(struct pool_system *system, const void *context) {
    end_lists(system, NULL, context);
}

void pool_streams_closing(struct pool_system *system, const void *context) {
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        lock_take(&pool->lock);
        for (unsigned i = 1; i < pool->list_count; i++) {
            struct stream_list *list = pool->lists[i];
            if (list->context.handle != context || (!list->id && is_unused(list))) continue;
            list->ending = true;
            if (list->front) front_gate(pool, list->front);
            while (list->busy) pool_await_change(pool);
        }
        lock_give(&pool->lock);
    }
}

void pool_streams_settled(struct pool_system *system, const void *context, bool gone) {
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        lock_take(&pool->lock);
        for (unsigned i = 1; i < pool->list_count; i++) {
            struct stream_list *list = pool->lists[i];
            if (!list->ending || list->context.handle != context) continue;
            list->ending = false;
            if (list->front && !gone) front_gate(pool, list->front);
            if (gone) {
                struct device_fence *mark = list->mark;
                list->mark = NULL;
                if (mark) pool->system->ops->fence_drop(pool->system->ops->self, mark);
                /* Its own work has ended with the context, but not what the stream had been told to wait for. */
                list_to_waiting(pool, list);
                forget_name(pool, list);
            }
            streams_list_emptied(pool, list);
        }
        lock_give(&pool->lock);
    }
    atomic_fetch_add(&system->streams_epoch, 1);
}
