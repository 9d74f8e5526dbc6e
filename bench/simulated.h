/* SPDX-License-Identifier: MIT
 *
 * What the simulated driver offers beside the real names (src/sim/sim.h), where the process runs on it.
 */
#ifndef BENCH_SIMULATED_H
#define BENCH_SIMULATED_H

#include <stdint.h>

#include "sim.h"

struct simulated {
    int (*launch)(const struct sim_kernel *kernel, void *stream);
    uint64_t (*calls)(const char *name);
};

/* NULL when the process runs on a real driver, or on none yet: to be asked after its first CUDA call. */
const struct simulated *simulated_driver(void);

#endif
