/* SPDX-License-Identifier: MIT
 *
 * Which streams capture: the pool's count of captures is kept from here.
 */
#ifndef POOLCUDA_ENTRY_CAPTURES_H
#define POOLCUDA_ENTRY_CAPTURES_H

#include <stdbool.h>

#include "pool/pool.h"

/* Does any stream of the process capture, or is one about to? */
bool captures_any(void);

/* pool_free_async, except that a capturing stream gets the driver's refusal. */
int captures_free_async(struct pool_system *pool, uint64_t address, struct device_stream stream, enum pool_door door);

/* A context has ended, and with it the captures of its streams. */
void captures_forget_context(struct pool_system *pool, const void *context);

/* In a forked child: nothing captures. */
void captures_after_fork(void);

#endif
