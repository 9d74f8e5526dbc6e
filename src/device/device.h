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
 * + 1. Where the comment of a call says so, NULL stands for any context of the device. */
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

/* Which stream a device_stream is. */
struct device_stream_identity {
    uint64_t id;                   /* never reused in the process; 0: it cannot be told from others */
    struct device_context context; /* the stream's */
    bool lasting;       /* its creation was seen: the handle means this stream until its end is told to the pool */
    bool orders_others; /* its work comes between that of other streams: the legacy stream */
    bool recordable;    /* any thread may record an event on it: a created stream, whose end is told */
};

/* Where segments come from. */
struct segment_source {
    enum segment_kind kind;
    struct device_context context; /* PLAIN: the owner. ASYNC: its ordinal alone counts */
    void *memory_pool;             /* ASYNC: the CUmemoryPool */
};

/* A mark behind work that was submitted, and so a proof that the work has ended once the mark is passed. Opaque. */
struct device_fence;

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

    /* Take a segment of exactly `bytes` (a multiple of 512), whatever context is current. PLAIN: `stream` is ignored,
     * and the call may block for long. ASYNC: in the order of `stream`, a stream of that device; does not wait for it.
     * 0, or the driver's code: 2 when it has no more. */
    int (*segment_alloc)(void *self, const struct segment_source *source, struct device_stream stream, size_t bytes,
                         uint64_t *address);

    /* Give a segment of `bytes` back. PLAIN: waits for the device, as the driver's free does. The caller has made sure
     * that no work uses it. ASYNC: no memory pool where that is destroyed. Harms no capture where releases_in_captures
     * says so. */
    int (*segment_release)(void *self, const struct segment_source *source, uint64_t address, size_t bytes);
    bool (*releases_in_captures)(void *self);

    /* The memory pool from which the device's stream-ordered allocations come now. DEVICE_NOT_SUPPORTED where there are
     * none, or where the program may export it. */
    int (*memory_pool)(void *self, int ordinal, void **memory_pool);

    /* Wait for all work of `context` submitted before the call, whatever context is current. Blocks. A code other than
     * 0 proves nothing. */
    int (*context_synchronize)(void *self, struct device_context context);

    /* Wait for the work of one stream. `context` is the stream's. Blocks. */
    int (*stream_synchronize)(void *self, struct device_context context, struct device_stream stream);

    /* Wait for all work of every live context of the process. Blocks. A code other than 0 proves nothing. */
    int (*synchronize_all)(void *self);

    /* Is there no other live context whose work may use the memory of `context`: none on its device, and none on a
     * device that was given access? Cannot block. */
    bool (*context_alone)(void *self, struct device_context context);

    /* Which stream is it? 0, or the driver's answer for a handle that is none. Must not be called for a stream that
     * captures. Cannot block. */
    int (*stream_identify)(void *self, struct device_stream stream, struct device_stream_identity *identity);

    /* Submit work that does nothing to a stream that orders others, as identified before: what comes after the call on
     * those comes after what was before it on any of them, as for the driver's own stream-ordered calls. Does not
     * block. */
    int (*stream_touch)(void *self, struct device_context context, struct device_stream stream);

    /* Free on a stream that captures what is no allocation of a graph: the driver's refusal, with what that does to the
     * capture. Nothing is freed. */
    int (*free_captured)(void *self, struct device_stream stream, uint64_t address);

    /* DEVICE_OK: it does not capture. DEVICE_NOT_READY: it does. Else the driver's answer (906: the legacy stream,
     * while another captures). Cannot block, harms no capture. */
    int (*stream_capturing)(void *self, struct device_stream stream);

    /* Mark what was submitted so far on every stream of every live context; on one stream of `context`, as identified
     * before. 0 and *fence, the caller's until fence_drop; else nothing was recorded: DEVICE_NOT_SUPPORTED where that
     * cannot be, DEVICE_NOT_READY while a context ends. Not while a stream of the process captures: it would break the
     * capture. */
    int (*fence_record)(void *self, struct device_fence **fence);
    int (*fence_record_stream)(void *self, struct device_context context, struct device_stream stream,
                               struct device_fence **fence);

    /* Can fence_record be done at all? Cannot block. */
    bool (*fences_supported)(void *self);

    /* Has all work before it ended that may use memory of the device `ordinal` (−1: all work)? DEVICE_OK,
     * DEVICE_NOT_READY, or a failure: then it will never prove anything. The work of a context
     * that is gone counts as ended. One thread at a time asks about one fence. Cannot block; harms no capture where
     * releases_in_captures says so, as a fill. */
    int (*fence_query)(void *self, struct device_fence *fence, int ordinal);
    void (*fence_drop)(void *self, struct device_fence *fence);

    /* Fill [address, address + bytes) with a byte's value, and wait until that has happened. `stream`: what the fill
     * comes after; NULL: nothing. A failure may have filled some. Blocks. NULL where the device cannot. */
    int (*fill)(void *self, struct device_context context, const struct device_stream *stream, uint64_t address,
                size_t bytes, uint8_t value);

    /* Set SYNC_MEMOPS (cuPointerSetAttribute) on the driver's allocation that holds `address`, or take it back, under
     * `context`; with an ordinal below 0 under the calling thread's. Cannot block. NULL where there is none such. */
    int (*set_sync_memops)(void *self, struct device_context context, uint64_t address, bool on);

    /* For a thread that has no context of its own: until the return, it has one of the device `ordinal`, whose end
     * waits for that. False: none lives there, or each is about to end. NULL where there are no contexts. */
    bool (*borrow_context)(void *self, int ordinal, struct device_context *borrowed);
    void (*return_context)(void *self, struct device_context borrowed);

    /* Device memory as the driver sees it, of the device of `context`; its handle may be NULL. */
    int (*memory_info)(void *self, struct device_context context, size_t *free_bytes, size_t *total_bytes);

    /* Is it the primary context of its device, or else one whose creation was seen, so that its end will be? Asked once
     * per context that was not seen before. */
    bool (*context_primary)(void *self, struct device_context context);
    bool (*context_created)(void *self, struct device_context context);

    /* Does `context` still live? For a primary context: is it active? Used after a release that may or may not have
     * been the last, or a destruction that may have failed. */
    bool (*context_alive)(void *self, struct device_context context);

    /* Identity of the device of `context`. Fills what it can, zeroes the rest. Never fails. */
    void (*device_describe)(void *self, struct device_context context, struct device_info *info);

    void *self; /* first argument of every call */
};

#endif
