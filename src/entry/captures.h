/* SPDX-License-Identifier: MIT
 *
 * Which streams capture: the pool's count of captures is kept from here.
 */
#ifndef POOLCUDA_ENTRY_CAPTURES_H
#define POOLCUDA_ENTRY_CAPTURES_H

#include <stdbool.h>

#include <cuda.h>

#include "pool/pool.h"

/* Does any stream of the process capture, or is one about to? */
bool captures_any(void);

/* A stream is destroyed by `real`, and its capture ends with it. */
CUresult captures_destroy_stream(CUresult(CUDAAPI *real)(CUstream), CUstream stream);

/* A context has ended, and with it the captures of its streams. */
void captures_forget_context(struct pool_system *pool, const void *context);

/* In a forked child: nothing captures. */
void captures_after_fork(void);

#endif
