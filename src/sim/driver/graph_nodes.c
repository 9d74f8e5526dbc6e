/* SPDX-License-Identifier: MIT
 *
 * Graphs built node by node: kernels, copies, fills, host functions, events, memory, other graphs, and nodes that are
 * nothing but an order. Each node's work is checked as the call for a stream would check it.
 */
#include <stdlib.h>

#include "graph.h"

/* Where a node goes: what every call that adds one is told. */
struct place {
    CUgraphNode *handle;
    CUgraph graph;
    const CUgraphNode *after;
    size_t count;
};
#define PLACE() (&(const struct place){handle, graph, after, count})

/* Adds a node with this work, or with none. Takes over the operation, whatever the answer. */
static CUresult add(const struct place *place, struct operation *operation, struct node **added) {
    struct graph *graph;
    struct node_list after;
    struct node *node = NULL;
    CUresult result = graph_named(place->graph, &graph);
    if (place->handle == NULL) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&scheduler_lock);
        result = graph_nodes_named(graph, place->after, place->count, &after);
        if (result == CUDA_SUCCESS) {
            node = graph_add(graph, operation, &after);
            if (node == NULL) {
                node_list_clear(&after);
                result = CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
        pthread_mutex_unlock(&scheduler_lock);
    }
    if (node == NULL)
        operation_drop(operation);
    else
        *place->handle = (CUgraphNode)node;
    if (added != NULL) *added = node;
    return result;
}

/* Work that runs in a context; NULL is the current one. Takes over the operation if all is well so far. */
static CUresult add_in_context(const struct thread *thread, const struct place *place, CUcontext handle,
                               struct operation *operation) {
    struct context *context;
    const CUresult result = context_named(thread, handle, &context);
    if (result != CUDA_SUCCESS) {
        operation_drop(operation);
        return result;
    }
    operation->context = context;
    return add(place, operation, NULL);
}

static CUresult add_empty(const struct place *place) {
    return add(place, NULL, NULL);
}
DRIVER_CALL(cuGraphAddEmptyNode, (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count),
            add_empty(PLACE()))

static CUresult add_kernel(const struct thread *thread, const struct place *place, const void *function,
                           CUcontext context_handle, const unsigned grid[3], const unsigned block[3]) {
    struct context *context;
    CUresult result = context_named(thread, context_handle, &context);
    if (result == CUDA_SUCCESS) result = launch_check(function, context, grid, block);
    if (result != CUDA_SUCCESS) return result;
    struct operation *const kernel = operation_new(OPERATION_KERNEL);
    if (kernel == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    kernel->kernel.microseconds = settings.kernel_us;
    kernel->context = context;
    return add(place, kernel, NULL);
}

#define GRID(p) ((const unsigned[3]){(p)->gridDimX, (p)->gridDimY, (p)->gridDimZ})
#define BLOCK(p) ((const unsigned[3]){(p)->blockDimX, (p)->blockDimY, (p)->blockDimZ})

static CUresult add_kernel_v1(const struct thread *thread, const struct place *place,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
    if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
    return add_kernel(thread, place, p->func, NULL, GRID(p), BLOCK(p));
}
DRIVER_CALL(cuGraphAddKernelNode,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count,
             const CUDA_KERNEL_NODE_PARAMS_v1 *parameters),
            add_kernel_v1(thread, PLACE(), parameters))

static CUresult add_kernel_v2(const struct thread *thread, const struct place *place,
                              const CUDA_KERNEL_NODE_PARAMS_v2 *p) {
    if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
    const bool by_function = p->func != NULL;
    return add_kernel(thread, place, by_function ? (const void *)p->func : (const void *)p->kern,
                      by_function ? NULL : p->ctx, GRID(p), BLOCK(p));
}
DRIVER_CALL(cuGraphAddKernelNode_v2,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count,
             const CUDA_KERNEL_NODE_PARAMS_v2 *parameters),
            add_kernel_v2(thread, PLACE(), parameters))

static CUresult add_copy(const struct thread *thread, const struct place *place, const CUDA_MEMCPY3D *p,
                         CUcontext context) {
    struct operation *operation;
    const CUresult result = copy_operation_3d(p, &operation);
    return result == CUDA_SUCCESS ? add_in_context(thread, place, context, operation) : result;
}
DRIVER_CALL(cuGraphAddMemcpyNode,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count,
             const CUDA_MEMCPY3D *parameters, CUcontext context),
            add_copy(thread, PLACE(), parameters, context))

static CUresult add_fill(const struct thread *thread, const struct place *place, const CUDA_MEMSET_NODE_PARAMS *p,
                         CUcontext context) {
    struct operation *operation;
    if (p == NULL || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
        return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = fill_operation(p->dst, p->pitch, p->value, p->elementSize, p->width, p->height, &operation);
    if (result != CUDA_SUCCESS) return result;
    if (operation == NULL) return CUDA_ERROR_INVALID_VALUE;
    return add_in_context(thread, place, context, operation);
}
DRIVER_CALL(cuGraphAddMemsetNode,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count,
             const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context),
            add_fill(thread, PLACE(), parameters, context))

static CUresult add_host(const struct thread *thread, const struct place *place, CUhostFn function, void *argument) {
    if (function == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct operation *const host = operation_new(OPERATION_HOST_FUNCTION);
    if (host == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    host->host.function = function;
    host->host.argument = argument;
    return add_in_context(thread, place, NULL, host);
}
DRIVER_CALL(cuGraphAddHostNode,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count,
             const CUDA_HOST_NODE_PARAMS *parameters),
            parameters == NULL ? CUDA_ERROR_INVALID_VALUE
                               : add_host(thread, PLACE(), parameters->fn, parameters->userData))

static CUresult add_event(const struct place *place, CUevent handle, enum operation_kind kind) {
    struct event *event;
    if (event_named(handle, &event) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    struct operation *const operation = operation_new(kind);
    if (operation == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    operation->event = event;
    operation->timed = kind == OPERATION_RECORD && (event->flags & CU_EVENT_DISABLE_TIMING) == 0;
    operation->context = event->context;
    return add(place, operation, NULL);
}
DRIVER_CALL(cuGraphAddEventRecordNode,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count, CUevent event),
            add_event(PLACE(), event, OPERATION_RECORD))
DRIVER_CALL(cuGraphAddEventWaitNode,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count, CUevent event),
            add_event(PLACE(), event, OPERATION_WAIT))

/* A copy of a graph, run as one node. */
static CUresult add_child(const struct place *place, CUgraph child_handle) {
    struct graph *child, *copy;
    struct node *node;
    if (graph_named(child_handle, &child) != CUDA_SUCCESS || child_handle == place->graph)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&scheduler_lock);
    CUresult result = graph_copy(child, &copy);
    pthread_mutex_unlock(&scheduler_lock);
    if (result != CUDA_SUCCESS) return result;
    copy->is_child = true;
    handle_publish(copy);
    result = add(place, NULL, &node);
    pthread_mutex_lock(&scheduler_lock);
    if (result == CUDA_SUCCESS)
        node->child = copy;
    else
        graph_discard(copy);
    pthread_mutex_unlock(&scheduler_lock);
    return result;
}
DRIVER_CALL(cuGraphAddChildGraphNode,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count, CUgraph child),
            add_child(PLACE(), child))

static CUresult child_graph(CUgraphNode handle, CUgraph *graph) {
    struct node *node;
    if (node_named(handle, &node) != CUDA_SUCCESS || node->child == NULL || graph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = (CUgraph)node->child;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph *graph), child_graph(node, graph))

/* Memory. */

static CUresult access_of(const CUmemAccessDesc *access, size_t count, uint32_t *readers_writers) {
    *readers_writers = 0;
    if (count > 0 && access == NULL) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || device_of(access[i].location.id) == NULL ||
            access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
        *readers_writers |= UINT32_C(1) << access[i].location.id;
    }
    return CUDA_SUCCESS;
}

static CUresult add_alloc(const struct place *place, const CUmemPoolProps *properties, const CUmemAccessDesc *access,
                          size_t access_count, size_t bytes, CUdeviceptr *address) {
    struct graph *graph;
    struct operation *operation = NULL;
    uint32_t readers_writers;
    if (graph_named(place->graph, &graph) != CUDA_SUCCESS || bytes == 0 ||
        properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || device_of(properties->location.id) == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = access_of(access, access_count, &readers_writers);
    if (result != CUDA_SUCCESS) return result;
    struct device *const device = device_of(properties->location.id);
    pthread_mutex_lock(&scheduler_lock);
    result = graph_alloc_operation(device, bytes, graph, readers_writers, &operation);
    pthread_mutex_unlock(&scheduler_lock);
    if (result != CUDA_SUCCESS) return result;
    const uint64_t taken = operation->memory.address;
    result = add(place, operation, NULL);
    graph_alloc_settle(taken);
    if (result == CUDA_SUCCESS) *address = taken;
    return result;
}
DRIVER_CALL(cuGraphAddMemAllocNode,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count,
             CUDA_MEM_ALLOC_NODE_PARAMS *parameters),
            parameters == NULL ? CUDA_ERROR_INVALID_VALUE
                               : add_alloc(PLACE(), &parameters->poolProps, parameters->accessDescs,
                                           parameters->accessDescCount, parameters->bytesize, &parameters->dptr))

static CUresult add_free(const struct place *place, CUdeviceptr address) {
    struct graph *graph;
    struct operation *operation = NULL;
    CUresult result = graph_named(place->graph, &graph);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&scheduler_lock);
    result = graph_free_operation(address, graph, &operation);
    pthread_mutex_unlock(&scheduler_lock);
    return result == CUDA_SUCCESS ? add(place, operation, NULL) : result;
}
DRIVER_CALL(cuGraphAddMemFreeNode,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr address),
            add_free(PLACE(), address))

/* Questions about a node of a kind. */

static CUresult get_host(CUgraphNode handle, CUDA_HOST_NODE_PARAMS *parameters) {
    struct node *node;
    if (node_named(handle, &node) != CUDA_SUCCESS || node_type(node) != CU_GRAPH_NODE_TYPE_HOST || parameters == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *parameters = (CUDA_HOST_NODE_PARAMS){node->operation->host.function, node->operation->host.argument};
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphHostNodeGetParams, (CUgraphNode node, CUDA_HOST_NODE_PARAMS *parameters), get_host(node, parameters))

static CUresult get_event(CUgraphNode handle, CUevent *event, CUgraphNodeType type) {
    struct node *node;
    if (node_named(handle, &node) != CUDA_SUCCESS || node_type(node) != type || event == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *event = (CUevent)node->operation->event;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphEventRecordNodeGetEvent, (CUgraphNode node, CUevent *event),
            get_event(node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD))
DRIVER_CALL(cuGraphEventWaitNodeGetEvent, (CUgraphNode node, CUevent *event),
            get_event(node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT))

static CUresult get_alloc(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *parameters) {
    struct node *node;
    if (node_named(handle, &node) != CUDA_SUCCESS || node_type(node) != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        parameters == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct allocation *const allocation = node->memory->allocation;
    *parameters = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = allocation->device->ordinal}},
        .bytesize = allocation->bytes,
        .dptr = allocation->address};
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *parameters),
            get_alloc(node, parameters))

static CUresult get_free(CUgraphNode handle, CUdeviceptr *address) {
    struct node *node;
    if (node_named(handle, &node) != CUDA_SUCCESS || node_type(node) != CU_GRAPH_NODE_TYPE_MEM_FREE || address == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *address = node->operation->memory.address;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuGraphMemFreeNodeGetParams, (CUgraphNode node, CUdeviceptr *address), get_free(node, address))

/* All kinds by one call. */

static CUresult add_any(const struct thread *thread, const struct place *place, CUgraphNodeParams *p) {
    if (p == NULL) return CUDA_ERROR_INVALID_VALUE;
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return add_kernel(thread, place, p->kernel.func != NULL ? (const void *)p->kernel.func : p->kernel.kern,
                          p->kernel.func != NULL ? NULL : p->kernel.ctx, GRID(&p->kernel), BLOCK(&p->kernel));
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return add_copy(thread, place, &p->memcpy.copyParams, p->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        const CUDA_MEMSET_NODE_PARAMS fill = {p->memset.dst,         p->memset.pitch, p->memset.value,
                                              p->memset.elementSize, p->memset.width, p->memset.height};
        return add_fill(thread, place, &fill, p->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
        return add_host(thread, place, p->host.fn, p->host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return add_child(place, p->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return add_empty(place);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return add_event(place, p->eventWait.event, OPERATION_WAIT);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return add_event(place, p->eventRecord.event, OPERATION_RECORD);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return add_alloc(place, &p->alloc.poolProps, p->alloc.accessDescs, p->alloc.accessDescCount, p->alloc.bytesize,
                         &p->alloc.dptr);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return add_free(place, p->free.dptr);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
DRIVER_CALL(cuGraphAddNode,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, size_t count,
             CUgraphNodeParams *parameters),
            add_any(thread, PLACE(), parameters))
DRIVER_CALL(cuGraphAddNode_v2,
            (CUgraphNode * handle, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t count,
             CUgraphNodeParams *parameters),
            ((void)edges, add_any(thread, PLACE(), parameters)))
