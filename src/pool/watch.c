/* SPDX-License-Identifier: MIT
 *
 * What is told of each call, where that is asked for: the log's line (POOL_LOG=3) and the record in the trace
 * (POOL_TRACE). Of what the pool passes on or refuses, the doors tell.
 */
#include "pool/internal.h"

#include "config/log.h"
#include "trace/trace.h"

/* A hit is compiled with all that it calls in one; this is called where it is wanted. */
#define APART __attribute__((noinline))

/* Of a free: what has to wait until the pool's lock is given up. */
static _Thread_local struct trace_call freed __attribute__((tls_model("initial-exec")));

_Thread_local struct watch_asked watch_asked __attribute__((tls_model("initial-exec")));

static inline uint64_t where_of(const struct pool *pool, bool on_stream) {
    return trace_where(pool->device->ordinal,
                       pool->source.kind == SEGMENT_ASYNC ? POOLCUDA_TRACE_ASYNC : POOLCUDA_TRACE_PLAIN,
                       on_stream ? POOLCUDA_TRACE_STREAM_ID : POOLCUDA_TRACE_NO_STREAM);
}

static inline uint64_t when(struct trace_block *own) {
    if (__builtin_expect(own != NULL, 1)) return trace_when(own);
    trace_interrupt();
    return trace_time();
}

static void COLD record_alloc(const struct pool *pool, struct watch_block block, size_t requested, uint64_t stream,
                              enum pool_door door, bool took_segment, uint64_t time) {
    const struct trace_call call = {
        .time = time,
        .address = block.address,
        .size = requested,
        .number = block.id,
        .stream = stream,
        .where = where_of(pool, stream != 0),
        .operation = POOLCUDA_TRACE_ALLOC,
        .served = took_segment ? POOLCUDA_TRACE_BY_MISS : POOLCUDA_TRACE_BY_HIT,
        .runtime_door = door == POOL_DOOR_RUNTIME,
    };
    trace_record(&call);
}

/* The program does not have the block yet, so nobody frees it. */
void APART watch_hit(const struct pool *pool, struct watch_block block, size_t requested, uint64_t stream,
                     enum pool_door door) {
    if (!trace_is_on()) return;
    struct trace_block *own = trace_own;
    const uint64_t time = when(own);
    if (__builtin_expect(!own, 0) ||
        !trace_put_hit(own, time, block.address, requested, block.id, stream, door == POOL_DOOR_RUNTIME))
        record_alloc(pool, block, requested, stream, door, false, time);
}

void APART watch_alloc(const struct request *request, struct watch_block block, bool took_segment) {
    const struct pool *pool = request->pool;
    const enum pool_door door = request->door;
    const uint64_t stream = request->on ? request->on->identity.id : 0;
    if (!took_segment)
        watch_hit(pool, block, request->requested, stream, door);
    else if (trace_is_on())
        record_alloc(pool, block, request->requested, stream, door, true, trace_time());
    if (__builtin_expect(pool->system->log_all, 0))
        log_line(LOG_ALL, "device %d: %zu bytes at %#llx: %s", pool->device->ordinal, request->requested,
                 (unsigned long long)block.address, took_segment ? "miss" : "hit");
}

bool APART watch_free_hit(const struct block *block, uint64_t stream, enum pool_door door) {
    if (!trace_is_on()) return true;
    struct trace_block *own = trace_own;
    return own && trace_put_free(own, trace_when(own), block->id, stream, door == POOL_DOOR_RUNTIME);
}

static void COLD record_free_later(const struct pool *pool, const struct block *block, enum pool_door door,
                                   bool on_stream, uint64_t time) {
    freed = (struct trace_call){
        .time = time,
        .address = block->address,
        .number = block->id,
        .stream = on_stream ? watch_asked.stream : 0,
        .where = where_of(pool, on_stream),
        .operation = POOLCUDA_TRACE_RELEASE,
        .served = POOLCUDA_TRACE_BY_HIT,
        .runtime_door = door == POOL_DOOR_RUNTIME,
    };
}

void APART watch_free(const struct pool *pool, const struct block *block, enum pool_door door) {
    if (!trace_is_on()) return;
    struct trace_block *own = trace_own;
    const bool on_stream = watch_asked.address == block->address;
    const uint64_t stream = on_stream ? watch_asked.stream : 0;
    if (__builtin_expect(stream == WATCH_KEPT, 0)) return;
    const uint64_t time = when(own);
    if (__builtin_expect(!own, 0) || !trace_put_free(own, time, block->id, stream, door == POOL_DOOR_RUNTIME))
        record_free_later(pool, block, door, on_stream, time);
}

void APART watch_freed(const struct pool *pool, uint64_t address) {
    watch_asked.address = 0;
    if (__builtin_expect(freed.operation != 0, 0)) {
        trace_record(&freed);
        freed.operation = 0;
    }
    if (pool->system->log_all)
        log_line(LOG_ALL, "device %d: free of %#llx", pool->device->ordinal, (unsigned long long)address);
}
