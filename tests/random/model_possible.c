/* SPDX-License-Identifier: MIT
 *
 * What an operation needs to be possible at all, whatever it comes after; see model.h.
 */
#include "model.h"

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
    if (used->async) return used->device == user->device || model->memory_pools[used->memory_pool].access[user->device];
    if (used->device == user->device) return used->context == context;
    return !user->created && !model->contexts[used->context].created && user->peers[used->device];
}

/* ---- what an operation needs to be possible at all ---- */

bool model_has_stream(const struct operation *operation) {
    switch (operation->kind) {
    case DO_ALLOC_TOO_LARGE:
    case DO_FREE_WRONG:
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
bool model_may_wait(const struct model *model, const struct operation *operation) {
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

bool model_is_alone(unsigned kind) {
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
    for (unsigned i = 0; !model->program->settings.frees_open && i < OPENINGS_MAX; i++)
        if (model->openings[i].open && model->openings[i].block == operation->block) return false;
    if (operation->kind == DO_FREE) return !operation->waits || (!block->async && !any_captures(model));
    const unsigned context = model->streams[operation->stream].context;
    return block->async ? model_may_use(model, context, operation->block) : block->context == context;
}

/* Of the pool that is named, or of the current one. */
static bool alloc_is_possible(const struct model *model, const struct operation *operation) {
    const unsigned pool = model_memory_pool(model, operation);
    const unsigned device = model->contexts[operation->context].device;
    return model->blocks[operation->block].life == BLOCK_UNUSED && model->memory_pools[pool].alive &&
           (model->memory_pools[pool].device == device || model->memory_pools[pool].access[device]);
}

static bool pool_is_possible(const struct model *model, const struct operation *operation) {
    const unsigned pool = operation->memory_pool;
    if (pool >= MEMORY_POOLS_MAX) return false;
    const struct memory_pool_state *state = &model->memory_pools[pool];
    switch (operation->kind) {
    case DO_POOL_CREATE:
        return pool >= DEVICES_MAX && !state->alive && !state->ended && operation->other < model->program->devices;
    case DO_POOL_ACCESS:
        return state->alive && operation->other < model->program->devices && operation->other != state->device;
    case DO_POOL_DESTROY:
        return state->alive && pool >= DEVICES_MAX;
    default:
        return state->alive;
    }
}

static bool wrong_free_is_possible(const struct model *model, const struct operation *operation) {
    const struct block_state *block = &model->blocks[operation->block];
    switch (operation->other) {
    case WRONG_INTERIOR:
        return block->life == BLOCK_LIVE && block->bytes > 1;
    case WRONG_TWICE:
        return block->life == BLOCK_FREED;
    case WRONG_THREAD:
        return block->life == BLOCK_LIVE && !operation->waits;
    default:
        return true;
    }
}

static bool sharing_is_possible(const struct model *model, const struct operation *operation) {
    const struct opening_state *opening = &model->openings[operation->opening];
    if (operation->exported >= EXPORTS_MAX || operation->importer >= IMPORTERS_MAX ||
        operation->opening >= OPENINGS_MAX)
        return false;
    switch (operation->kind) {
    case DO_EXPORT:
        return model->blocks[operation->block].life == BLOCK_LIVE;
    case DO_OPEN: {
        const struct export_state *exported = &model->exports[operation->exported];
        return !opening->open && exported->used && model->blocks[exported->block].life == BLOCK_LIVE;
    }
    case DO_OPEN_STALE:
        return model->program->settings.frees_open && model->exports[operation->exported].used &&
               model->blocks[model->exports[operation->exported].block].life == BLOCK_FREED;
    case DO_USE: {
        const struct touch *touch = &operation->touches[0];
        return opening->open && opening->importer == operation->importer && operation->touch_count == 1 &&
               touch->block == opening->block && (touch->writes || model->blocks[touch->block].stamp != 0);
    }
    case DO_CLOSE:
        return opening->open && opening->importer == operation->importer;
    default:
        return true;
    }
}

static bool needs_async(const struct operation *operation) {
    switch (operation->kind) {
    case DO_ALLOC_TOO_LARGE:
    case DO_FREE_WRONG:
        return operation->waits;
    case DO_ALLOC_ASYNC:
    case DO_FREE_ASYNC:
    case DO_CAPTURE_TEMPORARY:
    case DO_POOL_CREATE:
    case DO_POOL_SET:
    case DO_POOL_ACCESS:
    case DO_POOL_ADJUST:
    case DO_POOL_TRIM:
    case DO_POOL_LOOK:
    case DO_POOL_DESTROY:
        return true;
    default:
        return false;
    }
}

static bool after_quiet(const struct model *model) {
    return model->program->count > 0 && model_is_alone(model->program->operations[model->program->count - 1].kind);
}

bool model_is_possible(const struct model *model, const struct operation *operation) {
    const struct settings *settings = &model->program->settings;
    const struct context_state *context = &model->contexts[operation->context];
    if (model->program->count >= OPERATIONS_MAX - (operation->kind == DO_CAPTURE_END ? 0 : GRAPHS_MAX)) return false;
    if (!context->alive && operation->kind != DO_CONTEXT_CREATE) return false;
    if (model_is_unsafe(operation->kind) && captures_forbid(model, operation->thread)) return false;
    if (model->held > 0 && model_may_wait(model, operation)) return false;
    if (model_is_alone(operation->kind) && any_captures(model)) return false;
    if (needs_async(operation) && !settings->async) return false;
    if (model_has_stream(operation) && !stream_is_possible(model, operation)) return false;
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
        return model->blocks[operation->block].life == BLOCK_UNUSED;
    case DO_ALLOC_ASYNC:
        return alloc_is_possible(model, operation);
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
        return settings->contexts && operation->context >= DEVICES_MAX && !context->alive &&
               operation->other < model->program->devices;
    case DO_CONTEXT_DESTROY:
        return after_quiet(model) && context->created;
    case DO_POOL_CREATE:
    case DO_POOL_SET:
    case DO_POOL_ACCESS:
    case DO_POOL_ADJUST:
    case DO_POOL_TRIM:
    case DO_POOL_LOOK:
    case DO_POOL_DESTROY:
        return pool_is_possible(model, operation);
    case DO_MARK:
        return model->blocks[operation->block].life == BLOCK_LIVE && !model->blocks[operation->block].async;
    case DO_FREE_WRONG:
        return wrong_free_is_possible(model, operation);
    case DO_EXPORT:
    case DO_OPEN:
    case DO_OPEN_STALE:
    case DO_USE:
    case DO_CLOSE:
    case DO_KILL:
        return settings->ipc && sharing_is_possible(model, operation);
    default:
        return true;
    }
}
