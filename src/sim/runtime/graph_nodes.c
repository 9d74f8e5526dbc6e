/* SPDX-License-Identifier: MIT
 *
 * Nodes of graphs, added one by one. What a node does is described in the runtime's terms and turned into the driver's;
 * it runs in the context that is current.
 */
#include "compiled.h"
#include "registry.h"

_Static_assert(sizeof(struct cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS), "one layout in both");
_Static_assert(offsetof(struct cudaMemAllocNodeParams, dptr) == offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, dptr), "as above");
_Static_assert(sizeof(struct cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS), "as above");

/* Where a node goes: what every call that adds one is told. */
struct place {
    cudaGraphNode_t *node;
    cudaGraph_t graph;
    const cudaGraphNode_t *after;
    size_t count;
};
#define PLACE_PARAMETERS cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count
#define PLACE (&(const struct place){node, graph, after, count})
#define AT(place) (place)->node, (place)->graph, (place)->after, (place)->count

static int add_kernel(const struct place *place, const struct cudaKernelNodeParams *parameters) {
    CUkernel handle;
    if (!parameters) return cudaErrorInvalidValue;
    struct simrt_kernel *kernel = simrt_kernel_of(parameters->func);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    const cudaError_t error = simrt_kernel_handle(kernel, &handle);
    if (error) return (int)error;
    const CUDA_KERNEL_NODE_PARAMS driver_parameters = {
        .func = (CUfunction)handle,
        .gridDimX = parameters->gridDim.x,
        .gridDimY = parameters->gridDim.y,
        .gridDimZ = parameters->gridDim.z,
        .blockDimX = parameters->blockDim.x,
        .blockDimY = parameters->blockDim.y,
        .blockDimZ = parameters->blockDim.z,
        .sharedMemBytes = parameters->sharedMemBytes,
        .kernelParams = parameters->kernelParams,
        .extra = parameters->extra,
    };
    return (int)simrt_driver.cuGraphAddKernelNode(AT(place), &driver_parameters);
}

static int add_copy(const struct place *place, const struct cudaMemcpy3DParms *box) {
    CUDA_MEMCPY3D copy;
    CUcontext context;
    const int error = simrt_describe_box(&copy, box);
    if (error) return error;
    const CUresult result = simrt_driver.cuCtxGetCurrent(&context);
    return (int)(result != CUDA_SUCCESS ? result : simrt_driver.cuGraphAddMemcpyNode(AT(place), &copy, context));
}

static int add_copy_of_bytes(const struct place *place, void *to, const void *from, size_t bytes,
                             enum cudaMemcpyKind kind) {
    struct cudaMemcpy3DParms box = {.extent = {bytes, 1, 1}, .kind = kind};
    box.srcPtr = (struct cudaPitchedPtr){.ptr = (void *)from, .pitch = bytes, .xsize = bytes, .ysize = 1};
    box.dstPtr = (struct cudaPitchedPtr){.ptr = to, .pitch = bytes, .xsize = bytes, .ysize = 1};
    return add_copy(place, &box);
}

static int add_fill(const struct place *place, const struct cudaMemsetParams *parameters) {
    CUcontext context;
    if (!parameters) return cudaErrorInvalidValue;
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = (CUdeviceptr)parameters->dst,
                                          .pitch = parameters->pitch,
                                          .value = parameters->value,
                                          .elementSize = parameters->elementSize,
                                          .width = parameters->width,
                                          .height = parameters->height};
    const CUresult result = simrt_driver.cuCtxGetCurrent(&context);
    return (int)(result != CUDA_SUCCESS ? result : simrt_driver.cuGraphAddMemsetNode(AT(place), &fill, context));
}

static int add_host(const struct place *place, const struct cudaHostNodeParams *parameters) {
    return (int)simrt_driver.cuGraphAddHostNode(AT(place), (const CUDA_HOST_NODE_PARAMS *)(const void *)parameters);
}

cudaError_t cudaGraphAddKernelNode(PLACE_PARAMETERS, const struct cudaKernelNodeParams *parameters) {
    SIMRT_RETURN_IN_CONTEXT(add_kernel(PLACE, parameters));
}

cudaError_t cudaGraphAddMemcpyNode(PLACE_PARAMETERS, const struct cudaMemcpy3DParms *box) {
    SIMRT_RETURN_IN_CONTEXT(add_copy(PLACE, box));
}

cudaError_t cudaGraphAddMemcpyNode1D(PLACE_PARAMETERS, void *to, const void *from, size_t bytes,
                                     enum cudaMemcpyKind kind) {
    SIMRT_RETURN_IN_CONTEXT(add_copy_of_bytes(PLACE, to, from, bytes, kind));
}

cudaError_t cudaGraphAddMemsetNode(PLACE_PARAMETERS, const struct cudaMemsetParams *parameters) {
    SIMRT_RETURN_IN_CONTEXT(add_fill(PLACE, parameters));
}

cudaError_t cudaGraphAddHostNode(PLACE_PARAMETERS, const struct cudaHostNodeParams *parameters) {
    SIMRT_RETURN_IN_CONTEXT(add_host(PLACE, parameters));
}

cudaError_t cudaGraphAddChildGraphNode(PLACE_PARAMETERS, cudaGraph_t child) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphAddChildGraphNode(AT(PLACE), child));
}

cudaError_t cudaGraphAddEmptyNode(PLACE_PARAMETERS) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphAddEmptyNode(AT(PLACE)));
}

cudaError_t cudaGraphAddEventRecordNode(PLACE_PARAMETERS, cudaEvent_t event) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphAddEventRecordNode(AT(PLACE), event));
}

cudaError_t cudaGraphAddEventWaitNode(PLACE_PARAMETERS, cudaEvent_t event) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphAddEventWaitNode(AT(PLACE), event));
}

cudaError_t cudaGraphAddMemAllocNode(PLACE_PARAMETERS, struct cudaMemAllocNodeParams *parameters) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuGraphAddMemAllocNode(AT(PLACE), (CUDA_MEM_ALLOC_NODE_PARAMS *)(void *)parameters));
}

cudaError_t cudaGraphAddMemFreeNode(PLACE_PARAMETERS, void *pointer) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphAddMemFreeNode(AT(PLACE), (CUdeviceptr)pointer));
}

static int add_any(const struct place *place, struct cudaGraphNodeParams *parameters) {
    if (!parameters) return cudaErrorInvalidValue;
    switch (parameters->type) {
    case cudaGraphNodeTypeKernel: {
        const struct cudaKernelNodeParamsV2 *own = &parameters->kernel;
        return add_kernel(place, &(struct cudaKernelNodeParams){own->func, own->gridDim, own->blockDim,
                                                                own->sharedMemBytes, own->kernelParams, own->extra});
    }
    case cudaGraphNodeTypeMemcpy:
        return add_copy(place, &parameters->memcpy.copyParams);
    case cudaGraphNodeTypeMemset: {
        const struct cudaMemsetParamsV2 *own = &parameters->memset;
        return add_fill(place, &(struct cudaMemsetParams){own->dst, own->pitch, own->value, own->elementSize,
                                                          own->width, own->height});
    }
    case cudaGraphNodeTypeHost:
        return add_host(place, &(struct cudaHostNodeParams){parameters->host.fn, parameters->host.userData});
    case cudaGraphNodeTypeGraph:
        return (int)simrt_driver.cuGraphAddChildGraphNode(AT(place), parameters->graph.graph);
    case cudaGraphNodeTypeEmpty:
        return (int)simrt_driver.cuGraphAddEmptyNode(AT(place));
    case cudaGraphNodeTypeWaitEvent:
        return (int)simrt_driver.cuGraphAddEventWaitNode(AT(place), parameters->eventWait.event);
    case cudaGraphNodeTypeEventRecord:
        return (int)simrt_driver.cuGraphAddEventRecordNode(AT(place), parameters->eventRecord.event);
    case cudaGraphNodeTypeMemAlloc:
        return (int)simrt_driver.cuGraphAddMemAllocNode(AT(place),
                                                        (CUDA_MEM_ALLOC_NODE_PARAMS *)(void *)&parameters->alloc);
    case cudaGraphNodeTypeMemFree:
        return (int)simrt_driver.cuGraphAddMemFreeNode(AT(place), (CUdeviceptr)parameters->free.dptr);
    default:
        return cudaErrorNotSupported;
    }
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                             const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *parameters) {
    (void)edges;
    SIMRT_RETURN_IN_CONTEXT(add_any(PLACE, parameters));
}

/* ---- questions about a node of a kind ---- */

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, struct cudaHostNodeParams *parameters) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphHostNodeGetParams(node, (CUDA_HOST_NODE_PARAMS *)(void *)parameters));
}

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *graph) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphChildGraphNodeGetGraph(node, graph));
}

cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphEventRecordNodeGetEvent(node, event));
}

cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphEventWaitNodeGetEvent(node, event));
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, struct cudaMemAllocNodeParams *parameters) {
    SIMRT_RETURN_IN_CONTEXT(
        simrt_driver.cuGraphMemAllocNodeGetParams(node, (CUDA_MEM_ALLOC_NODE_PARAMS *)(void *)parameters));
}

cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void *pointer) {
    SIMRT_RETURN_IN_CONTEXT(simrt_driver.cuGraphMemFreeNodeGetParams(node, pointer));
}
