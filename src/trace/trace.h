/* SPDX-License-Identifier: MIT
 *
 * POOL_TRACE: every allocation and free of the process goes into a file (poolcuda/trace.h). Each thread fills a block
 * of its own without a lock or a system call; a block that is full, or has been open for about a second when the next
 * record comes, is written out. So a process that is killed loses the last block of each thread. A file that cannot be
 * written costs one warning on the log; the program goes on without a trace.
 *
 * A forked child, and a program that another one became (exec), begin a file of their own. A file that exists is never
 * written over.
 *
 * None of these changes errno; all may be called by any thread. No lock of the caller's that a system call might need
 * is held, but for trace_time.
 */
#ifndef POOLCUDA_TRACE_TRACE_H
#define POOLCUDA_TRACE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "poolcuda/trace.h"
#include "trace/counter.h"

/* What is recorded of a call. */
struct trace_call {
    uint64_t time; /* trace_time */
    uint64_t address, size, number, stream;
    uint64_t where; /* trace_where */
    uint16_t code;
    uint8_t operation; /* enum poolcuda_trace_operation */
    uint8_t served;    /* enum poolcuda_trace_served */
    bool runtime_door;
};

/* The bits of a struct poolcuda_trace_where: made and compared as one. */
static inline uint64_t trace_where(int device, enum poolcuda_trace_memory memory,
                                   enum poolcuda_trace_stream_kind stream_kind) {
    return (uint32_t)device | (uint64_t)memory << 32 | (uint64_t)stream_kind << 40;
}

extern bool trace_flag;
extern enum poolcuda_trace_counter trace_counter; /* set before the flag */

/* Is a trace wanted, and to be had? */
static inline bool trace_is_on(void) {
    return __builtin_expect(__atomic_load_n(&trace_flag, __ATOMIC_RELAXED), 0);
}

/* The counter now. */
static inline uint64_t trace_time(void) {
    return counter_now(trace_counter);
}

/* Read POOL_TRACE. The file is made with the first record. */
void trace_start(void);

/* While the trace is on. */
void trace_record(const struct trace_call *call);

/* What a thread fills; the rest of it is writer.c's. */
struct trace_block {
    uint64_t base;
    uint64_t time, tick; /* the counter as it was last read, and the tick then */
    unsigned run, left;  /* records that may have that time too: as it was read, and still */
    uint64_t *last;      /* from here on there is no room for every record */
    _Atomic(uint64_t *) next;
    struct trace_place {
        uint64_t first, stream, where;
    } places[POOLCUDA_TRACE_PLACES];
};
extern _Thread_local struct trace_block *trace_own __attribute__((tls_model("initial-exec")));

/* Both are counted up alike where each stream has memory of its own: their difference is the same. */
static inline unsigned trace_place_number(uint64_t number, uint64_t stream) {
    return (unsigned)(stream + 4 * (number >> 40)) % POOLCUDA_TRACE_PLACES;
}

/* Whose record was the latest of the process, on a cache line of its own. */
extern struct trace_latest { _Alignas(64) _Atomic(struct trace_block *) block; } trace_latest;

/* A thread without a block records something, or is about to: under the lock that gives memory up. */
static inline void trace_interrupt(void) {
    atomic_store_explicit(&trace_latest.block, NULL, memory_order_relaxed);
}

static inline bool trace_is_latest(const struct trace_block *block) {
    return atomic_load_explicit(&trace_latest.block, memory_order_relaxed) == block;
}

uint64_t trace_when_anew(struct trace_block *block);

/* The time for a record that comes now. Reading the counter is most of what a record costs, so amid calls that follow
 * one another closely a record has the time of the one before it: while no other thread has recorded anything, which
 * leaves the order as it was, and for no longer than a tick. A free asks under the lock that gives its memory up, and
 * an allocation after it had the lock that gave the memory: so it sees who was the latest when that was freed. */
static inline uint64_t trace_when(struct trace_block *block) {
    if (__builtin_expect(block->left == 0 || !trace_is_latest(block) || counter_tick() != block->tick, 0))
        return trace_when_anew(block);
    block->left--;
    return block->time;
}

#define TRACE_NEAR (UINT64_C(1) << (POOLCUDA_TRACE_FREE_BITS - 1))

/* The first word of a short record, without what its kind has in bits 38 and more. */
static inline uint64_t trace_word(enum poolcuda_trace_kind kind, uint64_t time, unsigned place, bool runtime_door) {
    return time | (uint64_t)kind << POOLCUDA_TRACE_KIND_SHIFT | (uint64_t)runtime_door << POOLCUDA_TRACE_DOOR_SHIFT |
           (uint64_t)place << POOLCUDA_TRACE_PLACE_SHIFT;
}

/* trace_record of a hit, where it fits into two words: else false, and nothing is done. Cannot block. Numbers near one
 * another are of one pool, so that the place's memory is this one's; and a pool's streams are told by their ids, and no
 * stream by 0. */
static inline bool trace_put_hit(struct trace_block *block, uint64_t now, uint64_t address, uint64_t size,
                                 uint64_t number, uint64_t stream, bool runtime_door) {
    const unsigned n = trace_place_number(number, stream);
    const struct trace_place *place = &block->places[n];
    const uint64_t time = (now - block->base) >> COUNTER_SHIFT, ahead = number - place->first;
    /* What is no multiple of 512 becomes too large. */
    const uint64_t unit = address >> 9 | address << 55;
    uint64_t *at = atomic_load_explicit(&block->next, memory_order_relaxed);
    if (__builtin_expect((time >> POOLCUDA_TRACE_TIME_BITS | ahead >> 16 | (place->stream ^ stream) | size >> 32 |
                          unit >> 40) != 0 ||
                             at >= block->last,
                         0))
        return false;
    at[0] = trace_word(POOLCUDA_TRACE_HIT, time, n, runtime_door) | unit >> 32 << 40 | ahead << 48;
    at[1] = size | unit << 32;
    atomic_store_explicit(&block->next, at + 2, memory_order_release);
    return true;
}

/* The same of a free of the pool's memory, in one word. */
static inline bool trace_put_free(struct trace_block *block, uint64_t now, uint64_t number, uint64_t stream,
                                  bool runtime_door) {
    const unsigned n = trace_place_number(number, stream);
    const struct trace_place *place = &block->places[n];
    const uint64_t time = (now - block->base) >> COUNTER_SHIFT;
    uint64_t *at = atomic_load_explicit(&block->next, memory_order_relaxed);
    if (__builtin_expect((time >> POOLCUDA_TRACE_TIME_BITS |
                          (number - place->first + TRACE_NEAR) >> POOLCUDA_TRACE_FREE_BITS |
                          (place->stream ^ stream)) != 0 ||
                             at >= block->last,
                         0))
        return false;
    at[0] = trace_word(POOLCUDA_TRACE_FREE, time, n, runtime_door) | number << (64 - POOLCUDA_TRACE_FREE_BITS);
    atomic_store_explicit(&block->next, at + 1, memory_order_release);
    return true;
}

/* The process ends: what its threads have recorded is written. Later records are written one by one. */
void trace_finish(void);

/* In a new process: its parent's records are none of its own. Async-signal-safe, as trace_start is where the
 * configuration has been read; that begins anew. */
void trace_forget_in_child(void);

#endif
