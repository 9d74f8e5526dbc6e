/* SPDX-License-Identifier: MIT
 *
 * Makes a program from a seed: proposes operations at random, puts in front of them the events and waits that make them
 * correct, and keeps what the model accepts.
 */
#include <stdlib.h>

#include "generate.h"

enum { LIVE_WANTED = 20, REPAIRS_MAX = 8, LENGTH_LEAST = 120, LENGTH_SPREAD = 280 };

uint64_t next(struct generator *generator) {
    uint64_t z = generator->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

unsigned below(struct generator *generator, unsigned bound) {
    return (unsigned)(next(generator) % bound);
}

bool chance(struct generator *generator, unsigned percent) {
    return below(generator, 100) < percent;
}

/* From one byte to 48 MiB, mostly small. */
static uint64_t random_size(struct generator *generator) {
    static const struct {
        unsigned percent;
        uint64_t least, most;
    } spreads[] = {{12, 1, 512},          {14, 512, 8192},         {24, 8192, 262144},
                   {34, 262144, 2 << 20}, {13, 2 << 20, 12 << 20}, {3, 12 << 20, 48 << 20}};
    unsigned left = below(generator, 100), i = 0;
    while (left >= spreads[i].percent) left -= spreads[i++].percent;
    return spreads[i].least + next(generator) % (spreads[i].most - spreads[i].least + 1);
}

static uint64_t block_size(struct generator *generator) {
    return chance(generator, 80) ? generator->sizes[below(generator, SIZES)] : random_size(generator);
}

uint8_t random_context(struct generator *generator) {
    const struct model *model = &generator->model;
    if (chance(generator, 60)) return 0;
    for (unsigned tries = 0; tries < 8; tries++) {
        const unsigned context = below(generator, CONTEXTS_MAX);
        if (model->contexts[context].alive) return (uint8_t)context;
    }
    return 0;
}

uint8_t random_stream(struct generator *generator, unsigned context) {
    const struct model *model = &generator->model;
    for (unsigned tries = 0; tries < 24; tries++) {
        const unsigned stream = below(generator, CREATED_STREAMS_MAX);
        if (model->streams[stream].alive && model->streams[stream].context == context &&
            model->streams[stream].graph == NOBODY)
            return (uint8_t)stream;
    }
    const unsigned own = stream_per_thread(context, generator->thread);
    return (uint8_t)(chance(generator, 70) && model->streams[own].graph == NOBODY ? own : stream_legacy(context));
}

int random_block(struct generator *generator) {
    const struct model *model = &generator->model;
    /* Half the time one of the youngest, so that blocks live short. */
    for (unsigned tries = 0; tries < 12 && generator->blocks > 0; tries++) {
        const unsigned span = tries < 4 && generator->blocks > 4 ? 4 : generator->blocks;
        const unsigned block = generator->blocks - 1 - below(generator, span);
        if (model->blocks[block].life == BLOCK_LIVE) return (int)block;
    }
    return -1;
}

uint8_t random_memory_pool(struct generator *generator, unsigned device) {
    const struct model *model = &generator->model;
    for (unsigned tries = 0; tries < 8; tries++) {
        const unsigned pool = DEVICES_MAX + below(generator, MEMORY_POOLS_MAX - DEVICES_MAX);
        if (model->memory_pools[pool].alive && model->memory_pools[pool].device == device) return (uint8_t)pool;
    }
    return (uint8_t)device;
}

static unsigned live_blocks(const struct generator *generator) {
    unsigned live = 0;
    for (unsigned i = 0; i < generator->blocks; i++) live += generator->model.blocks[i].life == BLOCK_LIVE;
    return live;
}

struct operation begin(struct generator *generator, unsigned kind, unsigned context) {
    return (struct operation){.kind = (uint8_t)kind,
                              .thread = (uint8_t)generator->thread,
                              .context = (uint8_t)context,
                              .door =
                                  (uint8_t)(generator->doors && chance(generator, 50) ? below(generator, DOORS) : 0),
                              .memory_pool = NOBODY,
                              .by_driver = chance(generator, 25),
                              .per_thread = chance(generator, generator->own_family)};
}

struct operation begin_on(struct generator *generator, unsigned kind, unsigned stream) {
    struct operation operation = begin(generator, kind, generator->model.streams[stream].context);
    operation.stream = (uint8_t)stream;
    return operation;
}

/* Orders the work of `lacking` before the operation, by events or by the host. */
static bool repair(struct generator *generator, const struct operation *operation, unsigned lacking) {
    struct model *model = &generator->model;
    const unsigned thread = generator->thread;
    const unsigned owner = model->streams[lacking].thread;
    const bool for_host = operation->kind == DO_FREE || operation->kind == DO_USE;
    bool done = false;
    if (owner == NOBODY || owner == thread) {
        const struct operation wait = begin_on(generator, DO_STREAM_SYNCHRONIZE, lacking);
        if (chance(generator, for_host ? 70 : 10)) done = model_offer(model, &wait);
    } else {
        generator->thread = owner;
    }
    if (!done) {
        struct operation record = begin_on(generator, DO_EVENT_RECORD, lacking);
        record.event = (uint8_t)(record.context * EVENTS_OF_CONTEXT + below(generator, EVENTS_OF_CONTEXT));
        done = model_offer(model, &record);
        generator->thread = thread;
        struct operation wait = for_host ? begin(generator, DO_EVENT_SYNCHRONIZE, record.context)
                                         : begin_on(generator, DO_STREAM_WAIT, operation->stream);
        wait.event = record.event;
        if (done) done = model_offer(model, &wait);
    }
    generator->thread = thread;
    return done;
}

bool offer(struct generator *generator, const struct operation *operation) {
    for (unsigned repairs = 0;; repairs++) {
        if (model_offer(&generator->model, operation)) return true;
        const unsigned lacking = model_lacks(&generator->model, operation);
        if (lacking == STREAMS_MAX || repairs == REPAIRS_MAX || !repair(generator, operation, lacking)) return false;
    }
}

static void propose_alloc(struct generator *generator) {
    if (generator->blocks == BLOCKS_MAX) return;
    const uint8_t context = random_context(generator);
    const uint8_t stream = random_stream(generator, context);
    const bool async = generator->model.program->settings.async && chance(generator, 50);
    struct operation operation =
        async ? begin_on(generator, DO_ALLOC_ASYNC, stream) : begin(generator, DO_ALLOC, context);
    operation.block = generator->blocks;
    operation.bytes = block_size(generator);
    if (async && generator->pools && chance(generator, 30))
        operation.memory_pool =
            random_memory_pool(generator, chance(generator, 80) ? generator->model.contexts[operation.context].device
                                                                : below(generator, generator->model.program->devices));
    if (!model_offer(&generator->model, &operation)) return;
    generator->homes[generator->blocks++] = stream;
}

static void propose_free(struct generator *generator) {
    const struct model *model = &generator->model;
    const int block = random_block(generator);
    if (block < 0) return;
    const struct block_state *freed = &model->blocks[block];
    uint8_t stream = generator->homes[block];
    if (!model->streams[stream].alive || chance(generator, 25)) stream = random_stream(generator, freed->context);
    struct operation operation;
    if (!model->program->settings.async || chance(generator, freed->async ? 20 : 75)) {
        operation = begin(generator, DO_FREE, chance(generator, 85) ? freed->context : random_context(generator));
        operation.waits = generator->leans && chance(generator, 40);
        operation.strange = generator->strange_frees && chance(generator, 15);
    } else {
        operation = begin_on(generator, DO_FREE_ASYNC, stream);
        if (stream < CREATED_STREAMS_MAX && chance(generator, 10)) operation.context = random_context(generator);
    }
    operation.block = (uint16_t)block;
    offer(generator, &operation);
}

static void add_touches(struct generator *generator, struct operation *operation, unsigned first, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const int block = i == 0 ? (int)first : random_block(generator);
        if (block < 0 || !model_may_use(&generator->model, operation->context, (unsigned)block)) continue;
        const bool fresh = generator->model.blocks[block].stamp == 0;
        operation->touches[operation->touch_count++] =
            (struct touch){.block = (uint16_t)block, .writes = chance(generator, fresh ? 95 : 55)};
    }
}

static uint32_t random_duration(struct generator *generator) {
    return chance(generator, 6) ? 20 + below(generator, 200) : 0;
}

/* A kernel where the block was used last, mostly. */
static void propose_use(struct generator *generator) {
    const struct model *model = &generator->model;
    const int block = random_block(generator);
    if (block < 0) return;
    uint8_t stream = generator->homes[block];
    if (!model->streams[stream].alive || model->streams[stream].graph != NOBODY || chance(generator, 25)) {
        const uint8_t context = chance(generator, 80) ? model->blocks[block].context : random_context(generator);
        stream = random_stream(generator, context);
    }
    const unsigned owner = model->streams[stream].thread;
    const unsigned thread = generator->thread;
    if (owner != NOBODY) generator->thread = owner;
    const unsigned kind = chance(generator, 80) ? DO_KERNEL : chance(generator, 50) ? DO_MEMSET : DO_READ_BACK;
    struct operation operation = begin_on(generator, kind, stream);
    add_touches(generator, &operation, (unsigned)block, kind == DO_KERNEL ? 1 + below(generator, TOUCHES_MAX) / 2 : 1);
    if (kind == DO_MEMSET && operation.touch_count > 0) operation.touches[0].writes = true;
    if (kind == DO_READ_BACK && operation.touch_count > 0) operation.touches[0].writes = false;
    if (kind == DO_KERNEL) operation.microseconds = random_duration(generator);
    if (operation.touch_count > 0 && offer(generator, &operation)) generator->homes[block] = stream;
    generator->thread = thread;
}

/* Kernels go on until the release, some operations later. */
static void propose_hold(struct generator *generator) {
    const int block = random_block(generator);
    if (block < 0) return;
    struct operation operation = begin_on(generator, DO_KERNEL, generator->homes[block]);
    operation.waits = true;
    add_touches(generator, &operation, (unsigned)block, 1);
    if (operation.touch_count > 0) offer(generator, &operation);
}

static void propose_release(struct generator *generator) {
    const struct operation operation = begin(generator, DO_RELEASE, 0);
    model_offer(&generator->model, &operation);
}

static void propose_stream(struct generator *generator) {
    const struct model *model = &generator->model;
    const unsigned stream = below(generator, CREATED_STREAMS_MAX);
    if (model->streams[stream].alive) {
        if (!chance(generator, 35)) return;
        const struct operation operation = begin_on(generator, DO_STREAM_DESTROY, stream);
        model_offer(&generator->model, &operation);
        return;
    }
    struct operation operation = begin(generator, DO_STREAM_CREATE, random_context(generator));
    operation.stream = (uint8_t)stream;
    operation.other = (uint8_t)below(generator, STREAM_KINDS);
    model_offer(&generator->model, &operation);
}

static void propose_wait(struct generator *generator) {
    static const uint8_t kinds[] = {DO_STREAM_SYNCHRONIZE, DO_STREAM_QUERY, DO_EVENT_SYNCHRONIZE,
                                    DO_EVENT_QUERY,        DO_EVENT_RECORD, DO_EVENT_RECORD,
                                    DO_STREAM_WAIT,        DO_STREAM_WAIT,  DO_CONTEXT_SYNCHRONIZE};
    const uint8_t context = random_context(generator);
    struct operation operation =
        begin_on(generator, kinds[below(generator, sizeof kinds)], random_stream(generator, context));
    operation.event = (uint8_t)(context * EVENTS_OF_CONTEXT + below(generator, EVENTS_OF_CONTEXT));
    if (operation.kind == DO_STREAM_WAIT && chance(generator, 30))
        operation.event = (uint8_t)below(generator, EVENTS_MAX);
    model_offer(&generator->model, &operation);
}

static void propose_question(struct generator *generator) {
    const int block = random_block(generator);
    struct operation operation = begin(generator, chance(generator, 60) ? DO_LOOK_UP : DO_MEMORY_INFO, 0);
    operation.context = random_context(generator);
    if (operation.kind == DO_LOOK_UP && block < 0) return;
    operation.block = (uint16_t)(block < 0 ? 0 : block);
    operation.offset = next(generator);
    model_offer(&generator->model, &operation);
}

static void propose_too_large(struct generator *generator) {
    const uint8_t context = random_context(generator);
    struct operation operation = begin_on(generator, DO_ALLOC_TOO_LARGE, random_stream(generator, context));
    operation.bytes = generator->model.program->settings.device_bytes + 1 + next(generator) % (1u << 30);
    operation.waits = generator->model.program->settings.async && chance(generator, 50); /* in stream order */
    model_offer(&generator->model, &operation);
}

static void propose_capture(struct generator *generator) {
    const uint8_t context = random_context(generator);
    struct operation operation = begin_on(generator, DO_CAPTURE_BEGIN, random_stream(generator, context));
    operation.graph = (uint8_t)below(generator, GRAPHS_MAX);
    operation.other = (uint8_t)below(generator, 3);
    model_offer(&generator->model, &operation);
}

/* The thread captures: something for its graph, or the end. */
static void propose_captured(struct generator *generator, unsigned graph) {
    const uint8_t stream = generator->model.graphs[graph].stream;
    const uint8_t context = generator->model.graphs[graph].context;
    const unsigned what = below(generator, 10);
    struct operation operation = begin_on(generator,
                                          what < 5   ? DO_KERNEL
                                          : what < 6 ? DO_CAPTURE_FORK
                                          : what < 7 ? DO_CAPTURE_TEMPORARY
                                                     : DO_CAPTURE_END,
                                          stream);
    operation.graph = (uint8_t)graph;
    if (operation.kind == DO_CAPTURE_TEMPORARY) operation.bytes = block_size(generator);
    if (operation.kind == DO_CAPTURE_FORK) operation.other = random_stream(generator, context);
    const int block = random_block(generator);
    if (operation.kind == DO_KERNEL || operation.kind == DO_CAPTURE_FORK) {
        if (block < 0) return;
        add_touches(generator, &operation, (unsigned)block, 1 + below(generator, 2));
    }
    model_offer(&generator->model, &operation);
}

static void propose_launch(struct generator *generator) {
    const unsigned graph = below(generator, GRAPHS_MAX);
    const struct graph_state *launched = &generator->model.graphs[graph];
    if (launched->life != GRAPH_READY) return;
    const bool destroys = chance(generator, 8);
    struct operation operation =
        begin_on(generator, destroys ? DO_GRAPH_DESTROY : DO_GRAPH_LAUNCH, random_stream(generator, launched->context));
    operation.graph = (uint8_t)graph;
    offer(generator, &operation);
}

static void propose_peer(struct generator *generator) {
    struct operation operation = begin(generator, DO_PEER_ENABLE, below(generator, generator->model.program->devices));
    operation.other = (uint8_t)below(generator, generator->model.program->devices);
    model_offer(&generator->model, &operation);
}

/* A context begins, or ends, or a device is reset. */
static void propose_end(struct generator *generator) {
    const uint8_t created = (uint8_t)(DEVICES_MAX + below(generator, CREATED_MAX));
    const bool alive = generator->model.contexts[created].alive;
    if (generator->creates_contexts && !alive) {
        struct operation operation = begin(generator, DO_CONTEXT_CREATE, created);
        operation.other = (uint8_t)below(generator, generator->model.program->devices);
        model_offer(&generator->model, &operation);
        return;
    }
    if (!chance(generator, 30) || !(alive || generator->resets)) return;
    const struct operation quiet = begin(generator, DO_QUIET, 0);
    if (!model_offer(&generator->model, &quiet)) return;
    const struct operation end =
        alive ? begin(generator, DO_CONTEXT_DESTROY, created)
              : begin(generator, DO_DEVICE_RESET, below(generator, generator->model.program->devices));
    model_offer(&generator->model, &end);
}

static void propose(struct generator *generator) {
    const struct model *model = &generator->model;
    if (model->held > 0 && chance(generator, 12)) {
        propose_release(generator);
        return;
    }
    for (unsigned i = 0; i < GRAPHS_MAX; i++) {
        if (model->graphs[i].life == GRAPH_CAPTURING && model->graphs[i].thread == generator->thread &&
            chance(generator, 60)) {
            propose_captured(generator, i);
            return;
        }
    }
    if (live_blocks(generator) > LIVE_WANTED) {
        propose_free(generator);
        return;
    }
    static const struct {
        unsigned weight;
        void (*propose)(struct generator *generator);
    } proposals[] = {
        {300, propose_use},        {200, propose_alloc},   {150, propose_free},      {40, propose_stream},
        {60, propose_wait},        {20, propose_question}, {3, propose_too_large},   {15, propose_capture},
        {50, propose_launch},      {16, propose_hold},     {8, propose_peer},        {8, propose_end},
        {40, propose_memory_pool}, {8, propose_mark},      {14, propose_wrong_free}, {60, propose_sharing}};
    unsigned total = 0, i = 0;
    for (unsigned k = 0; k < sizeof proposals / sizeof proposals[0]; k++) total += proposals[k].weight;
    unsigned left = below(generator, total);
    while (left >= proposals[i].weight) left -= proposals[i++].weight;
    if (proposals[i].propose == propose_capture && !generator->captures) return;
    if (proposals[i].propose == propose_hold && (!generator->holds || model->held > 0)) return;
    if (proposals[i].propose == propose_memory_pool && !generator->pools) return;
    if (proposals[i].propose == propose_peer && !generator->peers) return;
    if (proposals[i].propose == propose_mark && !generator->marks) return;
    if (proposals[i].propose == propose_wrong_free && !generator->wrong_frees) return;
    if (proposals[i].propose == propose_sharing && !generator->shares) return;
    proposals[i].propose(generator);
}

void program_generate(struct program *program, uint64_t seed, const struct settings *settings) {
    struct generator *generator = calloc(1, sizeof *generator);
    if (generator == NULL) abort();
    generator->random = seed * 0xd1342543de82ef95u + 1;
    program->seed = seed;
    program->settings = *settings;
    program->threads = 1 + below(generator, THREADS_MAX);
    const unsigned devices = chance(generator, 55) ? 1 : 2 + below(generator, DEVICES_MAX - 1);
    program->devices = devices < settings->devices ? devices : settings->devices;
    generator->creates_contexts = settings->contexts && chance(generator, 20);
    generator->resets = chance(generator, 25);
    generator->captures = chance(generator, 35);
    generator->holds = settings->holds && chance(generator, 50);
    generator->leans = settings->free_waits && chance(generator, 50);
    generator->pools = settings->async && chance(generator, 50);
    generator->peers = chance(generator, 60);
    generator->marks = chance(generator, 30);
    generator->wrong_frees = chance(generator, 50);
    generator->strange_frees = chance(generator, 30);
    generator->doors = chance(generator, 50);
    generator->shares = settings->ipc && chance(generator, 25);
    generator->own_family = below(generator, 3) * 50;
    for (unsigned i = 0; i < SIZES; i++) generator->sizes[i] = random_size(generator);
    model_begin(&generator->model, program);
    const size_t length = LENGTH_LEAST + below(generator, LENGTH_SPREAD);
    unsigned streams = 1 + below(generator, CREATED_STREAMS_MAX);
    for (unsigned tries = 0; program->count < length && tries < 4 * length; tries++) {
        if (chance(generator, 15)) generator->thread = below(generator, program->threads);
        if (streams > 0)
            streams--, propose_stream(generator);
        else
            propose(generator);
    }
    model_finish(&generator->model);
    free(generator);
}
