/* SPDX-License-Identifier: MIT
 *
 * The seam between the pool and a GPU: what the pool needs of a device, as a table of functions. Implementations: the
 * real driver (driver.c, through saved real pointers, so never through our own hooks), a runtime without a driver below
 * it (runtime_only.c) and the tests' fake (tests/unit/fake_device.c).
 *
 * Results are CUresult-style codes (0 is success), as ints, so that the pool needs no CUDA header. No function may be
 * called with a lock held, unless its comment says that it cannot block. All may be called from any thread.
 */
#ifndef POOLCUDA_DEVICE_H
#define POOLCUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum device_result {
    DEVICE_OK = 0,
    DEVICE_INVALID_VALUE = 1,
    DEVICE_OUT_OF_MEMORY = 2,
    DEVICE_NOT_INITIALIZED = 3,
    DEVICE_DEINITIALIZED = 4,
    DEVICE_INVALID_CONTEXT = 201,
    DEVICE_INVALID_HANDLE = 400,
    DEVICE_NOT_FOUND = 500,
    DEVICE_NOT_READY = 600,
    DEVICE_CONTEXT_DESTROYED = 709,
    DEVICE_NOT_SUPPORTED = 801,
    DEVICE_CAPTURE_UNSUPPORTED = 900
};

enum segment_kind {
    SEGMENT_PLAIN = 1, /* cuMemAlloc: dies with its context */
    SEGMENT_ASYNC = 2  /* cuMemAllocFromPoolAsync: survives it */
};

/* A context as the driver names it. `ordinal` is the device's number in this process. A handle may come back after a
 * reset; the pool adds a generation of its own. `handle` is the CUcontext; the runtime-only implementation uses ordinal
 * + 1. */
struct device_context {
    void *handle;
    int ordinal;
};

/* A stream as the caller passed it: CUstream, 0/1/2 included. `per_thread_default` says what 0 means (the _ptsz entry
 * points). */
struct device_stream {
    void *handle;
    bool per_thread_default;
};

/* What is known of a device; zero where unknown. */
struct device_info {
    uint64_t total_bytes;
    uint8_t uuid[16];
    char pci[16];
};

struct device_ops {
    /* The calling thread's current context. *out is set when the answer is 0; a NULL handle means that none is current.
     * Cannot block. */
    int (*context_current)(void *self, struct device_context *out);

    /* Its handle alone, NULL when none is current. Cannot block; called on every hit. */
    int (*current_handle)(void *self, void **handle);

    /* context_synchronize of the calling thread's current context. */
    int (*current_synchronize)(void *self);

    /* Take a segment of exactly `bytes` (a multiple of 512) in `context`, whatever context is current. PLAIN: `stream`
     * is ignored. May block for long. 0, or the driver's code: 2 when it has no more. */
    int (*segment_alloc)(void *self, struct device_context context, enum segment_kind kind, struct device_stream stream,
                         size_t bytes, uint64_t *address);

    /* Give a segment back. PLAIN: waits for the device, as the driver's free does. The caller has made sure that no
     * work uses it. */
    int (*segment_release)(void *self, struct device_context context, enum segment_kind kind, uint64_t address);

    /* Wait for all work of `context` submitted before the call, whatever context is current. Blocks. A code other than
     * 0 proves nothing. */
    int (*context_synchronize)(void *self, struct device_context context);

    /* Wait for the work of one stream. `context` is the stream's. Blocks. */
    int (*stream_synchronize)(void *self, struct device_context context, struct device_stream stream);

    /* Device memory as the driver sees it, of the device of `context`. */
    int (*memory_info)(void *self, struct device_context context, size_t *free_bytes, size_t *total_bytes);

    /* Is it the primary context of its device? Created and green contexts are not. Asked once per context that was not
     * seen before. */
    bool (*context_primary)(void *self, struct device_context context);

    /* Does `context` still live? For a primary context: is it active? Used after a release that may or may not have
     * been the last. */
    bool (*context_alive)(void *self, struct device_context context);

    /* Identity of the device of `context`. Fills what it can, zeroes the rest. Never fails. */
    void (*device_describe)(void *self, struct device_context context, struct device_info *info);

    void *self; /* first argument of every call */
};

#endif
