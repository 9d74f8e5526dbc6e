/* SPDX-License-Identifier: MIT
 *
 * Driver calls that take device memory beside us, and which our cache may have starved: out of memory is met by giving
 * cached memory back and one retry.
 */
#include "entry/process.h"

#define RETRYING(ordinal, symbol, values)                                                    \
    if (!symbols_driver() || !REAL(symbol)) return PROCESS_NO_DRIVER;                        \
    CUresult result = REAL(symbol) values;                                                   \
    if (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) && process_relieve(ordinal)) \
        result = REAL(symbol) values;                                                        \
    return result

#define CURRENT_DEVICE (-1)

CUresult entry_cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream) {
    RETRYING(CURRENT_DEVICE, cuMemAllocFromPoolAsync, (out, bytes, pool, stream));
}

CUresult entry_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream) {
    RETRYING(CURRENT_DEVICE, cuMemAllocFromPoolAsync_ptsz, (out, bytes, pool, stream));
}

CUresult entry_cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element) {
    RETRYING(CURRENT_DEVICE, cuMemAllocPitch_v2, (out, pitch, width, height, element));
}

CUresult entry_cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags) {
    RETRYING(CURRENT_DEVICE, cuMemAllocManaged, (out, bytes, flags));
}

CUresult entry_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *property,
                           unsigned long long flags) {
    const bool on_device = property && property->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    RETRYING(on_device ? property->location.id : CURRENT_DEVICE, cuMemCreate, (handle, bytes, property, flags));
}

CUresult entry_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape) {
    RETRYING(CURRENT_DEVICE, cuArrayCreate_v2, (array, shape));
}

CUresult entry_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    RETRYING(CURRENT_DEVICE, cuArray3DCreate_v2, (array, shape));
}

CUresult entry_cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                                      unsigned int levels) {
    RETRYING(CURRENT_DEVICE, cuMipmappedArrayCreate, (array, shape, levels));
}

CUresult entry_cuModuleLoad(CUmodule *module, const char *path) {
    RETRYING(CURRENT_DEVICE, cuModuleLoad, (module, path));
}

CUresult entry_cuModuleLoadData(CUmodule *module, const void *image) {
    RETRYING(CURRENT_DEVICE, cuModuleLoadData, (module, image));
}

CUresult entry_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                                  void **values) {
    RETRYING(CURRENT_DEVICE, cuModuleLoadDataEx, (module, image, count, options, values));
}

CUresult entry_cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    RETRYING(CURRENT_DEVICE, cuModuleLoadFatBinary, (module, image));
}

CUresult entry_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                                 unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count) {
    RETRYING(CURRENT_DEVICE, cuLibraryLoadData,
             (library, code, jit_options, jit_values, jit_count, options, values, count));
}

CUresult entry_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options, void **jit_values,
                                     unsigned int jit_count, CUlibraryOption *options, void **values,
                                     unsigned int count) {
    RETRYING(CURRENT_DEVICE, cuLibraryLoadFromFile,
             (library, path, jit_options, jit_values, jit_count, options, values, count));
}

CUresult entry_cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes) {
    RETRYING(CURRENT_DEVICE, cuGraphInstantiate, (exec, graph, node, log, bytes));
}

CUresult entry_cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes) {
    RETRYING(CURRENT_DEVICE, cuGraphInstantiate_v2, (exec, graph, node, log, bytes));
}

CUresult entry_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    RETRYING(CURRENT_DEVICE, cuGraphInstantiateWithFlags, (exec, graph, flags));
}

CUresult entry_cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, void *parameters) {
    RETRYING(CURRENT_DEVICE, cuGraphInstantiateWithParams, (exec, graph, parameters));
}

CUresult entry_cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, void *parameters) {
    RETRYING(CURRENT_DEVICE, cuGraphInstantiateWithParams_ptsz, (exec, graph, parameters));
}

CUresult entry_cuCtxSetLimit(CUlimit limit, size_t value) {
    RETRYING(CURRENT_DEVICE, cuCtxSetLimit, (limit, value));
}
