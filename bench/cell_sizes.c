/* SPDX-License-Identifier: MIT
 *
 * The sizes of the allocations of traces; see cell_sizes.h.
 */
#include "cell_sizes.h"

#include <stdio.h>
#include <stdlib.h>

#include "trace.h"

static bool add(struct cell_sizes *sizes, const char *path, const char *program) {
    struct trace trace;
    char error[512];
    if (!trace_read(path, &trace, error, sizeof error)) {
        fprintf(stderr, "%s\n", error);
        return false;
    }
    size_t *values = realloc(sizes->values, (sizes->count + trace.blocks + 1) * sizeof *values);
    if (values != NULL) {
        sizes->values = values;
        for (size_t i = 0; i < trace.count; i++) {
            if (trace.events[i].op == TRACE_ALLOC) values[sizes->count++] = trace.events[i].size;
        }
    } else {
        fprintf(stderr, "%s: out of memory\n", program);
    }
    trace_free(&trace);
    return values != NULL;
}

bool cell_sizes_read(struct cell_sizes *sizes, char *const *paths, size_t count, const char *program) {
    *sizes = (struct cell_sizes){0};
    for (size_t i = 0; i < count; i++) {
        if (!add(sizes, paths[i], program)) return false;
    }
    if (sizes->count == 0) fprintf(stderr, "%s: the traces hold no allocation\n", program);
    return sizes->count > 0;
}
