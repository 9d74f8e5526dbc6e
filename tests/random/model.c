/* SPDX-License-Identifier: MIT
 *
 * What makes a program correct; see model.h.
 */
#include "model.h"

#include <string.h>

enum { LANES_FIXED = CONTEXTS_MAX * (1 + THREADS_MAX), SHARED_OF_STEP = 80, STAMPS_FIRST = 256 };

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
}

bool model_thread_captures(const struct model *model, unsigned thread) {
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        if (model->graphs[i].life == GRAPH_CAPTURING && model->graphs[i].thread == thread) return true;
    return false;
}

static bool any_captures(const struct model *model) {
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        if (model->contexts[i].captures > 0) return true;
    return false;
}

static bool device_captures(const struct model *model, unsigned device) {
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        if (model->contexts[i].captures > 0 && model->contexts[i].device == device) return true;
    return false;
}

/* Whether a capture forbids unsafe calls to the thread. */
static bool captures_forbid(const struct model *model, unsigned thread) {
    for (unsigned i = 0; i < GRAPHS_MAX; i++) {
        const struct graph_state *graph = &model->graphs[i];
        if (graph->life != GRAPH_CAPTURING || graph->mode == 2) continue;
        if (graph->mode == 0 || graph->thread == thread) return true;
    }
    return false;
}

bool model_may_use(const struct model *model, unsigned context, unsigned block) {
    const struct block_state *used = &model->blocks[block];
    const struct context_state *user = &model->contexts[context];
    if (used->life != BLOCK_LIVE) return false;
    if (used->device == user->device) return used->async || used->context == context;
    if (!used->async && model->contexts[used->context].created) return false;
    return !user->created && user->peers[used->device];
}

/* ---- what an operation needs to be possible at all ---- */

static bool has_stream(const struct operation *operation) {
    switch (operation->kind) {
    case DO_ALLOC_TOO_LARGE:
        return operation->waits;
    case DO_STREAM_DESTROY:
    case DO_STREAM_SYNCHRONIZE:
    case DO_STREAM_QUERY:
    case DO_EVENT_RECORD:
    case DO_STREAM_WAIT:
    case DO_ALLOC_ASYNC:
    case DO_FREE_ASYNC:
    case DO_KERNEL:
    case DO_MEMSET:
    case DO_READ_BACK:
    case DO_CAPTURE_BEGIN:
    case DO_CAPTURE_FORK:
    case DO_CAPTURE_TEMPORARY:
    case DO_CAPTURE_END:
    case DO_GRAPH_LAUNCH:
        return true;
    default:
        return false;
    }
}

static bool may_be_captured(unsigned kind) {
    return kind == DO_KERNEL || kind == DO_CAPTURE_FORK || kind == DO_CAPTURE_TEMPORARY || kind == DO_CAPTURE_END;
}

/* Calls that could wait for a kernel which waits to be released. */
static bool may_wait(const struct model *model, const struct operation *operation) {
    switch (operation->kind) {
    case DO_STREAM_SYNCHRONIZE:
    case DO_EVENT_SYNCHRONIZE:
    case DO_CONTEXT_SYNCHRONIZE:
    case DO_READ_BACK:
    case DO_ALLOC_TOO_LARGE:
    case DO_GRAPH_DESTROY:
    case DO_PEER_ENABLE:
    case DO_QUIET:
    case DO_DEVICE_RESET:
    case DO_CONTEXT_CREATE:
    case DO_CONTEXT_DESTROY:
        return true;
    case DO_FREE: /* of memory that was taken amid a capture, the driver's own free waits */
        return model->program->settings.free_waits || model->captured;
    default:
        return false;
    }
}

static bool is_alone(unsigned kind) {
    return kind == DO_QUIET || kind == DO_DEVICE_RESET || kind == DO_CONTEXT_DESTROY;
}

static bool stream_is_possible(const struct model *model, const struct operation *operation) {
    const struct stream_state *stream = &model->streams[operation->stream];
    if (!stream->alive || !model->contexts[stream->context].alive) return false;
    if (stream->thread != NOBODY && stream->thread != operation->thread) return false;
    if (operation->context != stream->context && operation->kind != DO_FREE_ASYNC) return false;
    if (operation->context != stream->context && operation->stream >= LEGACY_FIRST) return false;
    if (stream->legacy && device_captures(model, model->contexts[stream->context].device)) return false;
    if (stream->graph == NOBODY) return true;
    return may_be_captured(operation->kind) && model->graphs[stream->graph].stream == operation->stream &&
           model->graphs[stream->graph].thread == operation->thread;
}

static bool touches_are_possible(const struct model *model, const struct operation *operation) {
    if (operation->touch_count > TOUCHES_MAX) return false;
    for (unsigned i = 0; i < operation->touch_count; i++) {
        if (!model_may_use(model, operation->context, operation->touches[i].block)) return false;
        for (unsigned k = 0; k < i; k++)
            if (operation->touches[k].block == operation->touches[i].block) return false;
    }
    return true;
}

/* Room in the graph for what is captured. */
static bool graph_has_room(const struct model *model, const struct operation *operation) {
    const uint8_t graph = model->streams[operation->stream].graph;
    return graph == NOBODY || model->graphs[graph].use_count + operation->touch_count <= GRAPH_BLOCKS_MAX;
}

static bool launch_is_possible(const struct model *model, const struct operation *operation) {
    const struct graph_state *graph = &model->graphs[operation->graph];
    if (!model->program->settings.graphs || graph->life != GRAPH_READY || graph->context != operation->context)
        return false;
    for (unsigned i = 0; i < graph->use_count; i++)
        if (!model_may_use(model, graph->context, graph->uses[i].block)) return false;
    return true;
}

static bool free_is_possible(const struct model *model, const struct operation *operation) {
    const struct block_state *block = &model->blocks[operation->block];
    if (block->life != BLOCK_LIVE) return false;
    if (operation->kind == DO_FREE) return !operation->waits || (!block->async && !any_captures(model));
    const unsigned context = model->streams[operation->stream].context;
    return block->async ? model_may_use(model, context, operation->block) : block->context == context;
}

static bool after_quiet(const struct model *model) {
    return model->program->count > 0 && is_alone(model->program->operations[model->program->count - 1].kind);
}

static bool is_possible(const struct model *model, const struct operation *operation) {
    const struct settings *settings = &model->program->settings;
    const struct context_state *context = &model->contexts[operation->context];
    if (model->program->count >= OPERATIONS_MAX - (operation->kind == DO_CAPTURE_END ? 0 : GRAPHS_MAX)) return false;
    if (!context->alive && operation->kind != DO_CONTEXT_CREATE) return false;
    if (model_is_unsafe(operation->kind) && captures_forbid(model, operation->thread)) return false;
    if (model->held > 0 && may_wait(model, operation)) return false;
    if (is_alone(operation->kind) && any_captures(model)) return false;
    if (has_stream(operation) && !stream_is_possible(model, operation)) return false;
    switch (operation->kind) {
    case DO_STREAM_CREATE:
        return operation->stream < CREATED_STREAMS_MAX && !model->streams[operation->stream].alive &&
               model->lanes < LANES_MAX;
    case DO_STREAM_DESTROY:
        return operation->stream < CREATED_STREAMS_MAX;
    case DO_EVENT_RECORD:
        return operation->event / EVENTS_OF_CONTEXT == operation->context;
    case DO_STREAM_WAIT:
    case DO_EVENT_SYNCHRONIZE:
    case DO_EVENT_QUERY:
        return model->events[operation->event].recorded;
    case DO_CONTEXT_SYNCHRONIZE:
        return !device_captures(model, context->device);
    case DO_ALLOC:
    case DO_ALLOC_ASYNC:
        return model->blocks[operation->block].life == BLOCK_UNUSED;
    case DO_FREE:
    case DO_FREE_ASYNC:
        return free_is_possible(model, operation);
    case DO_KERNEL:
        if (operation->waits && (!settings->holds || any_captures(model))) return false;
        return touches_are_possible(model, operation) && graph_has_room(model, operation);
    case DO_MEMSET:
        return operation->touch_count == 1 && touches_are_possible(model, operation);
    case DO_READ_BACK:
        return operation->touch_count == 1 && touches_are_possible(model, operation) &&
               model->blocks[operation->touches[0].block].stamp != 0;
    case DO_LOOK_UP:
        return model->blocks[operation->block].life == BLOCK_LIVE;
    case DO_CAPTURE_BEGIN:
        return model->graphs[operation->graph].life == GRAPH_UNUSED && !model->streams[operation->stream].legacy &&
               !model_thread_captures(model, operation->thread) && (operation->other != 0 || !any_captures(model));
    case DO_CAPTURE_FORK: {
        const struct stream_state *other = &model->streams[operation->other];
        return model->streams[operation->stream].graph != NOBODY && other->alive && !other->legacy &&
               other->graph == NOBODY && other->context == operation->context &&
               (other->thread == NOBODY || other->thread == operation->thread) &&
               touches_are_possible(model, operation) && graph_has_room(model, operation);
    }
    case DO_CAPTURE_TEMPORARY:
        /* A launch takes the memory, and where it is scarce may not get it. */
        return settings->graphs && !settings->scarce && model->streams[operation->stream].graph != NOBODY;
    case DO_CAPTURE_END:
        return model->streams[operation->stream].graph != NOBODY;
    case DO_GRAPH_LAUNCH:
        return launch_is_possible(model, operation);
    case DO_GRAPH_DESTROY:
        return model->graphs[operation->graph].life == GRAPH_READY;
    case DO_PEER_ENABLE:
        return !context->created && operation->other < model->program->devices && operation->other != context->device &&
               !context->peers[operation->other];
    case DO_RELEASE:
        return model->held > 0;
    case DO_DEVICE_RESET:
        return after_quiet(model) && !context->created;
    case DO_CONTEXT_CREATE:
        return operation->context >= DEVICES_MAX && !context->alive && operation->other < model->program->devices;
    case DO_CONTEXT_DESTROY:
        return after_quiet(model) && context->created;
    default:
        return true;
    }
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

static void step_shares_all(struct step *step, const struct model *model) {
    const struct operation *operation = step->operation;
    const struct context_state *context = &model->contexts[operation->context];
    const bool ends_global = operation->kind == DO_CAPTURE_END && model->graphs[operation->graph].mode == 0;
    const bool begins_global = operation->kind == DO_CAPTURE_BEGIN && operation->other == 0;
    step_shares(step, SHARED_ALL, is_alone(operation->kind) || (operation->kind == DO_KERNEL && operation->waits));
    step_shares(step, SHARED_CONTEXTS + operation->context, operation->kind == DO_CONTEXT_CREATE);
    if (model_is_unsafe(operation->kind) || operation->kind == DO_CAPTURE_END)
        step_shares(step, SHARED_UNSAFE, begins_global || ends_global);
    if (may_wait(model, operation)) step_shares(step, SHARED_HELD, false);
    if (has_stream(operation)) step_shares_stream(step, model, operation->stream);
    for (unsigned i = 0; i < operation->touch_count; i++)
        step_shares(step, SHARED_BLOCKS + operation->touches[i].block, false);
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
    case DO_ALLOC:
    case DO_ALLOC_ASYNC:
    case DO_FREE_ASYNC:
        step_shares(step, SHARED_BLOCKS + operation->block, true);
        break;
    case DO_FREE:
        step_shares(step, SHARED_BLOCKS + operation->block, true);
        step_shares(step, SHARED_CONTEXTS + model->blocks[operation->block].context, false);
        if (!operation->waits) break;
        step_shares_streams(step, model, model->blocks[operation->block].context, true);
        for (unsigned i = 0; i < DEVICES_MAX; i++) step_shares(step, SHARED_CAPTURES + i, false);
        break;
    case DO_LOOK_UP:
        step_shares(step, SHARED_BLOCKS + operation->block, false);
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
            step_shares(step, SHARED_BLOCKS + model->graphs[operation->graph].uses[i].block, false);
        step_shares(step, SHARED_GRAPHS + operation->graph, true);
        break;
    case DO_GRAPH_DESTROY:
        step_shares(step, SHARED_GRAPHS + operation->graph, true);
        break;
    case DO_PEER_ENABLE:
        step_shares(step, SHARED_CONTEXTS + operation->context, true);
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
    default:
        break;
    }
    return lane;
}

unsigned model_lacks(struct model *model, const struct operation *operation) {
    struct step step;
    if (!is_possible(model, operation)) return STREAMS_MAX;
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
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        if (model->graphs[i].life == GRAPH_READY && model->graphs[i].context == context)
            model->graphs[i].life = GRAPH_UNUSED;
    memset(model->contexts[context].peers, 0, sizeof model->contexts[context].peers);
    for (unsigned i = 0; i < CONTEXTS_MAX && context < DEVICES_MAX; i++) model->contexts[i].peers[context] = false;
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
                                 .bytes = operation->bytes};
        if (operation->kind == DO_ALLOC) break;
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
    if (!is_possible(model, offered)) return false;
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
