/* SPDX-License-Identifier: MIT
 *
 * Segments from and to the driver: how much is taken, what is given back first, and the ladder of an allocation that
 * finds no memory. No lock is held across a driver call; a pool's `inside` keeps its context from being closed
 * meanwhile.
 */
#include "pool/internal.h"

#include "config/log.h"

/* ---- the driver, timed ---- */

static uint64_t driver_enter(void) {
    uint64_t now = figures_clock();
    stats_set(&stats_header()->in_driver_since_ns, now);
    return now;
}

/* Returns the nanoseconds since `entered`. */
static uint64_t driver_leave(uint64_t entered) {
    stats_set(&stats_header()->in_driver_since_ns, 0);
    return figures_clock() - entered;
}

/* ---- what a device has room for ---- */

void device_count(struct device_state *device, uint64_t change) {
    device->reserved += change;
    if (device->reserved > device->crowded_above)
        atomic_fetch_or(&device->pressed, DEVICE_CROWDED);
    else if (atomic_load(&device->pressed) & DEVICE_CROWDED)
        atomic_fetch_and(&device->pressed, ~DEVICE_CROWDED);
}

/* Count `bytes` as reserved, before the driver is asked, so that threads together keep to the limit. False: over the
 * limit. */
static bool device_promise(struct pool *pool, uint64_t bytes) {
    struct device_state *device = pool->device;
    const uint64_t limit = pool_limit_of(pool->system);
    pthread_mutex_lock(&device->lock);
    bool within = bytes <= limit && device->reserved <= limit - bytes;
    if (within) device_count(device, bytes);
    pthread_mutex_unlock(&device->lock);
    return within;
}

static void device_return(struct device_state *device, uint64_t bytes) {
    pthread_mutex_lock(&device->lock);
    device_count(device, -bytes);
    pthread_mutex_unlock(&device->lock);
}

uint64_t device_reserved(struct device_state *device) {
    pthread_mutex_lock(&device->lock);
    const uint64_t reserved = device->reserved;
    pthread_mutex_unlock(&device->lock);
    return reserved;
}

struct room {
    uint64_t limit;       /* bytes that POOL_LIMIT_MB still permits */
    uint64_t headroom;    /* bytes that may be taken with the headroom left free */
    uint64_t device_free; /* the driver's answer, UINT64_MAX when not asked */
};

static struct room device_room(struct pool *pool, bool ask) {
    const struct pool_options *options = &pool->system->options;
    const struct device_ops *ops = pool->system->ops;
    struct room room = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    size_t free_bytes, total_bytes;
    /* A question about memory breaks captures, as a recording does. */
    if ((ask || options->headroom_bytes) && capture_record_begin(pool->system)) {
        if (ops->memory_info(ops->self, pool->source.context, &free_bytes, &total_bytes) == DEVICE_OK) {
            room.device_free = free_bytes;
            room.headroom = free_bytes > options->headroom_bytes ? free_bytes - options->headroom_bytes : 0;
        }
        capture_record_end(pool->system);
    }
    const uint64_t limit = pool_limit_of(pool->system);
    if (limit != CONFIG_NONE) {
        const uint64_t reserved = device_reserved(pool->device);
        room.limit = limit > reserved ? limit - reserved : 0;
    }
    return room;
}

static uint64_t room_bytes(const struct room *room) {
    return room->limit < room->headroom ? room->limit : room->headroom;
}

/* What the driver and the limit have left, as they say. No lock held. */
static uint64_t device_left(struct pool *pool) {
    const struct room room = device_room(pool, true);
    return room.limit < room.device_free ? room.limit : room.device_free;
}

/* ---- give back ---- */

/* The wholly free segment to give back for `enough` bytes: the smallest that covers them, else the largest. Under
 * pool->lock. */
static struct segment *pick_release(const struct pool *pool, uint64_t enough) {
    struct segment *covering = NULL, *largest = NULL;
    for (struct segment *segment = pool->free_segments; segment; segment = segment->free_next) {
        if (!largest || segment->size > largest->size) largest = segment;
        if (segment->size >= enough && (!covering || segment->size < covering->size)) covering = segment;
    }
    return covering ? covering : largest;
}

/* Is a segment of `size` a better choice than one of `other`, for `enough` bytes? */
static bool release_better(uint64_t size, uint64_t other, uint64_t enough) {
    if (other == 0) return true;
    if (size >= enough) return other < enough || size < other;
    return other < enough && size > other;
}

void grow_give_back(struct pool *pool, struct segment *segment) {
    const struct device_ops *ops = pool->system->ops;
    lock_take(&pool->lock);
    struct segment_source source = pool->source;
    if (pool->ended) source.memory_pool = NULL; /* its handle may be nobody's, or another's */
    lock_give(&pool->lock);
    uint64_t entered = driver_enter();
    int code = ops->segment_release(ops->self, &source, segment->address, segment->size);
    uint64_t spent = driver_leave(entered);
    device_return(pool->device, segment->size);
    if (code != DEVICE_OK)
        log_line(LOG_WARNING, "device %d: the driver answered %d to the release of %zu bytes", pool->device->ordinal,
                 code, segment->size);
    lock_take(&pool->lock);
    figures_begin(pool);
    pool->thrash.owed++;
    stats_add(&pool->figures->segment_releases, 1);
    stats_add(&pool->figures->segment_release_bytes, segment->size);
    stats_add(&pool->figures->driver_ns, spent);
    figures_end(pool);
    figures_event(pool, POOLCUDA_EVENT_release, segment->size, UINT64_MAX, 0);
    records_put_segment(&pool->records, segment);
    capture_wait_end(pool);
    pool_leave(pool);
    lock_give(&pool->lock);
}

/* Under pool->lock. */
static void merge_bins(struct pool *pool) {
    figures_begin(pool);
    bins_merge(pool);
    figures_end(pool);
}

/* Under pool->lock. */
static void segment_detach(struct pool *pool, struct segment *segment) {
    figures_begin(pool);
    heap_detach_segment(pool, segment);
    figures_end(pool);
}

bool grow_may_release(const struct pool *pool) {
    return pool->status == POOL_OPEN || pool->inside > 0;
}

static bool is_untraceable(const struct block *block) {
    const struct block_tag tag = block_tag(block);
    return tag.state == BLOCK_EXPORTED && (tag.batch & NOTE_UNTRACEABLE);
}

/* A segment of which everything else is idle. Under pool->lock. */
static struct segment *pick_untraceable(const struct pool *pool) {
    struct segment *segment = pool->untraceable && grow_may_release(pool) ? pool->segments : NULL;
    for (; segment; segment = segment->next) {
        const bool goes = segment->untraceable && !segment->whole && !segment->fixed;
        const struct block *block = goes ? segment->first : NULL;
        if (!block) continue;
        while (block && (block_tag(block).state == BLOCK_IDLE || is_untraceable(block))) block = block->after;
        if (!block) break;
    }
    return segment;
}

/* Its blocks become one for the moment of its going. Under pool->lock. */
static void detach_untraceable(struct pool *pool, struct segment *segment) {
    figures_begin(pool);
    for (struct block *block = segment->first; block;) {
        if (!is_untraceable(block)) {
            block = block->after;
            continue;
        }
        heap_end_exported(pool, block);
        heap_make_idle(pool, block);
        block = segment->first;
    }
    heap_detach_segment(pool, segment);
    figures_end(pool);
}

uint64_t grow_release_untraceable(struct pool *pool) {
    uint64_t size = 0;
    lock_take(&pool->lock);
    if (pool->untraceable) merge_bins(pool);
    struct segment *segment = pick_untraceable(pool);
    if (segment && !capture_wait_begin(pool)) segment = NULL;
    if (segment) {
        size = segment->size;
        detach_untraceable(pool, segment);
        pool_enter(pool);
    }
    lock_give(&pool->lock);
    if (segment) grow_give_back(pool, segment);
    return size;
}

/* All such segments of a device. */
static uint64_t release_untraceable(struct pool_system *system, const struct device_state *device) {
    uint64_t released = 0;
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (pool->device != device) continue;
        for (uint64_t size; (size = grow_release_untraceable(pool)) > 0;) released += size;
    }
    return released;
}

/* One wholly free segment of any pool of the device. Returns its size, 0 when there is none. */
static uint64_t release_one(struct pool_system *system, const struct device_state *device, uint64_t enough,
                            bool waits) {
    struct pool *best = NULL;
    uint64_t best_size = 0;
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (pool->device != device || (!waits && pool->source.kind == SEGMENT_PLAIN)) continue;
        lock_take(&pool->lock);
        merge_bins(pool);
        const struct segment *segment = grow_may_release(pool) ? pick_release(pool, enough) : NULL;
        if (segment && release_better(segment->size, best_size, enough)) {
            best = pool;
            best_size = segment->size;
        }
        lock_give(&pool->lock);
    }
    if (!best) return 0;

    lock_take(&best->lock);
    struct segment *segment = grow_may_release(best) ? pick_release(best, enough) : NULL;
    uint64_t size = 0;
    if (segment && !capture_release_begin(best)) segment = NULL;
    if (segment) {
        size = segment->size;
        segment_detach(best, segment);
        pool_enter(best);
    }
    lock_give(&best->lock);
    if (segment) grow_give_back(best, segment);
    return size;
}

/* Under pool->lock. */
static uint64_t pool_cached(const struct pool *pool) {
    struct front_sums fronts;
    fronts_sum(pool, &fronts);
    return pool->idle_bytes + fronts.idle + pool->ordered_bytes + fronts.ordered + pool->waiting.bytes + fronts.waiting;
}

/* What is cached beyond what was preallocated. */
static uint64_t device_cached(struct pool_system *system, const struct device_state *device) {
    uint64_t cached = 0;
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (pool->device != device) continue;
        lock_take(&pool->lock);
        const uint64_t bytes = pool_cached(pool);
        cached += bytes > pool->prealloc_bytes ? bytes - pool->prealloc_bytes : 0;
        lock_give(&pool->lock);
    }
    return cached;
}

/* Bytes of the segments that release_one finds. */
static uint64_t device_releasable(struct pool_system *system, const struct device_state *device, bool waits) {
    uint64_t bytes = 0;
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (pool->device != device || (!waits && pool->source.kind == SEGMENT_PLAIN)) continue;
        lock_take(&pool->lock);
        const struct segment *segment = grow_may_release(pool) ? pool->free_segments : NULL;
        for (; segment; segment = segment->free_next) bytes += segment->size;
        lock_give(&pool->lock);
    }
    return bytes;
}

uint64_t grow_release(struct pool_system *system, struct device_state *device, uint64_t enough, uint64_t keep,
                      bool waits) {
    uint64_t released = waits ? release_untraceable(system, device) : 0;
    while (released < enough && (keep == 0 || device_cached(system, device) > keep)) {
        uint64_t size = release_one(system, device, enough - released, waits);
        if (size == 0) break;
        released += size;
    }
    return released;
}

uint64_t grow_release_pool(struct pool *pool, uint64_t keep) {
    uint64_t released = 0;
    lock_take(&pool->lock);
    pool_enter(pool);
    lock_give(&pool->lock);
    streams_prove(pool, 0, true);
    for (;;) {
        lock_take(&pool->lock);
        merge_bins(pool);
        const uint64_t cached = pool_cached(pool);
        struct segment *segment = cached > keep ? pick_release(pool, cached - keep) : NULL;
        if (!segment || !capture_release_begin(pool)) break;
        released += segment->size;
        segment_detach(pool, segment);
        pool_enter(pool);
        lock_give(&pool->lock);
        grow_give_back(pool, segment);
    }
    pool_leave(pool);
    lock_give(&pool->lock);
    return released;
}

void grow_release_ended(struct pool_system *system) {
    if (atomic_load(&system->captures) != 0) return;
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        lock_take(&pool->lock);
        const bool left = pool->ended && pool->segments;
        lock_give(&pool->lock);
        if (left) grow_release_pool(pool, 0);
    }
}

/* Enter an open pool of the device that has blocks which are not idle. */
static bool enter_unproved(struct pool *pool, const struct device_state *device) {
    if (pool->device != device) return false;
    lock_take(&pool->lock);
    bool enter = pool->status == POOL_OPEN && (fronts_waiting_batch(pool) || streams_hold(pool) || pool->traceable);
    if (enter) pool_enter(pool);
    lock_give(&pool->lock);
    return enter;
}

static void leave_pool(struct pool *pool) {
    lock_take(&pool->lock);
    pool_leave(pool);
    lock_give(&pool->lock);
}

void grow_prove(struct pool_system *system, const struct device_state *device) {
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (!enter_unproved(pool, device)) continue;
        streams_prove(pool, 0, true);
        leave_pool(pool);
    }
}

void grow_merge(struct pool_system *system, const struct device_state *device) {
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (pool->device != device) continue;
        lock_take(&pool->lock);
        merge_bins(pool);
        lock_give(&pool->lock);
    }
}

bool grow_settle(struct pool_system *system, const struct device_state *device) {
    bool settled = false, waited = false;
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (!enter_unproved(pool, device)) continue;
        /* One wait proves the blocks of all pools. */
        const uint64_t entered = driver_enter();
        if (!waited) waited = fences_settle(pool);
        driver_leave(entered);
        lock_take(&pool->lock);
        figures_begin(pool);
        settled |= streams_reclaim(pool);
        figures_end(pool);
        pool_leave(pool);
        lock_give(&pool->lock);
    }
    return settled;
}

/* No lock held. */
static void count_trim(struct pool_system *system, const struct device_state *device, uint64_t released) {
    for (struct pool *pool = atomic_load(&system->pools); pool; pool = pool->next) {
        if (pool->device != device) continue;
        lock_take(&pool->lock);
        figures_begin(pool);
        stats_add(&pool->figures->trims, 1);
        figures_end(pool);
        figures_event(pool, POOLCUDA_EVENT_trim, released, UINT64_MAX, 0);
        lock_give(&pool->lock);
        break;
    }
}

static uint64_t give_up(struct pool_system *system, struct device_state *device, uint64_t enough, uint64_t keep,
                        bool waits) {
    grow_prove(system, device);
    const uint64_t released = grow_release(system, device, enough, keep, waits);
    if (released) count_trim(system, device, released);
    return released;
}

uint64_t grow_trim(struct pool_system *system, struct device_state *device, uint64_t keep_bytes, bool waits) {
    return give_up(system, device, UINT64_MAX, keep_bytes, waits);
}

uint64_t grow_give_up(struct pool_system *system, struct device_state *device, uint64_t bytes) {
    return give_up(system, device, bytes, 0, true);
}

/* Wholly free segments whose bytes together nearly make one of `exact`: four at most, largest first, taken out of the
 * pool as a list by next. NULL when there are none such. Returning them for one that fits keeps the pool from holding
 * both. Under pool->lock. */
static struct segment *consolidate(struct pool *pool, size_t exact) {
    enum { MOST = 4 };
    struct segment *chosen[MOST];
    unsigned count = 0;
    uint64_t sum = 0;
    while (count < MOST && sum < exact) {
        struct segment *largest = NULL;
        for (struct segment *segment = pool->free_segments; segment; segment = segment->free_next) {
            bool taken = false;
            for (unsigned i = 0; i < count; i++) taken |= chosen[i] == segment;
            if (!taken && (!largest || segment->size > largest->size)) largest = segment;
        }
        if (!largest) break;
        chosen[count++] = largest;
        sum += largest->size;
    }
    if (sum < exact - exact / 4) return NULL;
    struct segment *list = NULL;
    for (unsigned i = 0; i < count && capture_wait_begin(pool); i++) {
        segment_detach(pool, chosen[i]);
        pool_enter(pool);
        chosen[i]->next = list;
        list = chosen[i];
    }
    return list;
}

/* ---- take ---- */

/* What is reserved ahead is no growth while the program runs, nor is the first segment beside it. Under pool->lock. */
static void count_growth(struct pool *pool, uint64_t spent) {
    if (pool->ahead == AHEAD_BUSY) return;
    const bool first = !pool->has_grown;
    pool->has_grown = true;
    if (first) return;
    stats_add(&pool->figures->growths, 1);
    stats_add(&pool->figures->growth_ns, spent);
}

/* Ask the driver for a segment. No lock held. 0 and *address; DEVICE_OUT_OF_MEMORY also when the limit forbids it
 * (*reason says which). */
static int segment_take(const struct request *request, size_t bytes, uint64_t *address,
                        enum poolcuda_oom_reason *reason) {
    struct pool *pool = request->pool;
    const struct device_ops *ops = pool->system->ops;
    const struct device_stream stream = request->on ? request->on->called : (struct device_stream){0};
    if (!device_promise(pool, bytes)) {
        *reason = POOLCUDA_OOM_LIMIT;
        return DEVICE_OUT_OF_MEMORY;
    }
    uint64_t entered = driver_enter();
    int code = ops->segment_alloc(ops->self, &pool->source, stream, bytes, address);
    uint64_t spent = driver_leave(entered);
    if (code != DEVICE_OK) {
        device_return(pool->device, bytes);
        if (code == DEVICE_OUT_OF_MEMORY) *reason = POOLCUDA_OOM_DRIVER;
    }
    lock_take(&pool->lock);
    figures_begin(pool);
    stats_add(&pool->figures->driver_ns, spent);
    if (code == DEVICE_OK) count_growth(pool, spent);
    figures_end(pool);
    lock_give(&pool->lock);
    return code;
}

uint64_t grow_room(struct pool *pool) {
    const struct room room = device_room(pool, false);
    return room_bytes(&room);
}

int grow_reserve(struct pool *pool, size_t bytes, uint64_t *address) {
    enum poolcuda_oom_reason reason;
    return segment_take(&(struct request){.pool = pool}, bytes, address, &reason);
}

void grow_refuse(struct pool *pool, uint64_t address, size_t bytes) {
    const struct device_ops *ops = pool->system->ops;
    ops->segment_release(ops->self, &pool->source, address, bytes);
    device_return(pool->device, bytes);
}

/* The same after cached memory was given back: an event of its own. */
static int segment_retake(const struct request *request, size_t bytes, uint64_t *address,
                          enum poolcuda_oom_reason *reason) {
    struct pool *pool = request->pool;
    lock_take(&pool->lock);
    figures_begin(pool);
    stats_add(&pool->figures->oom_retries, 1);
    figures_end(pool);
    figures_event(pool, POOLCUDA_EVENT_oom_retry, bytes, UINT64_MAX, (uint32_t)*reason);
    lock_give(&pool->lock);
    return segment_take(request, bytes, address, reason);
}

/* May an allocation wait for the device, as the driver's may? */
static bool may_wait(const struct request *request) {
    return !request->on && !request->pool->system->options.free_event;
}

/* The driver has no more, or the limit forbids more: give back what is lacking of what is known to be idle, if that is
 * there, and ask again. No lock held. */
static int segment_take_again(const struct request *request, size_t bytes, uint64_t *address,
                              enum poolcuda_oom_reason *reason) {
    struct pool_system *system = request->pool->system;
    struct device_state *device = request->pool->device;
    const bool waits = may_wait(request);
    int code = DEVICE_OUT_OF_MEMORY;
    grow_prove(system, device);
    grow_merge(system, device);
    while (code == DEVICE_OUT_OF_MEMORY) {
        const uint64_t left = device_left(request->pool);
        const uint64_t lacking = left < bytes ? bytes - left : bytes; /* the driver may refuse what it has */
        if (device_releasable(system, device, waits) < lacking || !grow_release(system, device, lacking, 0, waits))
            break;
        code = segment_retake(request, bytes, address, reason);
    }
    return code;
}

/* The same with all that the device's pools cache, also what has to be waited for, and last what was preallocated,
 * unless it has room for the request by now. No lock held. */
static int segment_take_hard(const struct request *request, size_t bytes, uint64_t *address,
                             enum poolcuda_oom_reason *reason) {
    struct pool_system *system = request->pool->system;
    struct device_state *device = request->pool->device;
    int code = DEVICE_OUT_OF_MEMORY;
    grow_settle(system, device);
    if (grow_release(system, device, UINT64_MAX, 0, true)) code = segment_retake(request, bytes, address, reason);
    if (code == DEVICE_OUT_OF_MEMORY && !prealloc_has_room(request->pool, bytes) && prealloc_release(system, device))
        code = segment_retake(request, bytes, address, reason);
    return code;
}

/* With the lock: a free block for the request. */
static struct block *try_free(const struct request *request, bool any) {
    struct pool *pool = request->pool;
    const struct stream_list *list = request->on ? streams_list(pool, request->on) : NULL;
    bins_merge(pool);
    struct block *block = heap_take(pool, list, request->size, any);
    if (!block && list && list->bytes) block = heap_take_run(pool, list, request->size, any);
    return block ? heap_hand_out(request, block) : NULL;
}

/* A block of any size, and the lock with it; or NULL, and no lock held, as before. */
static struct block *take_any(const struct request *request) {
    struct pool *pool = request->pool;
    lock_take(&pool->lock);
    figures_begin(pool);
    struct block *block = try_free(request, true);
    figures_end(pool);
    if (!block) lock_give(&pool->lock);
    return block;
}

/* A fresh segment's low end is the request's; what is left of one that was taken on a stream is free in the order of
 * that stream. *added: the segment is the pool's now, whether or not the block could be handed out. With the lock. */
static struct block *try_segment(const struct request *request, uint64_t address, size_t bytes, bool *added) {
    struct pool *pool = request->pool;
    struct block *block = heap_add_segment(pool, address, bytes);
    *added = block != NULL;
    if (!block) return NULL;
    pool->thrash.owed++;
    stats_add(&pool->figures->segment_allocs, 1);
    stats_add(&pool->figures->segment_alloc_bytes, bytes);
    block_set_tag(block, (struct block_tag){.state = BLOCK_IDLE});
    if (request->on) {
        const struct stream_list *list = streams_list(pool, request->on);
        const uint64_t batch = fences_open_batch(&pool->system->fences);
        if (!list) {
            heap_make_waiting(pool, block, batch);
            return NULL;
        }
        block_set_tag(block, (struct block_tag){.state = BLOCK_ORDERED, .number = list->number, .batch = batch});
    }
    return heap_hand_out(request, block);
}

/* A trim was made for the room of `device_free` bytes. No lock held. */
static void note_trim(struct pool *pool, uint64_t released, uint64_t device_free) {
    lock_take(&pool->lock);
    figures_begin(pool);
    stats_add(&pool->figures->trims, 1);
    figures_end(pool);
    figures_event(pool, POOLCUDA_EVENT_trim, released, device_free, 0);
    lock_give(&pool->lock);
}

void grow_keep_headroom(struct pool *pool, bool waits) {
    const uint64_t headroom = pool->system->options.headroom_bytes;
    const struct room room = device_room(pool, false);
    bool whole = room.device_free >= headroom;
    if (!whole) {
        uint64_t released = grow_release(pool->system, pool->device, headroom - room.device_free, 0, waits);
        if (released) note_trim(pool, released, room.device_free);
        whole = released >= headroom - room.device_free;
    }
    if (whole) atomic_fetch_and(&pool->device->pressed, ~DEVICE_TIGHT);
}

/* What is left rather than more than that, but no less than `exact`. */
static size_t within(size_t wanted, size_t exact, uint64_t left) {
    if (wanted > left) wanted = (size_t)(left / GRANULE * GRANULE);
    return wanted > exact ? wanted : exact;
}

/* How much to ask for, giving back first where there is no room for the least. No lock held. */
static size_t make_room(const struct request *request, size_t exact, size_t wanted, struct room *room) {
    struct pool *pool = request->pool;
    *room = device_room(pool, false);
    wanted = within(wanted, exact, room_bytes(room));
    if (wanted <= room_bytes(room)) return wanted;
    grow_prove(pool->system, pool->device);
    uint64_t released = grow_release(pool->system, pool->device, wanted - room_bytes(room), 0, may_wait(request));
    if (released) {
        note_trim(pool, released, room->device_free);
        *room = device_room(pool, false);
    }
    return wanted;
}

/* With the lock, which it leaves meanwhile: what can be proved idle without waiting, for the request. */
static struct block *try_proved(const struct request *request) {
    struct pool *pool = request->pool;
    const uint64_t own = request->on ? request->on->identity.id : 0;
    struct block *block = NULL;
    for (unsigned record = 0; record <= 1 && !block; record++) {
        if (!fronts_waiting_batch(pool) && !streams_hold(pool)) return NULL;
        lock_give(&pool->lock);
        const bool proved = streams_prove(pool, own, record);
        lock_take(&pool->lock);
        if (!proved) continue;
        figures_begin(pool);
        block = try_free(request, false);
        figures_end(pool);
    }
    return block;
}

int grow_and_hand_out(const struct request *request, struct block **block, bool *took_segment,
                      enum poolcuda_oom_reason *refused_by) {
    struct pool *pool = request->pool;
    struct pool_system *system = pool->system;
    size_t exact = policy_exact_segment(request->size);
    *took_segment = false;

    figures_begin(pool);
    *block = request->on ? try_free(request, false) : NULL; /* a run of neighbours */
    figures_end(pool);
    if (!*block) *block = try_proved(request);
    if (*block) return DEVICE_OK;
    merge_bins(pool);

    size_t wanted = policy_segment(request->size, pool->reserved, device_max_split(pool->device), &system->options);
    if (pool->wholes) {
        figures_begin(pool);
        *block = prealloc_hand_out(request, exact, wanted);
        figures_end(pool);
        if (*block) return DEVICE_OK;
    }
    const bool quick = pool->source.kind == SEGMENT_ASYNC || may_wait(request);
    const bool small = policy_is_small(request->size, &system->options); /* a large segment is worth more than it */
    const bool saves = thrash_saves(pool);
    struct segment *given_up = quick && !small && !saves ? consolidate(pool, exact) : NULL;
    if (given_up) wanted = exact;
    lock_give(&pool->lock);
    while (given_up) {
        struct segment *segment = given_up;
        given_up = segment->next;
        segment->next = NULL;
        grow_give_back(pool, segment);
    }

    if (system->options.attend) system->options.attend();
    grow_release_ended(system);
    struct room room;
    wanted = make_room(request, exact, wanted, &room);
    if (wanted > room_bytes(&room)) {
        /* A block of any size before the headroom is touched or the limit refuses. */
        *block = take_any(request);
        if (*block) return DEVICE_OK;
    }

    uint64_t address = 0;
    enum poolcuda_oom_reason reason = POOLCUDA_OOM_NONE;
    int code = segment_take(request, wanted, &address, &reason);
    for (unsigned tries = 0; tries < 2 && code == DEVICE_OUT_OF_MEMORY && wanted > exact; tries++) {
        wanted = tries == 0 ? within(wanted, exact, device_left(pool)) : exact;
        code = segment_take(request, wanted, &address, &reason);
    }
    if (code == DEVICE_OUT_OF_MEMORY) code = segment_take_again(request, wanted, &address, &reason);
    if (code == DEVICE_OUT_OF_MEMORY) {
        /* A block of any size before what is of no use to the request goes, or the device is waited for. */
        *block = take_any(request);
        if (*block) return DEVICE_OK;
        code = segment_take_hard(request, wanted, &address, &reason);
    }
    if (code == DEVICE_OK && wanted > room.headroom) atomic_fetch_or(&pool->device->pressed, DEVICE_TIGHT);

    lock_take(&pool->lock);
    bool added = false;
    figures_begin(pool);
    *block = NULL;
    if (code == DEVICE_OK) {
        *block = try_segment(request, address, wanted, &added);
        *took_segment = *block != NULL;
    } else if (code == DEVICE_OUT_OF_MEMORY) {
        *block = try_free(request, true);
        if (!*block) *block = prealloc_hand_out(request, exact, exact);
        if (!*block) stats_add(&pool->figures->oom_failures, 1);
    }
    figures_end(pool);

    if (added) figures_event(pool, POOLCUDA_EVENT_growth, wanted, room.device_free, 0);
    if (*block) return DEVICE_OK;
    if (code == DEVICE_OUT_OF_MEMORY)
        figures_event(pool, POOLCUDA_EVENT_oom, request->requested, room.device_free, (uint32_t)reason);
    *refused_by = reason;
    if (code != DEVICE_OK) return code;

    /* No host memory for the records: the driver is to serve this request. */
    if (!added) {
        lock_give(&pool->lock);
        grow_refuse(pool, address, wanted);
        lock_take(&pool->lock);
    }
    return POOL_PASS;
}
