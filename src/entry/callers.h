/* SPDX-License-Identifier: MIT
 *
 * The real runtime behind the runtime door, for each object that calls it: one process may hold two runtimes, and an
 * object loaded RTLD_LOCAL brings one that only it can see.
 */
#ifndef POOLCUDA_ENTRY_CALLERS_H
#define POOLCUDA_ENTRY_CALLERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entry/objects.h"
#include "entry/process.h"
#include "pool/pool.h"

/* X(exported symbol, arguments) of the runtime door. Results are runtime codes; streams are void *. */
#define CALLERS_FUNCTIONS(X)                                          \
    X(cudaMalloc, (void **out, size_t bytes))                         \
    X(cudaFree, (void *address))                                      \
    X(cudaMallocAsync, (void **out, size_t bytes, void *stream))      \
    X(cudaMallocAsync_ptsz, (void **out, size_t bytes, void *stream)) \
    X(cudaFreeAsync, (void *address, void *stream))                   \
    X(cudaFreeAsync_ptsz, (void *address, void *stream))              \
    X(cudaMemGetInfo, (size_t * free_bytes, size_t * total_bytes))    \
    X(cudaDeviceReset, (void))

#define CALLERS_DECLARE(symbol, arguments) \
    __attribute__((visibility("default"))) int entry_##symbol arguments __asm__(#symbol);
CALLERS_FUNCTIONS(CALLERS_DECLARE)
#undef CALLERS_DECLARE

enum runtime_decision { RUNTIME_UNDECIDED = 0, RUNTIME_DECIDING, RUNTIME_DECIDED };

struct runtime {
    struct {
#define CALLERS_FIELD(symbol, arguments) int(*symbol) arguments;
        CALLERS_FUNCTIONS(CALLERS_FIELD) /* NULL where it lacks one; cudaMalloc and cudaFree are there */
#undef CALLERS_FIELD
    } real;
    uintptr_t object; /* start of the object that it is */
    int version;      /* as cudaRuntimeGetVersion gives it, 0 when unknown */
    bool interposed;  /* a function above is somebody else's, which is to see every call */

    /* The pool that the door may serve this runtime's callers from; NULL: not decided, or every call goes to the
     * runtime. */
    _Atomic(struct pool_system *) pool;
    _Atomic int decision; /* enum runtime_decision: is `pool` final? */
    bool runtime_only;    /* `pool` is over this runtime, with no driver below; written before `pool` */

    struct runtime *next; /* callers.c */
};

/* Code of one object of the process and the runtime it is bound to. */
struct caller {
    struct objects_extent extent;
    struct runtime *runtime;
    _Atomic unsigned long long unloads; /* callers.c: objects unloaded from the process when this was last found true */
    struct caller *next;
};

/* The runtime of the code at `address`, as last known: quick, for answers that the pool gives alone. NULL when the
 * caller is new. */
static inline struct runtime *callers_quick(const void *address) {
    for (struct caller *caller = atomic_load_explicit(&process_own.callers, memory_order_acquire); caller;
         caller = caller->next)
        if (objects_within(&caller->extent, address)) return caller->runtime;
    return NULL;
}

/* The same, found where it is new and checked against objects that have been unloaded since: before the runtime is
 * called. NULL when the caller is bound to no runtime, or host memory ran out. Keeps errno. */
struct runtime *callers_runtime(const void *address);

/* A function of the runtime that belongs to the object of `runtime`, NULL when it has none of the name. `runtime` is a
 * struct runtime, so that this can serve as a look-up. */
void *callers_lookup(void *runtime, const char *symbol);

/* In a new process: nobody else holds our lock. Nobody is served where the parent was `pooled`, else all is decided
 * anew. */
void callers_after_fork(bool pooled);

#endif
