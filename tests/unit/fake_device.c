/* SPDX-License-Identifier: MIT
 *
 * See fake_device.h.
 */
#include "fake_device.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local struct device_context current = {FAKE_PRIMARY(0), 0};

void fake_set_current(void *handle, int ordinal) {
    current = (struct device_context){handle, ordinal};
}

static int context_current(void *self, struct device_context *out) {
    (void)self;
    *out = current;
    return DEVICE_OK;
}

/* First index whose range begins at or above `address`. Under the lock. */
static size_t range_at(const struct fake_device *fake, uint64_t address) {
    size_t low = 0, high = fake->range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (fake->ranges[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void range_add(struct fake_device *fake, struct fake_range range) {
    if (fake->range_count == fake->range_room) {
        fake->range_room = fake->range_room ? 2 * fake->range_room : 64;
        fake->ranges = realloc(fake->ranges, fake->range_room * sizeof *fake->ranges);
        if (!fake->ranges) abort();
    }
    size_t at = range_at(fake, range.address);
    memmove(&fake->ranges[at + 1], &fake->ranges[at], (fake->range_count - at) * sizeof *fake->ranges);
    fake->ranges[at] = range;
    fake->range_count++;
}

static void range_remove(struct fake_device *fake, size_t at) {
    fake->in_use[fake->ranges[at].ordinal] -= fake->ranges[at].size;
    memmove(&fake->ranges[at], &fake->ranges[at + 1], (fake->range_count - at - 1) * sizeof *fake->ranges);
    fake->range_count--;
}

static int segment_alloc(void *self, const struct segment_source *source, struct device_stream stream, size_t bytes,
                         uint64_t *address) {
    struct fake_device *fake = self;
    const struct device_context context = source->context;
    if (fake->during_alloc) fake->during_alloc(fake->during_arg);
    pthread_mutex_lock(&fake->lock);
    fake->allocs++;
    if (source->kind == SEGMENT_ASYNC) fake->alloc_stream = stream;
    int code = fake->alloc_fails_with;
    if (!code && !fake->alive[context.ordinal]) code = DEVICE_CONTEXT_DESTROYED;
    if (!code && fake->in_use[context.ordinal] + bytes > fake->memory[context.ordinal]) code = DEVICE_OUT_OF_MEMORY;
    if (!code) {
        *address = fake->next_address;
        fake->next_address +=
            (bytes + 0x1fffff) / 0x200000 * 0x200000; /* neighbours touch where the size is a whole number of pages */
        range_add(fake, (struct fake_range){*address, bytes, context.ordinal});
        fake->in_use[context.ordinal] += bytes;
        if (fake->in_use[context.ordinal] > fake->most_in_use[context.ordinal])
            fake->most_in_use[context.ordinal] = fake->in_use[context.ordinal];
    }
    pthread_mutex_unlock(&fake->lock);
    return code;
}

static int segment_release(void *self, const struct segment_source *source, uint64_t address, size_t bytes) {
    struct fake_device *fake = self;
    (void)bytes;
    if (fake->during_release) fake->during_release(fake->during_arg);
    pthread_mutex_lock(&fake->lock);
    fake->releases++;
    fake->released_to = source->memory_pool;
    size_t at = range_at(fake, address);
    bool found = at < fake->range_count && fake->ranges[at].address == address;
    if (found)
        range_remove(fake, at);
    else
        fake->bad_releases++;
    pthread_mutex_unlock(&fake->lock);
    return found ? DEVICE_OK : DEVICE_INVALID_VALUE;
}

static int context_synchronize(void *self, struct device_context context) {
    struct fake_device *fake = self;
    if (fake->during_synchronize) fake->during_synchronize(fake->during_arg);
    __atomic_fetch_add(&fake->synchronizes, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&fake->synchronized, context.handle, __ATOMIC_RELAXED);
    const int code = __atomic_load_n(&fake->synchronize_fails_with, __ATOMIC_RELAXED);
    if (!code) __atomic_store_n(&fake->passed, __atomic_load_n(&fake->recorded, __ATOMIC_SEQ_CST), __ATOMIC_SEQ_CST);
    return code;
}

static int current_handle(void *self, void **handle) {
    (void)self;
    *handle = current.handle;
    return DEVICE_OK;
}

static int current_synchronize(void *self) {
    return context_synchronize(self, current);
}

static int stream_synchronize(void *self, struct device_context context, struct device_stream stream) {
    struct fake_device *fake = self;
    (void)stream;
    __atomic_fetch_add(&fake->stream_synchronizes, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&fake->synchronized, context.handle, __ATOMIC_RELAXED);
    return __atomic_load_n(&fake->synchronize_fails_with, __ATOMIC_RELAXED);
}

static int memory_pool(void *self, int ordinal, void **handle) {
    const struct fake_device *fake = self;
    (void)ordinal;
    *handle = fake->memory_pool;
    return fake->memory_pool ? DEVICE_OK : DEVICE_NOT_SUPPORTED;
}

static int synchronize_all(void *self) {
    return context_synchronize(self, current);
}

static bool releases_in_captures(void *self) {
    const struct fake_device *fake = self;
    return fake->releases_in_captures;
}

static bool context_alone(void *self, struct device_context context) {
    const struct fake_device *fake = self;
    (void)context;
    return !fake->not_alone;
}

static int stream_identify(void *self, struct device_stream stream, struct device_stream_identity *identity) {
    const struct fake_device *fake = self;
    *identity = (struct device_stream_identity){0};
    if (fake->no_streams) return DEVICE_OK;
    const bool is_default = (uintptr_t)stream.handle <= 2;
    const uint64_t of_device = is_default ? (uint64_t)current.ordinal << 48 : 0;
    *identity = (struct device_stream_identity){.id = (uint64_t)(uintptr_t)stream.handle +
                                                      (fake->stream_generation << 32) + of_device,
                                                .context = current,
                                                .lasting = is_default || !fake->unseen,
                                                .orders_others = stream.handle == (void *)1,
                                                .recordable = !is_default && !fake->unseen};
    return DEVICE_OK;
}

static int stream_touch(void *self, struct device_context context, struct device_stream stream) {
    struct fake_device *fake = self;
    (void)context;
    (void)stream;
    __atomic_fetch_add(&fake->touches, 1, __ATOMIC_RELAXED);
    return fake->touch_fails_with;
}

static int free_captured(void *self, struct device_stream stream, uint64_t address) {
    (void)self;
    (void)stream;
    (void)address;
    return DEVICE_INVALID_VALUE;
}

static int stream_capturing(void *self, struct device_stream stream) {
    const struct fake_device *fake = self;
    return fake->capturing && fake->capturing == stream.handle ? DEVICE_NOT_READY : DEVICE_OK;
}

/* ---- marks ---- */

struct device_fence {
    uint64_t number;
};

static bool fences_supported(void *self) {
    const struct fake_device *fake = self;
    return !fake->no_fences;
}

static int record(struct fake_device *fake, struct device_fence **fence) {
    if (fake->during_record) fake->during_record(fake->during_arg);
    if (fake->record_fails_with) return fake->record_fails_with;
    *fence = malloc(sizeof **fence);
    if (!*fence) abort();
    (*fence)->number = __atomic_add_fetch(&fake->recorded, 1, __ATOMIC_SEQ_CST);
    return DEVICE_OK;
}

static int fence_record(void *self, struct device_fence **fence) {
    struct fake_device *fake = self;
    const int code = record(fake, fence);
    if (!code) __atomic_fetch_add(&fake->fences, 1, __ATOMIC_RELAXED);
    return code;
}

static int fence_record_stream(void *self, struct device_context context, struct device_stream stream,
                               struct device_fence **fence) {
    struct fake_device *fake = self;
    if (fake->stream_record_fails_with) return fake->stream_record_fails_with;
    const int code = record(fake, fence);
    if (code) return code;
    __atomic_fetch_add(&fake->stream_marks, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&fake->marked_in, context.handle, __ATOMIC_RELAXED);
    __atomic_store_n(&fake->marked, stream.handle, __ATOMIC_RELAXED);
    return code;
}

static int fence_query(void *self, struct device_fence *fence, int ordinal) {
    struct fake_device *fake = self;
    __atomic_fetch_add(&fake->queries, 1, __ATOMIC_RELAXED);
    if (fake->during_query) fake->during_query(fake->during_arg);
    if (fake->query_fails_with) return fake->query_fails_with;
    if (fake->busy_elsewhere && ordinal < 0) return DEVICE_NOT_READY;
    return fake->passes_at_once || fence->number <= __atomic_load_n(&fake->passed, __ATOMIC_SEQ_CST) ? DEVICE_OK
                                                                                                     : DEVICE_NOT_READY;
}

static void fence_drop(void *self, struct device_fence *fence) {
    struct fake_device *fake = self;
    __atomic_fetch_add(&fake->drops, 1, __ATOMIC_RELAXED);
    free(fence);
}

static int set_sync_memops(void *self, struct device_context context, uint64_t address, bool on) {
    struct fake_device *fake = self;
    pthread_mutex_lock(&fake->lock);
    fake->sync_calls++;
    fake->sync_on = on;
    fake->sync_address = address;
    fake->sync_ordinal = context.ordinal;
    const int code = fake->sync_fails_with;
    pthread_mutex_unlock(&fake->lock);
    if (fake->during_sync) fake->during_sync(fake->during_arg);
    return code;
}

static int fill(void *self, struct device_context context, const struct device_stream *stream, uint64_t address,
                size_t bytes, uint8_t value) {
    struct fake_device *fake = self;
    if (fake->during_fill) fake->during_fill(fake->during_arg);
    pthread_mutex_lock(&fake->lock);
    fake->fills++;
    fake->filled = (struct fake_fill){address, bytes, value, context.handle, stream ? stream->handle : NULL};
    const int code = fake->fill_fails_with;
    pthread_mutex_unlock(&fake->lock);
    return code;
}

static bool borrow_context(void *self, int ordinal, struct device_context *borrowed) {
    struct fake_device *fake = self;
    pthread_mutex_lock(&fake->lock);
    const bool lives = fake->alive[ordinal];
    if (lives) {
        *borrowed = (struct device_context){FAKE_PRIMARY(ordinal), ordinal};
        fake->borrows++;
        fake->borrowed[ordinal]++;
    }
    pthread_mutex_unlock(&fake->lock);
    return lives;
}

static void return_context(void *self, struct device_context borrowed) {
    struct fake_device *fake = self;
    pthread_mutex_lock(&fake->lock);
    fake->borrowed[borrowed.ordinal]--;
    pthread_mutex_unlock(&fake->lock);
}

static int memory_info(void *self, struct device_context context, size_t *free_bytes, size_t *total_bytes) {
    struct fake_device *fake = self;
    pthread_mutex_lock(&fake->lock);
    *free_bytes = fake->memory[context.ordinal] - fake->in_use[context.ordinal];
    *total_bytes = fake->memory[context.ordinal];
    pthread_mutex_unlock(&fake->lock);
    return DEVICE_OK;
}

static bool context_primary(void *self, struct device_context context) {
    (void)self;
    return context.handle == FAKE_PRIMARY(context.ordinal);
}

static bool context_created(void *self, struct device_context context) {
    (void)self;
    (void)context;
    return false;
}

static bool context_alive(void *self, struct device_context context) {
    struct fake_device *fake = self;
    return context_primary(self, context) && fake->alive[context.ordinal];
}

static void device_describe(void *self, struct device_context context, struct device_info *info) {
    struct fake_device *fake = self;
    *info = (struct device_info){.total_bytes = fake->memory[context.ordinal], .pci = "0000:00:00.0"};
    info->uuid[0] = (uint8_t)(context.ordinal + 1);
}

void fake_device_init(struct fake_device *fake, uint64_t memory_each) {
    *fake = (struct fake_device){
        .ops = {.context_current = context_current,
                .current_handle = current_handle,
                .current_synchronize = current_synchronize,
                .segment_alloc = segment_alloc,
                .segment_release = segment_release,
                .releases_in_captures = releases_in_captures,
                .memory_pool = memory_pool,
                .context_synchronize = context_synchronize,
                .stream_synchronize = stream_synchronize,
                .synchronize_all = synchronize_all,
                .context_alone = context_alone,
                .stream_identify = stream_identify,
                .stream_touch = stream_touch,
                .free_captured = free_captured,
                .stream_capturing = stream_capturing,
                .fences_supported = fences_supported,
                .fence_record = fence_record,
                .fence_record_stream = fence_record_stream,
                .fence_query = fence_query,
                .fence_drop = fence_drop,
                .fill = fill,
                .set_sync_memops = set_sync_memops,
                .borrow_context = borrow_context,
                .return_context = return_context,
                .memory_info = memory_info,
                .context_primary = context_primary,
                .context_created = context_created,
                .context_alive = context_alive,
                .device_describe = device_describe,
                .self = fake},
        .next_address = UINT64_C(0x700000000000),
        .memory_pool = FAKE_MEMORY_POOL,
        .passes_at_once = true,
    };
    pthread_mutex_init(&fake->lock, NULL);
    for (int i = 0; i < FAKE_DEVICES; i++) {
        fake->memory[i] = memory_each;
        fake->alive[i] = true;
    }
    fake_set_current(FAKE_PRIMARY(0), 0);
}

void fake_device_destroy(struct fake_device *fake) {
    free(fake->ranges);
    pthread_mutex_destroy(&fake->lock);
}

void fake_reset(struct fake_device *fake, int ordinal, bool revive) {
    pthread_mutex_lock(&fake->lock);
    for (size_t i = fake->range_count; i-- > 0;)
        if (fake->ranges[i].ordinal == ordinal) range_remove(fake, i);
    fake->alive[ordinal] = revive;
    pthread_mutex_unlock(&fake->lock);
}
