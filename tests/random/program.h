/* SPDX-License-Identifier: MIT
 *
 * A random program: a list of operations, each of one host thread, made from a seed (generate.c), known to be correct
 * (model.c) and then run by its threads (execute.c).
 */
#ifndef RANDOM_PROGRAM_H
#define RANDOM_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    THREADS_MAX = 4,
    DEVICES_MAX = 3,
    CREATED_MAX = 2, /* contexts that the program creates */
    CONTEXTS_MAX = DEVICES_MAX + CREATED_MAX,
    CREATED_STREAMS_MAX = 8,
    EVENTS_OF_CONTEXT = 4,
    EVENTS_MAX = EVENTS_OF_CONTEXT * CONTEXTS_MAX,
    BLOCKS_MAX = 256,
    GRAPHS_MAX = 8,
    MEMORY_POOLS_MAX = DEVICES_MAX + 12, /* the default one of each device, then those that the program creates */
    EXPORTS_MAX = 12,
    IMPORTERS_MAX = 2, /* other processes */
    OPENINGS_MAX = 24,
    OPERATIONS_MAX = 1024,
    TOUCHES_MAX = 4,
    NOBODY = 0xff
};

/* Streams by number: those created, then each context's legacy stream, then each context's stream of each thread. */
enum {
    LEGACY_FIRST = CREATED_STREAMS_MAX,
    PER_THREAD_FIRST = LEGACY_FIRST + CONTEXTS_MAX,
    STREAMS_MAX = PER_THREAD_FIRST + CONTEXTS_MAX * THREADS_MAX
};

static inline unsigned stream_legacy(unsigned context) {
    return LEGACY_FIRST + context;
}

static inline unsigned stream_per_thread(unsigned context, unsigned thread) {
    return PER_THREAD_FIRST + context * THREADS_MAX + thread;
}

enum stream_kind { STREAM_BLOCKING, STREAM_NON_BLOCKING, STREAM_PRIORITY, STREAM_UNSEEN, STREAM_KINDS };

/* X(name, unsafe): `unsafe` ones are refused to a thread that captures. */
#define OPERATION_KINDS(X)                                                                 \
    X(STREAM_CREATE, true)                                                                 \
    X(STREAM_DESTROY, true)                                                                \
    X(STREAM_SYNCHRONIZE, true)                                                            \
    X(STREAM_QUERY, true)                                                                  \
    X(EVENT_RECORD, false)                                                                 \
    X(STREAM_WAIT, false) /* for an event */                                               \
    X(EVENT_SYNCHRONIZE, true)                                                             \
    X(EVENT_QUERY, true)                                                                   \
    X(CONTEXT_SYNCHRONIZE, true)                                                           \
    X(ALLOC, true)                                                                         \
    X(ALLOC_ASYNC, false)                                                                  \
    X(ALLOC_TOO_LARGE, true) /* refused: out of memory */                                  \
    X(FREE, true)                                                                          \
    X(FREE_ASYNC, false)                                                                   \
    X(KERNEL, false)                                                                       \
    X(MEMSET, false)                                                                       \
    X(READ_BACK, true) /* a copy to the host, waited for and checked */                    \
    X(LOOK_UP, false)  /* asks the driver about a block */                                 \
    X(MEMORY_INFO, true)                                                                   \
    X(CAPTURE_BEGIN, true)                                                                 \
    X(CAPTURE_FORK, false)      /* a kernel on another stream that joins and comes back */ \
    X(CAPTURE_TEMPORARY, false) /* memory that lives within the graph */                   \
    X(CAPTURE_END, false)       /* and instantiation */                                    \
    X(GRAPH_LAUNCH, false)                                                                 \
    X(GRAPH_DESTROY, true)                                                                 \
    X(PEER_ENABLE, true)                                                                   \
    X(RELEASE, false) /* the kernels that wait for it may end */                           \
    X(QUIET, true)    /* one thread waits for all devices while no other does anything */  \
    X(DEVICE_RESET, true)                                                                  \
    X(CONTEXT_CREATE, true)                                                                \
    X(CONTEXT_DESTROY, true)                                                               \
    X(POOL_CREATE, true)                                                                   \
    X(POOL_SET, true) /* as the current one of its device */                               \
    X(POOL_ACCESS, true)                                                                   \
    X(POOL_ADJUST, true) /* an attribute */                                                \
    X(POOL_TRIM, true)                                                                     \
    X(POOL_LOOK, true) /* what its attributes say */                                       \
    X(POOL_DESTROY, true)                                                                  \
    X(MARK, true)       /* a block: memory operations on it are synchronous */             \
    X(FREE_WRONG, true) /* of what is no block: refused */                                 \
    X(EXPORT, true)     /* a block's handle for other processes */                         \
    X(OPEN, true)       /* by another process, as the rest */                              \
    X(OPEN_STALE, true) /* a handle of what is freed: refused */                           \
    X(USE, true)        /* checks the block, or stamps it too */                           \
    X(CLOSE, true)                                                                         \
    X(KILL, true) /* that process */

#define OPERATION_ENUM(name, unsafe) DO_##name,
enum operation_kind { OPERATION_KINDS(OPERATION_ENUM) DO_COUNT };
#undef OPERATION_ENUM

/* What a kernel does with one block. */
struct touch {
    uint16_t block;
    bool writes;
    uint32_t expected; /* what the block holds before, 0 when that is not known; set by the model */
    uint32_t stamp;    /* what it is to hold afterwards; set by the model */
};

/* Which of CUDA's ways to a function a call takes; see doors.h. */
enum { DOORS = 6 };

enum free_wrong { WRONG_INTERIOR, WRONG_GARBAGE, WRONG_TWICE, WRONG_THREAD, WRONG_FREES };
enum pool_adjustment {
    ADJUST_THRESHOLD,
    ADJUST_FOLLOW_EVENTS,
    ADJUST_OPPORTUNISTIC,
    ADJUST_INTERNAL_DEPENDENCIES,
    ADJUSTMENTS
};

struct operation {
    uint8_t kind;
    uint8_t thread;
    uint8_t context; /* current when it is called */
    uint8_t stream;
    uint8_t other; /* second stream, second context, kind of a stream, mode of a capture, device, kind of a wrong free,
                      attribute of a memory pool */
    uint8_t event;
    uint8_t graph;
    uint8_t door;
    uint8_t memory_pool; /* NOBODY: the device's current one */
    uint8_t exported, importer, opening;
    bool by_driver;  /* by the driver's function, not the runtime's */
    bool per_thread; /* by the family of functions whose stream 0 is the thread's own */
    bool waits;      /* a FREE that is leant on as a synchronise; a KERNEL that goes on until released; an
                        ALLOC_TOO_LARGE or a FREE_WRONG in stream order */
    bool strange;    /* a FREE by a thread of its own that never called CUDA; an OPEN by a process that runs natively,
                        if one has to be started */
    uint8_t touch_count;
    uint16_t block;
    uint32_t microseconds;
    uint64_t bytes;
    uint64_t offset; /* in a block, at least once within it; or a number of any size */
    struct touch touches[TOUCHES_MAX];
    uint8_t source; /* the memory pool of an ALLOC_ASYNC; set by the model */
    /* Set by the model: how many operations of each thread must have returned before this one is called. */
    uint16_t after[THREADS_MAX];
    uint16_t position; /* among its thread's, from 1 */
};

struct settings {
    bool free_waits;  /* cudaFree waits, and the programs may lean on it */
    bool holds;       /* kernels may go on until they are released, beside calls that do not wait */
    bool releases;    /* they really do; else they take a while */
    bool graphs;      /* graphs can be launched */
    bool async;       /* there is memory in stream order */
    bool contexts;    /* contexts can be created */
    bool ipc;         /* memory can be given to other processes */
    bool frees_open;  /* it may be freed while they have it open: CUDA forbids that, and the pool can bear it */
    unsigned devices; /* that there are */
    uint64_t device_bytes;
    bool scarce; /* any allocation may fail */
};

struct program {
    uint64_t seed;
    struct settings settings;
    unsigned threads, devices;
    size_t count;
    struct operation operations[OPERATIONS_MAX];
};

const char *operation_name(unsigned kind);
/* One line. */
void operation_print(const struct operation *operation, size_t number);
void program_print(const struct program *program);

/* The same seed and settings give the same program. */
void program_generate(struct program *program, uint64_t seed, const struct settings *settings);

/* Runs it; false when something was not as it should be, after it was printed. */
bool program_run(const struct program *program);

#endif
