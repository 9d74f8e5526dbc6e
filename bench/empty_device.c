/* SPDX-License-Identifier: MIT
 *
 * See empty_device.h.
 */
#include "empty_device.h"

#define PAGE UINT64_C(0x200000) /* the driver's step */

static const struct device_context only = {(void *)(uintptr_t)0x1000, 0};

static int context_current(void *self, struct device_context *out) {
    (void)self;
    *out = only;
    return DEVICE_OK;
}

static int current_handle(void *self, void **handle) {
    (void)self;
    *handle = only.handle;
    return DEVICE_OK;
}

static int current_synchronize(void *self) {
    (void)self;
    return DEVICE_OK;
}

static uint64_t pages(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int segment_alloc(void *self, const struct segment_source *source, struct device_stream stream, size_t bytes,
                         uint64_t *address) {
    struct empty_device *device = self;
    const uint64_t taken = pages(bytes);
    (void)source;
    (void)stream;
    if (taken > device->memory - device->in_use) return DEVICE_OUT_OF_MEMORY;
    *address = device->next_address;
    device->next_address += taken;
    device->in_use += taken;
    if (device->in_use > device->most_in_use) device->most_in_use = device->in_use;
    device->allocs++;
    return DEVICE_OK;
}

static int segment_release(void *self, const struct segment_source *source, uint64_t address, size_t bytes) {
    struct empty_device *device = self;
    (void)source;
    (void)address;
    device->in_use -= pages(bytes);
    device->releases++;
    return DEVICE_OK;
}

static bool releases_in_captures(void *self) {
    (void)self;
    return true;
}

static int memory_pool(void *self, int ordinal, void **handle) {
    (void)self;
    (void)ordinal;
    *handle = NULL;
    return DEVICE_NOT_SUPPORTED;
}

static int context_synchronize(void *self, struct device_context context) {
    (void)self;
    (void)context;
    return DEVICE_OK;
}

static bool context_alone(void *self, struct device_context context) {
    (void)self;
    (void)context;
    return true;
}

static bool fences_supported(void *self) {
    (void)self;
    return false;
}

static int memory_info(void *self, struct device_context context, size_t *free_bytes, size_t *total_bytes) {
    const struct empty_device *device = self;
    (void)context;
    *free_bytes = device->memory - device->in_use;
    *total_bytes = device->memory;
    return DEVICE_OK;
}

static bool context_primary(void *self, struct device_context context) {
    (void)self;
    (void)context;
    return true;
}

static void device_describe(void *self, struct device_context context, struct device_info *info) {
    const struct empty_device *device = self;
    (void)context;
    *info = (struct device_info){.total_bytes = device->memory == UINT64_MAX ? 0 : device->memory};
}

void empty_device_init(struct empty_device *device, uint64_t memory) {
    *device = (struct empty_device){
        .ops = {.context_current = context_current,
                .current_handle = current_handle,
                .current_synchronize = current_synchronize,
                .segment_alloc = segment_alloc,
                .segment_release = segment_release,
                .releases_in_captures = releases_in_captures,
                .memory_pool = memory_pool,
                .context_synchronize = context_synchronize,
                .synchronize_all = current_synchronize,
                .context_alone = context_alone,
                .fences_supported = fences_supported,
                .memory_info = memory_info,
                .context_primary = context_primary,
                .context_alive = context_primary,
                .device_describe = device_describe,
                .self = device},
        .memory = memory,
        .next_address = UINT64_C(0x10000000000),
    };
}
