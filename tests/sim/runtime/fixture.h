/* SPDX-License-Identifier: MIT
 *
 * What the tests of the runtime over the simulated driver share.
 */
#ifndef RUNTIME_FIXTURE_H
#define RUNTIME_FIXTURE_H

#include <cuda_runtime_api.h>

#include "testing.h"

#define CHECK_CUDA(call) assert_int_equal((call), cudaSuccess)
/* The call answers the code, and leaves it as the last error once. */
#define CHECK_FAILS(call, code)                            \
    do {                                                   \
        assert_int_equal((call), (code));                  \
        assert_int_equal(cudaGetLastError(), (code));      \
        assert_int_equal(cudaGetLastError(), cudaSuccess); \
    } while (0)

#endif
