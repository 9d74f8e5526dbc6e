/* SPDX-License-Identifier: MIT
 *
 * The table of unsimulated names, for the generated functions. Free of the CUDA headers, whose prototypes they would
 * contradict: each is called with arguments that it ignores.
 */
#ifndef SIM_RUNTIME_UNSIMULATED_H
#define SIM_RUNTIME_UNSIMULATED_H

#include <stdatomic.h>
#include <stddef.h>

struct simrt_unsimulated {
    const char *name;
    _Atomic unsigned long long calls;
};

extern struct simrt_unsimulated simrt_unsimulated_names[];
extern const size_t simrt_unsimulated_count;

/* Counts the call, remembers the last error and answers 801, or the initialisation error. */
int simrt_unsimulated_call(struct simrt_unsimulated *entry);

#endif
