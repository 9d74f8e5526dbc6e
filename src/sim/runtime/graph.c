/* SPDX-License-Identifier: MIT
 *
 * Graphs as wholes: their nodes and order, executables, launches, and the memory that they hold.
 */
#include "runtime.h"

_Static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS), "one layout in both");
_Static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo), "as above");
_Static_assert((int)cudaGraphNodeTypeMemFree == (int)CU_GRAPH_NODE_TYPE_MEM_FREE, "kinds have one numbering");
_Static_assert((int)cudaGraphMemAttrReservedMemHigh == (int)CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, "as attributes have");

/* ---- nodes and edges ---- */

cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphCreate(graph, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphDestroy(graph));
}

cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t original) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphClone(clone, original));
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *found, cudaGraphNode_t original, cudaGraph_t clone) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphNodeFindInClone(found, original, clone));
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphNodeGetType(node, (CUgraphNodeType *)(void *)type));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphGetNodes(graph, nodes, count));
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphGetRootNodes(graph, nodes, count));
}

#define EDGES(data) ((CUgraphEdgeData *)(void *)(data))
#define CONSTANT_EDGES(data) ((const CUgraphEdgeData *)(const void *)(data))

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *data,
                              size_t *count) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphGetEdges(graph, from, to, EDGES(data), count));
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *data,
                                         size_t *count) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphNodeGetDependencies(node, nodes, EDGES(data), count));
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *data,
                                           size_t *count) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphNodeGetDependentNodes(node, nodes, EDGES(data), count));
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                     const cudaGraphEdgeData *data, size_t count) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphAddDependencies(graph, from, to, CONSTANT_EDGES(data), count));
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                        const cudaGraphEdgeData *data, size_t count) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphRemoveDependencies(graph, from, to, CONSTANT_EDGES(data), count));
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphDestroyNode(node));
}

/* ---- executables ---- */

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphInstantiateWithFlags(executable, graph, flags));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphInstantiateWithFlags(executable, graph, flags));
}

SIMRT_STREAM_CALL(cudaGraphInstantiateWithParams,
                  (cudaGraphExec_t * executable, cudaGraph_t graph, cudaGraphInstantiateParams *parameters),
                  cuGraphInstantiateWithParams,
                  (executable, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)(void *)parameters))
SIMRT_STREAM_CALL(cudaGraphUpload, (cudaGraphExec_t executable, cudaStream_t stream), cuGraphUpload,
                  (executable, stream))
SIMRT_STREAM_CALL(cudaGraphLaunch, (cudaGraphExec_t executable, cudaStream_t stream), cuGraphLaunch,
                  (executable, stream))

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t executable, unsigned long long *flags) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphExecGetFlags(executable, (cuuint64_t *)(void *)flags));
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *outcome) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuGraphExecUpdate(executable, graph, (CUgraphExecUpdateResultInfo *)(void *)outcome));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphExecDestroy(executable));
}

/* ---- memory ---- */

cudaError_t cudaDeviceGraphMemTrim(int device) {
    SIMRT_RETURN_IN_CONTEXT(simrt_device_is_valid(device) ? (int)simrt_driver.cuDeviceGraphMemTrim(device)
                                                          : (int)cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute, void *value) {
    SIMRT_RETURN_IN_CONTEXT(simrt_device_is_valid(device) ? (int)simrt_driver.cuDeviceGetGraphMemAttribute(
                                                                device, (CUgraphMem_attribute)attribute, value)
                                                          : (int)cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute, void *value) {
    SIMRT_RETURN_IN_CONTEXT(simrt_device_is_valid(device) ? (int)simrt_driver.cuDeviceSetGraphMemAttribute(
                                                                device, (CUgraphMem_attribute)attribute, value)
                                                          : (int)cudaErrorInvalidDevice);
}
