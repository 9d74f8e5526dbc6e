/* SPDX-License-Identifier: MIT
 *
 * Starts the figures at the first CUDA call and the pool at the first call that it could serve; lets go of both in a
 * new process; marks the figures as ended at exit. No CUDA call is made by a constructor, a destructor or in a child.
 */
#include "entry/process.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/config.h"
#include "config/log.h"
#include "control/control.h"
#include "device/driver.h"
#include "entry/callers.h"
#include "entry/captures.h"
#include "ipc/exports.h"
#include "ipc/imports.h"
#include "stats/writer.h"
#include "trace/trace.h"

struct process_own process_own;

static struct pool_system *last_pool; /* where leak checkers find it in a child, too */
static struct device_driver driver;
static struct runtime_only runtime_only;

enum pool_phase { POOL_UNDECIDED, POOL_RUNNING, POOL_PASSING };
static _Atomic int phase;
static _Atomic int reason;                                     /* POOL_PASSING: enum poolcuda_pass_reason */
static _Atomic bool pool_begun;                                /* the device below has been touched */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER; /* over leaving POOL_UNDECIDED */

void process_first_call(void) {
    if (ENTRY_LIKELY(atomic_load_explicit(&process_own.figures_begun, memory_order_acquire))) return;
    process_notice();
    log_begin();
    stats_start(config_get()->stats);
    trace_start();
    control_start();
    atomic_store_explicit(&process_own.figures_begun, true, memory_order_release);
}

enum poolcuda_pass_reason process_pass_reason(void) {
    return atomic_load_explicit(&phase, memory_order_acquire) == POOL_PASSING
               ? (enum poolcuda_pass_reason)atomic_load(&reason)
               : POOLCUDA_PASS_no_driver;
}

struct device_driver *process_driver(void) {
    return &driver;
}

struct runtime_only *process_runtime_only(void) {
    return &runtime_only;
}

int process_context(struct device_context *context) {
    const int code = driver.ops.context_current(driver.ops.self, context);
    if (code != DEVICE_OK) return code;
    return context->handle ? DEVICE_OK : DEVICE_INVALID_CONTEXT;
}

bool ENTRY_COLD process_relieve(int ordinal) {
    struct pool_system *pool = atomic_load_explicit(&process_own.driver_pool, memory_order_acquire);
    struct device_context context;
    if (!pool) return false;
    if (ordinal < 0) {
        if (process_context(&context) != DEVICE_OK) return false;
        ordinal = context.ordinal;
    }
    return pool_relieve(pool, ordinal);
}

/* ---- start ---- */

static int find_sanitizer(struct dl_phdr_info *info, size_t size, void *found) {
    (void)size;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libsanitizer-")) return 0;
    /* compute-sanitizer's, as opposed to a compiler's libasan and its like */
    *(bool *)found =
        strstr(info->dlpi_name, "libsanitizer-collection") || strstr(info->dlpi_name, "libsanitizer-public");
    return *(bool *)found;
}

static bool sanitizer_loaded(void) {
    bool found = false;
    dl_iterate_phdr(find_sanitizer, &found);
    return found;
}

static struct pool_system *decline(enum poolcuda_pass_reason why) {
    atomic_store(&reason, (int)why);
    atomic_store_explicit(&phase, POOL_PASSING, memory_order_release);
    return NULL;
}

/* May this process be pooled at all? Declines if not. */
static bool permitted(void) {
    if (!config_get()->enable) {
        decline(POOLCUDA_PASS_disabled);
        return false;
    }
    if (sanitizer_loaded() && !config_is_set(config_get(), "POOL_ENABLE")) {
        log_line(LOG_WARNING, "compute-sanitizer is loaded and would not see the pool's blocks: every call passes "
                              "through (POOL_ENABLE=1 pools all the same)");
        decline(POOLCUDA_PASS_tool);
        return false;
    }
    return true;
}

static struct pool_system *create(const struct device_ops *ops) {
    const struct config *config = config_get();
    const struct pool_options options = {
        .segment_bytes = config->segment,
        .max_split_bytes = config->max_split,
        .limit_bytes = config->limit,
        .headroom_bytes = config->headroom,
        .trim_bytes = config->trim,
        .prealloc_bytes = config->prealloc,
        .fixed = config->fixed,
        .async = config->async,
        .free_event = config->free_mode == CONFIG_FREE_EVENT,
        .fill = config->fill,
        .export_over = exports_over,
        .attend = config->control ? control_attend : NULL,
    };
    struct pool_system *system = pool_system_create(ops, &options);
    if (!system) return decline(POOLCUDA_PASS_no_host_memory);
    control_serve(system);
    atomic_store_explicit(&phase, POOL_RUNNING, memory_order_release);
    return system;
}

static void *lookup_driver(void *arg, const char *symbol) {
    (void)arg;
    return symbols_driver_lookup(symbol);
}

static struct pool_system *start_driver_pool(void) {
    atomic_store(&pool_begun, true);
    const char *missing = device_driver_bind(&driver, lookup_driver, NULL);
    int version = 0;
    if (driver.call.driver_version && driver.call.driver_version(&version) == CUDA_SUCCESS)
        __atomic_store_n(&stats_header()->driver_version, (uint32_t)version, __ATOMIC_RELAXED);
    if (!permitted()) return NULL;
    if (missing || !symbols_hooks_usable()) {
        log_line(LOG_WARNING, "the driver cannot be pooled: %s",
                 missing ? missing : "its entry points share addresses");
        return decline(POOLCUDA_PASS_no_driver);
    }
    struct pool_system *system = create(&driver.ops);
    if (system) last_pool = system;
    atomic_store_explicit(&process_own.driver_pool, system, memory_order_release);
    return system;
}

struct pool_system *process_start_pool(void) {
    process_first_call();
    if (atomic_load_explicit(&phase, memory_order_acquire) == POOL_PASSING || !symbols_driver()) return NULL;
    const int error = errno;
    pthread_mutex_lock(&start_lock);
    if (atomic_load(&phase) == POOL_UNDECIDED) start_driver_pool();
    struct pool_system *system = atomic_load(&process_own.driver_pool);
    pthread_mutex_unlock(&start_lock);
    errno = error;
    return system;
}

struct pool_system *process_start_runtime_pool(void *(*lookup)(void *arg, const char *symbol), void *arg) {
    process_first_call();
    struct pool_system *system = NULL;
    pthread_mutex_lock(&start_lock);
    if (atomic_load(&phase) == POOL_UNDECIDED && permitted()) {
        atomic_store(&pool_begun, true);
        if (runtime_only_bind(&runtime_only, lookup, arg)) {
            system = create(&runtime_only.ops);
            __atomic_store_n(&stats_header()->runtime_only, system != NULL, __ATOMIC_RELAXED);
        } else {
            log_line(LOG_WARNING, "no driver lies below the runtime, and nothing in it can wait for its work");
            decline(POOLCUDA_PASS_no_driver);
        }
    }
    pthread_mutex_unlock(&start_lock);
    return system;
}

/* ---- new processes and exit ---- */

enum { KNOWN_NOT, KNOWN_SOON, KNOWN };

static pid_t known_by; /* the process that set `known` last */
static _Atomic bool bypassed;

bool process_bypassed(void) {
    return atomic_load_explicit(&bypassed, memory_order_relaxed);
}

/* Locks may be held by threads that are not here. A pool of the parent's is of no use: neither are its contexts. Where
 * it had none, this process begins as any other. */
static void forget_parent(void) {
    start_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    symbols_after_fork();
    const bool pooled = atomic_load(&pool_begun);
    if (pooled) {
        atomic_store(&bypassed, true);
        decline(POOLCUDA_PASS_forked);
    } else {
        atomic_store(&phase, POOL_UNDECIDED);
    }
    captures_after_fork();
    device_driver_pools_after_fork();
    exports_forget_in_child();
    imports_forget_in_child();
    stats_forget_in_child(!pooled);
    trace_forget_in_child();
    control_forget_in_child();
    if (pooled) trace_start(); /* no first call will come by here */
    callers_after_fork(pooled);
}

void process_notice(void) {
    if (ENTRY_LIKELY(atomic_load_explicit(&process_own.known, memory_order_acquire) == KNOWN)) return;
    int expected = KNOWN_NOT;
    if (!atomic_compare_exchange_strong(&process_own.known, &expected, KNOWN_SOON)) {
        while (atomic_load_explicit(&process_own.known, memory_order_acquire) != KNOWN) sched_yield();
        return;
    }
    const int error = errno;
    if (known_by != 0) {
        forget_parent();
    } else {
        /* Where the kernel cannot, only forks are noticed. */
        (void)madvise(&process_own, sizeof process_own, MADV_WIPEONFORK);
    }
    known_by = getpid();
    atomic_store_explicit(&process_own.known, KNOWN, memory_order_release);
    errno = error;
}

static void after_fork_in_child(void) {
    /* Not wiped, and not noticed by an earlier handler's CUDA call. */
    if (known_by != getpid()) memset(&process_own, 0, sizeof process_own);
    process_notice();
}

static void __attribute__((constructor)) loaded(void) {
    const int error = errno;
    process_notice();
    symbols_dlsym();
    pthread_atfork(NULL, NULL, after_fork_in_child);
    errno = error;
}

static void __attribute__((destructor)) unloaded(void) {
    process_notice();
    control_finish();
    exports_finish();
    trace_finish();
    stats_finish();
}
