/* SPDX-License-Identifier: MIT
 *
 * The file of POOL_TRACE: what a process allocated and freed, call by call. Written by its process only; native byte
 * order. A header, then blocks; each block holds records of one thread, in the order in which it made them, and is
 * written whole, so that what is whole in a file that ends amid a block is of use. The blocks of several threads follow
 * one another as they were filled: a reader orders the records by their times.
 *
 * A record is one or more words of 8 bytes; the first says what it is. Of a call that the pool answered from what it
 * had, all is in two words, and of most frees in one; others are written out. Where a record names a place, that was
 * said before in the same block.
 *
 * Times are those of a counter, which runs at one speed on all processors. The header and each block tell what
 * CLOCK_MONOTONIC said at one value of it; a time between them lies in proportion. A free has the time at which the
 * memory was given up, an allocation one at which it was already had: so of two owners of the same bytes the first
 * ends before the second begins. Of a thread's records, amid calls within about a microsecond of one another, up to
 * four have the time of the first of them where no other thread recorded anything between: they follow one another as
 * they stand, and come before what has a later time. Such a time is a microsecond or two early; where the thread paused
 * between them, a tick of the kernel (1 to 10 ms) at most.
 */
#ifndef POOLCUDA_TRACE_H
#define POOLCUDA_TRACE_H

#include <stdint.h>

#ifdef __cplusplus
#define POOLCUDA_TRACE_ASSERT(condition, text) static_assert(condition, text)
#else
#define POOLCUDA_TRACE_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#define POOLCUDA_TRACE_MAGIC "poolrec" /* with its end 8 bytes */
#define POOLCUDA_TRACE_VERSION 1u
#define POOLCUDA_TRACE_BLOCK_MAGIC UINT32_C(0x4b4c4250) /* "PBLK" */
#define POOLCUDA_TRACE_BLOCK_BYTES 65536u               /* most that a block has, with its head */
#define POOLCUDA_TRACE_PLACES 64u

/* Where its counter comes from. */
enum poolcuda_trace_counter {
    POOLCUDA_TRACE_NANOSECONDS, /* CLOCK_MONOTONIC */
    POOLCUDA_TRACE_TSC,         /* x86-64 */
    POOLCUDA_TRACE_CNTVCT       /* AArch64 */
};

struct poolcuda_trace_moment {
    uint64_t counter, ns; /* ns: CLOCK_MONOTONIC at that time */
};

struct poolcuda_trace_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint32_t pid, uid;
    uint32_t counter;    /* enum poolcuda_trace_counter */
    uint32_t time_shift; /* times in records are in units of 2^time_shift of the counter */
    struct poolcuda_trace_moment begin;
    uint64_t begin_unix_ns; /* CLOCK_REALTIME at that time */
    char library_version[32];
    char command[64];
    uint64_t reserved[13];
};

enum { POOLCUDA_TRACE_LAST = 1 }; /* block flags: written as the process ended in order; it may be without records */

struct poolcuda_trace_block {
    uint32_t magic;
    uint32_t bytes;  /* with this head */
    uint64_t number; /* 0, 1, … in the file */
    uint64_t base;   /* the counter at time 0 of its records */
    struct poolcuda_trace_moment end;
    uint64_t lost;   /* records of the process, up to here, that could not be written */
    uint32_t thread; /* as gettid(2) tells it */
    uint32_t flags;
    uint64_t reserved;
};

/* The first word of a record. Bits 0–27: its time, since the block's base. */
#define POOLCUDA_TRACE_TIME_BITS 28u
#define POOLCUDA_TRACE_KIND_SHIFT 28u  /* 3 bits: enum poolcuda_trace_kind */
#define POOLCUDA_TRACE_DOOR_SHIFT 31u  /* 1 bit: by the runtime door, else by the driver door */
#define POOLCUDA_TRACE_PLACE_SHIFT 32u /* 6 bits: HIT, FREE, PLACE: number of a place */
#define POOLCUDA_TRACE_FREE_BITS 26u

enum poolcuda_trace_kind {
    /* Two words: an allocation that was served without a driver allocation. The rest of the first: bits 40–47: bits
     * 32–39 of its address / 512; bits 48–63: its number, less the place's first. The second: bits 0–31: its size; bits
     * 32–63: bits 0–31 of its address / 512. */
    POOLCUDA_TRACE_HIT = 1,
    /* One word: a free of memory of the pool. The place's stream is the one in whose order it was freed. Bits 38–63:
     * the lowest 26 bits of the allocation's number, which is less than 2^25 away from the place's first. */
    POOLCUDA_TRACE_FREE,
    /* What a place means from here on: struct poolcuda_trace_place. It has no time. */
    POOLCUDA_TRACE_PLACE,
    /* Any call, written out: struct poolcuda_trace_call. */
    POOLCUDA_TRACE_CALL
};

enum poolcuda_trace_stream_kind {
    POOLCUDA_TRACE_NO_STREAM,    /* cudaMalloc, cudaFree and their like */
    POOLCUDA_TRACE_STREAM_ID,    /* a number that no other stream of the process has */
    POOLCUDA_TRACE_STREAM_HANDLE /* as the program gave it: may be another stream's after that one was destroyed */
};

enum poolcuda_trace_memory {
    POOLCUDA_TRACE_PLAIN, /* cudaMalloc */
    POOLCUDA_TRACE_ASYNC  /* cudaMallocAsync */
};

/* Where memory is, and in the order of which stream a call was made. */
struct poolcuda_trace_where {
    int32_t device; /* ordinal; -1: not known */
    uint8_t memory; /* enum poolcuda_trace_memory, in frees too; where it is not the pool's, of the call */
    uint8_t stream_kind;
    uint8_t reserved[2];
};

/* Four words. */
struct poolcuda_trace_place {
    uint64_t word;
    uint64_t first; /* number of the allocation that numbers in its records count from */
    uint64_t stream;
    struct poolcuda_trace_where where;
};

enum poolcuda_trace_operation { POOLCUDA_TRACE_ALLOC = 1, POOLCUDA_TRACE_RELEASE };

enum poolcuda_trace_served {
    POOLCUDA_TRACE_BY_HIT = 1, /* the pool, without a driver allocation; frees of its memory */
    POOLCUDA_TRACE_BY_MISS,    /* the pool, by a driver allocation */
    POOLCUDA_TRACE_BY_DRIVER,  /* passed to the driver */
    POOLCUDA_TRACE_BY_NONE     /* the pool refused it */
};

/* Six words. */
struct poolcuda_trace_call {
    uint64_t word;
    uint64_t address; /* 0 of an allocation that failed */
    uint64_t size;    /* as asked for; 0 in a free */
    uint64_t number; /* of the allocation, which its free repeats: no other of the process has it. 0: memory that is not
                        the pool's, where the address pairs the two */
    uint64_t stream;
    int16_t device;
    uint16_t code; /* the answer: CUresult's, or of a call that the runtime answered cudaError_t's. 2: out of memory */
    uint8_t operation, served, memory, stream_kind;
};

POOLCUDA_TRACE_ASSERT(sizeof(struct poolcuda_trace_header) == 256, "the header's size is part of the format");
POOLCUDA_TRACE_ASSERT(sizeof(struct poolcuda_trace_block) == 64, "the size of a block's head is part of the format");
POOLCUDA_TRACE_ASSERT(sizeof(struct poolcuda_trace_place) == 32, "a place is four words");
POOLCUDA_TRACE_ASSERT(sizeof(struct poolcuda_trace_call) == 48, "a call is six words");

#endif
