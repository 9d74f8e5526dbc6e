/* SPDX-License-Identifier: MIT
 *
 * Reads an allocation trace: `seq,op,id,size,stream,thread,t_us`, that header line first, or a recording of POOL_TRACE
 * (poolcuda/trace.h); plain or compressed with xz.
 *
 * op is a (allocate) or f (free); an id pairs a free with its allocation, and may be used again only after the free.
 * seq grows from line to line. size is in bytes; in a free it repeats the allocation's, or is 0. t_us is microseconds
 * (any origin). stream and thread are numbers that name one each.
 *
 * Of a recording the calls that succeeded make the trace: those of the pool and those of the driver. Memory of the
 * driver that is allocated again before its free was seen is taken to have been freed just before.
 */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum trace_op { TRACE_ALLOC = 'a', TRACE_FREE = 'f' };

struct trace_event {
    uint64_t seq;
    uint64_t size; /* of the block, in frees too */
    uint64_t stream, thread, t_us;
    uint32_t lane;  /* number of the stream, 0, 1, …: dense, in the order in which they appear */
    uint32_t block; /* number of the allocation, 0, 1, …: dense, so that a player keeps its blocks in an array */
    enum trace_op op;
};

struct trace {
    struct trace_event *events;
    size_t count;
    size_t blocks; /* allocations in all */
    uint64_t peak_bytes;
    size_t peak_event; /* after this event the live bytes are first at their peak; valid when count > 0 */
    size_t live_at_end;
    uint32_t lanes; /* streams in all */
    char note[512]; /* what a recording lacks, for the user to know; empty when it is whole */
};

/* False: `error` says "FILE:LINE: what is wrong: what was expected". On success trace_free releases it. */
bool trace_read(const char *path, struct trace *trace, char *error, size_t error_size);
void trace_free(struct trace *trace);

#endif
