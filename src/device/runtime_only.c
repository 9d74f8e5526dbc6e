/* SPDX-License-Identifier: MIT
 *
 * struct device_ops over a CUDA runtime with no driver below it. One context a device: its handle is the ordinal + 1.
 * Runtime codes of the cases that matter here are the driver's numbers.
 */
#include "device/runtime_only.h"

static struct runtime_only *runtime_of(void *self) {
    return self;
}

static uint64_t device_bit(int ordinal) {
    return ordinal >= 0 && ordinal < 64 ? (uint64_t)1 << ordinal : 0;
}

static int context_current(void *self, struct device_context *out) {
    struct runtime_only *runtime = runtime_of(self);
    int ordinal = 0;
    if (runtime->get_device) {
        const int result = runtime->get_device(&ordinal);
        if (result != 0) return result;
    }
    *out = (struct device_context){.handle = (void *)((uintptr_t)ordinal + 1), .ordinal = ordinal};
    return DEVICE_OK;
}

/* ---- calls on a given device ---- */

static int enter(struct runtime_only *runtime, struct device_context context, int *previous) {
    *previous = context.ordinal;
    if (!runtime->get_device || !runtime->set_device) return DEVICE_OK;
    const int result = runtime->get_device(previous);
    if (result != 0 || *previous == context.ordinal) return result;
    return runtime->set_device(context.ordinal);
}

static void leave(struct runtime_only *runtime, struct device_context context, int previous) {
    if (previous != context.ordinal) runtime->set_device(previous);
}

static int segment_alloc(void *self, const struct segment_source *source, struct device_stream stream, size_t bytes,
                         uint64_t *address) {
    struct runtime_only *runtime = runtime_of(self);
    (void)stream;
    if (source->kind != SEGMENT_PLAIN) return DEVICE_NOT_SUPPORTED;
    int previous;
    void *taken = NULL;
    int result = enter(runtime, source->context, &previous);
    if (result == 0) {
        result = runtime->memory_alloc(&taken, bytes);
        /* The program did not make this call: it must not find its error later. */
        if (result != 0 && runtime->get_last_error) runtime->get_last_error();
    }
    leave(runtime, source->context, previous);
    if (result == 0) *address = (uint64_t)(uintptr_t)taken;
    return result;
}

static int segment_release(void *self, const struct segment_source *source, uint64_t address, size_t bytes) {
    struct runtime_only *runtime = runtime_of(self);
    (void)bytes;
    if (source->kind != SEGMENT_PLAIN) return DEVICE_NOT_SUPPORTED;
    int previous;
    int result = enter(runtime, source->context, &previous);
    if (result == 0) result = runtime->memory_free((void *)(uintptr_t)address);
    leave(runtime, source->context, previous);
    return result;
}

static int memory_pool(void *self, int ordinal, void **handle) {
    (void)self;
    (void)ordinal;
    *handle = NULL;
    return DEVICE_NOT_SUPPORTED;
}

static int context_synchronize(void *self, struct device_context context) {
    struct runtime_only *runtime = runtime_of(self);
    if (!runtime->asynchronous) return DEVICE_OK;
    int previous;
    int result = enter(runtime, context, &previous);
    if (result == 0) result = runtime->synchronize();
    leave(runtime, context, previous);
    return result;
}

static int stream_synchronize(void *self, struct device_context context, struct device_stream stream) {
    struct runtime_only *runtime = runtime_of(self);
    /* What 0 means is the runtime's to know: waiting for the whole device covers either meaning. */
    if (!runtime->asynchronous || !runtime->stream_synchronize || !stream.handle)
        return context_synchronize(self, context);
    return runtime->stream_synchronize(stream.handle);
}

/* A block that was freed is never left waiting: every free waits for the device. So nothing has to be marked, and no
 * stream has to be told from another. */

static int synchronize_all(void *self) {
    (void)self;
    return DEVICE_NOT_SUPPORTED;
}

/* Captures are not seen here. */
static bool releases_in_captures(void *self) {
    (void)self;
    return false;
}

static bool context_alone(void *self, struct device_context context) {
    (void)self;
    (void)context;
    return true;
}

static int stream_identify(void *self, struct device_stream stream, struct device_stream_identity *identity) {
    (void)self;
    (void)stream;
    *identity = (struct device_stream_identity){0};
    return DEVICE_OK;
}

static int stream_touch(void *self, struct device_context context, struct device_stream stream) {
    (void)self;
    (void)context;
    (void)stream;
    return DEVICE_OK;
}

static int free_captured(void *self, struct device_stream stream, uint64_t address) {
    (void)self;
    (void)stream;
    (void)address;
    return DEVICE_INVALID_VALUE;
}

static int stream_capturing(void *self, struct device_stream stream) {
    (void)self;
    (void)stream;
    return DEVICE_OK;
}

static bool fences_supported(void *self) {
    (void)self;
    return false;
}

static int fence_record(void *self, struct device_fence **fence) {
    (void)self;
    (void)fence;
    return DEVICE_NOT_SUPPORTED;
}

static int fence_record_stream(void *self, struct device_context context, struct device_stream stream,
                               struct device_fence **fence) {
    (void)context;
    (void)stream;
    return fence_record(self, fence);
}

static int memory_info(void *self, struct device_context context, size_t *free_bytes, size_t *total_bytes) {
    struct runtime_only *runtime = runtime_of(self);
    if (!runtime->memory_info) return DEVICE_NOT_SUPPORTED;
    int previous;
    int result = enter(runtime, context, &previous);
    if (result == 0) result = runtime->memory_info(free_bytes, total_bytes);
    leave(runtime, context, previous);
    return result;
}

/* Of plain memory alone: there are no stream-ordered blocks here. */
static int fill(void *self, struct device_context context, const struct device_stream *stream, uint64_t address,
                size_t bytes, uint8_t value) {
    struct runtime_only *runtime = runtime_of(self);
    (void)stream;
    int previous;
    int result = enter(runtime, context, &previous);
    if (result == 0) result = runtime->memory_fill((void *)(uintptr_t)address, value, bytes);
    if (result == 0 && runtime->asynchronous) result = runtime->synchronize();
    if (result != 0 && runtime->get_last_error) runtime->get_last_error();
    leave(runtime, context, previous);
    return result;
}

static int current_handle(void *self, void **handle) {
    struct device_context context = {0};
    const int result = context_current(self, &context);
    *handle = context.handle;
    return result;
}

static int current_synchronize(void *self) {
    struct runtime_only *runtime = runtime_of(self);
    return runtime->asynchronous ? runtime->synchronize() : DEVICE_OK;
}

static bool context_primary(void *self, struct device_context context) {
    (void)self;
    (void)context;
    return true;
}

static bool context_created(void *self, struct device_context context) {
    (void)self;
    (void)context;
    return false;
}

static bool context_alive(void *self, struct device_context context) {
    const uint64_t bit = device_bit(context.ordinal);
    return !(atomic_fetch_and(&runtime_of(self)->reset, ~bit) & bit);
}

static void device_describe(void *self, struct device_context context, struct device_info *info) {
    *info = (struct device_info){0};
    size_t free_bytes = 0, total_bytes = 0;
    if (memory_info(self, context, &free_bytes, &total_bytes) == DEVICE_OK) info->total_bytes = total_bytes;
}

void runtime_only_note_reset(struct runtime_only *runtime, int ordinal) {
    atomic_fetch_or(&runtime->reset, device_bit(ordinal));
}

/* What starts work that may still run when the call returns. */
static const char *const starts_work[] = {
    "cudaLaunch",           "cudaLaunchKernel",          "cudaLaunchKernel_ptsz",
    "cudaLaunchKernelExC",  "cudaLaunchKernelExC_ptsz",  "cudaLaunchCooperativeKernel",
    "cudaLaunchHostFunc",   "cudaGraphLaunch",           "cudaGraphLaunch_ptsz",
    "cudaStreamCreate",     "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority",
    "cudaMallocAsync",      "cudaMallocAsync_ptsz",      "cudaMallocFromPoolAsync",
    "cudaMemcpyAsync",      "cudaMemcpyAsync_ptsz",      "cudaMemcpy2DAsync",
    "cudaMemcpy3DAsync",    "cudaMemcpyPeerAsync",       "cudaMemsetAsync",
    "cudaMemsetAsync_ptsz", "cudaMemPrefetchAsync",      NULL};

bool runtime_only_bind(struct runtime_only *runtime, void *(*lookup)(void *arg, const char *symbol), void *arg) {
    runtime->memory_alloc = (int (*)(void **, size_t))lookup(arg, "cudaMalloc");
    runtime->memory_free = (int (*)(void *))lookup(arg, "cudaFree");
    runtime->synchronize = (int (*)(void))lookup(arg, "cudaDeviceSynchronize");
    runtime->stream_synchronize = (int (*)(void *))lookup(arg, "cudaStreamSynchronize");
    runtime->memory_fill = (int (*)(void *, int, size_t))lookup(arg, "cudaMemset");
    runtime->memory_info = (int (*)(size_t *, size_t *))lookup(arg, "cudaMemGetInfo");
    runtime->get_device = (int (*)(int *))lookup(arg, "cudaGetDevice");
    runtime->set_device = (int (*)(int))lookup(arg, "cudaSetDevice");
    runtime->get_last_error = (int (*)(void))lookup(arg, "cudaGetLastError");
    for (size_t i = 0; starts_work[i] && !runtime->asynchronous; i++)
        runtime->asynchronous = lookup(arg, starts_work[i]) != NULL;
    runtime->ops = (struct device_ops){
        .context_current = context_current,
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
        .fill = runtime->memory_fill ? fill : NULL,
        .memory_info = memory_info,
        .context_primary = context_primary,
        .context_created = context_created,
        .context_alive = context_alive,
        .device_describe = device_describe,
        .self = runtime,
    };
    if (!runtime->memory_alloc || !runtime->memory_free) return false;
    return !runtime->asynchronous || runtime->synchronize;
}
