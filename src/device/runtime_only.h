/* SPDX-License-Identifier: MIT
 *
 * struct device_ops over a CUDA runtime with no driver below it: an emulator, a remoting layer, a mock that exports no
 * more than cudaMalloc and cudaFree. Made of whatever runtime functions are there.
 */
#ifndef POOLCUDA_DEVICE_RUNTIME_ONLY_H
#define POOLCUDA_DEVICE_RUNTIME_ONLY_H

#include <stdatomic.h>

#include "device/device.h"

struct runtime_only {
    int (*memory_alloc)(void **, size_t); /* cudaMalloc; needed */
    int (*memory_free)(void *);           /* cudaFree; needed */
    int (*synchronize)(void);             /* cudaDeviceSynchronize; this and the rest: NULL where not exported */
    int (*stream_synchronize)(void *);
    int (*memory_fill)(void *, int, size_t);
    int (*memory_info)(size_t *, size_t *);
    int (*get_device)(int *);
    int (*set_device)(int);
    int (*get_last_error)(void);
    bool asynchronous;     /* it exports something that can start asynchronous work */
    struct device_ops ops; /* ops.self is this structure */

    _Atomic uint64_t reset; /* bit of a device: it was reset */
};

/* Fill the pointers by `lookup`, which returns NULL for what is not there. False when the pool cannot work over this
 * runtime: a needed function is missing, or work may be under way that nothing here can wait for. */
bool runtime_only_bind(struct runtime_only *runtime, void *(*lookup)(void *arg, const char *symbol), void *arg);

/* The device was reset: its memory is gone. */
void runtime_only_note_reset(struct runtime_only *runtime, int ordinal);

#endif
