/* SPDX-License-Identifier: MIT
 *
 * Names that the real runtime exports and this one does not simulate: they answer "not supported" and are counted, so
 * that any program loads and one can see what it lacked. The functions themselves are generated from exports.txt.
 * Where SIM_COUNTS_FILE names the file of the driver's counts, these go into a file beside it, FILE.runtime, in the
 * same form; there is none when nothing was lacked.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"
#include "sim_runtime.h"
#include "unsimulated.h"

static pid_t loaded_by;

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

__attribute__((constructor)) static void note_process(void) {
    loaded_by = getpid();
}

__attribute__((destructor)) static void write_counts(void) {
    char path[4096];
    const char *beside = getenv("SIM_COUNTS_FILE");
    if (!beside || getpid() != loaded_by || sim_runtime_unsimulated_calls(NULL) == 0) return;
    if (snprintf(path, sizeof(path), "%s.runtime", beside) >= (int)sizeof(path)) return;
    FILE *file = fopen(path, "we");
    if (!file) {
        fprintf(stderr, "simulated CUDA: %s: %s\n", path, strerror(errno));
        return;
    }
    for (size_t i = 0; i < simrt_unsimulated_count; i++) {
        const unsigned long long calls = sim_runtime_unsimulated_calls(simrt_unsimulated_names[i].name);
        if (calls) fprintf(file, "%s %llu unsimulated\n", simrt_unsimulated_names[i].name, calls);
    }
    fclose(file);
}
