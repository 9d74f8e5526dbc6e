/* SPDX-License-Identifier: MIT
 *
 * The life of the library in its process: when the figures and the pool begin, why calls pass through, what happens at
 * fork and exit.
 */
#ifndef POOLCUDA_ENTRY_PROCESS_H
#define POOLCUDA_ENTRY_PROCESS_H

#include <cuda.h>

#include "device/runtime_only.h"
#include "entry/symbols.h"
#include "pool/pool.h"
#include "poolcuda/stats.h"

#define ENTRY_COLD __attribute__((cold, noinline))
/* What a hit calls becomes part of it, the pool's half too where the library is compiled as a whole. */
#define ENTRY_HOT __attribute__((hot, flatten))
#define ENTRY_LIKELY(condition) __builtin_expect(!!(condition), 1)

/* The answer where the driver, or this function of it, is not there. */
#define PROCESS_NO_DRIVER CUDA_ERROR_NOT_FOUND

/* What is this process's alone. It fills pages that the kernel hands zeroed to every new process, however that is made
 * (fork, or a clone system call that nobody was told of): a child finds no pool and no runtime here, and so learns on
 * the slow way that it is one, before anything of its parent's is touched. */
#define PROCESS_PAGE 65536 /* bytes of the largest page that kernels use */
struct process_own {
    _Atomic(struct pool_system *) driver_pool; /* the pool over the driver; NULL while nothing is pooled */
    _Atomic(struct caller *) callers;          /* callers.h */
    _Atomic bool figures_begun;
    _Atomic int known; /* process.c */
} __attribute__((aligned(PROCESS_PAGE)));
extern struct process_own process_own;

/* In a process that is new: let go of what its parent had. Async-signal-safe; a load where that is done. Every way to
 * the figures, the locks and the tables of the doors comes by here, or over a field above that is not zero. */
void process_notice(void);

/* A child of a process that was pooled: nothing is looked at but the real functions, since the loader's locks may be
 * held by threads that are not here. */
bool process_bypassed(void);

/* The first CUDA call of the process is being made: begin the figures. A load afterwards. */
void process_first_call(void);

/* The pool over the driver, started where it can be. NULL: the call passes through, for process_pass_reason. */
struct pool_system *process_start_pool(void);
static inline struct pool_system *process_pool(void) {
    struct pool_system *pool = atomic_load_explicit(&process_own.driver_pool, memory_order_acquire);
    return ENTRY_LIKELY(pool) ? pool : process_start_pool();
}

/* Start the pool over a runtime with no driver below it. `lookup` finds the runtime's functions. NULL when it is not to
 * be pooled. There is one pool a process, over the driver or over one runtime. */
struct pool_system *process_start_runtime_pool(void *(*lookup)(void *arg, const char *symbol), void *arg);
struct runtime_only *process_runtime_only(void);

enum poolcuda_pass_reason process_pass_reason(void);

/* The current context as the driver has it: 0 and a handle, 201 when none is current, or the driver's code. */
int process_context(struct device_context *context);

struct device_driver;
struct device_driver *process_driver(void);

/* A driver call on this device (−1: the current context's) ran out of memory: give back what the pool can spare. True
 * when a retry makes sense. */
bool process_relieve(int ordinal);

#endif
