/* SPDX-License-Identifier: MIT
 *
 * Launches of graphs. A launch submits a copy of each node's work to the node's branch, between a beginning and an end
 * in the stream that it is launched in, all at once.
 */
#include <stdlib.h>

#include "graph.h"

/* Every branch needs a stream of its context's present life. */
static CUresult branches_prepare(struct graph_exec *exec, const struct stream *launched_in) {
    for (size_t i = 0; i < exec->branch_count; i++) {
        struct branch *const branch = &exec->branches[i];
        struct context *const context = branch->context != NULL ? branch->context : launched_in->context;
        if (branch->context != NULL &&
            (!atomic_load(&context->active) || atomic_load(&context->id) != branch->context_id))
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        if (graph_branch_lives(branch)) continue;
        branch->stream = stream_new(context, NULL, CU_STREAM_NON_BLOCKING, 0, false);
        if (branch->stream == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
        branch->made_in = context;
        branch->made_in_id = atomic_load(&context->id);
    }
    return CUDA_SUCCESS;
}

/* What one launch submits. All arrays are owned; operations and events' records are held. */
struct launch {
    struct submission *submissions;
    size_t count;
    struct operation **copies;  /* of the nodes, by place */
    struct operation **frees;   /* of memory that a launch before left, by the place of its allocation */
    struct operation **records; /* that nodes wait for, by place */
    struct operation **after;   /* room for what each comes after */
};

static void launch_end(struct launch *launch, size_t node_count) {
    for (size_t i = 0; i < launch->count; i++) operation_drop(launch->submissions[i].operation);
    for (size_t place = 0; place < node_count; place++) {
        if (launch->copies != NULL) operation_drop(launch->copies[place]);
        if (launch->frees != NULL) operation_drop(launch->frees[place]);
        if (launch->records != NULL) operation_drop(launch->records[place]);
    }
    free(launch->submissions);
    free(launch->copies);
    free(launch->frees);
    free(launch->records);
    free(launch->after);
}

static bool launch_begin(struct launch *launch, const struct graph_exec *exec) {
    size_t after_count = 1 + 2 * exec->node_count;
    for (size_t place = 0; place < exec->node_count; place++) after_count += 1 + exec->nodes[place].after.count;
    launch->submissions = calloc(2 + 2 * exec->node_count, sizeof(*launch->submissions));
    launch->copies = calloc(exec->node_count + 1, sizeof(struct operation *));
    launch->frees = calloc(exec->node_count + 1, sizeof(struct operation *));
    launch->records = calloc(exec->node_count + 1, sizeof(struct operation *));
    launch->after = calloc(after_count, sizeof(struct operation *));
    if (launch->submissions == NULL || launch->copies == NULL || launch->frees == NULL || launch->records == NULL ||
        launch->after == NULL)
        return false;
    for (size_t place = 0; place < exec->node_count; place++) {
        const struct exec_node *const node = &exec->nodes[place];
        struct operation *const copy = launch->copies[place] = operation_copy(node->operation);
        if (copy == NULL) return false;
        if (copy->kind == OPERATION_KERNEL && copy->kernel.release_round > 0)
            copy->kernel.release_round = scheduler_release_round();
        if ((exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0 || copy->kind != OPERATION_ALLOC)
            continue;
        launch->frees[place] = operation_new(OPERATION_FREE);
        if (launch->frees[place] == NULL) return false;
        launch->frees[place]->memory = node->operation->memory;
    }
    return true;
}

/* Under memory_lock. */
static bool leaves_memory(const struct exec_node *node) {
    return node->operation->kind == OPERATION_ALLOC && node->memory->freed != FREED_BY_OWNER;
}

/* Whether all memory that it frees is there, and all that it allocates is not. Under memory_lock. */
static bool memory_is_ready(const struct graph_exec *exec, const struct launch *launch) {
    for (size_t place = 0; place < exec->node_count; place++) {
        const struct exec_node *const node = &exec->nodes[place];
        if (node->memory == NULL) continue;
        if (leaves_memory(node) && node->memory->live && launch->frees[place] == NULL) return false;
        if (node->operation->kind == OPERATION_FREE && node->memory->freed == FREED_BY_OTHER && !node->memory->live)
            return false;
    }
    return true;
}

/* Under memory_lock. */
static bool memory_charge(const struct graph_exec *exec) {
    for (size_t place = 0; place < exec->node_count; place++) {
        const struct exec_node *const node = &exec->nodes[place];
        if (node->operation->kind != OPERATION_ALLOC || graph_memory_charge(node->memory)) continue;
        graph_memory_trim(node->memory->allocation->device);
        if (!graph_memory_charge(node->memory)) return false;
    }
    return true;
}

/* Takes and frees what the launch does, as far as other calls see it; drops the frees that are not needed. */
static CUresult launch_take_memory(const struct graph_exec *exec, struct launch *launch) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&memory_lock);
    if (!memory_is_ready(exec, launch))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!memory_charge(exec))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t place = 0; place < exec->node_count && result == CUDA_SUCCESS; place++) {
        const struct exec_node *const node = &exec->nodes[place];
        if (node->memory == NULL) continue;
        if (launch->frees[place] != NULL && graph_memory_free_begin(node->memory) != CUDA_SUCCESS) {
            operation_drop(launch->frees[place]);
            launch->frees[place] = NULL;
        }
        if (node->operation->kind == OPERATION_ALLOC)
            graph_memory_use(node->memory);
        else if (node->memory->freed == FREED_BY_OTHER)
            graph_memory_free_begin(node->memory);
    }
    pthread_mutex_unlock(&memory_lock);
    return result;
}

/* What a node that waits for an event comes after: its record in this launch, if an earlier node makes one. */
static struct operation *awaited_record(const struct graph_exec *exec, struct launch *launch, size_t place) {
    struct event *const event = exec->nodes[place].operation->event;
    for (size_t earlier = place; earlier-- > 0;)
        if (launch->copies[earlier]->kind == OPERATION_RECORD && launch->copies[earlier]->event == event)
            return launch->copies[earlier];
    launch->records[place] = event_recorded(event);
    return launch->records[place];
}

static void launch_add(struct launch *launch, struct operation *operation, struct stream *stream,
                       struct operation **after, size_t count) {
    launch->submissions[launch->count++] = (struct submission){operation_hold(operation), stream, after, count};
}

static void launch_submit_all(struct graph_exec *exec, struct launch *launch, struct stream *stream,
                              struct operation *beginning, struct operation *end) {
    struct operation *entry = beginning, **after = launch->after;
    launch_add(launch, beginning, stream, &exec->last, exec->last != NULL);
    for (size_t place = 0; place < exec->node_count; place++) {
        if (launch->frees[place] == NULL) continue;
        entry = launch->frees[place];
        launch_add(launch, entry, stream, NULL, 0);
    }
    for (size_t place = 0; place < exec->node_count; place++) {
        const struct exec_node *const node = &exec->nodes[place];
        size_t count = 0;
        for (size_t i = 0; i < node->after.count; i++) after[count++] = launch->copies[node->after.all[i]];
        if (count == 0) after[count++] = entry;
        if (node->operation->kind == OPERATION_WAIT && node->operation->event != NULL) {
            after[count] = awaited_record(exec, launch, place);
            if (after[count] != NULL) count++;
        }
        launch_add(launch, launch->copies[place], exec->branches[node->branch].stream, after, count);
        after += count;
    }
    size_t count = 0;
    for (size_t place = 0; place < exec->node_count; place++)
        if (!exec->nodes[place].followed) after[count++] = launch->copies[place];
    launch_add(launch, end, stream, after, count);
    scheduler_submit_together(launch->submissions, launch->count);
    for (size_t place = 0; place < exec->node_count; place++) {
        const struct operation *const work = exec->nodes[place].operation;
        if (work->kind == OPERATION_RECORD && work->event != NULL)
            event_note(work->event, operation_hold(launch->copies[place]));
    }
    operation_drop(exec->last);
    exec->last = operation_hold(end);
}

/* Under the executable's lock. */
static CUresult exec_launch(struct graph_exec *exec, struct stream *stream) {
    struct launch launch = {0};
    CUresult result = branches_prepare(exec, stream);
    if (result != CUDA_SUCCESS) return result;
    struct operation *const beginning = operation_new(OPERATION_WAIT), *const end = operation_new(OPERATION_WAIT);
    if (beginning == NULL || end == NULL || !launch_begin(&launch, exec)) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) result = launch_take_memory(exec, &launch);
    if (result == CUDA_SUCCESS) launch_submit_all(exec, &launch, stream, beginning, end);
    launch_end(&launch, exec->node_count);
    operation_drop(beginning);
    operation_drop(end);
    return result;
}

/* The stream of a launch, which may not capture. */
static CUresult launch_stream(struct thread *thread, CUstream handle, struct stream **stream) {
    CUresult result = stream_named(thread, handle, stream);
    if (result == CUDA_SUCCESS) result = capture_refuse_stream(*stream, false);
    if (result == CUDA_SUCCESS && (*stream)->legacy) result = capture_refuse_implicit((*stream)->context);
    return result;
}

static CUresult graph_launch(struct thread *thread, CUgraphExec handle, CUstream stream_handle) {
    struct graph_exec *exec;
    struct stream *stream;
    CUresult result = graph_exec_named(handle, &exec);
    if (result == CUDA_SUCCESS) result = launch_stream(thread, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&exec->lock);
    result = exec_launch(exec, stream);
    pthread_mutex_unlock(&exec->lock);
    return result;
}
DRIVER_STREAM_CALL(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream),
                   graph_launch(thread, exec, STREAM(stream)))

/* Does beforehand what the first launch has to: here, take memory. */
static CUresult graph_upload(struct thread *thread, CUgraphExec handle, CUstream stream_handle) {
    struct graph_exec *exec;
    struct stream *stream;
    CUresult result = graph_exec_named(handle, &exec);
    if (result == CUDA_SUCCESS) result = launch_stream(thread, stream_handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&memory_lock);
    if (!memory_charge(exec)) result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&memory_lock);
    return result;
}
DRIVER_STREAM_CALL(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream stream),
                   graph_upload(thread, exec, STREAM(stream)))

static CUresult instantiate_with(struct thread *thread, CUgraphExec *handle, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS *parameters, CUstream upload_stream) {
    if (parameters == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = graph_instantiate(handle, graph, parameters->flags);
    parameters->hErrNode_out = NULL;
    parameters->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    if (result == CUDA_SUCCESS && (parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
        result = graph_upload(thread, *handle, upload_stream);
    return result;
}
DRIVER_STREAM_CALL(cuGraphInstantiateWithParams, _ptsz,
                   (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters),
                   instantiate_with(thread, exec, graph, parameters,
                                    parameters != NULL ? STREAM(parameters->hUploadStream) : NULL))
