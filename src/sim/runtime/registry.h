/* SPDX-License-Identifier: MIT
 *
 * What compiled programs register before main: fat binaries, and in them kernels, known by the address of a host
 * function, and managed variables.
 */
#ifndef SIM_RUNTIME_REGISTRY_H
#define SIM_RUNTIME_REGISTRY_H

#include "runtime.h"

struct simrt_binary;

struct simrt_kernel {
    const char *name; /* as compiled, of the program */
    struct simrt_binary *binary;
    struct simrt_kernel *next;          /* of the same binary */
    _Atomic(CUkernel) handle;           /* the driver's, NULL until first asked for */
    _Atomic int dynamic_shared_limit;   /* bytes, -1: the device's default */
    _Atomic int shared_memory_carveout; /* percent, -1: the device's choice */
};

/* The kernel of a host function's address, or of a driver handle that was given out for it; NULL: not registered. */
struct simrt_kernel *simrt_kernel_of(const void *function);
/* The driver's handle of a kernel; loads its fat binary when first asked. Needs a context. */
cudaError_t simrt_kernel_handle(struct simrt_kernel *kernel, CUkernel *handle);

/* The architecture of the code that a device of the given one runs for the kernel, as 75 for 7.5. */
int simrt_kernel_architecture(const struct simrt_kernel *kernel, int device_architecture);

#endif
