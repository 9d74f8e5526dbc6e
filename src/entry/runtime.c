/* SPDX-License-Identifier: MIT
 *
 * The runtime door: a short cut to the pool that answers success and nothing else. Every error, and all that the pool
 * leaves alone, is made by the real runtime function, so that its initialisation and last-error state are its own; a
 * note in thread-local memory tells the driver door below what is known already.
 *
 * Over a runtime with no driver below it, the door works alone.
 */
#include "config/config.h"
#include "entry/callers.h"
#include "entry/mark.h"
#include "entry/process.h"
#include "entry/record.h"
#include "stats/writer.h"

#define NO_RUNTIME 3        /* cudaErrorInitializationError: no real function is to be found */
#define FIRST_VERSION 12000 /* before, cudaSetDevice did not make the device's context current */

/* Has this runtime taken its frees from us, so that its calls come back by the driver door? */
static bool door_below(const struct runtime *runtime) {
    return !runtime->runtime_only && symbols_object_hooked(runtime->object);
}

static struct pool_system *decided(struct runtime *runtime, struct pool_system *pool) {
    atomic_store_explicit(&runtime->pool, pool, memory_order_release);
    atomic_store(&runtime->decision, RUNTIME_DECIDED);
    return pool;
}

static struct pool_system *undecided(struct runtime *runtime) {
    atomic_store(&runtime->decision, RUNTIME_UNDECIDED);
    return NULL;
}

static struct pool_system *decide(struct runtime *runtime) {
    process_first_call();
    if (!symbols_driver()) {
        /* Initialises the runtime, as the call that is being made would: then the driver is loaded, or there is none.
         */
        const int code = runtime->real.cudaFree(NULL);
        if (!symbols_driver()) {
            if (code != 0) return undecided(runtime);
            struct pool_system *pool = process_start_runtime_pool(callers_lookup, runtime);
            runtime->runtime_only = pool != NULL;
            return decided(runtime, pool);
        }
    }
    struct pool_system *pool = process_start_pool();
    if (!pool || runtime->interposed || runtime->version < FIRST_VERSION) return decided(runtime, NULL);
    /* Not initialised yet, or not over the driver that the pool is over. */
    return door_below(runtime) ? decided(runtime, pool) : undecided(runtime);
}

/* The pool that the door may serve this runtime from, NULL when the call is the runtime's. Of threads that come at once
 * one decides; the others go to the runtime. */
static struct pool_system *pool_of(struct runtime *runtime) {
    int expected = RUNTIME_UNDECIDED;
    if (atomic_load(&runtime->decision) == RUNTIME_UNDECIDED &&
        atomic_compare_exchange_strong(&runtime->decision, &expected, RUNTIME_DECIDING))
        return decide(runtime);
    return atomic_load_explicit(&runtime->pool, memory_order_acquire);
}

/* The pool that serves the caller, as last known: NULL when that is to be found out. */
static inline struct pool_system *pool_known(const void *caller) {
    struct runtime *runtime = callers_quick(caller);
    return ENTRY_LIKELY(runtime != NULL) ? atomic_load_explicit(&runtime->pool, memory_order_acquire) : NULL;
}

/* The pool that has to be asked about an address before the runtime is: nobody below this runtime will ask. */
static inline struct pool_system *pool_of_frees(struct runtime *runtime) {
    struct pool_system *pool = pool_of(runtime);
    return ENTRY_LIKELY(pool != NULL) || door_below(runtime)
               ? pool
               : atomic_load_explicit(&process_own.driver_pool, memory_order_acquire);
}

/* A call that no door below will count. */
static void count_pass(const struct runtime *runtime, const struct pool_system *pool) {
    if (!pool && !door_below(runtime)) stats_pass(process_pass_reason());
}

/* After the pool passed: is the call to be tried again, since the runtime makes a context current where there is none?
 */
static enum mark_kind after_pass(const struct runtime *runtime) {
    struct device_context context;
    return runtime->runtime_only || process_context(&context) == DEVICE_OK ? MARK_PASS : MARK_AGAIN;
}

static void note(enum mark_kind kind, enum mark_call call, uint64_t value, int answer) {
    entry_mark = (struct mark){.kind = kind, .call = call, .value = value, .answer = answer};
}

/* The real function has answered. A note that nobody below has taken means that the call did not come there: so it is
 * recorded here. */
static bool done(void) {
    const bool taken = entry_mark.kind == MARK_NONE;
    entry_mark.kind = MARK_NONE;
    return taken;
}

static int done_alloc(struct record record, void **out, size_t bytes, int result) {
    record.runtime_door = true;
    return done() ? result : record_alloc(&record, out, bytes, POOLCUDA_TRACE_BY_DRIVER, result);
}

static int done_free(struct record record, void *address, int result) {
    record.runtime_door = true;
    return done() ? result : record_free(&record, (uint64_t)(uintptr_t)address, POOLCUDA_TRACE_BY_DRIVER, result);
}

/* The door's own answer, where nothing lies below that could be told. */
static int refuse_alloc(struct record record, size_t bytes, int code) {
    record.runtime_door = true;
    return record_alloc(&record, NULL, bytes, POOLCUDA_TRACE_BY_NONE, code);
}

static int refuse_free(struct record record, void *address, int code) {
    record.runtime_door = true;
    return record_free(&record, (uint64_t)(uintptr_t)address, POOLCUDA_TRACE_BY_NONE, code);
}

/* ---- cudaMalloc ---- */

/* `code`: the pool's answer where `asked`. */
static int ENTRY_COLD malloc_slowly(const void *caller, void **out, size_t bytes, bool asked, int code) {
    struct runtime *runtime = callers_runtime(caller);
    if (!runtime) return NO_RUNTIME;
    struct pool_system *pool = pool_of(runtime);
    if (!asked && pool && out) {
        asked = true;
        code = pool_alloc(pool, bytes, POOL_DOOR_RUNTIME, (uint64_t *)out);
        if (code == DEVICE_OK) return code;
    }
    count_pass(runtime, pool);
    enum mark_kind kind = MARK_AGAIN; /* a dead context is revived by the runtime */
    if (asked && code == POOL_PASS) kind = after_pass(runtime);
    if (asked && code == DEVICE_OUT_OF_MEMORY) {
        kind = MARK_ANSWER;
        /* Nobody below would give the answer. Only a limit of ours is kept against what the runtime may still have. */
        if (!door_below(runtime) && config_get()->limit != CONFIG_NONE)
            return refuse_alloc((struct record){.call = MARK_ALLOC}, bytes, code);
    }
    note(kind, MARK_ALLOC, bytes, code);
    return done_alloc((struct record){.call = MARK_ALLOC}, out, bytes, runtime->real.cudaMalloc(out, bytes));
}

ENTRY_HOT int entry_cudaMalloc(void **out, size_t bytes) {
    const void *caller = __builtin_return_address(0);
    struct pool_system *pool = pool_known(caller);
    const bool asked = pool && out;
    int code = POOL_PASS;
    if (ENTRY_LIKELY(asked)) {
        code = pool_alloc(pool, bytes, POOL_DOOR_RUNTIME, (uint64_t *)out);
        if (ENTRY_LIKELY(code == DEVICE_OK)) return code;
    }
    return malloc_slowly(caller, out, bytes, asked, code);
}

/* ---- cudaFree ---- */

/* What the runtime's own function is to be told below, after the pool answered `code` to a free. True: nothing lies
 * below that could be told, and the code is the door's own answer. */
static bool answer_free(const struct runtime *runtime, enum mark_call call, uint64_t address, bool asked, int code) {
    enum mark_kind kind = MARK_AGAIN;
    if (asked && code == POOL_PASS) kind = after_pass(runtime);
    /* A missing or dead context is made by the runtime. */
    const bool again = code == DEVICE_INVALID_CONTEXT || code == DEVICE_CONTEXT_DESTROYED;
    if (asked && code != POOL_PASS && !again) {
        if (!door_below(runtime)) return true;
        kind = MARK_ANSWER;
    }
    note(kind, call, address, code);
    return false;
}

static int ENTRY_COLD free_slowly(const void *caller, void *address, bool asked, int code) {
    struct runtime *runtime = callers_runtime(caller);
    if (!runtime) return NO_RUNTIME;
    struct pool_system *pool = pool_of_frees(runtime);
    if (!asked && pool && address) {
        asked = true;
        code = pool_free(pool, (uint64_t)(uintptr_t)address, POOL_DOOR_RUNTIME);
        if (code == DEVICE_OK) return code;
    }
    count_pass(runtime, pool);
    const struct record record = {.call = MARK_FREE, .time = record_begin()};
    if (answer_free(runtime, MARK_FREE, (uint64_t)(uintptr_t)address, asked, code))
        return refuse_free(record, address, code);
    return done_free(record, address, runtime->real.cudaFree(address));
}

ENTRY_HOT int entry_cudaFree(void *address) {
    const void *caller = __builtin_return_address(0);
    struct pool_system *pool = pool_known(caller);
    const bool asked = pool && address;
    int code = POOL_PASS;
    if (ENTRY_LIKELY(asked)) {
        code = pool_free(pool, (uint64_t)(uintptr_t)address, POOL_DOOR_RUNTIME);
        if (ENTRY_LIKELY(code == DEVICE_OK)) return code;
    }
    return free_slowly(caller, address, asked, code);
}

/* ---- stream-ordered ---- */

/* `code`: the pool's answer where `asked`. */
static int ENTRY_COLD malloc_async_slowly(const void *caller, void **out, size_t bytes, struct device_stream stream,
                                          bool asked, int code) {
    struct runtime *runtime = callers_runtime(caller);
    if (!runtime) return NO_RUNTIME;
    int (*const real)(void **, size_t, void *) =
        stream.per_thread_default ? runtime->real.cudaMallocAsync_ptsz : runtime->real.cudaMallocAsync;
    if (!real) return NO_RUNTIME;
    struct pool_system *pool = pool_of(runtime);
    if (!asked && pool && out) {
        asked = true;
        code = pool_alloc_async(pool, bytes, stream, POOL_DOOR_RUNTIME, (uint64_t *)out);
        if (code == DEVICE_OK) return code;
    }
    const struct record record = {.call = MARK_ALLOC_ASYNC, .stream = stream};
    count_pass(runtime, pool);
    enum mark_kind kind = MARK_AGAIN;
    if (asked && code == POOL_PASS) kind = after_pass(runtime);
    if (asked && code == DEVICE_OUT_OF_MEMORY) {
        kind = MARK_ANSWER;
        if (!door_below(runtime) && config_get()->limit != CONFIG_NONE) return refuse_alloc(record, bytes, code);
    }
    note(kind, MARK_ALLOC_ASYNC, bytes, code);
    return done_alloc(record, out, bytes, real(out, bytes, stream.handle));
}

static inline int malloc_async(const void *caller, void **out, size_t bytes, struct device_stream stream) {
    struct pool_system *pool = pool_known(caller);
    const bool asked = pool && out;
    int code = POOL_PASS;
    if (ENTRY_LIKELY(asked)) {
        code = pool_alloc_async(pool, bytes, stream, POOL_DOOR_RUNTIME, (uint64_t *)out);
        if (ENTRY_LIKELY(code == DEVICE_OK)) return code;
    }
    return malloc_async_slowly(caller, out, bytes, stream, asked, code);
}

ENTRY_HOT int entry_cudaMallocAsync(void **out, size_t bytes, void *stream) {
    return malloc_async(__builtin_return_address(0), out, bytes, (struct device_stream){stream, false});
}

ENTRY_HOT int entry_cudaMallocAsync_ptsz(void **out, size_t bytes, void *stream) {
    return malloc_async(__builtin_return_address(0), out, bytes, (struct device_stream){stream, true});
}

static int ENTRY_COLD free_async_slowly(const void *caller, void *address, struct device_stream stream, bool asked,
                                        int code) {
    struct runtime *runtime = callers_runtime(caller);
    if (!runtime) return NO_RUNTIME;
    int (*const real)(void *, void *) =
        stream.per_thread_default ? runtime->real.cudaFreeAsync_ptsz : runtime->real.cudaFreeAsync;
    if (!real) return NO_RUNTIME;
    struct pool_system *pool = pool_of_frees(runtime);
    const uint64_t value = (uint64_t)(uintptr_t)address;
    if (!asked && pool && address) {
        asked = true;
        code = pool_free_async(pool, value, stream, POOL_DOOR_RUNTIME);
        if (code == DEVICE_OK) return code;
    }
    count_pass(runtime, pool);
    const struct record record = {.call = MARK_FREE_ASYNC, .stream = stream, .time = record_begin()};
    if (answer_free(runtime, MARK_FREE_ASYNC, value, asked, code)) return refuse_free(record, address, code);
    return done_free(record, address, real(address, stream.handle));
}

static inline int free_async(const void *caller, void *address, struct device_stream stream) {
    struct pool_system *pool = pool_known(caller);
    const bool asked = pool && address;
    int code = POOL_PASS;
    if (ENTRY_LIKELY(asked)) {
        code = pool_free_async(pool, (uint64_t)(uintptr_t)address, stream, POOL_DOOR_RUNTIME);
        if (ENTRY_LIKELY(code == DEVICE_OK)) return code;
    }
    return free_async_slowly(caller, address, stream, asked, code);
}

ENTRY_HOT int entry_cudaFreeAsync(void *address, void *stream) {
    return free_async(__builtin_return_address(0), address, (struct device_stream){stream, false});
}

ENTRY_HOT int entry_cudaFreeAsync_ptsz(void *address, void *stream) {
    return free_async(__builtin_return_address(0), address, (struct device_stream){stream, true});
}

/* ---- what else has to know of the pool, where no driver door lies below ---- */

static int current_ordinal(const struct runtime *runtime) {
    struct device_context context = {.ordinal = -1};
    const struct device_ops *ops = &process_runtime_only()->ops;
    const int code = runtime->runtime_only ? ops->context_current(ops->self, &context) : process_context(&context);
    return code == DEVICE_OK ? context.ordinal : -1;
}

int entry_cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    struct runtime *runtime = callers_runtime(__builtin_return_address(0));
    if (!runtime || !runtime->real.cudaMemGetInfo) return NO_RUNTIME;
    struct pool_system *pool = pool_of(runtime);
    if (!pool || !free_bytes || door_below(runtime)) return runtime->real.cudaMemGetInfo(free_bytes, total_bytes);
    size_t now_free = 0, total = 0;
    const int code = runtime->real.cudaMemGetInfo(&now_free, &total);
    const int ordinal = code == 0 ? current_ordinal(runtime) : -1;
    if (code != 0) return code;
    const uint64_t ours = ordinal < 0 ? 0 : pool_releasable(pool, ordinal, NULL);
    *free_bytes = ours < total - now_free ? now_free + ours : total;
    if (total_bytes) *total_bytes = total;
    return code;
}

int entry_cudaDeviceReset(void) {
    struct runtime *runtime = callers_runtime(__builtin_return_address(0));
    if (!runtime || !runtime->real.cudaDeviceReset) return NO_RUNTIME;
    struct pool_system *pool = pool_of(runtime);
    const int ordinal = pool && !door_below(runtime) ? current_ordinal(runtime) : -1;
    if (ordinal < 0) return runtime->real.cudaDeviceReset();
    pool_context_close(pool, ordinal, NULL);
    const int code = runtime->real.cudaDeviceReset();
    if (code == 0 && runtime->runtime_only) runtime_only_note_reset(process_runtime_only(), ordinal);
    pool_context_settle(pool, ordinal, NULL);
    return code;
}
