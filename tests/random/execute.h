/* SPDX-License-Identifier: MIT
 *
 * What the parts of the runner have in common: the program that runs, and how it fails.
 */
#ifndef RANDOM_EXECUTE_H
#define RANDOM_EXECUTE_H

#include <stdatomic.h>

#include "calls.h"
#include "program.h"

struct live_block {
    uint64_t address; /* 0: the allocation failed, or it is freed */
    uint64_t bytes;
    uint64_t freed_address; /* where it was */
    bool async;
    uint8_t context, device, memory_pool;
    uint32_t life;               /* unlike that of any other block of the process; 0: none */
    _Atomic(uint64_t) buffer_id; /* as the driver told it first, 0: was not asked */
    _Atomic(uint64_t) lane;      /* that used it last, 0: none did */
};

struct live_stream {
    cudaStream_t handle;
    bool alive, unseen;
    uint8_t context;
    uint64_t lane;
};

struct live_memory_pool {
    cudaMemPool_t handle; /* NULL: none, or destroyed */
    uint8_t device;
    _Atomic(uint64_t) live_bytes;
};

/* All but the atomics is written by one operation and read by those that follow it. */
struct running {
    const struct program *program;
    struct live_block blocks[BLOCKS_MAX];
    struct live_stream streams[STREAMS_MAX];
    cudaEvent_t events[EVENTS_MAX];
    cudaEvent_t forks[GRAPHS_MAX][2];
    cudaGraphExec_t graphs[GRAPHS_MAX];
    uint8_t graph_contexts[GRAPHS_MAX];
    uint8_t capturing[STREAMS_MAX]; /* the graph that the stream captures into */
    CUcontext created[CONTEXTS_MAX];
    uint8_t devices[CONTEXTS_MAX];
    uint32_t generations[CONTEXTS_MAX];
    struct live_memory_pool memory_pools[MEMORY_POOLS_MAX];
    _Atomic(uint16_t) returned[THREADS_MAX];
    atomic_bool failed;
};
extern struct running running;

/* The program has failed, for the reason given if it is the first. */
void fail(size_t number, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* False, and the program has failed, when the answer is none of those expected. */
bool expect(size_t number, int answer, const char *call, int expected, int or_else);

#define DO(call) expect(number, (int)(call), #call, 0, 0)

bool use_context(size_t number, unsigned context);

static inline const struct calls *family(const struct operation *operation) {
    return operation->per_thread ? &calls_per_thread : &calls_legacy;
}

/* The operation's stream as the functions of its family are given it: their default stream as 0. */
static inline cudaStream_t stream_of(const struct operation *operation) {
    if (operation->stream < LEGACY_FIRST) return running.streams[operation->stream].handle;
    if (operation->stream < PER_THREAD_FIRST) return operation->per_thread ? cudaStreamLegacy : NULL;
    return operation->per_thread ? NULL : cudaStreamPerThread;
}

/* A stream as any function takes it. */
static inline cudaStream_t stream_named(unsigned stream) {
    if (stream < LEGACY_FIRST) return running.streams[stream].handle;
    return stream < PER_THREAD_FIRST ? cudaStreamLegacy : cudaStreamPerThread;
}

void block_used(unsigned stream, unsigned block);
bool launch(const struct operation *operation, size_t number, unsigned stream);

/* ---- execute_memory.c: blocks ---- */

bool allocate(const struct operation *operation, size_t number);
bool allocate_too_much(const struct operation *operation, size_t number);
bool release(const struct operation *operation, size_t number);
bool release_wrong(const struct operation *operation, size_t number);
bool read_back(const struct operation *operation, size_t number);
bool fill(const struct operation *operation, size_t number);

/* ---- execute_questions.c ---- */

bool look_up(const struct operation *operation, size_t number);
bool mark(const struct operation *operation, size_t number);

/* ---- execute_pools.c: the program's own memory pools ---- */

bool memory_pools_begin(size_t number);
bool memory_pool_operation(const struct operation *operation, size_t number);
/* At the end: destroys those that are left, and leaves the default ones as they were. */
bool memory_pools_end(size_t number);

/* ---- execute_sharing.c: memory for other processes ---- */

bool sharing_operation(const struct operation *operation, size_t number);
/* Before a context's memory goes: nobody else has it open; CONTEXTS_MAX: any context's. */
bool sharing_leave(size_t number, unsigned context);
bool sharing_end(size_t number);

#endif
