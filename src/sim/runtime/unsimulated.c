/* SPDX-License-Identifier: MIT
 *
 * Names that the real runtime exports and this one does not simulate: they answer "not supported" and are counted, so
 * that any program loads and one can see what it lacked. The functions themselves are generated from exports.txt.
 */
#include <string.h>

#include "runtime.h"
#include "sim_runtime.h"
#include "unsimulated.h"

int simrt_unsimulated_call(struct simrt_unsimulated *entry) {
    atomic_fetch_add_explicit(&entry->calls, 1, memory_order_relaxed);
    const cudaError_t entered = simrt_enter_process();
    return simrt_result(entered ? entered : cudaErrorNotSupported);
}

unsigned long long sim_runtime_unsimulated_calls(const char *name) {
    unsigned long long calls = 0;
    for (size_t i = 0; i < simrt_unsimulated_count; i++)
        if (!name || strcmp(simrt_unsimulated_names[i].name, name) == 0)
            calls += atomic_load_explicit(&simrt_unsimulated_names[i].calls, memory_order_relaxed);
    return calls;
}
