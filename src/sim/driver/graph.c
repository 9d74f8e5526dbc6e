/* SPDX-License-Identifier: MIT
 *
 * Graphs as they are built: nodes, the order between them, and the questions about both. Graphs are not made for use by
 * several threads at once; the lock is there for captures, which add to them.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

enum { GRAPH_MAX = 65536, NODE_MAX = 1 << 20 };

struct handle_table graph_table = HANDLE_TABLE(struct graph, GRAPH_MAX, false);
struct handle_table node_table = HANDLE_TABLE(struct node, NODE_MAX, false);

static uint64_t graph_ids; /* scheduler_lock */

/* Lists of nodes. */

bool node_list_copy(struct node_list *to, const struct node_list *from) {
    *to = (struct node_list){NULL, 0};
    if (from->count == 0) return true;
    to->nodes = malloc(from->count * sizeof(struct node *));
    if (to->nodes == NULL) return false;
    memcpy(to->nodes, from->nodes, from->count * sizeof(struct node *));
    to->count = from->count;
    return true;
}

bool node_list_holds(const struct node_list *list, const struct node *node) {
    for (size_t i = 0; i < list->count; i++)
        if (list->nodes[i] == node) return true;
    return false;
}

bool node_list_add(struct node_list *list, struct node *node) {
    if (node_list_holds(list, node)) return true;
    struct node **const nodes = realloc(list->nodes, (list->count + 1) * sizeof(struct node *));
    if (nodes == NULL) return false;
    nodes[list->count++] = node;
    list->nodes = nodes;
    return true;
}

static void node_list_remove(struct node_list *list, const struct node *node) {
    for (size_t i = 0; i < list->count; i++)
        if (list->nodes[i] == node) list->nodes[i--] = list->nodes[--list->count];
}

void node_list_clear(struct node_list *list) {
    free(list->nodes);
    *list = (struct node_list){NULL, 0};
}

/* Graphs and nodes. */

struct graph *graph_new(void) {
    struct graph *const graph = handle_new(&graph_table);
    if (graph == NULL) return NULL;
    graph->id = ++graph_ids;
    graph->end = &graph->nodes;
    return graph;
}

static void node_discard(struct node *node) {
    handle_kill(node);
    if (node->memory != NULL) {
        pthread_mutex_lock(&memory_lock);
        graph_memory_drop(node->memory);
        pthread_mutex_unlock(&memory_lock);
    }
    if (node->child != NULL) graph_discard(node->child);
    operation_drop(node->operation);
    node_list_clear(&node->after);
    handle_release(&node_table, node);
}

void graph_discard(struct graph *graph) {
    handle_kill(graph);
    while (graph->nodes != NULL) {
        struct node *const node = graph->nodes;
        graph->nodes = node->next;
        node_discard(node);
    }
    graph_exec_forget(graph);
    handle_release(&graph_table, graph);
}

static bool is_memory_operation(const struct operation *operation) {
    return operation != NULL && (operation->kind == OPERATION_ALLOC || operation->kind == OPERATION_FREE);
}

struct node *graph_add(struct graph *graph, struct operation *operation, struct node_list *after) {
    struct node *const node = handle_new(&node_table);
    if (node == NULL) return NULL;
    node->graph = graph;
    node->operation = operation;
    if (is_memory_operation(operation)) {
        pthread_mutex_lock(&memory_lock);
        node->memory = graph_memory_at(operation->memory.address);
        pthread_mutex_unlock(&memory_lock);
        graph->has_memory = true;
    }
    node->after = *after;
    *after = (struct node_list){NULL, 0};
    for (size_t i = 0; i < node->after.count; i++) node->after.nodes[i]->followed = true;
    *graph->end = node;
    graph->end = &node->next;
    graph->node_count++;
    handle_publish(node);
    return node;
}

CUresult graph_named(CUgraph handle, struct graph **graph) {
    *graph = (struct graph *)handle;
    return handle_state_of(&graph_table, handle) == HANDLE_LIVE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult node_named(CUgraphNode handle, struct node **node) {
    *node = (struct node *)handle;
    return handle_state_of(&node_table, handle) == HANDLE_LIVE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_nodes_named(const struct graph *graph, const CUgraphNode *handles, size_t count,
                           struct node_list *list) {
    CUresult result = CUDA_SUCCESS;
    *list = (struct node_list){NULL, 0};
    if (count > 0 && handles == NULL) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct node *node;
        result = node_named(handles[i], &node);
        if (result == CUDA_SUCCESS && (node->graph != graph || node_list_holds(list, node)))
            result = CUDA_ERROR_INVALID_VALUE;
        if (result == CUDA_SUCCESS && !node_list_add(list, node)) result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) node_list_clear(list);
    return result;
}

static struct node *copy_node(struct graph *copy, const struct node *node) {
    struct node_list after = {NULL, 0};
    struct graph *child = NULL;
    struct node *added = NULL;
    bool complete = node->child == NULL || graph_copy(node->child, &child) == CUDA_SUCCESS;
    if (complete) added = graph_add(copy, node->operation, &after);
    if (added == NULL) {
        if (child != NULL) graph_discard(child);
        return NULL;
    }
    if (added->operation != NULL) operation_hold(added->operation);
    added->child = child;
    added->original = node;
    added->followed = node->followed;
    return added;
}

static struct node *find_copy(const struct graph *copy, const struct node *original) {
    struct node *node = copy->nodes;
    while (node != NULL && node->original != original) node = node->next;
    return node;
}

CUresult graph_copy(const struct graph *graph, struct graph **copy) {
    if (graph->has_memory) return CUDA_ERROR_NOT_SUPPORTED;
    struct graph *const made = graph_new();
    bool complete = made != NULL;
    for (const struct node *node = graph->nodes; node != NULL && complete; node = node->next)
        complete = copy_node(made, node) != NULL;
    for (const struct node *node = graph->nodes; node != NULL && complete; node = node->next) {
        struct node *const own = find_copy(made, node);
        for (size_t i = 0; i < node->after.count && complete; i++)
            complete = node_list_add(&own->after, find_copy(made, node->after.nodes[i]));
    }
    if (complete) {
        *copy = made;
        return CUDA_SUCCESS;
    }
    if (made != NULL) graph_discard(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The calls. */

static CUresult graph_create(CUgraph *handle, unsigned flags) {
    if (handle == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&scheduler_lock);
    struct graph *const graph = graph_new();
    pthread_mutex_unlock(&scheduler_lock);
    if (graph == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    handle_publish(graph);
    *handle = (CUgraph)graph;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphCreate, (CUgraph * graph, unsigned flags), graph_create(graph, flags))

static CUresult graph_destroy(const struct thread *thread, CUgraph handle) {
    struct graph *graph;
    CUresult result = graph_named(handle, &graph);
    if (result == CUDA_SUCCESS) result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&scheduler_lock);
    result = graph_named(handle, &graph);
    if (result == CUDA_SUCCESS && graph->is_child) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) graph_discard(graph);
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}
DRIVER_CALL(cuGraphDestroy, (CUgraph graph), graph_destroy(thread, graph))

static CUresult graph_clone(CUgraph *handle, CUgraph original_handle) {
    struct graph *original, *copy;
    CUresult result = graph_named(original_handle, &original);
    if (result != CUDA_SUCCESS || handle == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&scheduler_lock);
    result = graph_copy(original, &copy);
    pthread_mutex_unlock(&scheduler_lock);
    if (result != CUDA_SUCCESS) return result;
    handle_publish(copy);
    *handle = (CUgraph)copy;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphClone, (CUgraph * clone, CUgraph original), graph_clone(clone, original))

static CUresult find_in_clone(CUgraphNode *found, CUgraphNode original, CUgraph clone_handle) {
    struct graph *clone;
    if (graph_named(clone_handle, &clone) != CUDA_SUCCESS || found == NULL) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&scheduler_lock);
    struct node *const node = find_copy(clone, (const struct node *)original);
    pthread_mutex_unlock(&scheduler_lock);
    if (node == NULL) return CUDA_ERROR_INVALID_VALUE;
    *found = (CUgraphNode)node;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphNodeFindInClone, (CUgraphNode * found, CUgraphNode original, CUgraph clone),
            find_in_clone(found, original, clone))

/* Lists are written up to the room given, the rest of it emptied. Without room: how many there are. */
struct lister {
    CUgraphNode *from, *to; /* of edges; else `to` alone */
    CUgraphEdgeData *data;
    size_t room, count;
};

static void lister_add(struct lister *lister, struct node *from, struct node *to) {
    const size_t place = lister->count++;
    if (place >= lister->room) return;
    if (lister->from != NULL) lister->from[place] = (CUgraphNode)from;
    if (lister->to != NULL) lister->to[place] = (CUgraphNode)to;
    if (lister->data != NULL) memset(&lister->data[place], 0, sizeof(lister->data[place]));
}

static size_t lister_end(struct lister *lister) {
    if (lister->to == NULL) return lister->count;
    for (size_t place = lister->count; place < lister->room; place++) {
        if (lister->from != NULL) lister->from[place] = NULL;
        lister->to[place] = NULL;
    }
    return lister->count < lister->room ? lister->count : lister->room;
}

enum which_nodes { ALL_NODES, ROOT_NODES };

static CUresult list_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count, enum which_nodes which) {
    struct graph *graph;
    if (graph_named(handle, &graph) != CUDA_SUCCESS || count == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct lister lister = {.to = nodes, .room = nodes != NULL ? *count : 0};
    pthread_mutex_lock(&scheduler_lock);
    for (struct node *node = graph->nodes; node != NULL; node = node->next)
        if (which == ALL_NODES || node->after.count == 0) lister_add(&lister, NULL, node);
    pthread_mutex_unlock(&scheduler_lock);
    *count = lister_end(&lister);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count),
            list_nodes(graph, nodes, count, ALL_NODES))
DRIVER_CALL(cuGraphGetRootNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count),
            list_nodes(graph, nodes, count, ROOT_NODES))

static CUresult list_edges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count) {
    struct graph *graph;
    if (graph_named(handle, &graph) != CUDA_SUCCESS || count == NULL || (from == NULL) != (to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    struct lister lister = {.from = from, .to = to, .data = data, .room = to != NULL ? *count : 0};
    pthread_mutex_lock(&scheduler_lock);
    for (struct node *node = graph->nodes; node != NULL; node = node->next)
        for (size_t i = 0; i < node->after.count; i++) lister_add(&lister, node->after.nodes[i], node);
    pthread_mutex_unlock(&scheduler_lock);
    *count = lister_end(&lister);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphGetEdges, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count),
            list_edges(graph, from, to, NULL, count))
DRIVER_CALL(cuGraphGetEdges_v2,
            (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count),
            list_edges(graph, from, to, data, count))

enum direction { NODES_BEFORE, NODES_AFTER };

static CUresult list_neighbours(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count,
                                enum direction direction) {
    struct node *node;
    if (node_named(handle, &node) != CUDA_SUCCESS || count == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct lister lister = {.to = nodes, .data = data, .room = nodes != NULL ? *count : 0};
    pthread_mutex_lock(&scheduler_lock);
    if (direction == NODES_BEFORE)
        for (size_t i = 0; i < node->after.count; i++) lister_add(&lister, NULL, node->after.nodes[i]);
    else
        for (struct node *other = node->graph->nodes; other != NULL; other = other->next)
            if (node_list_holds(&other->after, node)) lister_add(&lister, NULL, other);
    pthread_mutex_unlock(&scheduler_lock);
    *count = lister_end(&lister);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode *nodes, size_t *count),
            list_neighbours(node, nodes, NULL, count, NODES_BEFORE))
DRIVER_CALL(cuGraphNodeGetDependencies_v2, (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count),
            list_neighbours(node, nodes, data, count, NODES_BEFORE))
DRIVER_CALL(cuGraphNodeGetDependentNodes, (CUgraphNode node, CUgraphNode *nodes, size_t *count),
            list_neighbours(node, nodes, NULL, count, NODES_AFTER))
DRIVER_CALL(cuGraphNodeGetDependentNodes_v2,
            (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count),
            list_neighbours(node, nodes, data, count, NODES_AFTER))

/* Both ends of each edge, which must be nodes of the graph; from the first edge that cannot change on, nothing does. */
static CUresult change_edge(struct graph *graph, CUgraphNode from_handle, CUgraphNode to_handle, bool add) {
    struct node *from, *to;
    if (node_named(from_handle, &from) != CUDA_SUCCESS || node_named(to_handle, &to) != CUDA_SUCCESS ||
        from->graph != graph || to->graph != graph || from == to || node_list_holds(&to->after, from) == add)
        return CUDA_ERROR_INVALID_VALUE;
    if (!add) {
        node_list_remove(&to->after, from);
        return CUDA_SUCCESS;
    }
    return node_list_add(&to->after, from) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult change_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count, bool add) {
    struct graph *graph;
    CUresult result = graph_named(handle, &graph);
    if (result != CUDA_SUCCESS || (count > 0 && (from == NULL || to == NULL))) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&scheduler_lock);
    if (!add && graph->has_memory) result = CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) result = change_edge(graph, from[i], to[i], add);
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}
DRIVER_CALL(cuGraphAddDependencies, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count),
            change_edges(graph, from, to, count, true))
DRIVER_CALL(cuGraphAddDependencies_v2,
            (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t count),
            ((void)data, change_edges(graph, from, to, count, true)))
DRIVER_CALL(cuGraphRemoveDependencies, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count),
            change_edges(graph, from, to, count, false))
DRIVER_CALL(cuGraphRemoveDependencies_v2,
            (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, size_t count),
            ((void)data, change_edges(graph, from, to, count, false)))

static CUresult destroy_node(CUgraphNode handle) {
    struct node *node;
    CUresult result = node_named(handle, &node);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&scheduler_lock);
    struct graph *const graph = node->graph;
    if (graph->has_memory) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    } else {
        struct node **link = &graph->nodes;
        while (*link != node) {
            node_list_remove(&(*link)->after, node);
            link = &(*link)->next;
        }
        *link = node->next;
        for (struct node *other = node->next; other != NULL; other = other->next) node_list_remove(&other->after, node);
        if (node->next == NULL) graph->end = link;
        graph->node_count--;
        node_discard(node);
    }
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}
DRIVER_CALL(cuGraphDestroyNode, (CUgraphNode node), destroy_node(node))

CUgraphNodeType node_type(const struct node *node) {
    if (node->child != NULL) return CU_GRAPH_NODE_TYPE_GRAPH;
    if (node->operation == NULL) return CU_GRAPH_NODE_TYPE_EMPTY;
    switch (node->operation->kind) {
    case OPERATION_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case OPERATION_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case OPERATION_FILL:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case OPERATION_HOST_FUNCTION:
    case OPERATION_CALLBACK:
        return CU_GRAPH_NODE_TYPE_HOST;
    case OPERATION_ALLOC:
        return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    case OPERATION_FREE:
        return CU_GRAPH_NODE_TYPE_MEM_FREE;
    case OPERATION_RECORD:
        return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    default:
        return node->operation->event != NULL ? CU_GRAPH_NODE_TYPE_WAIT_EVENT : CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

static CUresult get_type(CUgraphNode handle, CUgraphNodeType *type) {
    struct node *node;
    if (node_named(handle, &node) != CUDA_SUCCESS || type == NULL) return CUDA_ERROR_INVALID_VALUE;
    *type = node_type(node);
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphNodeGetType, (CUgraphNode node, CUgraphNodeType *type), get_type(node, type))
