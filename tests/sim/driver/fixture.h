/* SPDX-License-Identifier: MIT
 *
 * What the tests of the simulated driver share: a fresh primary context, and checks that show both codes.
 */
#ifndef SIM_DRIVER_FIXTURE_H
#define SIM_DRIVER_FIXTURE_H

#include <cuda.h>
#include <unistd.h>

#include "sim.h"
#include "testing.h"

#define CHECK(call) assert_int_equal((call), CUDA_SUCCESS)
#define CHECK_CODE(call, code) assert_int_equal((call), (code))

/* Device 0's primary context, with nothing in it, current to the thread. */
static inline CUcontext fresh_context(void) {
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxReset(0));
    while (cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS) continue;
    while (cuCtxPopCurrent(NULL) == CUDA_SUCCESS) continue;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuCtxSynchronize()); /* the default pools give back what earlier cases freed */
    return context;
}

/* Device memory that the driver says is taken. */
static inline size_t taken_bytes(void) {
    size_t free_bytes, total_bytes;
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    return total_bytes - free_bytes;
}

/* Keeps the stream busy until sim_release_kernels. */
static inline void hold_stream(CUstream stream) {
    const struct sim_kernel kernel = {.until_released = true};
    CHECK((CUresult)sim_launch(&kernel, stream));
}

static inline CUstream new_stream(unsigned flags) {
    CUstream stream;
    CHECK(cuStreamCreate(&stream, flags));
    return stream;
}

#endif
