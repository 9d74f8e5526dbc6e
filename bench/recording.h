/* SPDX-License-Identifier: MIT
 *
 * Reads what POOL_TRACE has recorded (poolcuda/trace.h): the calls of all threads, in the order of their times.
 *
 * A recording that ends amid a block, or whose process did not end in order, is read as far as it goes; `note` says
 * so. Nothing in a file is trusted.
 */
#ifndef BENCH_RECORDING_H
#define BENCH_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "poolcuda/trace.h"

struct recorded {
    uint64_t ns; /* since the recording began */
    uint64_t address, size, number, stream;
    uint32_t thread;
    int32_t device;
    uint16_t code;
    uint8_t operation, served, memory, stream_kind;
    bool runtime_door;
    uint64_t time, order; /* by which they are sorted: of the counter; of their place in the file */
};

enum { RECORDING_NOTE_BYTES = 512 };

struct recording {
    struct poolcuda_trace_header header;
    struct recorded *calls;
    size_t count;
    char note[RECORDING_NOTE_BYTES]; /* what is missing, empty when nothing is */
};

/* Are these the first bytes of a recording? */
bool recording_is_one(const void *data, size_t size);

/* False: `error` says "PATH: what is wrong". On success recording_free releases it. */
bool recording_read(const char *path, const void *data, size_t size, struct recording *recording, char *error,
                    size_t error_size);
void recording_free(struct recording *recording);

#endif
