/* SPDX-License-Identifier: MIT
 *
 * Makes the records of calls that pass through or fail.
 */
#include "entry/record.h"

#include <string.h>

#include "entry/process.h"

enum { LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 }; /* the handles that mean the default streams */

static uint64_t handle_of(struct device_stream stream) {
    if (stream.handle) return (uintptr_t)stream.handle;
    return stream.per_thread_default ? PER_THREAD_STREAM : LEGACY_STREAM;
}

/* A stream that captures must not be asked who it is, so it goes by its handle. */
static void write_down(const struct record *record, struct trace_call call, int result) {
    struct device_context context = {.ordinal = -1};
    const bool ordered = record->call == MARK_ALLOC_ASYNC || record->call == MARK_FREE_ASYNC;
    if (!atomic_load(&process_own.driver_pool) || process_context(&context) != DEVICE_OK) context.ordinal = -1;
    call.code = (uint16_t)result;
    call.stream = ordered ? handle_of(record->stream) : 0;
    call.where = trace_where(context.ordinal, ordered ? POOLCUDA_TRACE_ASYNC : POOLCUDA_TRACE_PLAIN,
                             ordered ? POOLCUDA_TRACE_STREAM_HANDLE : POOLCUDA_TRACE_NO_STREAM);
    call.runtime_door = record->runtime_door;
    trace_record(&call);
}

int ENTRY_COLD record_alloc(const struct record *record, const void *out, size_t bytes,
                            enum poolcuda_trace_served served, int result) {
    uint64_t address = 0;
    if (!trace_is_on()) return result;
    if (result == 0 && out) memcpy(&address, out, sizeof address);
    write_down(record,
               (struct trace_call){.time = trace_time(),
                                   .address = address,
                                   .size = bytes,
                                   .operation = POOLCUDA_TRACE_ALLOC,
                                   .served = (uint8_t)served},
               result);
    return result;
}

int ENTRY_COLD record_free(const struct record *record, uint64_t address, enum poolcuda_trace_served served,
                           int result) {
    if (!trace_is_on()) return result;
    write_down(record,
               (struct trace_call){.time = record->time ? record->time : trace_time(),
                                   .address = address,
                                   .operation = POOLCUDA_TRACE_RELEASE,
                                   .served = (uint8_t)served},
               result);
    return result;
}
