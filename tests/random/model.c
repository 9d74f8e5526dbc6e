/* SPDX-License-Identifier: MIT
 *
 * What makes a program correct; see model.h.
 */
#include "model.h"

#include <string.h>

enum { LANES_FIXED = CONTEXTS_MAX * (1 + THREADS_MAX), SHARED_OF_STEP = 96, STAMPS_FIRST = 256 };

/* One operation on its way into the program. */
struct step {
    const struct operation *operation;
    unsigned shared_count;
    struct {
        uint16_t index;
        bool writes;
    } shared[SHARED_OF_STEP];
    uint16_t after[THREADS_MAX];
    struct clock host; /* what its thread knows when it is called */
};

static const bool unsafe_kinds[] = {
#define OPERATION_UNSAFE(name, unsafe) unsafe,
    OPERATION_KINDS(OPERATION_UNSAFE)
#undef OPERATION_UNSAFE
};

bool model_is_unsafe(unsigned kind) {
    return unsafe_kinds[kind];
}

static void clock_join(struct clock *clock, const struct clock *other) {
    for (unsigned i = 0; i < LANES_MAX; i++)
        if (clock->of[i] < other->of[i]) clock->of[i] = other->of[i];
}

/* The first lane of which `later` does not know what `earlier` does; LANES_MAX when there is none. */
static unsigned clock_lacks(const struct clock *later, const struct clock *earlier) {
    for (unsigned i = 0; i < LANES_MAX; i++)
        if (earlier->of[i] > later->of[i]) return i;
    return LANES_MAX;
}

void model_begin(struct model *model, struct program *program) {
    memset(model, 0, sizeof *model);
    model->program = program;
    program->count = 0;
    model->stamps = STAMPS_FIRST;
    model->lanes = LANES_FIXED;
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        struct stream_state *stream = &model->streams[i];
        stream->graph = stream->thread = NOBODY;
        if (i < LEGACY_FIRST) continue;
        stream->lane = (uint8_t)(i - LEGACY_FIRST);
        stream->legacy = i < PER_THREAD_FIRST;
        stream->context = (uint8_t)(stream->legacy ? i - LEGACY_FIRST : (i - PER_THREAD_FIRST) / THREADS_MAX);
        stream->blocking = !stream->legacy;
        if (!stream->legacy) stream->thread = (uint8_t)((i - PER_THREAD_FIRST) % THREADS_MAX);
        stream->alive = stream->context < program->devices && (stream->legacy || stream->thread < program->threads);
    }
    for (unsigned i = 0; i < program->devices; i++)
        model->contexts[i] = (struct context_state){.alive = true, .device = i};
    for (unsigned i = 0; i < program->devices; i++) {
        model->memory_pools[i] = (struct memory_pool_state){.alive = true, .device = (uint8_t)i};
        model->current[i] = (uint8_t)i;
    }
}

unsigned model_memory_pool(const struct model *model, const struct operation *operation) {
    return operation->memory_pool < MEMORY_POOLS_MAX ? operation->memory_pool
                                                     : model->current[model->contexts[operation->context].device];
}

bool model_thread_captures(const struct model *model, unsigned thread) {
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        if (model->graphs[i].life == GRAPH_CAPTURING && model->graphs[i].thread == thread) return true;
    return false;
}

/* ---- which calls must follow one another ---- */

static void step_shares(struct step *step, unsigned index, bool writes) {
    for (unsigned i = 0; i < step->shared_count; i++) {
        if (step->shared[i].index != index) continue;
        step->shared[i].writes |= writes;
        return;
    }
    step->shared[step->shared_count].index = (uint16_t)index;
    step->shared[step->shared_count++].writes = writes;
}

/* The whole context's work is waited for, or waits. */
static void step_shares_streams(struct step *step, const struct model *model, unsigned context, bool all) {
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        const struct stream_state *stream = &model->streams[i];
        if (stream->alive && stream->context == context && (all || stream->blocking))
            step_shares(step, SHARED_STREAMS + i, true);
    }
}

static void step_shares_stream(struct step *step, const struct model *model, unsigned index) {
    const struct stream_state *stream = &model->streams[index];
    step_shares(step, SHARED_STREAMS + index, true);
    step_shares(step, SHARED_CONTEXTS + stream->context, false);
    if (stream->legacy) {
        step_shares_streams(step, model, stream->context, false);
        step_shares(step, SHARED_CAPTURES + model->contexts[stream->context].device, false);
    } else if (stream->blocking) {
        step_shares(step, SHARED_STREAMS + stream_legacy(stream->context), false);
    }
}

/* Its memory pool, and what others may do with it. */
static void step_shares_block(struct step *step, const struct model *model, unsigned block, bool writes) {
    step_shares(step, SHARED_BLOCKS + block, writes);
    if (model->blocks[block].async) step_shares(step, SHARED_POOLS + model->blocks[block].memory_pool, false);
}

static void step_shares_pool(struct step *step, const struct model *model) {
    const struct operation *operation = step->operation;
    const unsigned pool = model_memory_pool(model, operation);
    const bool changes =
        operation->kind != DO_POOL_SET && operation->kind != DO_POOL_TRIM && operation->kind != DO_POOL_LOOK;
    const unsigned device =
        operation->kind == DO_POOL_CREATE ? operation->other : (unsigned)model->memory_pools[pool].device;
    step_shares(step, SHARED_POOLS + pool, changes);
    if (operation->kind == DO_POOL_SET || operation->kind == DO_POOL_DESTROY)
        step_shares(step, SHARED_CURRENT + device, true);
    if (operation->kind == DO_POOL_LOOK) step_shares(step, SHARED_POOLS_LIVE + pool, true);
}

/* An allocation in stream order. */
static void step_shares_source(struct step *step, const struct model *model) {
    const struct operation *operation = step->operation;
    const unsigned pool = model_memory_pool(model, operation);
    step_shares(step, SHARED_CURRENT + model->contexts[operation->context].device, false);
    step_shares(step, SHARED_POOLS + pool, false);
    step_shares(step, SHARED_POOLS_LIVE + pool, false);
}

static void step_shares_freed(struct step *step, const struct model *model) {
    const struct block_state *block = &model->blocks[step->operation->block];
    step_shares_block(step, model, step->operation->block, true);
    if (block->async) step_shares(step, SHARED_POOLS_LIVE + block->memory_pool, false);
}

static void step_shares_all(struct step *step, const struct model *model) {
    const struct operation *operation = step->operation;
    const struct context_state *context = &model->contexts[operation->context];
    const bool ends_global = operation->kind == DO_CAPTURE_END && model->graphs[operation->graph].mode == 0;
    const bool begins_global = operation->kind == DO_CAPTURE_BEGIN && operation->other == 0;
    const bool frees_twice = operation->kind == DO_FREE_WRONG && operation->other == WRONG_TWICE;
    step_shares(step, SHARED_ALL,
                model_is_alone(operation->kind) || frees_twice || (operation->kind == DO_KERNEL && operation->waits));
    step_shares(step, SHARED_CONTEXTS + operation->context, operation->kind == DO_CONTEXT_CREATE);
    if (model_is_unsafe(operation->kind) || operation->kind == DO_CAPTURE_END)
        step_shares(step, SHARED_UNSAFE, begins_global || ends_global);
    if (model_may_wait(model, operation)) step_shares(step, SHARED_HELD, false);
    if (model_has_stream(operation)) step_shares_stream(step, model, operation->stream);
    for (unsigned i = 0; i < operation->touch_count; i++)
        step_shares_block(step, model, operation->touches[i].block, false);
    switch (operation->kind) {
    case DO_STREAM_CREATE:
        step_shares_stream(step, model, operation->stream);
        step_shares(step, SHARED_STREAMS + stream_legacy(operation->context), true);
        break;
    case DO_EVENT_RECORD:
    case DO_STREAM_WAIT:
    case DO_EVENT_SYNCHRONIZE:
    case DO_EVENT_QUERY:
        step_shares(step, SHARED_EVENTS + operation->event, true);
        break;
    case DO_CONTEXT_SYNCHRONIZE:
        step_shares_streams(step, model, operation->context, true);
        step_shares(step, SHARED_CAPTURES + context->device, false);
        break;
    case DO_ALLOC_ASYNC:
        step_shares_source(step, model);
        /* fall through */
    case DO_ALLOC:
        step_shares(step, SHARED_BLOCKS + operation->block, true);
        break;
    case DO_CAPTURE_TEMPORARY:
        step_shares_source(step, model);
        break;
    case DO_FREE_ASYNC:
        step_shares_freed(step, model);
        break;
    case DO_FREE:
        step_shares_freed(step, model);
        step_shares(step, SHARED_CONTEXTS + model->blocks[operation->block].context, false);
        if (!operation->waits) break;
        step_shares_streams(step, model, model->blocks[operation->block].context, true);
        for (unsigned i = 0; i < DEVICES_MAX; i++) step_shares(step, SHARED_CAPTURES + i, false);
        break;
    case DO_LOOK_UP:
    case DO_FREE_WRONG:
        step_shares_block(step, model, operation->block, false);
        break;
    case DO_MARK:
        step_shares(step, SHARED_BLOCKS + operation->block, true);
        break;
    case DO_POOL_CREATE:
    case DO_POOL_SET:
    case DO_POOL_ACCESS:
    case DO_POOL_ADJUST:
    case DO_POOL_TRIM:
    case DO_POOL_LOOK:
    case DO_POOL_DESTROY:
        step_shares_pool(step, model);
        break;
    case DO_EXPORT:
        step_shares(step, SHARED_BLOCKS + operation->block, true);
        step_shares(step, SHARED_EXPORTS + operation->exported, true);
        break;
    case DO_OPEN:
    case DO_OPEN_STALE:
        step_shares(step, SHARED_BLOCKS + model->exports[operation->exported].block, false);
        step_shares(step, SHARED_EXPORTS + operation->exported, false);
        step_shares(step, SHARED_IMPORTERS, true);
        break;
    case DO_USE:
        step_shares(step, SHARED_BLOCKS + operation->touches[0].block, true); /* its end is no work on a stream */
        step_shares(step, SHARED_IMPORTERS, true);
        break;
    case DO_CLOSE:
    case DO_KILL:
        step_shares(step, SHARED_IMPORTERS, true);
        break;
    case DO_CAPTURE_FORK:
        step_shares_stream(step, model, operation->other);
        break;
    case DO_CAPTURE_BEGIN:
    case DO_CAPTURE_END:
        step_shares(step, SHARED_CAPTURES + context->device, true);
        step_shares(step, SHARED_GRAPHS + operation->graph, true);
        if (operation->kind == DO_CAPTURE_BEGIN) break;
        for (unsigned i = 0; i < STREAMS_MAX; i++)
            if (model->streams[i].graph == operation->graph) step_shares_stream(step, model, i);
        break;
    case DO_GRAPH_LAUNCH:
        for (unsigned i = 0; i < model->graphs[operation->graph].use_count; i++)
            step_shares_block(step, model, model->graphs[operation->graph].uses[i].block, false);
        step_shares(step, SHARED_GRAPHS + operation->graph, true);
        break;
    case DO_GRAPH_DESTROY:
        step_shares(step, SHARED_GRAPHS + operation->graph, true);
        break;
    case DO_PEER_ENABLE:
        step_shares(step, SHARED_CONTEXTS + operation->context, true);
        step_shares(step, SHARED_POOLS + operation->other, true);
        break;
    case DO_KERNEL:
        if (operation->waits) step_shares(step, SHARED_HELD, true);
        break;
    case DO_RELEASE:
        step_shares(step, SHARED_HELD, true);
        break;
    default:
        break;
    }
}

static void step_follow(struct step *step, const struct model *model, unsigned number) {
    if (number == 0) return;
    const struct operation *earlier = &model->program->operations[number - 1];
    if (step->after[earlier->thread] < earlier->position) step->after[earlier->thread] = earlier->position;
    clock_join(&step->host, &model->host_after[number - 1]);
}

static void step_begin(struct step *step, const struct model *model, const struct operation *operation) {
    *step = (struct step){.operation = operation, .host = model->host[operation->thread]};
    step_shares_all(step, model);
    for (unsigned i = 0; i < step->shared_count; i++) {
        const struct shared *shared = &model->shared[step->shared[i].index];
        step_follow(step, model, shared->writer);
        for (unsigned k = 0; step->shared[i].writes && k < THREADS_MAX; k++)
            step_follow(step, model, shared->readers[k]);
    }
    step->after[operation->thread] = 0;
}

/* ---- order on the devices ---- */

/* What the next operation on the stream comes after. */
static struct clock stream_before(const struct model *model, const struct step *step, unsigned index) {
    const struct stream_state *stream = &model->streams[index];
    struct clock clock = stream->clock;
    clock_join(&clock, &step->host);
    if (stream->legacy) {
        for (unsigned i = 0; i < STREAMS_MAX; i++) {
            const struct stream_state *other = &model->streams[i];
            if (other->alive && other->blocking && other->context == stream->context) clock_join(&clock, &other->clock);
        }
    } else if (stream->blocking) {
        clock_join(&clock, &model->streams[stream_legacy(stream->context)].clock);
    }
    return clock;
}

/* The block's earlier uses that this one must come after, and does not: a lane. */
static unsigned block_lacks(const struct model *model, unsigned block, bool writes, const struct clock *clock) {
    const unsigned lane = clock_lacks(clock, &model->blocks[block].writes);
    return lane < LANES_MAX || !writes ? lane : clock_lacks(clock, &model->blocks[block].reads);
}

/* cudaFree of plain memory waits for the work of its context, and for nothing else. */
static unsigned free_lacks(const struct model *model, const struct block_state *block, const struct clock *host) {
    for (unsigned lane = 0; lane < LANES_MAX; lane++) {
        const uint16_t last =
            block->reads.of[lane] > block->writes.of[lane] ? block->reads.of[lane] : block->writes.of[lane];
        if (last <= host->of[lane]) continue;
        bool own = false;
        for (unsigned i = 0; i < STREAMS_MAX; i++)
            own |= model->streams[i].lane == lane && model->streams[i].alive &&
                   model->streams[i].context == block->context;
        if (!own || block->async) return lane;
    }
    return LANES_MAX;
}

static unsigned step_lacks(const struct model *model, const struct step *step) {
    const struct operation *operation = step->operation;
    struct clock clock;
    unsigned lane = LANES_MAX;
    switch (operation->kind) {
    case DO_KERNEL:
    case DO_MEMSET:
    case DO_READ_BACK:
        if (model->streams[operation->stream].graph != NOBODY) break;
        clock = stream_before(model, step, operation->stream);
        for (unsigned i = 0; i < operation->touch_count && lane == LANES_MAX; i++)
            lane = block_lacks(model, operation->touches[i].block, operation->touches[i].writes, &clock);
        break;
    case DO_GRAPH_LAUNCH:
        clock = stream_before(model, step, operation->stream);
        for (unsigned i = 0; i < model->graphs[operation->graph].use_count && lane == LANES_MAX; i++) {
            const struct graph_use *use = &model->graphs[operation->graph].uses[i];
            lane = block_lacks(model, use->block, use->writes, &clock);
        }
        break;
    case DO_FREE_ASYNC:
        clock = stream_before(model, step, operation->stream);
        lane = block_lacks(model, operation->block, true, &clock);
        break;
    case DO_FREE:
        lane = free_lacks(model, &model->blocks[operation->block], &step->host);
        break;
    case DO_USE: /* the other process knows nothing of streams here */
        lane = block_lacks(model, operation->touches[0].block, operation->touches[0].writes, &step->host);
        break;
    default:
        break;
    }
    return lane;
}

unsigned model_lacks(struct model *model, const struct operation *operation) {
    struct step step;
    if (!model_is_possible(model, operation)) return STREAMS_MAX;
    step_begin(&step, model, operation);
    const unsigned lane = step_lacks(model, &step);
    for (unsigned i = 0; lane < LANES_MAX && i < STREAMS_MAX; i++)
        if (model->streams[i].alive && model->streams[i].lane == lane) return i;
    return STREAMS_MAX;
}

/* ---- taking it in ---- */

/* The point of an allocation or free in stream order. What other streams did, or will do, is not ordered by it: it need
 * not be work. */
static void stream_mark(struct model *model, const struct step *step, unsigned index) {
    struct stream_state *stream = &model->streams[index];
    clock_join(&stream->clock, &step->host);
    stream->clock.of[stream->lane] = ++model->lane_counts[stream->lane];
}

static struct clock *stream_submit(struct model *model, const struct step *step, unsigned index) {
    struct stream_state *stream = &model->streams[index];
    stream->clock = stream_before(model, step, index);
    stream->clock.of[stream->lane] = ++model->lane_counts[stream->lane];
    return &stream->clock;
}

static void block_use(struct model *model, unsigned block, bool writes, unsigned stream) {
    struct block_state *used = &model->blocks[block];
    const unsigned lane = model->streams[stream].lane;
    (writes ? &used->writes : &used->reads)->of[lane] = model->lane_counts[lane];
}

static void touches_take(struct model *model, struct operation *operation) {
    for (unsigned i = 0; i < operation->touch_count; i++) {
        struct touch *touch = &operation->touches[i];
        struct block_state *block = &model->blocks[touch->block];
        block_use(model, touch->block, touch->writes, operation->stream);
        touch->expected = block->stamp;
        touch->stamp = 0;
        if (!touch->writes) continue;
        touch->stamp = operation->kind == DO_MEMSET ? 1 + model->stamps++ % 255 : model->stamps++;
        block->stamp = touch->stamp;
    }
}

static void touches_capture(struct model *model, struct operation *operation, struct graph_state *graph) {
    for (unsigned i = 0; i < operation->touch_count; i++) {
        struct touch *touch = &operation->touches[i];
        unsigned k = 0;
        while (k < graph->use_count && graph->uses[k].block != touch->block) k++;
        struct graph_use *use = &graph->uses[k];
        if (k == graph->use_count) *use = (struct graph_use){.block = touch->block}, graph->use_count++;
        touch->expected = use->stamp;
        touch->stamp = touch->writes ? model->stamps++ : 0;
        if (!touch->writes) continue;
        use->writes = true;
        use->stamp = touch->stamp;
    }
}

static void use_take(struct model *model, struct operation *operation) {
    struct touch *touch = &operation->touches[0];
    touch->expected = model->blocks[touch->block].stamp;
    touch->stamp = touch->writes ? model->stamps++ : 0;
    if (touch->writes) model->blocks[touch->block].stamp = touch->stamp;
}

static void pool_take(struct model *model, const struct operation *operation) {
    struct memory_pool_state *pool = &model->memory_pools[operation->memory_pool];
    switch (operation->kind) {
    case DO_POOL_CREATE:
        *pool = (struct memory_pool_state){.alive = true, .device = operation->other};
        break;
    case DO_POOL_SET:
        model->current[pool->device] = operation->memory_pool;
        break;
    case DO_POOL_ACCESS:
        pool->access[operation->other] = true;
        break;
    default: /* its blocks live on */
        pool->alive = false;
        pool->ended = true;
        if (model->current[pool->device] == operation->memory_pool) model->current[pool->device] = pool->device;
    }
}

static void launch_take(struct model *model, const struct operation *operation) {
    const struct graph_state *graph = &model->graphs[operation->graph];
    for (unsigned i = 0; i < graph->use_count; i++) {
        block_use(model, graph->uses[i].block, graph->uses[i].writes, operation->stream);
        if (graph->uses[i].writes) model->blocks[graph->uses[i].block].stamp = graph->uses[i].stamp;
    }
}

static void capture_take(struct model *model, const struct operation *operation) {
    struct graph_state *graph = &model->graphs[operation->graph];
    if (operation->kind == DO_CAPTURE_BEGIN) {
        *graph = (struct graph_state){.life = GRAPH_CAPTURING,
                                      .context = operation->context,
                                      .stream = operation->stream,
                                      .thread = operation->thread,
                                      .mode = operation->other};
        model->streams[operation->stream].graph = operation->graph;
        model->contexts[operation->context].captures++;
        model->captured = true;
        return;
    }
    graph->life = GRAPH_READY;
    model->contexts[graph->context].captures--;
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (model->streams[i].graph == operation->graph) model->streams[i].graph = NOBODY;
}

static void context_forget(struct model *model, unsigned context) {
    for (unsigned i = 0; i < CREATED_STREAMS_MAX; i++)
        if (model->streams[i].context == context) model->streams[i].alive = false;
    for (unsigned i = 0; i < EVENTS_OF_CONTEXT; i++) model->events[context * EVENTS_OF_CONTEXT + i].recorded = false;
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        struct block_state *block = &model->blocks[i];
        if (block->life == BLOCK_LIVE && !block->async && block->context == context) block->life = BLOCK_FREED;
    }
    for (unsigned i = 0; i < OPENINGS_MAX; i++)
        if (model->blocks[model->openings[i].block].context == context) model->openings[i].open = false;
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        if (model->graphs[i].life == GRAPH_READY && model->graphs[i].context == context)
            model->graphs[i].life = GRAPH_UNUSED;
    memset(model->contexts[context].peers, 0, sizeof model->contexts[context].peers);
    for (unsigned i = 0; i < CONTEXTS_MAX && context < DEVICES_MAX; i++) model->contexts[i].peers[context] = false;
    for (unsigned i = 0; i < MEMORY_POOLS_MAX && context < DEVICES_MAX; i++) {
        struct memory_pool_state *pool = &model->memory_pools[i];
        pool->access[context] = false;
        if (pool->device == context) memset(pool->access, 0, sizeof pool->access);
    }
}

static void context_set(struct model *model, unsigned context, bool alive, unsigned device) {
    model->contexts[context] = (struct context_state){.alive = alive, .created = true, .device = device};
    model->streams[stream_legacy(context)].alive = alive;
    for (unsigned i = 0; i < model->program->threads; i++) model->streams[stream_per_thread(context, i)].alive = alive;
}

static void context_wait(const struct model *model, unsigned context, struct clock *host) {
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (model->streams[i].alive && model->streams[i].context == context) clock_join(host, &model->streams[i].clock);
}

static void step_take(struct model *model, struct step *step, struct operation *operation) {
    const unsigned stream = operation->stream;
    struct clock *host = &step->host;
    switch (operation->kind) {
    case DO_STREAM_CREATE:
        model->streams[stream] = (struct stream_state){.alive = true,
                                                       .blocking = operation->other != STREAM_NON_BLOCKING,
                                                       .context = operation->context,
                                                       .thread = NOBODY,
                                                       .graph = NOBODY,
                                                       .lane = (uint8_t)model->lanes++};
        break;
    case DO_STREAM_DESTROY:
        model->streams[stream].alive = false;
        break;
    case DO_STREAM_SYNCHRONIZE: /* not for what its next operation would wait for */
        clock_join(host, &model->streams[stream].clock);
        break;
    case DO_EVENT_RECORD:
        model->events[operation->event] = (struct event_state){true, *stream_submit(model, step, stream)};
        break;
    case DO_STREAM_WAIT:
        clock_join(stream_submit(model, step, stream), &model->events[operation->event].clock);
        break;
    case DO_EVENT_SYNCHRONIZE:
        clock_join(host, &model->events[operation->event].clock);
        break;
    case DO_CONTEXT_SYNCHRONIZE:
        context_wait(model, operation->context, host);
        break;
    case DO_ALLOC:
    case DO_ALLOC_ASYNC:
        model->blocks[operation->block] =
            (struct block_state){.life = BLOCK_LIVE,
                                 .async = operation->kind == DO_ALLOC_ASYNC,
                                 .context = operation->context,
                                 .device = (uint8_t)model->contexts[operation->context].device,
                                 .memory_pool = NOBODY,
                                 .bytes = operation->bytes};
        if (operation->kind == DO_ALLOC) break;
        operation->source = (uint8_t)model_memory_pool(model, operation);
        model->blocks[operation->block].memory_pool = operation->source;
        model->blocks[operation->block].device = model->memory_pools[operation->source].device;
        stream_mark(model, step, stream);
        block_use(model, operation->block, true, stream);
        break;
    case DO_FREE:
        if (operation->waits) context_wait(model, model->blocks[operation->block].context, host);
        model->blocks[operation->block].life = BLOCK_FREED;
        break;
    case DO_FREE_ASYNC:
        stream_mark(model, step, stream);
        model->blocks[operation->block].life = BLOCK_FREED;
        break;
    case DO_KERNEL:
    case DO_MEMSET:
    case DO_READ_BACK:
        if (model->streams[stream].graph != NOBODY) {
            touches_capture(model, operation, &model->graphs[model->streams[stream].graph]);
            break;
        }
        stream_submit(model, step, stream);
        touches_take(model, operation);
        if (operation->kind == DO_READ_BACK) clock_join(host, &model->streams[stream].clock);
        if (operation->kind == DO_KERNEL && operation->waits) model->held++;
        break;
    case DO_CAPTURE_FORK:
        touches_capture(model, operation, &model->graphs[model->streams[stream].graph]);
        model->streams[operation->other].graph = model->streams[stream].graph;
        break;
    case DO_CAPTURE_TEMPORARY:
        model->graphs[model->streams[stream].graph].temporary = true;
        break;
    case DO_CAPTURE_BEGIN:
    case DO_CAPTURE_END:
        capture_take(model, operation);
        break;
    case DO_GRAPH_LAUNCH:
        stream_submit(model, step, stream);
        launch_take(model, operation);
        break;
    case DO_GRAPH_DESTROY:
        model->graphs[operation->graph].life = GRAPH_UNUSED;
        break;
    case DO_PEER_ENABLE:
        model->contexts[operation->context].peers[operation->other] = true;
        if (model->program->settings.async)
            model->memory_pools[operation->other].access[model->contexts[operation->context].device] = true;
        break;
    case DO_RELEASE:
        model->held = 0;
        break;
    case DO_QUIET:
        memcpy(host->of, model->lane_counts, sizeof host->of);
        break;
    case DO_DEVICE_RESET:
        context_forget(model, operation->context);
        break;
    case DO_CONTEXT_CREATE:
        context_set(model, operation->context, true, operation->other);
        break;
    case DO_CONTEXT_DESTROY:
        context_forget(model, operation->context);
        context_set(model, operation->context, false, 0);
        break;
    case DO_POOL_CREATE:
    case DO_POOL_SET:
    case DO_POOL_ACCESS:
    case DO_POOL_DESTROY:
        pool_take(model, operation);
        break;
    case DO_EXPORT:
        if (!model->blocks[operation->block].async)
            model->exports[operation->exported] = (struct export_state){true, operation->block};
        break;
    case DO_OPEN:
        model->openings[operation->opening] =
            (struct opening_state){true, operation->importer, model->exports[operation->exported].block};
        break;
    case DO_USE:
        use_take(model, operation);
        break;
    case DO_CLOSE:
        model->openings[operation->opening].open = false;
        break;
    case DO_KILL:
        for (unsigned i = 0; i < OPENINGS_MAX; i++)
            if (model->openings[i].importer == operation->importer) model->openings[i].open = false;
        break;
    default:
        break;
    }
}

void model_finish(struct model *model) {
    for (unsigned i = 0; i < GRAPHS_MAX; i++) {
        const struct graph_state *graph = &model->graphs[i];
        if (graph->life != GRAPH_CAPTURING) continue;
        const struct operation end = {.kind = DO_CAPTURE_END,
                                      .thread = graph->thread,
                                      .context = graph->context,
                                      .stream = graph->stream,
                                      .graph = (uint8_t)i};
        model_offer(model, &end);
    }
    const struct operation release = {.kind = DO_RELEASE};
    model_offer(model, &release);
}

bool model_offer(struct model *model, const struct operation *offered) {
    struct step step;
    if (!model_is_possible(model, offered)) return false;
    struct operation *operation = &model->program->operations[model->program->count];
    const struct operation copy = *offered; /* may lie in the same list */
    step_begin(&step, model, &copy);
    if (step_lacks(model, &step) < LANES_MAX) return false;
    *operation = copy;
    memcpy(operation->after, step.after, sizeof operation->after);
    operation->position = ++model->positions[operation->thread];
    const uint16_t number = (uint16_t)++model->program->count;
    for (unsigned i = 0; i < step.shared_count; i++) {
        struct shared *shared = &model->shared[step.shared[i].index];
        if (step.shared[i].writes)
            *shared = (struct shared){.writer = number};
        else
            shared->readers[operation->thread] = number;
    }
    step_take(model, &step, operation);
    model->host[operation->thread] = step.host;
    model->host_after[number - 1] = step.host;
    return true;
}
