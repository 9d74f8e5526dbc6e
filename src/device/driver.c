/* SPDX-License-Identifier: MIT
 *
 * struct device_ops over the CUDA driver. A context is pushed only where it is not current already, and popped again,
 * so that the caller's stack of contexts is as before.
 */
#include "device/driver.h"

#include <ctype.h>
#include <string.h>

static struct device_driver *driver_of(void *self) {
    return self;
}

static int remember_ordinal(struct device_driver *driver, CUcontext handle, int *ordinal) {
    CUdevice device = 0;
    const CUresult result = driver->call.context_get_device(&device);
    if (result != CUDA_SUCCESS) return (int)result;
    *ordinal = device;
    device_driver_context_known(driver, (struct device_context){handle, device}, LIVE_FOUND);
    pthread_mutex_lock(&driver->contexts_lock);
    for (size_t i = 0; i < DRIVER_CONTEXTS; i++) {
        void *known = atomic_load_explicit(&driver->contexts[i].handle, memory_order_relaxed);
        if (known && known != (void *)handle) continue;
        /* Who sees it sees that the place's last owner has ended. */
        atomic_store_explicit(&driver->contexts[i].ordinal, device, memory_order_release);
        atomic_store_explicit(&driver->contexts[i].handle, (void *)handle, memory_order_release);
        break;
    }
    pthread_mutex_unlock(&driver->contexts_lock);
    return DEVICE_OK;
}

static int context_current(void *self, struct device_context *out) {
    struct device_driver *driver = driver_of(self);
    CUcontext handle = NULL;
    const CUresult result = driver->call.context_get_current(&handle);
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) return (int)result;
    *out = (struct device_context){.handle = handle, .ordinal = -1};
    if (!handle) return DEVICE_OK;
    for (size_t i = 0; i < DRIVER_CONTEXTS; i++) {
        void *known = atomic_load_explicit(&driver->contexts[i].handle, memory_order_acquire);
        if (!known) break;
        if (known != (void *)handle) continue;
        out->ordinal = atomic_load_explicit(&driver->contexts[i].ordinal, memory_order_acquire);
        /* The place may have been given to another context between the two loads. */
        if (atomic_load_explicit(&driver->contexts[i].handle, memory_order_relaxed) == known) return DEVICE_OK;
        break;
    }
    return remember_ordinal(driver, handle, &out->ordinal);
}

static int current_handle(void *self, void **handle) {
    CUcontext current = NULL;
    const CUresult result = driver_of(self)->call.context_get_current(&current);
    *handle = current;
    return (int)result;
}

static int current_synchronize(void *self) {
    return (int)driver_of(self)->call.context_synchronize();
}

void device_driver_forget_contexts(struct device_driver *driver) {
    pthread_mutex_lock(&driver->contexts_lock);
    for (size_t i = 0; i < DRIVER_CONTEXTS; i++)
        atomic_store_explicit(&driver->contexts[i].handle, NULL, memory_order_release);
    pthread_mutex_unlock(&driver->contexts_lock);
}

static uint64_t device_bit(int ordinal) {
    return ordinal >= 0 && ordinal < 64 ? (uint64_t)1 << ordinal : 0;
}

void device_driver_note_reset(struct device_driver *driver, int ordinal, bool reset) {
    if (reset) {
        atomic_fetch_or(&driver->reset, device_bit(ordinal));
    } else {
        atomic_fetch_and(&driver->reset, ~device_bit(ordinal));
    }
}

/* ---- calls under a given context ---- */

CUresult device_driver_enter(struct device_driver *driver, struct device_context context, bool *pushed) {
    CUcontext current = NULL;
    *pushed = false;
    CUresult result = driver->call.context_get_current(&current);
    if (result != CUDA_SUCCESS) return result;
    if (!context.handle) {
        struct device_context now;
        if (current && driver->ops.context_current(driver, &now) == DEVICE_OK && now.ordinal == context.ordinal)
            return CUDA_SUCCESS;
        context.handle = device_driver_primary(driver, context.ordinal);
        if (!context.handle) return CUDA_ERROR_INVALID_CONTEXT;
    }
    if ((void *)current == context.handle) return CUDA_SUCCESS;
    result = driver->call.context_push((CUcontext)context.handle);
    *pushed = result == CUDA_SUCCESS;
    return result;
}

void device_driver_leave(struct device_driver *driver, bool pushed) {
    CUcontext popped = NULL;
    if (pushed) driver->call.context_pop(&popped);
}

static int segment_alloc(void *self, const struct segment_source *source, struct device_stream stream, size_t bytes,
                         uint64_t *address) {
    struct device_driver *driver = driver_of(self);
    CUdeviceptr taken = 0;
    CUresult result;
    if (source->kind == SEGMENT_ASYNC) {
        if (!driver->call.memory_alloc_from_pool) return DEVICE_NOT_SUPPORTED;
        result = driver->call.memory_alloc_from_pool(&taken, bytes, (CUmemoryPool)source->memory_pool,
                                                     device_driver_stream_handle(stream));
        const unsigned device = (unsigned)source->context.ordinal;
        if (device < 64) atomic_fetch_or(&driver->ordered, UINT64_C(1) << device);
    } else {
        bool pushed;
        result = device_driver_enter(driver, source->context, &pushed);
        if (result == CUDA_SUCCESS) result = driver->call.memory_alloc(&taken, bytes);
        device_driver_leave(driver, pushed);
    }
    if (result == CUDA_SUCCESS) *address = (uint64_t)taken;
    return (int)result;
}

/* The driver's memory pool would keep what was given back: it is trimmed by as much, and a little more, since it grows
 * and shrinks in steps of its own, which go only as a whole. */
#define MEMORY_POOL_STEPS ((size_t)64 * 1024 * 1024) /* two of the 32 MiB that have been seen */

static void trim_memory_pool(struct device_driver *driver, CUmemoryPool memory_pool, size_t bytes) {
    cuuint64_t reserved = 0;
    if (!driver->call.memory_pool_trim || !driver->call.memory_pool_get_attribute) return;
    if (driver->call.memory_pool_get_attribute(memory_pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) !=
        CUDA_SUCCESS)
        return;
    const size_t most = bytes + MEMORY_POOL_STEPS;
    driver->call.memory_pool_trim(memory_pool, reserved > most ? (size_t)reserved - most : 0);
}

/* In relaxed mode: in that of a capture the driver refuses to free, and the capture would be broken. */
static int segment_release(void *self, const struct segment_source *source, uint64_t address, size_t bytes) {
    struct device_driver *driver = driver_of(self);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool exchanged =
        driver->call.exchange_capture_mode && driver->call.exchange_capture_mode(&mode) == CUDA_SUCCESS;
    bool pushed;
    CUresult result = device_driver_enter(driver, source->context, &pushed);
    if (result == CUDA_SUCCESS) result = driver->call.memory_free((CUdeviceptr)address);
    device_driver_leave(driver, pushed);
    if (result == CUDA_SUCCESS && source->memory_pool)
        trim_memory_pool(driver, (CUmemoryPool)source->memory_pool, bytes);
    if (exchanged) driver->call.exchange_capture_mode(&mode);
    return (int)result;
}

static bool releases_in_captures(void *self) {
    return driver_of(self)->call.exchange_capture_mode != NULL;
}

static int memory_pool(void *self, int ordinal, void **handle) {
    struct device_driver *driver = driver_of(self);
    CUmemoryPool current = NULL;
    if (!driver->call.device_get_memory_pool || !driver->call.memory_alloc_from_pool) return DEVICE_NOT_SUPPORTED;
    const CUresult result = driver->call.device_get_memory_pool(&current, ordinal);
    *handle = current;
    if (result == CUDA_SUCCESS && device_driver_pool_exportable(current)) return DEVICE_NOT_SUPPORTED;
    return (int)result;
}

uint64_t device_driver_memory_pool_slack(struct device_driver *driver, int ordinal, uint64_t releasable) {
    const bool taken = (unsigned)ordinal < 64 && atomic_load(&driver->ordered) >> ordinal & 1;
    void *current = NULL;
    cuuint64_t reserved = 0, used = 0, kept = 0;
    if (!taken || !driver->call.memory_pool_get_attribute || memory_pool(driver, ordinal, &current) != DEVICE_OK ||
        driver->call.memory_pool_get_attribute(current, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ||
        driver->call.memory_pool_get_attribute(current, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) ||
        driver->call.memory_pool_get_attribute(current, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept))
        return 0;
    if (used > releasable) return 0;
    const uint64_t stays = used > kept ? used : kept;
    return reserved > stays ? reserved - stays : 0;
}

static int context_synchronize(void *self, struct device_context context) {
    struct device_driver *driver = driver_of(self);
    bool pushed;
    CUresult result = device_driver_enter(driver, context, &pushed);
    if (result == CUDA_SUCCESS) result = driver->call.context_synchronize();
    device_driver_leave(driver, pushed);
    return (int)result;
}

static int stream_synchronize(void *self, struct device_context context, struct device_stream stream) {
    struct device_driver *driver = driver_of(self);
    bool pushed;
    CUresult result = device_driver_enter(driver, context, &pushed);
    if (result == CUDA_SUCCESS) result = driver->call.stream_synchronize(device_driver_stream_handle(stream));
    device_driver_leave(driver, pushed);
    return (int)result;
}

static int memory_info(void *self, struct device_context context, size_t *free_bytes, size_t *total_bytes) {
    struct device_driver *driver = driver_of(self);
    bool pushed;
    CUresult result = device_driver_enter(driver, context, &pushed);
    if (result == CUDA_SUCCESS) result = driver->call.memory_info(free_bytes, total_bytes);
    device_driver_leave(driver, pushed);
    return (int)result;
}

static int set_sync_memops(void *self, struct device_context context, uint64_t address, bool on) {
    struct device_driver *driver = driver_of(self);
    const unsigned int value = on;
    bool pushed = false;
    CUresult result = context.ordinal < 0 ? CUDA_SUCCESS : device_driver_enter(driver, context, &pushed);
    if (result == CUDA_SUCCESS)
        result = driver->call.pointer_set_attribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (CUdeviceptr)address);
    device_driver_leave(driver, pushed);
    return (int)result;
}

/* ---- what a context is ---- */

int device_driver_ordinal(struct device_driver *driver, void *context) {
    struct device_context found = {context, -1};
    bool pushed;
    if (device_driver_enter(driver, found, &pushed) == CUDA_SUCCESS) driver->ops.context_current(driver, &found);
    device_driver_leave(driver, pushed);
    return found.ordinal;
}

static bool context_primary(void *self, struct device_context context) {
    return device_driver_primary(driver_of(self), context.ordinal) == context.handle;
}

static bool context_created(void *self, struct device_context context) {
    return device_driver_context_created(driver_of(self), context.handle);
}

static _Thread_local const void *ended_context __attribute__((tls_model("initial-exec")));

void device_driver_note_ended(const void *handle) {
    ended_context = handle;
}

uint64_t device_driver_context_id(struct device_driver *driver, void *handle) {
    unsigned long long id = 0;
    if (!handle || !driver->call.context_get_id) return 0;
    return driver->call.context_get_id((CUcontext)handle, &id) == CUDA_SUCCESS ? id : 0;
}

/* Of created contexts the driver must not be asked: it may follow a dead handle. */
static bool context_alive(void *self, struct device_context context) {
    if (ended_context && ended_context == context.handle) {
        ended_context = NULL;
        return false;
    }
    if (context_created(self, context)) return true;
    const uint64_t bit = device_bit(context.ordinal);
    if (atomic_fetch_and(&driver_of(self)->reset, ~bit) & bit) return false;
    return context_primary(self, context);
}

static void device_describe(void *self, struct device_context context, struct device_info *info) {
    struct device_driver *driver = driver_of(self);
    *info = (struct device_info){0};
    size_t total = 0;
    if (driver->call.device_total && driver->call.device_total(&total, context.ordinal) == CUDA_SUCCESS)
        info->total_bytes = total;
    CUuuid uuid;
    if (driver->call.device_uuid && driver->call.device_uuid(&uuid, context.ordinal) == CUDA_SUCCESS)
        memcpy(info->uuid, uuid.bytes, sizeof info->uuid);
    char pci[sizeof info->pci] = "";
    if (driver->call.device_pci && driver->call.device_pci(pci, (int)sizeof pci, context.ordinal) == CUDA_SUCCESS)
        for (size_t i = 0; i < sizeof pci - 1 && pci[i]; i++) info->pci[i] = (char)tolower((unsigned char)pci[i]);
}

const char *device_driver_bind(struct device_driver *driver, void *(*lookup)(void *arg, const char *symbol),
                               void *arg) {
    const char *missing = NULL;
#define DRIVER_BIND(field, symbol, needed, arguments)                        \
    driver->call.field = (CUresult(CUDAAPI *) arguments)lookup(arg, symbol); \
    if (needed && !driver->call.field && !missing) missing = symbol;
    DRIVER_FUNCTIONS(DRIVER_BIND)
#undef DRIVER_BIND
    pthread_mutex_init(&driver->contexts_lock, NULL);
    driver->ops = (struct device_ops){
        .context_current = context_current,
        .current_handle = current_handle,
        .current_synchronize = current_synchronize,
        .segment_alloc = segment_alloc,
        .segment_release = segment_release,
        .releases_in_captures = releases_in_captures,
        .memory_pool = memory_pool,
        .context_synchronize = context_synchronize,
        .stream_synchronize = stream_synchronize,
        .memory_info = memory_info,
        .set_sync_memops = driver->call.pointer_set_attribute ? set_sync_memops : NULL,
        .context_primary = context_primary,
        .context_created = context_created,
        .context_alive = context_alive,
        .device_describe = device_describe,
        .self = driver,
    };
    device_fences_bind(driver);
    device_streams_bind(driver);
    device_fill_bind(driver);
    return missing;
}
