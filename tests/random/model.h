/* SPDX-License-Identifier: MIT
 *
 * The rules of a correct program: what is ordered before what on the devices, what the host knows to have ended, and
 * which calls of different threads must follow one another. An operation that would break a rule is refused; so a list
 * from which operations were dropped can be made correct again by offering it anew.
 */
#ifndef RANDOM_MODEL_H
#define RANDOM_MODEL_H

#include "program.h"

enum { LANES_MAX = 96, GRAPH_BLOCKS_MAX = 8 };

/* For each lane (the life of one stream) how much of its work is meant. */
struct clock {
    uint16_t of[LANES_MAX];
};

struct context_state {
    bool alive, created;
    unsigned device, captures;
    bool peers[DEVICES_MAX]; /* whose memory it may use */
};

struct stream_state {
    bool alive, blocking, legacy;
    uint8_t context, thread; /* the only thread that can name it, or NOBODY */
    uint8_t graph;           /* being captured into, or NOBODY */
    uint8_t lane;
    struct clock clock; /* of its last operation */
};

struct event_state {
    bool recorded;
    struct clock clock;
};

struct memory_pool_state {
    bool alive, ended;
    uint8_t device;
    bool access[DEVICES_MAX]; /* of other devices */
};

struct export_state {
    bool used;
    uint16_t block;
};

struct opening_state {
    bool open;
    uint8_t importer;
    uint16_t block;
};

enum block_life { BLOCK_UNUSED, BLOCK_LIVE, BLOCK_FREED };

struct block_state {
    enum block_life life;
    bool async;
    uint8_t context, device, memory_pool;
    uint64_t bytes;
    uint32_t stamp;
    struct clock reads, writes; /* and its allocation */
};

enum graph_life { GRAPH_UNUSED, GRAPH_CAPTURING, GRAPH_READY };

struct graph_use {
    uint16_t block;
    bool reads_first, writes;
    uint32_t stamp;
};

struct graph_state {
    enum graph_life life;
    uint8_t context, stream, thread, mode;
    bool temporary; /* has memory of its own */
    unsigned use_count;
    struct graph_use uses[GRAPH_BLOCKS_MAX];
};

/* What calls of different threads have in common. `writer` and `readers`: numbers of operations + 1, 0 for none. */
struct shared {
    uint16_t writer, readers[THREADS_MAX];
};

enum {
    SHARED_STREAMS,
    SHARED_EVENTS = SHARED_STREAMS + STREAMS_MAX,
    SHARED_BLOCKS = SHARED_EVENTS + EVENTS_MAX,
    SHARED_GRAPHS = SHARED_BLOCKS + BLOCKS_MAX,
    SHARED_CONTEXTS = SHARED_GRAPHS + GRAPHS_MAX,
    SHARED_CAPTURES = SHARED_CONTEXTS + CONTEXTS_MAX,      /* of a device */
    SHARED_POOLS = SHARED_CAPTURES + DEVICES_MAX,          /* memory pools: their lives, and who has access */
    SHARED_POOLS_LIVE = SHARED_POOLS + MEMORY_POOLS_MAX,   /* what is allocated from them */
    SHARED_CURRENT = SHARED_POOLS_LIVE + MEMORY_POOLS_MAX, /* pool of a device */
    SHARED_EXPORTS = SHARED_CURRENT + DEVICES_MAX,
    SHARED_IMPORTERS = SHARED_EXPORTS + EXPORTS_MAX,
    SHARED_UNSAFE,
    SHARED_HELD,
    SHARED_ALL,
    SHARED_COUNT
};

struct model {
    struct program *program; /* what was accepted */
    struct context_state contexts[CONTEXTS_MAX];
    struct stream_state streams[STREAMS_MAX];
    struct event_state events[EVENTS_MAX];
    struct block_state blocks[BLOCKS_MAX];
    struct graph_state graphs[GRAPHS_MAX];
    struct memory_pool_state memory_pools[MEMORY_POOLS_MAX];
    uint8_t current[DEVICES_MAX]; /* memory pool of each device */
    struct export_state exports[EXPORTS_MAX];
    struct opening_state openings[OPENINGS_MAX];
    unsigned lanes;
    bool captured; /* anything, ever */
    unsigned held; /* kernels that wait to be released */
    uint16_t lane_counts[LANES_MAX];
    uint32_t stamps;
    uint16_t positions[THREADS_MAX];
    struct clock host[THREADS_MAX]; /* what the thread knows to have ended */
    struct shared shared[SHARED_COUNT];
    struct clock host_after[OPERATIONS_MAX];
};

/* An empty program over `program`, whose seed, settings, threads and devices are set. */
void model_begin(struct model *model, struct program *program);

/* Takes the operation into the program, or refuses it and changes nothing. */
bool model_offer(struct model *model, const struct operation *operation);

/* Ends the captures that are still open, and releases kernels that wait for it. */
void model_finish(struct model *model);

/* The first stream of whose work `operation` (a kernel, memset, read-back, launch or free in stream order, or a free)
 * lacks the end, so that it is refused; STREAMS_MAX when there is none, or only a stream that is gone. */
unsigned model_lacks(struct model *model, const struct operation *operation);

/* The first part of what model_offer asks: could the call be made at all? */
bool model_is_possible(const struct model *model, const struct operation *operation);

bool model_is_unsafe(unsigned kind);
bool model_has_stream(const struct operation *operation);
/* A call that could wait for a kernel which waits to be released. */
bool model_may_wait(const struct model *model, const struct operation *operation);
/* One beside which no other thread does anything. */
bool model_is_alone(unsigned kind);
/* The memory pool that an allocation in stream order comes from. */
unsigned model_memory_pool(const struct model *model, const struct operation *operation);
bool model_may_use(const struct model *model, unsigned context, unsigned block);
bool model_thread_captures(const struct model *model, unsigned thread);

#endif
