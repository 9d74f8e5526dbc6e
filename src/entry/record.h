/* SPDX-License-Identifier: MIT
 *
 * The trace's records of what the pool did not serve: passed to the driver, or refused. What it served it has recorded
 * itself. Each call of the program is recorded by the door below, where it comes there (mark.h); else by the runtime
 * door.
 */
#ifndef POOLCUDA_ENTRY_RECORD_H
#define POOLCUDA_ENTRY_RECORD_H

#include <stddef.h>

#include "device/device.h"
#include "entry/mark.h"
#include "trace/trace.h"

struct record {
    enum mark_call call;
    bool runtime_door;
    struct device_stream stream; /* of the stream-ordered calls */
    uint64_t time;               /* of a free: record_begin */
};

/* Before the memory is given up. */
static inline uint64_t record_begin(void) {
    return trace_is_on() ? trace_time() : 0;
}

/* Record an allocation, or a free, that was answered with `result`; it is the value too. out: where the address is,
 * read only after success; may be NULL. */
int record_alloc(const struct record *record, const void *out, size_t bytes, enum poolcuda_trace_served served,
                 int result);
int record_free(const struct record *record, uint64_t address, enum poolcuda_trace_served served, int result);

#endif
