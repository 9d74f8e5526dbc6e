/* SPDX-License-Identifier: MIT
 *
 * Graphs made ready to launch. An executable lists the work of a graph, of the graphs within it too, in an order that
 * respects theirs; empty nodes have gone into the order. Its nodes are spread over branches, streams that nobody else
 * sees: nodes of a branch follow each other, others run side by side.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

enum { EXEC_MAX = 65536 };

static struct handle_table exec_table = HANDLE_TABLE(struct graph_exec, EXEC_MAX, false);

static bool places_add(struct places *places, size_t place) {
    for (size_t i = 0; i < places->count; i++)
        if (places->all[i] == place) return true;
    size_t *const all = realloc(places->all, (places->count + 1) * sizeof(*all));
    if (all == NULL) return false;
    all[places->count++] = place;
    places->all = all;
    return true;
}

static bool places_add_all(struct places *places, const struct places *more) {
    for (size_t i = 0; i < more->count; i++)
        if (!places_add(places, more->all[i])) return false;
    return true;
}

/* Making an executable. Under scheduler_lock. */

/* The nodes of a graph, each after those it depends on; owned. 1 if they go in a circle. */
static CUresult order_nodes(const struct graph *graph, struct node ***ordered) {
    struct node **const order = malloc((graph->node_count + 1) * sizeof(struct node *));
    size_t count = 0;
    if (order == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    for (struct node *node = graph->nodes; node != NULL; node = node->next) node->number = SIZE_MAX;
    for (bool moved = true; moved;) {
        moved = false;
        for (struct node *node = graph->nodes; node != NULL; node = node->next) {
            bool ready = node->number == SIZE_MAX;
            for (size_t i = 0; i < node->after.count && ready; i++) ready = node->after.nodes[i]->number != SIZE_MAX;
            if (!ready) continue;
            node->number = count;
            order[count++] = node;
            moved = true;
        }
    }
    if (count < graph->node_count) {
        free(order);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ordered = order;
    return CUDA_SUCCESS;
}

static bool exec_add(struct graph_exec *exec, const struct node *node, struct places *after) {
    struct exec_node *const nodes = realloc(exec->nodes, (exec->node_count + 1) * sizeof(*nodes));
    if (nodes == NULL) return false;
    exec->nodes = nodes;
    for (size_t i = 0; i < after->count; i++) nodes[after->all[i]].followed = true;
    nodes[exec->node_count] = (struct exec_node){.operation = operation_hold(node->operation), .after = *after};
    *after = (struct places){NULL, 0};
    if (node->memory != NULL) {
        pthread_mutex_lock(&memory_lock);
        nodes[exec->node_count].memory = graph_memory_hold(node->memory);
        pthread_mutex_unlock(&memory_lock);
    }
    exec->node_count++;
    return true;
}

static CUresult exec_add_graph(struct graph_exec *exec, const struct graph *graph, const struct places *before,
                               struct places *exits);

/* What a node stands for; what comes after the node comes after `exits`. Takes over `after`. */
static CUresult exec_add_node(struct graph_exec *exec, const struct node *node, struct places *after,
                              struct places *exits) {
    CUresult result = CUDA_SUCCESS;
    if (node->child != NULL) {
        result = exec_add_graph(exec, node->child, after, exits);
    } else if (node->operation == NULL) {
        *exits = *after;
        return CUDA_SUCCESS;
    } else if (!exec_add(exec, node, after) || !places_add(exits, exec->node_count - 1)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    free(after->all);
    return result;
}

/* A graph's nodes after `before`; `exits`: those that nothing in it follows. */
static CUresult exec_add_graph(struct graph_exec *exec, const struct graph *graph, const struct places *before,
                               struct places *exits) {
    struct node **order;
    CUresult result = order_nodes(graph, &order);
    if (result != CUDA_SUCCESS) return result;
    struct places *const exits_of = calloc(graph->node_count + 1, sizeof(*exits_of));
    bool *const followed = calloc(graph->node_count + 1, sizeof(*followed));
    if (exits_of == NULL || followed == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t place = 0; place < graph->node_count && result == CUDA_SUCCESS; place++) {
        const struct node *const node = order[place];
        struct places after = {NULL, 0};
        bool complete = node->after.count > 0 || places_add_all(&after, before);
        for (size_t i = 0; i < node->after.count && complete; i++) {
            followed[node->after.nodes[i]->number] = true;
            complete = places_add_all(&after, &exits_of[node->after.nodes[i]->number]);
        }
        if (complete) {
            result = exec_add_node(exec, node, &after, &exits_of[place]);
        } else {
            free(after.all);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    bool complete = graph->node_count > 0 || places_add_all(exits, before);
    for (size_t place = 0; place < graph->node_count && result == CUDA_SUCCESS && complete; place++)
        if (!followed[place]) complete = places_add_all(exits, &exits_of[place]);
    for (size_t place = 0; place < graph->node_count && exits_of != NULL; place++) free(exits_of[place].all);
    free(exits_of);
    free(followed);
    free(order);
    return result == CUDA_SUCCESS && !complete ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* A node goes on in the branch of one that it comes after, if that is the last there. */
static bool exec_branch(struct graph_exec *exec) {
    for (size_t place = 0; place < exec->node_count; place++) {
        struct exec_node *const node = &exec->nodes[place];
        struct context *const context = node->operation->context;
        size_t branch = exec->branch_count;
        for (size_t i = 0; i < node->after.count && branch == exec->branch_count; i++) {
            const size_t candidate = exec->nodes[node->after.all[i]].branch;
            if (exec->branches[candidate].last == node->after.all[i] && exec->branches[candidate].context == context)
                branch = candidate;
        }
        if (branch == exec->branch_count) {
            struct branch *const branches = realloc(exec->branches, (branch + 1) * sizeof(*branches));
            if (branches == NULL) return false;
            exec->branches = branches;
            branches[branch] =
                (struct branch){.context = context, .context_id = context != NULL ? atomic_load(&context->id) : 0};
            exec->branch_count++;
        }
        node->branch = branch;
        exec->branches[branch].last = place;
    }
    return true;
}

bool graph_branch_lives(const struct branch *branch) {
    return branch->stream != NULL && atomic_load(&branch->made_in->active) &&
           atomic_load(&branch->made_in->id) == branch->made_in_id;
}

static void exec_discard(struct graph_exec *exec) {
    for (size_t i = 0; i < exec->branch_count; i++)
        if (graph_branch_lives(&exec->branches[i])) stream_drop(exec->branches[i].stream);
    for (size_t place = 0; place < exec->node_count; place++) {
        struct exec_node *const node = &exec->nodes[place];
        if (node->memory != NULL) {
            pthread_mutex_lock(&memory_lock);
            graph_memory_drop(node->memory);
            pthread_mutex_unlock(&memory_lock);
        }
        operation_drop(node->operation);
        free(node->after.all);
    }
    free(exec->nodes);
    free(exec->branches);
    operation_drop(exec->last);
    if (exec->graph != NULL) exec->graph->executable = NULL;
    pthread_mutex_destroy(&exec->lock);
    handle_release(&exec_table, exec);
}

void graph_exec_forget(struct graph *graph) {
    if (graph->executable != NULL) graph->executable->graph = NULL;
    graph->executable = NULL;
}

static CUresult exec_make(const struct graph *graph, struct graph_exec **made) {
    struct graph_exec *const exec = handle_new(&exec_table);
    struct places exits = {NULL, 0};
    if (exec == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&exec->lock, NULL);
    CUresult result = exec_add_graph(exec, graph, &(const struct places){NULL, 0}, &exits);
    free(exits.all);
    if (result == CUDA_SUCCESS && !exec_branch(exec)) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        *made = exec;
    else
        exec_discard(exec);
    return result;
}

CUresult graph_exec_named(CUgraphExec handle, struct graph_exec **exec) {
    *exec = (struct graph_exec *)handle;
    return handle_state_of(&exec_table, handle) == HANDLE_LIVE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

enum {
    FLAGS_KNOWN = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                  CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
};

CUresult graph_instantiate(CUgraphExec *handle, CUgraph graph_handle, cuuint64_t flags) {
    struct graph *graph;
    struct graph_exec *exec;
    if (handle == NULL || graph_named(graph_handle, &graph) != CUDA_SUCCESS || (flags & ~(cuuint64_t)FLAGS_KNOWN) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
        return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0 ? CUDA_ERROR_INVALID_VALUE
                                                                              : CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&scheduler_lock);
    CUresult result = graph->executable != NULL ? CUDA_ERROR_NOT_SUPPORTED : exec_make(graph, &exec);
    if (result == CUDA_SUCCESS && graph->has_memory) {
        exec->graph = graph;
        graph->executable = exec;
    }
    pthread_mutex_unlock(&scheduler_lock);
    if (result != CUDA_SUCCESS) return result;
    exec->flags = flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    handle_publish(exec);
    *handle = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

/* The older forms can name a node at fault, and tell of it in words. */
static CUresult instantiate_and_tell(CUgraphExec *handle, CUgraph graph, CUgraphNode *node, char *text, size_t size) {
    const CUresult result = graph_instantiate(handle, graph, 0);
    if (node != NULL) *node = NULL;
    if (text != NULL && size > 0) *text = '\0';
    return result;
}
DRIVER_CALL(cuGraphInstantiate, (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *text, size_t size),
            instantiate_and_tell(exec, graph, node, text, size))
DRIVER_CALL(cuGraphInstantiate_v2, (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *text, size_t size),
            instantiate_and_tell(exec, graph, node, text, size))
DRIVER_CALL(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
            (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0 ? CUDA_ERROR_INVALID_VALUE
                                                              : graph_instantiate(exec, graph, flags))

/* What is on its way goes on. */
static CUresult exec_destroy(const struct thread *thread, CUgraphExec handle) {
    struct graph_exec *exec;
    CUresult result = graph_exec_named(handle, &exec);
    if (result == CUDA_SUCCESS) result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    if (!handle_kill(exec)) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&scheduler_lock);
    exec_discard(exec);
    pthread_mutex_unlock(&scheduler_lock);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphExecDestroy, (CUgraphExec exec), exec_destroy(thread, exec))

static CUresult exec_flags(CUgraphExec handle, cuuint64_t *flags) {
    struct graph_exec *exec;
    if (graph_exec_named(handle, &exec) != CUDA_SUCCESS || flags == NULL) return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphExecGetFlags, (CUgraphExec exec, cuuint64_t *flags), exec_flags(exec, flags))

/* Other work in the same order. */

static bool same_places(const struct places *one, const struct places *other) {
    return one->count == other->count &&
           (one->count == 0 || memcmp(one->all, other->all, one->count * sizeof(*one->all)) == 0);
}

static CUgraphExecUpdateResult compare(const struct graph_exec *exec, const struct graph_exec *other) {
    if (exec->node_count != other->node_count) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t place = 0; place < exec->node_count; place++) {
        const struct exec_node *const own = &exec->nodes[place], *const new = &other->nodes[place];
        if (own->operation->kind != new->operation->kind) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (!same_places(&own->after, &new->after)) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (own->memory != NULL) return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        if (own->operation->context != new->operation->context)
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult exec_update(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResult *outcome) {
    struct graph *graph;
    struct graph_exec *exec, *other;
    *outcome = CU_GRAPH_EXEC_UPDATE_ERROR;
    if (graph_exec_named(handle, &exec) != CUDA_SUCCESS || graph_named(graph_handle, &graph) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&exec->lock);
    pthread_mutex_lock(&scheduler_lock);
    const CUresult result = exec_make(graph, &other);
    if (result == CUDA_SUCCESS) {
        *outcome = compare(exec, other);
        for (size_t place = 0; place < exec->node_count && *outcome == CU_GRAPH_EXEC_UPDATE_SUCCESS; place++) {
            struct operation *const before = exec->nodes[place].operation;
            exec->nodes[place].operation = other->nodes[place].operation;
            other->nodes[place].operation = before;
        }
        exec_discard(other);
    }
    pthread_mutex_unlock(&scheduler_lock);
    pthread_mutex_unlock(&exec->lock);
    if (result != CUDA_SUCCESS) return result;
    return *outcome == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

static CUresult exec_update_v1(CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *outcome) {
    if (node == NULL || outcome == NULL) return CUDA_ERROR_INVALID_VALUE;
    *node = NULL;
    return exec_update(exec, graph, outcome);
}
DRIVER_CALL(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode *node, CUgraphExecUpdateResult *outcome),
            exec_update_v1(exec, graph, node, outcome))

static CUresult exec_update_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *outcome) {
    if (outcome == NULL) return CUDA_ERROR_INVALID_VALUE;
    outcome->errorNode = outcome->errorFromNode = NULL;
    return exec_update(exec, graph, &outcome->result);
}
DRIVER_CALL(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *outcome),
            exec_update_v2(exec, graph, outcome))
