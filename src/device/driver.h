/* SPDX-License-Identifier: MIT
 *
 * struct device_ops over the CUDA driver. It calls the driver through pointers that the owner looked up, so never
 * through our own hooks.
 */
#ifndef POOLCUDA_DEVICE_DRIVER_H
#define POOLCUDA_DEVICE_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>

#include <cuda.h>

#include "device/device.h"

/* X(field, exported symbol, needed, arguments). Without a needed one there is no pool; others are NULL on a driver that
 * lacks them. */
#define DRIVER_FUNCTIONS(X)                                                                                      \
    X(context_get_current, "cuCtxGetCurrent", true, (CUcontext *))                                               \
    X(context_get_device, "cuCtxGetDevice", true, (CUdevice *))                                                  \
    X(context_push, "cuCtxPushCurrent_v2", true, (CUcontext))                                                    \
    X(context_pop, "cuCtxPopCurrent_v2", true, (CUcontext *))                                                    \
    X(context_synchronize, "cuCtxSynchronize", true, (void))                                                     \
    X(primary_get_state, "cuDevicePrimaryCtxGetState", true, (CUdevice, unsigned int *, int *))                  \
    X(primary_retain, "cuDevicePrimaryCtxRetain", true, (CUcontext *, CUdevice))                                 \
    X(primary_release, "cuDevicePrimaryCtxRelease_v2", true, (CUdevice))                                         \
    X(memory_alloc, "cuMemAlloc_v2", true, (CUdeviceptr *, size_t))                                              \
    X(memory_free, "cuMemFree_v2", true, (CUdeviceptr))                                                          \
    X(memory_info, "cuMemGetInfo_v2", true, (size_t *, size_t *))                                                \
    X(stream_synchronize, "cuStreamSynchronize", true, (CUstream))                                               \
    X(device_total, "cuDeviceTotalMem_v2", false, (size_t *, CUdevice))                                          \
    X(device_uuid, "cuDeviceGetUuid", false, (CUuuid *, CUdevice))                                               \
    X(device_pci, "cuDeviceGetPCIBusId", false, (char *, int, CUdevice))                                         \
    X(driver_version, "cuDriverGetVersion", false, (int *))                                                      \
    X(stream_is_capturing, "cuStreamIsCapturing", false, (CUstream, CUstreamCaptureStatus *))                    \
    X(stream_is_capturing_ptsz, "cuStreamIsCapturing_ptsz", false, (CUstream, CUstreamCaptureStatus *))          \
    X(stream_get_context, "cuStreamGetCtx", false, (CUstream, CUcontext *))                                      \
    X(stream_get_context_ptsz, "cuStreamGetCtx_ptsz", false, (CUstream, CUcontext *))                            \
    X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", false, (CUstreamCaptureMode *))                \
    X(context_get_id, "cuCtxGetId", false, (CUcontext, unsigned long long *))                                    \
    X(device_count, "cuDeviceGetCount", false, (int *))                                                          \
    X(stream_get_id, "cuStreamGetId", false, (CUstream, unsigned long long *))                                   \
    X(stream_create, "cuStreamCreate", false, (CUstream *, unsigned int))                                        \
    X(stream_destroy, "cuStreamDestroy_v2", false, (CUstream))                                                   \
    X(event_create, "cuEventCreate", false, (CUevent *, unsigned int))                                           \
    X(event_record, "cuEventRecord", false, (CUevent, CUstream))                                                 \
    X(event_query, "cuEventQuery", false, (CUevent))                                                             \
    X(context_record_event, "cuCtxRecordEvent", false, (CUcontext, CUevent))                                     \
    X(memory_fill, "cuMemsetD8Async", false, (CUdeviceptr, unsigned char, size_t, CUstream))                     \
    X(device_get_memory_pool, "cuDeviceGetMemPool", false, (CUmemoryPool *, CUdevice))                           \
    X(memory_alloc_from_pool, "cuMemAllocFromPoolAsync", false, (CUdeviceptr *, size_t, CUmemoryPool, CUstream)) \
    X(memory_free_async, "cuMemFreeAsync", false, (CUdeviceptr, CUstream))                                       \
    X(memory_pool_get_attribute, "cuMemPoolGetAttribute", false, (CUmemoryPool, CUmemPool_attribute, void *))    \
    X(memory_pool_trim, "cuMemPoolTrimTo", false, (CUmemoryPool, size_t))                                        \
    X(pointer_set_attribute, "cuPointerSetAttribute", false, (const void *, CUpointer_attribute, CUdeviceptr))

struct driver_functions {
#define DRIVER_FIELD(field, symbol, needed, arguments) CUresult(CUDAAPI *field) arguments;
    DRIVER_FUNCTIONS(DRIVER_FIELD)
#undef DRIVER_FIELD
};

#define DRIVER_CONTEXTS 32
#define DRIVER_DEVICES 64 /* those whose primary contexts are known */

struct live_context; /* driver_fences.c */
struct known_stream; /* driver_streams.c */
struct fill_stream;  /* driver_fill.c */

struct device_driver {
    struct driver_functions call;
    struct device_ops ops; /* ops.self is this structure */

    /* Ordinals of the contexts seen, since the driver tells the context in one cheap call and its device in another.
     * Read without a lock; a full table only costs the second call. */
    struct {
        _Atomic(void *) handle; /* NULL: unused; written after the ordinal */
        _Atomic int ordinal;
    } contexts[DRIVER_CONTEXTS];
    pthread_mutex_t contexts_lock; /* over writing `contexts` */

    _Atomic uint64_t reset; /* bit of a device: its primary context was reset, whether or not it was revived since */

    _Atomic uint64_t ordered; /* bit of a device: a stream-ordered segment was taken there */

    /* Contexts that live, their events and the fences made of them. live_lock guards them and is held across no driver
     * call; whoever is in the driver with an event is counted in `users`, and a context ends only when nobody is. */
    pthread_mutex_t live_lock;
    pthread_cond_t live_changed; /* a count of who is in the driver became 0 */
    struct live_context *live;
    struct device_fence *spare_fences;
    unsigned users, closing; /* closing: contexts that are ending */
    _Atomic unsigned live_count;
    uint64_t next_serial;
    _Atomic uint64_t reached_by[64]; /* for each device, the others that were given access to its memory: a bit each */

    /* Primary contexts. Guarded by live_lock. */
    struct driver_primary {
        void *handle;       /* NULL: not known */
        unsigned held;      /* retains seen, less releases begun: so many hold it at least */
        unsigned releasing; /* releases in the driver that cannot be the last */
        unsigned ending;    /* ends that may be */
        unsigned asking;    /* retains of our own, taken back at once */
    } primaries[DRIVER_DEVICES];

    /* Streams whose creation was seen. */
    pthread_mutex_t streams_lock;
    struct known_stream **streams; /* by handle, chained */
    uint64_t next_stream_id;

    /* Streams of our own, for fills. */
    pthread_mutex_t fill_lock;
    struct fill_stream *fill_streams;
};

/* Fill the pointers by `lookup`, which returns NULL for what is not there. Returns the name of the first needed one
 * that is missing, NULL when all are there. */
const char *device_driver_bind(struct device_driver *driver, void *(*lookup)(void *arg, const char *symbol), void *arg);

/* What the current memory pool of a device holds beyond what is used of it: the driver takes memory for one in steps,
 * which go back with the segments in them. 0 where more is used than the `releasable` bytes of segments that could go,
 * since nobody knows which steps those share; nor what the program has it keep (its release threshold). */
uint64_t device_driver_memory_pool_slack(struct device_driver *driver, int ordinal, uint64_t releasable);

/* ---- driver_fences.c: contexts that live, and marks behind their work ---- */

void device_fences_bind(struct device_driver *driver);

/* A context was created, or came to be used; a green one stands for its primary context and is marked with that. False
 * when host memory ran out. */
enum live_kind { LIVE_FOUND, LIVE_PRIMARY, LIVE_CREATED, LIVE_GREEN };
bool device_driver_context_known(struct device_driver *driver, struct device_context context, enum live_kind kind);

/* A context is about to end: no mark is recorded in it or asked about any more, when this returns. Then, after the real
 * call: whether it is gone. */
void device_driver_context_closing(struct device_driver *driver, const void *handle);
void device_driver_context_settled(struct device_driver *driver, const void *handle, bool gone);

/* Work on the device `user` was given access to memory of the device `owner` (−1: of all). Taken back never: work from
 * before may go on. */
void device_driver_access_given(struct device_driver *driver, int owner, int user);

/* The device of a known context, −1 of another. */
int device_driver_context_ordinal(struct device_driver *driver, const void *handle);

/* Was its creation seen, and not its end? */
bool device_driver_context_created(struct device_driver *driver, const void *handle);

/* Is it known as a green one? No event is made in such a context: what becomes of it there is not documented. */
bool device_driver_context_green(struct device_driver *driver, const void *handle);

/* A number for each life of a live context, 0 when it is not known. */
uint64_t device_driver_context_serial(struct device_driver *driver, const void *handle);

/* The program uses a context once more (cuCtxAttach). It is about to use it once less (cuCtxDetach): true when it ends
 * with that; else, after the real call, device_driver_context_detached. */
void device_driver_context_attached(struct device_driver *driver, const void *handle);
bool device_driver_context_detaching(struct device_driver *driver, const void *handle);
void device_driver_context_detached(struct device_driver *driver, const void *handle, bool done);

/* Under live_lock: wait until live_changed. */
void device_driver_await_change(struct device_driver *driver);

/* ---- driver_pools.c: memory pools that the program may export ---- */

/* A memory pool was made, or is about to end (false). Whether it could be exported until now. */
bool device_driver_pool_set_exportable(const void *memory_pool, bool can_be);
bool device_driver_pool_exportable(const void *memory_pool);
/* In a forked child: nobody else holds the lock, and there is none. */
void device_driver_pools_after_fork(void);

/* ---- driver_primaries.c: primary contexts ---- */

bool device_driver_primary_active(struct device_driver *driver, int ordinal);

/* The handle of a device's primary context, NULL when it is inactive. Never keeps the context alive past the program's
 * last release. DEVICE_NOT_READY: an end of it is under way, which was not to be waited for. */
int device_driver_primary_find(struct device_driver *driver, int ordinal, bool wait, void **handle);

/* The same without a wait; NULL also for DEVICE_NOT_READY. */
void *device_driver_primary(struct device_driver *driver, int ordinal);

/* The program has retained it. */
void device_driver_primary_retained(struct device_driver *driver, int ordinal, void *handle);

/* The program is about to release or reset it, or to destroy what else holds it. False: others hold it, and it does not
 * end with that, as far as we know. Then, after the real call, device_driver_primary_ended with the same answer;
 * `gone`: the life that it had is over. */
enum primary_end { PRIMARY_RELEASE, PRIMARY_RESET, PRIMARY_GREEN };
bool device_driver_primary_ending(struct device_driver *driver, int ordinal, enum primary_end how);
void device_driver_primary_ended(struct device_driver *driver, int ordinal, bool may_end, bool gone);

/* ---- driver_streams.c: which stream is which ---- */

void device_streams_bind(struct device_driver *driver);

/* A stream was created in `context`; a stream is about to be destroyed (false: nothing was known of it); all streams of
 * a context are gone. */
void device_driver_stream_created(struct device_driver *driver, void *handle, struct device_context context);
void device_driver_stream_destroyed(struct device_driver *driver, const void *handle);
void device_driver_streams_gone(struct device_driver *driver, const void *context);

/* ---- driver_fill.c ---- */

void device_fill_bind(struct device_driver *driver);

/* A context is gone, and with it the own stream in it. */
void device_driver_fill_forget(struct device_driver *driver, const void *context);

/* The handle with which the driver's plain entry points know the stream: never NULL. */
CUstream device_driver_stream_handle(struct device_stream stream);

/* Run a call under `context`, or with a NULL handle under any of its device: entered and left in pairs. */
CUresult device_driver_enter(struct device_driver *driver, struct device_context context, bool *pushed);
void device_driver_leave(struct device_driver *driver, bool pushed);

/* ---- driver.c ---- */

/* The calling thread has ended a context, whose handle may have come back since: context_alive denies it once, to this
 * thread. */
void device_driver_note_ended(const void *handle);

/* A number for each life of a context; 0 where the driver has none. */
uint64_t device_driver_context_id(struct device_driver *driver, void *handle);

/* The device of a live context, -1 when the driver does not tell. */
int device_driver_ordinal(struct device_driver *driver, void *context);

/* A context may have gone: whatever comes back under its handle may belong to another device. */
void device_driver_forget_contexts(struct device_driver *driver);

/* The primary context of a device was reset (true): context_alive denies it once, even if another thread has revived it
 * in between. false, before the reset: nothing of the kind is known. */
void device_driver_note_reset(struct device_driver *driver, int ordinal, bool reset);

#endif
