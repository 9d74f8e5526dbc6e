/* SPDX-License-Identifier: MIT
 *
 * Driver calls that may run out of device memory because of what the pool caches: they are made once more when memory
 * was given back. A call that answers "out of memory" has done nothing, so its arguments are good for another.
 */
#ifndef POOLCUDA_ENTRY_STARVED_H
#define POOLCUDA_ENTRY_STARVED_H

#include "entry/process.h"

#define STARVED_CURRENT_DEVICE (-1)

/* CUresult result = the answer. `ordinal`: the device whose memory the call takes. */
#define STARVED_CALL(ordinal, symbol, values)                                                \
    if (!symbols_driver() || !REAL(symbol)) return PROCESS_NO_DRIVER;                        \
    CUresult result = REAL(symbol) values;                                                   \
    if (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) && process_relieve(ordinal)) \
    result = REAL(symbol) values

/* The whole of a hook that does nothing else, on the current device. */
#define STARVED(symbol, values)                           \
    STARVED_CALL(STARVED_CURRENT_DEVICE, symbol, values); \
    return result

#endif
