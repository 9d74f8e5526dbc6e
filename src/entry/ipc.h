/* SPDX-License-Identifier: MIT
 *
 * What the ends of contexts mean for memory that processes share (driver_ipc.c).
 */
#ifndef POOLCUDA_ENTRY_IPC_H
#define POOLCUDA_ENTRY_IPC_H

#include "entry/process.h"

/* A life of a context is over, and its pool has been settled: nobody can open its blocks any more, and what was opened
 * in it is closed. The number of the life (device_driver_context_serial) was asked for before its end. */
void ipc_context_gone(struct pool_system *pool, const void *context, uint64_t serial);

#endif
