/* SPDX-License-Identifier: MIT
 *
 * A device for measuring the pool alone: so many bytes of memory, with nothing behind their addresses, and no work that
 * a free would have to wait for. One context, always current; no memory pools, no fences. For one thread.
 */
#ifndef BENCH_EMPTY_DEVICE_H
#define BENCH_EMPTY_DEVICE_H

#include <stdint.h>

#include "device/device.h"

struct empty_device {
    struct device_ops ops;
    uint64_t memory; /* UINT64_MAX: unlimited, and its size unknown */
    uint64_t in_use, most_in_use;
    uint64_t allocs, releases; /* that succeeded */
    uint64_t next_address;     /* none is used again */
};

/* `device` must stay where it is while its ops are used. */
void empty_device_init(struct empty_device *device, uint64_t memory);

#endif
