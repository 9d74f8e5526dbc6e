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
#define ENTRY_LIKELY(condition) __builtin_expect(!!(condition), 1)

/* The answer where the driver, or this function of it, is not there. */
#define PROCESS_NO_DRIVER CUDA_ERROR_NOT_FOUND

/* The first CUDA call of the process is being made: begin the figures. A load afterwards. */
void process_first_call(void);

/* The pool over the driver; NULL while nothing is pooled. */
extern _Atomic(struct pool_system *) process_driver_pool;

/* As above, started where it can be. NULL: the call passes through, for process_pass_reason. */
struct pool_system *process_start_pool(void);
static inline struct pool_system *process_pool(void) {
    struct pool_system *pool = atomic_load_explicit(&process_driver_pool, memory_order_acquire);
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
