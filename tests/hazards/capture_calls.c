/* SPDX-License-Identifier: MIT
 *
 * The calls of the capture matrix. Each answers one code, and may say more by a number.
 */
#include "capture_calls.h"

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph);
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const void *edges,
                                          size_t count, CUstreamCaptureMode mode);

#define CALL(name) static CUresult name(struct cell *cell)
#define IGNORES_CELL (void)cell

/* The second call is made when the first has succeeded. */
#define THEN(first, second)        \
    const CUresult result = first; \
    return result == CUDA_SUCCESS ? (second) : result

/* ---- plain memory ---- */

CALL(alloc) {
    return cuMemAlloc(&cell->got, SMALL);
}
CALL(alloc_much) {
    return cuMemAlloc(&cell->got, LARGE);
}
CALL(alloc_two) {
    THEN(cuMemAlloc(&cell->got, SMALL), cuMemAlloc(&cell->after, SMALL));
}
CALL(alloc_to_null) {
    IGNORES_CELL;
    return cuMemAlloc(NULL, SMALL);
}
CALL(alloc_nothing) {
    return cuMemAlloc(&cell->got, 0);
}
CALL(free_plain) {
    return cuMemFree(cell->plain);
}
CALL(free_ordered) {
    return cuMemFree(cell->ordered);
}
CALL(free_null) {
    IGNORES_CELL;
    return cuMemFree(0);
}
CALL(free_garbage) {
    IGNORES_CELL;
    return cuMemFree(0x1234500);
}
CALL(free_inside) {
    return cuMemFree(cell->plain + 512);
}
CALL(free_twice) {
    THEN(cuMemFree(cell->plain), cuMemFree(cell->plain));
}
CALL(free_ordered_twice) {
    THEN(cuMemFree(cell->ordered), cuMemFree(cell->ordered));
}
CALL(free_and_alloc) {
    THEN(cuMemFree(cell->plain), cuMemAlloc(&cell->got, SMALL));
}

/* ---- in the order of each stream ---- */

static CUresult alloc_on(struct cell *cell, CUstream stream, size_t bytes) {
    cell->got_on = stream;
    return cuMemAllocAsync(&cell->got, bytes, stream);
}

static CUresult fill_and_free(CUdeviceptr p, CUstream stream) {
    THEN(cuMemsetD8Async(p, 1, SMALL, stream), cuMemFreeAsync(p, stream));
}

static CUresult use_on(CUstream stream) {
    CUdeviceptr p = 0;
    THEN(cuMemAllocAsync(&p, SMALL, stream), fill_and_free(p, stream));
}

static CUresult alloc_from(struct cell *cell, CUmemoryPool pool, CUstream stream) {
    cell->got_on = stream;
    return cuMemAllocFromPoolAsync(&cell->got, SMALL, pool, stream);
}

/* Of memory that stays the graph's nobody else may free what a capturing stream was given. */
#define ON_STREAM(name, number)                                                                         \
    CALL(name##_alloc) {                                                                                \
        return alloc_on(cell, cell->streams[number], SMALL);                                            \
    }                                                                                                   \
    CALL(name##_alloc_much) {                                                                           \
        return alloc_on(cell, cell->streams[number], LARGE);                                            \
    }                                                                                                   \
    CALL(name##_use) {                                                                                  \
        return use_on(cell->streams[number]);                                                           \
    }                                                                                                   \
    CALL(name##_free_plain) {                                                                           \
        return cuMemFreeAsync(cell->plain, cell->streams[number]);                                      \
    }                                                                                                   \
    CALL(name##_free_ordered) {                                                                         \
        return cuMemFreeAsync(cell->ordered, cell->streams[number]);                                    \
    }                                                                                                   \
    CALL(name##_free_null) {                                                                            \
        return cuMemFreeAsync(0, cell->streams[number]);                                                \
    }                                                                                                   \
    CALL(name##_free_garbage) {                                                                         \
        return cuMemFreeAsync(0x1234500, cell->streams[number]);                                        \
    }                                                                                                   \
    CALL(name##_free_inside) {                                                                          \
        return cuMemFreeAsync(cell->plain + 512, cell->streams[number]);                                \
    }                                                                                                   \
    CALL(name##_free_twice) {                                                                           \
        const CUstream stream = cell->streams[number];                                                  \
        THEN(cuMemFreeAsync(cell->other_ordered, stream), cuMemFreeAsync(cell->other_ordered, stream)); \
    }                                                                                                   \
    CALL(name##_alloc_from_pool) {                                                                      \
        return alloc_from(cell, cell->first_pool, cell->streams[number]);                               \
    }                                                                                                   \
    CALL(name##_alloc_to_null) {                                                                        \
        return cuMemAllocAsync(NULL, SMALL, cell->streams[number]);                                     \
    }                                                                                                   \
    CALL(name##_alloc_nothing) {                                                                        \
        return cuMemAllocAsync(&cell->got, 0, cell->streams[number]);                                   \
    }                                                                                                   \
    CALL(name##_synchronize) {                                                                          \
        return cuStreamSynchronize(cell->streams[number]);                                              \
    }

ON_STREAM(capturing, CAPTURING)
ON_STREAM(non_blocking, NON_BLOCKING)
ON_STREAM(blocking, BLOCKING)
ON_STREAM(legacy, LEGACY)
ON_STREAM(own, OWN)

#define OF_STREAM(name, text)                                                                                    \
    {text ": allocate", name##_alloc, 0}, {text ": allocate much", name##_alloc_much, 0},                        \
        {text ": allocate, fill, free", name##_use, 0}, {text ": free plain memory", name##_free_plain, 0},      \
        {text ": free", name##_free_ordered, 0}, {text ": free nothing", name##_free_null, 0},                   \
        {text ": free garbage", name##_free_garbage, 0}, {text ": free inside a block", name##_free_inside, 0},  \
        {text ": free twice", name##_free_twice, 0}, {text ": allocate from a pool", name##_alloc_from_pool, 0}, \
        {text ": allocate to NULL", name##_alloc_to_null, 0}, {text ": allocate 0", name##_alloc_nothing, 0}, {  \
        text ": synchronize", name##_synchronize, 0                                                              \
    }

CALL(per_thread_use) {
    IGNORES_CELL;
    CUdeviceptr p = 0;
    THEN(cuMemAllocAsync_ptsz(&p, SMALL, NULL), cuMemFreeAsync_ptsz(p, NULL));
}
CALL(per_thread_use_pool) {
    CUdeviceptr p = 0;
    THEN(cuMemAllocFromPoolAsync_ptsz(&p, SMALL, cell->first_pool, NULL), cuMemFreeAsync_ptsz(p, NULL));
}

/* ---- what our cache may starve ---- */

CALL(alloc_pitch) {
    size_t pitch;
    return cuMemAllocPitch(&cell->after, &pitch, 1000, 3, 4);
}
CALL(alloc_managed) {
    return cuMemAllocManaged(&cell->after, SMALL, CU_MEM_ATTACH_GLOBAL);
}
CALL(load_module) {
    IGNORES_CELL;
    CUmodule module;
    return cuModuleLoad(&module, "/nowhere");
}
CALL(load_no_data) {
    IGNORES_CELL;
    CUmodule module;
    return cuModuleLoadData(&module, NULL);
}
CALL(load_no_data_ex) {
    IGNORES_CELL;
    CUmodule module;
    return cuModuleLoadDataEx(&module, NULL, 0, NULL, NULL);
}
CALL(load_no_fat_binary) {
    IGNORES_CELL;
    CUmodule module;
    return cuModuleLoadFatBinary(&module, NULL);
}
CALL(load_no_library) {
    IGNORES_CELL;
    CUlibrary library;
    return cuLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0);
}
CALL(load_library_file) {
    IGNORES_CELL;
    CUlibrary library;
    return cuLibraryLoadFromFile(&library, "/nowhere", NULL, NULL, 0, NULL, NULL, 0);
}
CALL(instantiate) {
    CUgraphExec exec;
    THEN(cuGraphInstantiate(&exec, cell->graph, 0), cuGraphExecDestroy(exec));
}
CALL(instantiate_with_params) {
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0};
    THEN(cuGraphInstantiateWithParams(&exec, cell->graph, &parameters), cuGraphExecDestroy(exec));
}
CALL(launch_graph) {
    return cuGraphLaunch(cell->exec, cell->streams[NON_BLOCKING]);
}
CALL(launch_graph_on_it) {
    return cuGraphLaunch(cell->exec, cell->streams[CAPTURING]);
}
CALL(upload_graph) {
    return cuGraphUpload(cell->exec, cell->streams[BLOCKING]);
}
CALL(set_limit) {
    IGNORES_CELL;
    return cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20);
}
CALL(create_stream) {
    IGNORES_CELL;
    CUstream stream;
    THEN(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), cuStreamDestroy(stream));
}
CALL(create_stream_with_priority) {
    IGNORES_CELL;
    CUstream stream;
    THEN(cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, 0), cuStreamDestroy(stream));
}

static CUresult destroy_and_return(CUcontext context, CUcontext to) {
    THEN(cuCtxDestroy(context), cuCtxSetCurrent(to));
}

CALL(create_context) {
    IGNORES_CELL;
    CUcontext before, context;
    cuCtxGetCurrent(&before);
    THEN(cuCtxCreate_v2(&context, 0, 0), destroy_and_return(context, before));
}

/* ---- questions ---- */

CALL(memory_info) {
    size_t free_bytes = 0, total = 0;
    const CUresult result = cuMemGetInfo(&free_bytes, &total);
    cell->said = total;
    return result;
}
CALL(address_range) {
    CUdeviceptr base = 0;
    size_t size = 0;
    const CUresult result = cuMemGetAddressRange(&base, &size, cell->plain + 100);
    cell->said = size + (base == cell->plain);
    return result;
}
CALL(attribute) {
    size_t size = 0;
    const CUresult result = cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, cell->ordered + 100);
    cell->said = size;
    return result;
}
CALL(attributes) {
    CUdeviceptr start = 0;
    size_t size = 0;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    void *values[] = {&size, &start};
    const CUresult result = cuPointerGetAttributes(2, names, values, cell->plain + 100);
    cell->said = size + (start == cell->plain);
    return result;
}
CALL(set_attribute) {
    const unsigned int on = 1;
    return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, cell->plain);
}
CALL(get_handle) {
    CUipcMemHandle handle;
    return cuIpcGetMemHandle(&handle, cell->exported);
}
CALL(get_inner_handle) {
    CUipcMemHandle handle;
    return cuIpcGetMemHandle(&handle, cell->plain + 512);
}
CALL(export_pointer) {
    CUmemPoolPtrExportData data;
    return cuMemPoolExportPointer(&data, cell->plain);
}
CALL(open_handle) {
    CUdeviceptr p;
    return cuIpcOpenMemHandle(&p, cell->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}
CALL(close_handle) {
    return cuIpcCloseMemHandle(cell->exported);
}
CALL(query_event) {
    return cuEventQuery(cell->event);
}
CALL(query_stream) {
    return cuStreamQuery(cell->streams[CAPTURING]);
}
CALL(synchronize) {
    IGNORES_CELL;
    return cuCtxSynchronize();
}
CALL(look_up) {
    IGNORES_CELL;
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    THEN(cuGetProcAddress("cuMemFree", &found, 12000, 0, &status), found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

/* ---- memory pools ---- */

CALL(set_pool) {
    return cuDeviceSetMemPool(0, cell->first_pool);
}
CALL(set_pool_of_location) {
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    return cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, cell->first_pool);
}
CALL(set_access) {
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemPoolSetAccess(cell->first_pool, &access, 1);
}
CALL(ask_pool) {
    cuuint64_t used = 0;
    const CUresult result = cuMemPoolGetAttribute(cell->own_pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    cell->said = used;
    return result;
}
CALL(ask_first_pool) {
    cuuint64_t used = 0;
    return cuMemPoolGetAttribute(cell->first_pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
}
CALL(trim_pool) {
    return cuMemPoolTrimTo(cell->first_pool, 0);
}
CALL(destroy_pool) {
    const CUresult result = cuMemPoolDestroy(cell->own_pool);
    if (result == CUDA_SUCCESS) cell->own_pool = NULL;
    return result;
}

/* ---- contexts and streams ---- */

CALL(retain) {
    IGNORES_CELL;
    CUcontext context;
    THEN(cuDevicePrimaryCtxRetain(&context, 0), cuDevicePrimaryCtxRelease(0));
}
CALL(reach) {
    THEN(cuCtxEnablePeerAccess(cell->second, 0), cuCtxDisablePeerAccess(cell->second));
}
CALL(reset_another) {
    IGNORES_CELL;
    return cuDevicePrimaryCtxReset(1);
}
CALL(destroy_context) {
    const CUresult result = cuCtxDestroy(cell->created);
    if (result == CUDA_SUCCESS) cell->created = NULL;
    return result;
}
CALL(destroy_stream) {
    const CUresult result = cuStreamDestroy(cell->other);
    if (result == CUDA_SUCCESS) cell->other = NULL;
    return result;
}
CALL(free_and_destroy_stream) {
    THEN(cuMemFreeAsync(cell->ordered, cell->other), destroy_stream(cell));
}
CALL(destroy_capturing) {
    const CUresult result = cuStreamDestroy(cell->streams[CAPTURING]);
    if (result == CUDA_SUCCESS) cell->streams[CAPTURING] = NULL;
    return result;
}

/* ---- other captures, and this one's end ---- */

static CUresult drop(CUgraph graph) {
    return graph ? cuGraphDestroy(graph) : CUDA_SUCCESS;
}

static CUresult end(CUstream stream) {
    CUgraph graph = NULL;
    THEN(cuStreamEndCapture(stream, &graph), drop(graph));
}

static CUresult end_of_own(void) {
    CUgraph graph = NULL;
    THEN(cuStreamEndCapture_ptsz(NULL, &graph), drop(graph));
}

CALL(begin_again) {
    return cuStreamBeginCapture(cell->streams[CAPTURING], cell->mode);
}
CALL(begin_on_legacy) {
    return cuStreamBeginCapture(cell->streams[LEGACY], cell->mode);
}
CALL(begin_another) {
    const CUstream stream = cell->streams[NON_BLOCKING];
    THEN(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), end(stream));
}
CALL(begin_another_globally) {
    const CUstream stream = cell->streams[BLOCKING];
    THEN(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), end(stream));
}
CALL(begin_on_own) {
    IGNORES_CELL;
    THEN(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), end_of_own());
}
CALL(begin_to_graph) {
    CUgraph graph = NULL;
    const CUstream stream = cell->streams[NON_BLOCKING];
    THEN(cuStreamBeginCaptureToGraph(stream, cell->graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
         cuStreamEndCapture(stream, &graph));
}
CALL(begin_to_graph_on_own) {
    CUgraph graph = NULL;
    THEN(cuStreamBeginCaptureToGraph_ptsz(NULL, cell->graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
         cuStreamEndCapture_ptsz(NULL, &graph));
}
CALL(end_none) {
    return end(cell->streams[NON_BLOCKING]);
}
CALL(end_it) {
    return end(cell->streams[CAPTURING]);
}
CALL(end_to_null) {
    return cuStreamEndCapture(cell->streams[CAPTURING], NULL);
}
CALL(fill_it) {
    return cuMemsetD8Async(cell->plain, 1, SMALL, cell->streams[CAPTURING]);
}

const struct capture_call capture_calls[] = {
    {"allocate", alloc, 0},
    {"allocate much", alloc_much, 0},
    {"allocate twice", alloc_two, 0},
    {"allocate to NULL", alloc_to_null, 0},
    {"allocate 0", alloc_nothing, 0},
    {"free", free_plain, 0},
    {"free what was allocated in order", free_ordered, 0},
    {"free nothing", free_null, 0},
    {"free garbage", free_garbage, 0},
    {"free inside a block", free_inside, 0},
    {"free twice", free_twice, 0},
    {"free twice what was allocated in order", free_ordered_twice, 0},
    {"free and allocate", free_and_alloc, 0},
    OF_STREAM(capturing, "the capturing stream"),
    OF_STREAM(non_blocking, "a non-blocking stream"),
    OF_STREAM(blocking, "a blocking stream"),
    OF_STREAM(legacy, "the legacy stream"),
    OF_STREAM(own, "the thread's stream"),
    {"the thread's stream 0: allocate, free", per_thread_use, 0},
    {"the thread's stream 0: allocate from a pool, free", per_thread_use_pool, 0},
    {"cuMemAllocPitch", alloc_pitch, 0},
    {"cuMemAllocManaged", alloc_managed, 0},
    {"cuModuleLoad", load_module, 0},
    {"cuModuleLoadData", load_no_data, 0},
    {"cuModuleLoadDataEx", load_no_data_ex, 0},
    {"cuModuleLoadFatBinary", load_no_fat_binary, 0},
    {"cuLibraryLoadData", load_no_library, 0},
    {"cuLibraryLoadFromFile", load_library_file, 0},
    {"cuGraphInstantiate", instantiate, 0},
    {"cuGraphInstantiateWithParams", instantiate_with_params, 0},
    {"cuGraphLaunch", launch_graph, 0},
    {"cuGraphLaunch on the capturing stream", launch_graph_on_it, 0},
    {"cuGraphUpload", upload_graph, 0},
    {"cuCtxSetLimit", set_limit, 0},
    {"cuStreamCreate", create_stream, 0},
    {"cuStreamCreateWithPriority", create_stream_with_priority, 0},
    {"cuCtxCreate", create_context, 0},
    {"cuMemGetInfo", memory_info, 0},
    {"cuMemGetAddressRange", address_range, 0},
    {"cuPointerGetAttribute", attribute, 0},
    {"cuPointerGetAttributes", attributes, 0},
    {"cuPointerSetAttribute", set_attribute, 0},
    {"cuIpcGetMemHandle", get_handle, 0},
    {"cuIpcGetMemHandle inside a segment", get_inner_handle, 0},
    {"cuMemPoolExportPointer of plain memory", export_pointer, 0},
    {"cuIpcOpenMemHandle", open_handle, 0},
    {"cuIpcCloseMemHandle", close_handle, 0},
    {"cuEventQuery", query_event, 0},
    {"cuStreamQuery of the capturing stream", query_stream, 0},
    {"cuCtxSynchronize", synchronize, 0},
    {"cuGetProcAddress", look_up, 0},
    {"cuDeviceSetMemPool", set_pool, 0},
    {"cuMemSetMemPool", set_pool_of_location, 13000},
    {"cuMemPoolSetAccess", set_access, 0},
    {"cuMemPoolGetAttribute of the program's own", ask_pool, 0},
    {"cuMemPoolGetAttribute", ask_first_pool, 0},
    {"cuMemPoolTrimTo", trim_pool, 0},
    {"cuMemPoolDestroy", destroy_pool, 0},
    {"retain and release", retain, 0},
    {"cuCtxEnablePeerAccess", reach, 0},
    {"cuDevicePrimaryCtxReset of another device", reset_another, 0},
    {"cuCtxDestroy of another", destroy_context, 0},
    {"cuStreamDestroy of another", destroy_stream, 0},
    {"cuStreamDestroy of another, after a free on it", free_and_destroy_stream, 0},
    {"cuStreamDestroy of the capturing stream", destroy_capturing, 0},
    {"begin once more", begin_again, 0},
    {"begin on the legacy stream", begin_on_legacy, 0},
    {"begin and end another", begin_another, 0},
    {"begin and end another in global mode", begin_another_globally, 0},
    {"begin and end on the thread's stream", begin_on_own, 0},
    {"begin another in a graph", begin_to_graph, 0},
    {"begin one in a graph on the thread's stream", begin_to_graph_on_own, 0},
    {"end one that did not begin", end_none, 0},
    {"end it", end_it, 0},
    {"end it without a place for the graph", end_to_null, 0},
    {"fill", fill_it, 0},
};
const unsigned capture_call_count = sizeof capture_calls / sizeof *capture_calls;
