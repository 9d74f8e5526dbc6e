/* SPDX-License-Identifier: MIT
 *
 * The test interface of the simulated driver, exported by its libcuda.so.1 beside the real names: kernels of a stated
 * duration that touch stated memory, streams that no hook has seen, what was called how often, how much memory is in
 * use, and the race detector. Results are CUresult codes. A process that also runs on a real driver finds these names
 * with dlsym. A stream is a CUstream; 0 and 1 are the legacy stream, 2 is the calling thread's own.
 */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sim_range {
    uint64_t address;
    size_t bytes;
    bool writes; /* else reads */
};

struct sim_kernel {
    uint32_t microseconds;
    bool until_released; /* goes on until sim_release_kernels is called after its launch */
    const struct sim_range *ranges;
    size_t range_count;

    /* What it computes, or NULL: called once, after its time, with pointers to the ranges, in their order, by which the
     * host may use them until it returns. Not called if the context may not use a range. It makes no CUDA call, waits
     * for nobody and takes no lock that is held around a CUDA call. */
    void (*run)(void *argument, void *const *pointers);
    const void *argument; /* copied by the launch; `run` gets the copy, aligned for anything */
    size_t argument_bytes;

    /* For reports of races: a text that stays valid, or NULL; a number of the program's own. */
    const char *name;
    uint64_t number;
};

/* Launches it on `stream`. A range that the stream's context may not use when the kernel runs fails the context with
 * 700, as a GPU does. When a graph captured the launch, each launch of the graph runs it. */
int sim_launch(const struct sim_kernel *kernel, void *stream);

/* Ends the kernels launched until now that wait for it. */
void sim_release_kernels(void);

/* A stream of the current context, made and destroyed by no call of the driver's interface. flags as for
 * cuStreamCreate. */
int sim_stream_create(void **stream, unsigned flags);
int sim_stream_destroy(void *stream);

/* Calls since the start or the last reset. `name` as exported ("cuMemAlloc_v2"), or without its suffixes for all forms
 * of it ("cuMemAlloc"). */
uint64_t sim_calls(const char *name);
void sim_reset_calls(void);

/* Calls of names that are not simulated, which answered 801; and the first such name, NULL if there is none. */
uint64_t sim_unsimulated_calls(void);
const char *sim_unsimulated_name(void);

/* Device memory that is taken, as cuMemGetInfo sees it; for an unknown device 0. */
uint64_t sim_bytes_in_use(int device);

/* Work given to the context that is not completed; NULL is the current one. */
size_t sim_pending(void *context);

/* The race detector. It judges the blocks of the program that it is told of, byte by byte, by what orders the uses of
 * them, never by when they happened to run: an operation comes after another if streams, events, the legacy stream's
 * rules or a graph order them so, or if the host had learned that the other was complete when this one was submitted.
 * The host learns that by a query that says so, a synchronise, a copy to or from host memory that has returned, a free
 * that waits, the end of a context; whoever asked, and of all that the answer proves. That work has ended by itself is
 * no order. Fills and copies within device memory prove nothing, for CUDA does not say that their calls wait.
 *
 * The program notes its blocks as it gets and frees them. Operations are kernels of sim_launch, copies and fills,
 * submitted or launched in a graph; other kernels are not known to touch anything. An operation that touches a byte
 * that was ever noted must lie in live blocks entirely; one that touches no such byte is not judged, unless all
 * device memory is declared to be noted. A two-dimensional operation of up to 1,024 rows is judged row by row. */

enum sim_race_kind {
    SIM_RACE_CONFLICT,      /* two uses that nothing orders, one of them a write */
    SIM_RACE_GIVEN_EARLY,   /* a block was given out, though an earlier use of its bytes may still run */
    SIM_RACE_GIVEN_TWICE,   /* a block was given out, though some of its bytes are in another live block */
    SIM_RACE_USED_EARLY,    /* a use that does not come after the stream-ordered allocation of its block */
    SIM_RACE_FREED_EARLY,   /* a stream-ordered free that does not come after a use, or after the allocation */
    SIM_RACE_USED_FREED,    /* a use that was submitted after the free */
    SIM_RACE_NOT_ALLOCATED, /* a use of bytes that were never in a block; `earlier` is empty */
    SIM_RACE_KINDS
};

struct sim_race_side {
    const char *what; /* "kernel", "copy", "fill", "allocation", "free", "context end"; NULL: nothing */
    const char *name; /* of the kernel, with its number */
    uint64_t number;
    uint64_t stream;   /* its id, as cuStreamGetId tells it; 0: none */
    uint64_t sequence; /* what the stream was given since the detector started is counted from 1 */
    uint64_t address;
    size_t bytes;
    bool writes;
    uint64_t life; /* of the block: blocks noted are counted from 1; 0: none */
};

struct sim_race {
    enum sim_race_kind kind;
    struct sim_race_side earlier, later; /* in the order in which they were submitted */
};

/* Starts it, with nothing known and nothing found; what was submitted before is not known. SIM_RACES=1 does so when the
 * driver starts, SIM_RACES=2 prints on stderr what is found besides. */
void sim_races_start(void);
/* Declares that all device memory that the program uses is noted. Holds until the next start. */
void sim_races_all_noted(void);
/* Stops it. What was found can be read until the next start. */
void sim_races_stop(void);

/* The number of races found. The first ones are written to `out`, at most `room` of them; 256 are kept. */
size_t sim_races(struct sim_race *out, size_t room);
/* One line of text, without its end, cut to `size` bytes; returns its whole length. */
int sim_race_text(const struct sim_race *race, char *text, size_t size);

/* The program's notes; they do nothing while the detector is off. A note in a stream has its place in the order there,
 * but is no work: noted in the legacy stream, it does not order blocking streams after each other, as what CUDA itself
 * allocates and frees there would.
 *
 * Memory opened from another process is a block of this one, from right after it was opened until right before it is
 * closed; what the other process does is not seen.
 *
 * Right after cudaMalloc returned: all that used these bytes before must be observed complete. The block ends with the
 * current context, if it is not freed before. */
int sim_block_allocated(uint64_t address, size_t bytes);
/* Right after cudaMallocAsync returned: all that used these bytes before must be ordered before this point of the
 * stream, and all uses of the block after it. On a stream that captures, the block is the graph's: its uses are judged
 * among themselves, but never for coming before an allocation or after a free. */
int sim_block_allocated_async(uint64_t address, size_t bytes, void *stream);
/* Right before cudaFree: uses that are submitted later are uses after the free. 1 if no live block begins there. */
int sim_block_freed(uint64_t address);
/* Right before cudaFreeAsync: the same, and the allocation and all uses of the block must be ordered before this point
 * of the stream. */
int sim_block_freed_async(uint64_t address, void *stream);
/* That free, noted last at this address, was refused: the block lives on. */
int sim_block_kept(uint64_t address);

/* Around calls into an allocator that itself works on free memory (fills it): what the thread submits in between is
 * judged for its order, but may use memory that is in no block. */
void sim_allocator_entered(void);
void sim_allocator_left(void);

/* In a host function or callback: the program's threads are about to be told of it by means of its own, so all that it
 * comes after counts as observed from now on. */
void sim_observed(void);

#ifdef __cplusplus
}
#endif

#endif
