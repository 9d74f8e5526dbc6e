/* SPDX-License-Identifier: MIT
 *
 * Frees: which wait for the device, which are answered at once, and what is refused. The common way is short and leaves
 * by few branches; what is rare is in functions marked cold.
 */
#include "pool/hits.h"

#include "config/log.h"

static _Thread_local unsigned free_calls __attribute__((tls_model("initial-exec")));

/* An address in memory that the pool has and that is no live block. */
static int COLD refuse(struct pool *pool, uint64_t address) {
    lock_take(&pool->lock);
    figures_begin(pool);
    stats_add(&pool->figures->bad_frees, 1);
    figures_end(pool);
    struct poolcuda_event event = figures_event_of(pool, POOLCUDA_EVENT_bad_free);
    event.address = address;
    event.reason = DEVICE_INVALID_VALUE;
    figures_publish(&event);
    lock_give(&pool->lock);
    log_line(LOG_WARNING, "device %d: a free of %#llx was refused: it is inside a segment and no live block",
             pool->device->ordinal, (unsigned long long)address);
    return DEVICE_INVALID_VALUE;
}

/* An address inside a segment of `pool` that is no live block, or one that is nobody's by now. */
static int COLD free_refuse(struct pool *pool, uint64_t address) {
    watch_ask(0, 0);
    if (registry_pool(&pool->system->registry, address) != pool) return pool_pass(POOLCUDA_PASS_foreign);
    return refuse(pool, address);
}

/* No segment holds the address. Without a current context, a runtime makes one and comes back by the driver door. */
static int COLD free_foreign(struct pool_system *system, uint64_t address, enum pool_door door) {
    void *context = NULL;
    if (door == POOL_DOOR_RUNTIME &&
        (system->ops->current_handle(system->ops->self, &context) != DEVICE_OK || !context))
        return POOL_PASS;
    struct pool *keeper = capture_kept_for(system, address);
    if (__builtin_expect(keeper != NULL, 0) && system->ops->current_handle(system->ops->self, &context) == DEVICE_OK &&
        context)
        return refuse(keeper, address);
    return pool_pass(address ? POOLCUDA_PASS_foreign : POOLCUDA_PASS_zero_or_null);
}

/* The pool that has a segment at `address`, and the calling thread's current context; or NULL and *code the answer. */
static struct pool *free_begin(struct pool_system *system, uint64_t address, enum pool_door door, void **context,
                               int *code) {
    struct pool *pool = registry_pool(&system->registry, address);
    if (__builtin_expect(!pool, 0)) {
        *code = free_foreign(system, address, door);
        return NULL;
    }
    const struct device_ops *ops = system->ops;
    *context = NULL;
    *code = ops->current_handle(ops->self, context);
    if (__builtin_expect(*code == DEVICE_OK && *context == pool_context(pool).handle && *context, 1)) return pool;
    /* The driver's own answer, without asking it: it would free what is ours. */
    if (*code == DEVICE_OK && !*context) *code = DEVICE_INVALID_CONTEXT;
    if (*code != DEVICE_OK) return NULL;
    /* The pool lives on; the current context may be a dead one. */
    struct device_context current;
    *code = ops->context_current(ops->self, &current);
    return *code == DEVICE_OK ? pool : NULL;
}

/* With pool->lock: the block at `address`, live no more, but still in the table; or NULL, the lock given up, and *code
 * the answer. `joined`: as front_end_life's. */
static struct block *end_life(struct pool *pool, uint64_t address, enum pool_door door, unsigned *joined, int *code) {
    /* While its context is being reset, only the outcome says whether the block is still there. */
    while (__builtin_expect(pool->status != POOL_OPEN, 0)) pool_await_change(pool);
    figures_begin(pool);
    struct block *block = front_end_life(pool, address, door, joined);
    if (__builtin_expect(!block, 0)) {
        figures_end_hit(pool);
        lock_give(&pool->lock);
        *code = free_refuse(pool, address);
    }
    return block;
}

/* Is a block with notes kept for whoever has it open? See notes_end. */
static bool COLD end_notes(struct pool *pool, struct block *block, bool waited) {
    live_table_remove(&pool->table, block->address);
    return notes_end(pool, block, waited);
}

/* What a free does after the lock is given up. */
struct aftermath {
    bool trim, tight; /* give cached memory back */
    bool close;       /* close a fence */
    bool exports;     /* ask about what others may have open, and give back what nobody can tell of */
    bool ended;       /* give back what is left of a destroyed memory pool */
    bool wait;        /* wait as the driver does, so that no more memory waits */
    bool waits;       /* the call may wait for the device anyway */
};

#define FRONT_WAITING (8 * MIB) /* above so much in a front, each free looks how much waits in all */

/* Memory that waits for fences is bounded: beyond it a free waits. Hits are not asked, but each 64th. */
static bool waits_too_much(const struct pool *pool) {
    struct front_sums fronts;
    fronts_sum(pool, &fronts);
    const uint64_t waiting = pool->waiting.bytes + fronts.waiting;
    return waiting > FENCE_BYTES && waiting > fronts.live;
}

/* For the pool's own context, as the driver's free would; counted. False while a stream captures, or when it failed. No
 * lock held. */
static bool COLD wait_for_context(struct pool *pool) {
    const struct device_ops *ops = pool->system->ops;
    if (!capture_wait_begin(pool)) return false;
    const uint64_t began = figures_clock();
    const int code = ops->context_synchronize(ops->self, pool_context(pool));
    lock_take(&pool->lock);
    capture_wait_end(pool);
    figures_begin(pool);
    stats_add(&pool->figures->waits, 1);
    stats_add(&pool->figures->driver_ns, figures_clock() - began);
    figures_end(pool);
    lock_give(&pool->lock);
    return code == DEVICE_OK;
}

/* A fence of now, and what it proves. False when enough is proved. No lock held. */
static bool COLD prove_frees(struct pool *pool) {
    streams_prove(pool, 0, true);
    lock_take(&pool->lock);
    const bool more = waits_too_much(pool);
    lock_give(&pool->lock);
    return more;
}

static void COLD wait_for_frees(struct pool *pool) {
    if (!prove_frees(pool) || !wait_for_context(pool) || !prove_frees(pool)) return;
    /* The proof is another thread's to bring, which sleeps over it; others that go on would pile up more. */
    fences_await(&pool->system->fences);
    prove_frees(pool);
}

/* What was exported without a trace and cannot go without a wait is bounded likewise: the driver's free of it would
 * have waited. True when the wait is done. */
static bool COLD wait_for_exported(struct pool *pool) {
    lock_take(&pool->lock);
    struct front_sums fronts;
    fronts_sum(pool, &fronts);
    const uint64_t most = fronts.live > FENCE_BYTES ? fronts.live : FENCE_BYTES;
    const bool wait = pool->untraceable && pool->exported_bytes > most;
    lock_give(&pool->lock);
    if (!wait || !wait_for_context(pool)) return false;
    grow_prove(pool->system, pool->device);
    return true;
}

static void COLD clear_up(struct pool *pool, struct aftermath after) {
    struct pool_system *system = pool->system;
    if (after.close) {
        fences_poll(system, pool->device); /* so that there is room for another */
        fences_close(pool, false);
    }
    if (after.wait) wait_for_frees(pool);
    if (after.exports) {
        notes_ask_exports(pool);
        if (after.waits || wait_for_exported(pool))
            while (grow_release_untraceable(pool) > 0) continue;
    }
    /* To give back is a driver call that harms a capture: the first free after it does so. */
    const bool captures = atomic_load(&system->captures) != 0;
    if (after.ended && !captures) grow_release_pool(pool, 0);
    if (after.trim && !captures) grow_trim(system, pool->device, system->options.trim_bytes, after.waits);
    if (after.tight && !captures) grow_keep_headroom(pool, after.waits);
    lock_take(&pool->lock);
    if (after.close) { /* so that what has passed serves the next request */
        figures_begin(pool);
        streams_reclaim(pool);
        figures_end(pool);
    }
    pool_leave(pool);
    lock_give(&pool->lock);
}

/* Is more cached than `most`: of what is idle, or with `all` of all? */
static bool COLD has_more_than(const struct pool *pool, uint64_t most, bool all) {
    struct front_sums fronts;
    fronts_sum(pool, &fronts);
    const uint64_t idle = pool->idle_bytes + fronts.idle;
    const uint64_t rest = pool->ordered_bytes + fronts.ordered + pool->waiting.bytes + fronts.waiting;
    return idle > most || (all && idle + rest > most);
}

/* With pool->lock, which it gives up. `round`: one free in FENCE_FREES, which looks after what is not idle too. */
static inline int free_done(struct pool *pool, uint64_t address, struct aftermath after, bool round) {
    struct pool_system *system = pool->system;
    const unsigned pressed = atomic_load_explicit(&pool->device->pressed, memory_order_relaxed);
    const bool asked = after.close || after.wait || after.exports;
    if (__builtin_expect(asked || pressed || pool->ended || pool->trim_above != UINT64_MAX, 0)) {
        after.trim = pool->trim_above != UINT64_MAX && has_more_than(pool, pool->trim_above, round);
        after.tight = (pressed & DEVICE_TIGHT) && pool->free_segments;
        after.ended = pool->ended;
        const bool more = after.trim || after.tight || after.ended || asked;
        if (more) pool_enter(pool);
        lock_give(&pool->lock);
        if (more) clear_up(pool, after);
    } else {
        lock_give(&pool->lock);
    }
    if (__builtin_expect(system->watched, 0)) watch_freed(pool, address);
    check_or_abort(system);
    return DEVICE_OK;
}

/* Codes that say "not now" and change nothing: the driver's own free would have refused alike. */
static bool is_refusal(int code) {
    return code >= DEVICE_CAPTURE_UNSUPPORTED && code <= 908;
}

/* A freed block that others may have open is kept for them. With pool->lock, which it gives up. */
static int COLD free_kept(struct pool *pool, uint64_t address, bool waits) {
    figures_end(pool);
    return free_done(pool, address, (struct aftermath){.exports = true, .waits = waits}, false);
}

/* From guard_begin to guard_end no capture begins; NULL: one runs. What it returns is guard_end's. */
static inline struct front *guard_begin(struct pool *pool) {
    struct front *guard = hit_front_of_thread(pool);
    if (__builtin_expect(!capture_front_wait_begin(pool->system, guard), 0)) return NULL;
    cancelled_wait = guard;
    return guard;
}

/* Under the guard's lock. */
static inline void guard_end(struct front *guard) {
    capture_front_wait_end(guard);
    cancelled_wait = NULL;
}

static void COLD guard_end_apart(struct front *guard) {
    lock_take(&guard->lock);
    guard_end(guard);
    lock_give(&guard->lock);
}

/* A thread's first wait is among those that are timed. */
static uint64_t COLD timed_wait_begin(void) {
    cancelled_watch();
    return figures_clock();
}

/* The last question before a hit: is it recorded, where it is to be? With the front's lock. */
static inline bool free_is_recorded(const struct front *front, const struct block *block, uint64_t stream,
                                    enum pool_door door) {
    return __builtin_expect(!front->traced, 1) || watch_free_hit(block, stream, door);
}

/* The front that the live block at an address may belong to, by what the table says of it: a front of threads, since
 * others are not for who frees without a stream. *block: what it says. NULL when there is none. */
static inline struct front *front_of(const struct pool *pool, uint64_t address, struct block **block) {
    *block = live_table_entry(&pool->table, address);
    if (__builtin_expect(!*block, 0)) return NULL;
    const unsigned number = block_tag(*block).number;
    return __builtin_expect(number - 1 < FRONTS_OF_THREADS, 1)
               ? __atomic_load_n(&pool->fronts[number], __ATOMIC_ACQUIRE)
               : NULL;
}

/* May a freed block of the class go to a bin of the front? Under pool->lock. */
static inline bool may_bin(const struct front *front, unsigned class) {
    return front->number && front->cell && hit_may_bin(front, class);
}

/* With pool->lock, which it gives up. */
static int __attribute__((noinline)) HOT free_idle_slowly(struct pool *pool, uint64_t address, enum pool_door door,
                                                          uint64_t waited_ns) {
    int code;
    struct block *block = end_life(pool, address, door, NULL, &code);
    if (__builtin_expect(!block, 0)) return code;
    stats_add(&pool->figures->waits, 1);
    const struct block_tag tag = block_tag(block);
    const bool noted = tag.batch != 0;
    if (__builtin_expect(noted, 0) && end_notes(pool, block, true)) return free_kept(pool, address, true);
    struct aftermath after = {.waits = true, .exports = pool->untraceable && block->segment->untraceable};
    const unsigned class = index_class(block->size);
    struct front *front = pool->fronts[tag.number];
    /* A stream's has ordered blocks alone. */
    if (tag.number <= FRONTS_OF_THREADS && may_bin(front, class) && !noted && !fixed_owns(pool, block)) {
        front_bin(front, block, class, 0);
    } else {
        if (!noted) live_table_remove(&pool->table, address);
        heap_make_idle(pool, block);
    }
    if (__builtin_expect(waited_ns != 0, 0)) {
        /* It stands for those since the last one: a thread's first for itself. */
        stats_add(&pool->figures->driver_ns, free_calls > 1 ? waited_ns * POOLCUDA_LATENCY_SAMPLE : waited_ns);
        after.exports |= pool->traceable > 0; /* once in a while, for programs that allocate nothing new */
        figures_note_peaks(pool);
    }
    figures_end_hit(pool);
    if (__builtin_expect(waited_ns != 0, 0)) map_step(pool, figures_clock());
    return free_done(pool, address, after, false);
}

/* The device was waited for, and the block is idle. `guard`: of the wait, to be ended, or NULL. waited_ns: 0, or what a
 * wait that was timed took. */
static inline int free_idle(struct pool *pool, uint64_t address, enum pool_door door, struct front *guard,
                            uint64_t waited_ns) {
    struct block *block;
    struct front *front = front_of(pool, address, &block);
    if (__builtin_expect(guard && guard != front, 0)) guard_end_apart(guard);
    if (__builtin_expect(front != NULL, 1)) {
        const size_t size = block_size(block);
        const unsigned class = index_class(size);
        lock_take(&front->lock);
        if (__builtin_expect(guard == front, 1)) guard_end(guard);
        const bool served = front->serves_frees == FRONT_SERVES && !waited_ns && hit_live(front, block, address);
        if (__builtin_expect(served && hit_is_of_size(block, size) && hit_may_bin(front, class) &&
                                 free_is_recorded(front, block, 0, door),
                             1)) {
            struct poolcuda_cell *cell = front->cell;
            const uint64_t at = cell_begin(cell);
            hit_end_life(front, block, door);
            hit_bin(front, block, class, 0);
            stats_add(&cell->free_waits, 1);
            cell_end(cell, at);
            lock_give(&front->lock);
            return DEVICE_OK;
        }
        lock_give(&front->lock);
    }
    lock_take(&pool->lock);
    return free_idle_slowly(pool, address, door, waited_ns);
}

/* Has enough been freed for a fence? Under pool->lock. */
static bool is_full_batch(struct pool *pool, size_t size) {
    pool->joined_bytes += size;
    if (__builtin_expect(pool->joined < FENCE_FREES && pool->joined_bytes <= FENCE_BYTES, 1)) return false;
    if (pool->joined < FENCE_FREES) {
        struct front_sums fronts;
        fronts_sum(pool, &fronts);
        if (pool->joined_bytes <= fronts.live / 8) return false;
    }
    pool->joined = 0;
    pool->joined_bytes = 0;
    return true;
}

/* With pool->lock, which it gives up. `guarded`: the call has waited. */
static int __attribute__((noinline)) HOT free_waiting_slowly(struct pool *pool, uint64_t address, enum pool_door door,
                                                             bool guarded) {
    int code;
    struct block *block = end_life(pool, address, door, &pool->joined, &code);
    if (__builtin_expect(!block, 0)) return code;
    const struct block_tag tag = block_tag(block);
    const bool noted = tag.batch != 0;
    if (__builtin_expect(noted, 0) && end_notes(pool, block, false)) return free_kept(pool, address, guarded);
    /* One that may be kept whole after it stays where it is. */
    if (!noted && tag.number - 1u < FRONTS_OF_THREADS && block->size < BIN_BYTES && !fixed_owns(pool, block)) {
        front_wait(pool, pool->fronts[tag.number], block);
    } else {
        if (!noted) live_table_remove(&pool->table, address);
        heap_make_waiting(pool, block, fences_open_batch(&pool->system->fences));
    }
    struct aftermath after = {.close = is_full_batch(pool, block->size), .waits = guarded};
    after.exports = after.close && pool->traceable;
    if (guarded) stats_add(&pool->figures->waits, 1);
    if (after.close) figures_note_peaks(pool);
    stats_set(&pool->figures->waiting_bytes, pool->waiting.bytes);
    figures_end_hit(pool);
    if (after.close) map_step(pool, figures_clock());
    /* The driver's free of a block of the async kind never waits; one that has waited does not wait again. */
    after.wait = pool->source.kind == SEGMENT_PLAIN && !guarded && waits_too_much(pool);
    return free_done(pool, address, after, after.close);
}

/* The block waits for a fence. `guard`: of a wait that the call has made, to be ended, or NULL. */
static inline int free_waiting(struct pool *pool, uint64_t address, enum pool_door door, struct front *guard) {
    struct block *block;
    struct front *front = front_of(pool, address, &block);
    if (guard) guard_end_apart(guard);
    if (__builtin_expect(front && !guard && block_size(block) < BIN_BYTES, 1)) {
        lock_take(&front->lock);
        const bool served = front->serves_frees == FRONT_SERVES && front->until_round > 1 &&
                            hit_live(front, block, address) && front->waiting.bytes < FRONT_WAITING &&
                            !hit_is_pressed(front);
        if (__builtin_expect(served && free_is_recorded(front, block, 0, door), 1)) {
            front->until_round--;
            struct poolcuda_cell *cell = front->cell;
            const uint64_t at = cell_begin(cell);
            hit_end_life(front, block, door);
            hit_wait(front, block, fences_open_batch(&pool->system->fences));
            front_add(&front->waiting.bytes, block->size);
            stats_set(&cell->waiting_bytes, front_get(&front->waiting.bytes));
            cell_end(cell, at);
            lock_give(&front->lock);
            return DEVICE_OK;
        }
        lock_give(&front->lock);
    }
    lock_take(&pool->lock);
    return free_waiting_slowly(pool, address, door, guard != NULL);
}

/* The wait failed: its code is the answer, and the block never comes back. */
static int COLD free_unwaited(struct pool *pool, uint64_t address, int code, enum pool_door door, struct front *guard) {
    int refused = code;
    guard_end_apart(guard);
    if (is_refusal(code)) return code;
    lock_take(&pool->lock);
    watch_ask(address, WATCH_KEPT);
    struct block *block = end_life(pool, address, door, NULL, &refused);
    /* Of a context that has failed the driver says so, whatever the address. */
    if (!block) return refused == POOL_PASS ? POOL_PASS : code;
    live_table_remove(&pool->table, address);
    heap_retire(pool, block);
    figures_end(pool);
    free_done(pool, address, (struct aftermath){0}, false);
    log_line(LOG_WARNING, "device %d: the wait in a free answered %d: its block is never given out again",
             pool->device->ordinal, code);
    return code;
}

/* A stream of the process captures: no wait of ours is possible, and none of the driver's is a proof. */
static int COLD free_in_capture(struct pool *pool, uint64_t address, enum pool_door door, bool wait) {
    int code = capture_ask(pool, wait);
    return code == DEVICE_OK ? free_waiting(pool, address, door, NULL) : code;
}

/* Does a free of the pool's blocks return before the work has ended? The driver's own does so for the async kind. */
static inline bool frees_at_once(const struct pool *pool) {
    const struct pool_system *system = pool->system;
    if (__builtin_expect(pool->source.kind == SEGMENT_ASYNC, 0)) return true;
    return system->options.free_event && !atomic_load_explicit(&system->fences.unsupported, memory_order_relaxed);
}

int pool_free(struct pool_system *system, uint64_t address, enum pool_door door) {
    int code;
    void *context;
    struct pool *pool = free_begin(system, address, door, &context, &code);
    if (__builtin_expect(!pool, 0)) return code;
    if (frees_at_once(pool))
        return __builtin_expect(atomic_load(&system->captures) != 0, 0) ? free_in_capture(pool, address, door, false)
                                                                        : free_waiting(pool, address, door, NULL);
    struct front *guard = guard_begin(pool);
    if (__builtin_expect(!guard, 0)) return free_in_capture(pool, address, door, true);
    const struct device_ops *ops = system->ops;
    const uint64_t began = __builtin_expect(sample_is_next(&free_calls), 0) ? timed_wait_begin() : 0;
    code = __builtin_expect(pool_context(pool).handle == context, 1)
               ? ops->current_synchronize(ops->self)
               : ops->context_synchronize(ops->self, pool_context(pool));
    if (__builtin_expect(code != DEVICE_OK, 0)) return free_unwaited(pool, address, code, door, guard);
    /* Kernels of another context may use the block. */
    if (__builtin_expect(!ops->context_alone(ops->self, pool_context(pool)), 0)) {
        if (!atomic_load(&system->fences.unsupported)) return free_waiting(pool, address, door, guard);
        code = ops->synchronize_all(ops->self);
        if (code != DEVICE_OK) return free_unwaited(pool, address, code, door, guard);
    }
    return free_idle(pool, address, door, guard, __builtin_expect(began != 0, 0) ? figures_clock() - began : 0);
}

/* The stream cannot be told from others: it is waited for. */
static int COLD free_on_unknown(struct pool *pool, uint64_t address, struct device_stream stream, enum pool_door door) {
    const struct device_ops *ops = pool->system->ops;
    struct front *guard = guard_begin(pool);
    if (!guard) return free_waiting(pool, address, door, NULL);
    cancelled_watch();
    /* The free is work on the stream: on one that the legacy stream orders, what came there before it is waited for
     * too. Where there can be no such work, everything is. */
    int code = DEVICE_OK;
    struct device_context context;
    if (ops->context_current(ops->self, &context) != DEVICE_OK || !context.handle ||
        ops->stream_touch(ops->self, context, stream) != DEVICE_OK)
        code = ops->synchronize_all(ops->self);
    if (code == DEVICE_OK) code = ops->stream_synchronize(ops->self, pool_context(pool), stream);
    if (code != DEVICE_OK) return free_unwaited(pool, address, code, door, guard);
    return free_idle(pool, address, door, guard, 0);
}

/* Is it time for a mark on the stream? Where it is the only one, nobody else wants its blocks. Under pool->lock. */
static inline bool wants_mark(const struct pool *pool, const struct stream_list *list) {
    /* Of a default stream nobody else could make it, so more of them are made. */
    const bool many =
        list->recordable ? list->joined >= list->enough : list->joined >= FENCE_FREES || list->joined_bytes >= GRANULE;
    return many && pool->list_count > 2 && !list->busy && !list->mark;
}

/* What comes after a free on a stream: at times a mark, and in the `round` what is not idle is looked after too. With
 * pool->lock, which it gives up. */
static int COLD free_round(struct pool *pool, uint64_t address, struct stream_list *list, bool mark, bool round) {
    if (mark) {
        streams_mark(pool, list);
        lock_take(&pool->lock);
    }
    return free_done(pool, address, (struct aftermath){0}, round);
}

/* With pool->lock, which it gives up. */
static int __attribute__((noinline)) HOT free_ordered_slowly(struct pool *pool, uint64_t address,
                                                             struct stream_ref *ref, enum pool_door door) {
    int code;
    struct stream_list *list = streams_list(pool, ref);
    const unsigned before = list ? list->joined / FENCE_FREES : 0;
    struct block *block = end_life(pool, address, door, list ? &list->joined : NULL, &code);
    if (__builtin_expect(!block, 0)) return code;
    const bool noted = block_tag(block).batch != 0;
    if (__builtin_expect(noted, 0) && end_notes(pool, block, false)) return free_kept(pool, address, false);
    list = fixed_owns(pool, block) ? NULL : streams_list(pool, ref); /* end_life may have left the lock */
    const uint64_t batch = fences_open_batch(&pool->system->fences);
    bool mark = false, round = false;
    if (__builtin_expect(list != NULL, 1)) {
        const size_t bytes = block->size;
        const unsigned class = index_class(bytes);
        if (list->front && may_bin(list->front, class) && !noted) {
            front_bin(list->front, block, class, batch);
        } else {
            if (!noted) live_table_remove(&pool->table, address);
            heap_make_ordered(pool, block, list, batch);
        }
        round = list->joined / FENCE_FREES != before;
        list->joined_bytes += bytes;
        mark = wants_mark(pool, list);
        if (round) figures_note_peaks(pool);
        figures_end_hit(pool);
        if (round) map_step(pool, figures_clock());
    } else {
        if (!noted) live_table_remove(&pool->table, address);
        heap_make_waiting(pool, block, batch);
        figures_end(pool);
    }
    return free_round(pool, address, list, mark, round);
}

static int __attribute__((noinline))
free_async_slowly(struct pool_system *system, uint64_t address, struct device_stream stream, enum pool_door door) {
    int code;
    struct pool *pool = registry_pool(&system->registry, address);
    if (__builtin_expect(!pool, 0)) return free_foreign(system, address, door);
    if (__builtin_expect(atomic_load(&system->captures) != 0, 0)) {
        code = system->ops->stream_capturing(system->ops->self, stream);
        /* Only graph allocations may be freed on a capturing stream, and a block of ours is none. Where the legacy
         * stream would have to wait for one, the driver refuses a wait as it would the free. */
        if (code == DEVICE_NOT_READY) return system->ops->free_captured(system->ops->self, stream, address);
        if (is_refusal(code)) code = system->ops->stream_synchronize(system->ops->self, pool_context(pool), stream);
        if (code != DEVICE_OK) return code;
    }
    struct stream_ref *ref = streams_ref(system, stream, &code);
    if (__builtin_expect(!ref, 0)) return code;
    if (__builtin_expect(!ref->identity.id, 0)) return free_on_unknown(pool, address, stream, door);
    if (__builtin_expect(ref->identity.orders_others, 0)) {
        code = streams_touch(system, ref);
        if (is_refusal(code)) return code;
        if (code != DEVICE_OK) return free_waiting(pool, address, door, NULL);
    }
    if (__builtin_expect(system->watched, 0)) watch_ask(address, ref->identity.id);
    if (__builtin_expect(ref->identity.context.ordinal != pool->device->ordinal, 0))
        return free_waiting(pool, address, door, NULL);

    lock_take(&pool->lock);
    return free_ordered_slowly(pool, address, ref, door);
}

/* After a round of so many frees on a stream that were hits. Rounds become longer, up to a bound, while nobody asks for
 * what is freed there: what they look after is the pool's, and threads meet there. */
static int COLD free_after_hits(struct stream_ref *ref, uint64_t address, unsigned hits) {
    struct pool *pool = ref->pool;
    lock_take(&pool->lock);
    figures_begin(pool);
    figures_note_peaks(pool);
    figures_end_hit(pool);
    map_step(pool, figures_clock());
    struct stream_list *list = streams_find(pool, ref->identity.id);
    bool mark = false;
    if (list && list->front) {
        list->joined += hits;
        mark = wants_mark(pool, list);
        if (list->enough < MARK_FREES_MOST) list->enough *= 2;
        front_count_joined(pool, list->front);
    }
    return free_round(pool, address, list, mark, true);
}

int pool_free_async(struct pool_system *system, uint64_t address, struct device_stream stream, enum pool_door door) {
    struct stream_ref *ref = streams_ready(system, stream);
    if (__builtin_expect(ref && atomic_load(&system->captures) == 0, 1)) {
        struct pool *pool = ref->pool; /* mostly the block's: its table tells */
        struct front *front = ref->ready;
        struct block *block = live_table_entry(&pool->table, address);
        if (__builtin_expect(!block, 0)) return free_async_slowly(system, address, stream, door);
        const size_t size = block_size(block);
        const unsigned class = index_class(size);
        if (__builtin_expect(class < BIN_CLASSES, 1)) {
            lock_take(&front->lock);
            const bool served = front->serves_frees == ref->identity.id && hit_live(front, block, address);
            if (__builtin_expect(served && hit_is_of_size(block, size) && hit_may_bin(front, class) &&
                                     free_is_recorded(front, block, ref->identity.id, door),
                                 1)) {
                struct poolcuda_cell *cell = front->cell;
                const uint64_t at = cell_begin(cell);
                hit_end_life(front, block, door);
                hit_bin(front, block, class, fences_open_batch(&system->fences));
                cell_end(cell, at);
                if (__builtin_expect(--front->until_round == 0, 0)) {
                    const unsigned hits = front->round;
                    front->round = front->until_round = FENCE_FREES;
                    lock_give(&front->lock);
                    return free_after_hits(ref, address, hits);
                }
                lock_give(&front->lock);
                return DEVICE_OK;
            }
            lock_give(&front->lock);
        }
        if (__builtin_expect(system->watched, 0)) watch_ask(address, ref->identity.id);
        lock_take(&pool->lock);
        return free_ordered_slowly(pool, address, ref, door);
    }
    return free_async_slowly(system, address, stream, door);
}
