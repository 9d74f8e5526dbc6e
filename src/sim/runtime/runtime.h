/* SPDX-License-Identifier: MIT
 *
 * The simulated CUDA runtime: what its files share. Like the real one it keeps no device state of its own: it finds the
 * driver, makes a context current where none is, remembers the last error of each thread and turns runtime calls into
 * driver calls. Every call first initialises, then looks at its arguments.
 */
#ifndef SIM_RUNTIME_RUNTIME_H
#define SIM_RUNTIME_RUNTIME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The public functions keep default visibility where they are defined; everything else in the runtime is hidden. */
#pragma GCC visibility push(default)
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#pragma GCC visibility pop
#include <cudaTypedefs.h>

#include "driver_calls.h"

#define SIMRT_EXPORT __attribute__((visibility("default")))

/* ---- start.c: the process ---- */

enum { SIMRT_NEW, SIMRT_READY, SIMRT_FAILED, SIMRT_UNLOADED };

/* Where the process stands; READY is published after the table of driver calls is complete. */
extern _Atomic int simrt_state;
/* The version that the runtime claims, SIM_RUNTIME_VERSION or 13000. Valid from READY on, as is the number of devices.
 */
extern int simrt_version;
extern int simrt_device_count;

#define SIMRT_PLAIN_FIELD(name, version) PFN_##name##_v##version name;
#define SIMRT_PER_THREAD_FIELD(name, version, suffix) PFN_##name##_v##version##_##suffix name##_##suffix;

/* Valid from READY on. An entry point that the driver lacks answers 36, "not supported in the installed driver". */
struct simrt_driver {
    PFN_cuGetProcAddress_v12000 get_proc_address; /* NULL: the driver has the form of four arguments only */
    PFN_cuGetProcAddress_v11030 get_proc_address_v1;
    SIMRT_DRIVER_CALLS(SIMRT_PLAIN_FIELD, SIMRT_PER_THREAD_FIELD)
};
extern struct simrt_driver simrt_driver;

/* Initialises the driver. Answers 0, the process's initialisation error, or 4 once the runtime has shut down. */
cudaError_t simrt_start(void);

static inline cudaError_t simrt_enter_process(void) {
    return atomic_load_explicit(&simrt_state, memory_order_acquire) == SIMRT_READY ? cudaSuccess : simrt_start();
}

/* Looks a driver name up with either form of cuGetProcAddress. `status` may be NULL. */
CUresult simrt_look_up(const char *name, void **function, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status);

/* ---- error.c: the last error of a thread ---- */

struct simrt_thread {
    cudaError_t last_error;
    int device;        /* what cudaSetDevice chose; 0 before */
    CUcontext context; /* a context that this thread has been seen to run on, NULL: none yet */
    unsigned epoch;    /* simrt_epoch at that time */
};
extern _Thread_local struct simrt_thread simrt_thread __attribute__((tls_model("initial-exec")));

/* Turns a result of either interface into the answer of a runtime call, and remembers a failure. "Not ready" is an
 * answer, not a failure. */
static inline cudaError_t simrt_result(int code) {
    if (__builtin_expect(code != 0 && code != cudaErrorNotReady, 0)) simrt_thread.last_error = (cudaError_t)code;
    return (cudaError_t)code;
}

/* ---- context.c: the context of a thread ---- */

/* Counts device resets: contexts seen before the last one may be dead. */
extern _Atomic unsigned simrt_epoch;

cudaError_t simrt_enter_context_slow(void);

/* Makes sure that a usable context is current: the thread's own if it has one, else its device's primary context. */
static inline cudaError_t simrt_enter_context(void) {
    CUcontext current;
    if (__builtin_expect(atomic_load_explicit(&simrt_state, memory_order_acquire) == SIMRT_READY &&
                             simrt_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current &&
                             current == simrt_thread.context &&
                             simrt_thread.epoch == atomic_load_explicit(&simrt_epoch, memory_order_relaxed),
                         1))
        return cudaSuccess;
    return simrt_enter_context_slow();
}

/* Retains the device's primary context once for this runtime and gives it; the device must be in range. */
CUresult simrt_primary_context(int device, CUcontext *context);
/* Makes the device's primary context current, or only chooses the device where the claimed version is older than 12. */
CUresult simrt_choose_device(int device);
/* The device of the current context, else the chosen one. */
int simrt_current_device(void);
CUresult simrt_reset_device(void);

#define SIMRT_RETURN_IN_PROCESS(result)                                          \
    do {                                                                         \
        const cudaError_t simrt_entered = simrt_enter_process();                 \
        return simrt_result(simrt_entered ? (int)simrt_entered : (int)(result)); \
    } while (0)
#define SIMRT_RETURN_IN_CONTEXT(result)                                          \
    do {                                                                         \
        const cudaError_t simrt_entered = simrt_enter_context();                 \
        return simrt_result(simrt_entered ? (int)simrt_entered : (int)(result)); \
    } while (0)

/* Defines a call that takes a stream, and its variant for which stream 0 is the thread's own default stream. */
#define SIMRT_STREAM_CALL(name, parameters, driver_name, arguments)         \
    __typeof__(name) name##_ptsz SIMRT_EXPORT;                              \
    cudaError_t name parameters {                                           \
        SIMRT_RETURN_IN_CONTEXT(simrt_driver.driver_name arguments);        \
    }                                                                       \
    cudaError_t name##_ptsz parameters {                                    \
        SIMRT_RETURN_IN_CONTEXT(simrt_driver.driver_name##_ptsz arguments); \
    }

/* ---- copy_3d.c ---- */

/* The driver's terms for a copy; an error code of the runtime's. */
int simrt_describe_box(CUDA_MEMCPY3D *copy, const struct cudaMemcpy3DParms *box);

/* ---- device.c ---- */

static inline bool simrt_device_is_valid(int device) {
    return device >= 0 && device < simrt_device_count;
}
/* An attribute of a valid device, 0 where the driver does not know it. */
int simrt_device_attribute(CUdevice_attribute attribute, int device);

#endif
