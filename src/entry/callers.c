/* SPDX-License-Identifier: MIT
 *
 * Binds each calling object to the runtime that the dynamic linker would have bound it to without us. The linker takes
 * the first definition in the global scope whose version is the one that the object needs, else one in the object's own
 * dependencies; our own definitions have no version and hide them all, so the search is made again from behind us.
 */
#include "entry/callers.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct runtime *runtimes;                              /* by next; never freed; guarded by bind_lock */
static struct caller *callers;                                /* by next; as process_own.callers, never wiped */
static pthread_mutex_t bind_lock = PTHREAD_MUTEX_INITIALIZER; /* over `runtimes` and writing the callers */

#define LIBRARY "libcudart.so" /* how a runtime's file name begins */
#define VERSION_CALL "cudaRuntimeGetVersion"

/* ---- binding ---- */

void *callers_lookup(void *runtime, const char *symbol) {
    return objects_symbol((const void *)((struct runtime *)runtime)->object, symbol);
}

static uintptr_t start_of(const void *address) {
    struct objects_extent extent;
    objects_extent(address, &extent);
    return extent.low;
}

/* The object that is the runtime. Somebody else's interposer may lie before it. */
static uintptr_t find_object(const struct runtime *runtime, const void *caller) {
    const void *alloc = (const void *)runtime->real.cudaMalloc;
    const void *version = objects_symbol(alloc, VERSION_CALL);
    if (!version) version = objects_bind(caller, VERSION_CALL, LIBRARY);
    return start_of(version ? version : alloc);
}

/* NULL when there is no runtime, or no host memory. Outside bind_lock, since the loader has locks of its own. */
static struct runtime *make_runtime(const void *caller) {
    struct runtime *runtime = calloc(1, sizeof *runtime);
    if (!runtime) return NULL;
#define CALLERS_FIND(symbol, arguments) runtime->real.symbol = (int(*) arguments)objects_bind(caller, #symbol, LIBRARY);
    CALLERS_FUNCTIONS(CALLERS_FIND)
#undef CALLERS_FIND
    if (!runtime->real.cudaMalloc && !runtime->real.cudaFree) {
#define CALLERS_FIND(symbol, arguments) \
    runtime->real.symbol = (int(*) arguments)objects_bind_loosely(caller, #symbol, LIBRARY);
        CALLERS_FUNCTIONS(CALLERS_FIND)
#undef CALLERS_FIND
    }
    if (!runtime->real.cudaMalloc || !runtime->real.cudaFree) {
        free(runtime);
        return NULL;
    }
    runtime->object = find_object(runtime, caller);
#define CALLERS_COMPARE(symbol, arguments)                                                       \
    if (runtime->real.symbol && start_of((const void *)runtime->real.symbol) != runtime->object) \
        runtime->interposed = true;
    CALLERS_FUNCTIONS(CALLERS_COMPARE)
#undef CALLERS_COMPARE
    int (*get_version)(int *) = (int (*)(int *))callers_lookup(runtime, VERSION_CALL);
    if (get_version && get_version(&runtime->version) != 0) runtime->version = 0;
    return runtime;
}

/* With bind_lock: the runtime of the same functions that is known already, else this one. */
static struct runtime *enter_runtime(struct runtime *made) {
    for (struct runtime *known = runtimes; known; known = known->next) {
        if (memcmp(&known->real, &made->real, sizeof made->real) != 0 || known->object != made->object) continue;
        free(made);
        return known;
    }
    made->next = runtimes;
    runtimes = made;
    return made;
}

/* Objects have been unloaded since: is what is known of this caller still so? */
static bool still_true(const struct caller *caller, const void *address) {
    const struct runtime *runtime = caller->runtime;
    struct objects_extent extent;
    return objects_extent(address, &extent) && extent.low == caller->extent.low && extent.high == caller->extent.high &&
           start_of((const void *)runtime->object) == runtime->object &&
           start_of((const void *)runtime->real.cudaMalloc) && start_of((const void *)runtime->real.cudaFree);
}

static struct caller *caller_at(const void *address) {
    struct caller *caller = atomic_load_explicit(&process_own.callers, memory_order_acquire);
    while (caller && !objects_within(&caller->extent, address)) caller = caller->next;
    return caller;
}

static struct runtime *bind(const void *address, unsigned long long unloads) {
    struct runtime *runtime = make_runtime(address);
    if (!runtime) return NULL;
    struct objects_extent extent;
    struct caller *caller = objects_extent(address, &extent) ? malloc(sizeof *caller) : NULL;
    pthread_mutex_lock(&bind_lock);
    runtime = enter_runtime(runtime);
    if (caller) {
        caller->extent = extent;
        caller->runtime = runtime;
        atomic_init(&caller->unloads, unloads);
        /* In front of what was known of an object that is no more: the first one found counts. */
        caller->next = callers;
        __atomic_store_n(&callers, caller, __ATOMIC_RELEASE);
        atomic_store_explicit(&process_own.callers, caller, memory_order_release);
    }
    pthread_mutex_unlock(&bind_lock);
    return runtime;
}

struct runtime *callers_runtime(const void *address) {
    const int error = errno;
    process_notice();
    if (process_bypassed() && caller_at(address)) return caller_at(address)->runtime;
    const unsigned long long unloads = objects_count().unloads;
    struct caller *caller = caller_at(address);
    struct runtime *runtime;
    if (caller && atomic_load(&caller->unloads) != unloads && still_true(caller, address))
        atomic_store(&caller->unloads, unloads);
    if (caller && atomic_load(&caller->unloads) == unloads) {
        runtime = caller->runtime;
    } else {
        runtime = bind(address, unloads);
    }
    errno = error;
    return runtime;
}

void callers_after_fork(bool pooled) {
    bind_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (struct runtime *runtime = runtimes; runtime; runtime = runtime->next) {
        atomic_store(&runtime->decision, pooled ? RUNTIME_DECIDED : RUNTIME_UNDECIDED);
        atomic_store(&runtime->pool, NULL);
        runtime->runtime_only = false;
    }
    atomic_store_explicit(&process_own.callers, callers, memory_order_release);
}
