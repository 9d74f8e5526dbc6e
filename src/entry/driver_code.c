/* SPDX-License-Identifier: MIT
 *
 * Code: what loads it, at once or when it is first used, and what launches it, where the pool's cache may have starved
 * the driver. A launch may be the first use: it loads, and makes room for stacks and printf.
 */
#include "entry/starved.h"

/* ---- modules and libraries ---- */

CUresult entry_cuModuleLoad(CUmodule *module, const char *path) {
    STARVED(cuModuleLoad, (module, path));
}

CUresult entry_cuModuleLoadData(CUmodule *module, const void *image) {
    STARVED(cuModuleLoadData, (module, image));
}

CUresult entry_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                                  void **values) {
    STARVED(cuModuleLoadDataEx, (module, image, count, options, values));
}

CUresult entry_cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    STARVED(cuModuleLoadFatBinary, (module, image));
}

CUresult entry_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                                 unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count) {
    STARVED(cuLibraryLoadData, (library, code, jit_options, jit_values, jit_count, options, values, count));
}

CUresult entry_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options, void **jit_values,
                                     unsigned int jit_count, CUlibraryOption *options, void **values,
                                     unsigned int count) {
    STARVED(cuLibraryLoadFromFile, (library, path, jit_options, jit_values, jit_count, options, values, count));
}

/* ---- what may have been left for now ---- */

CUresult entry_cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    STARVED(cuLibraryGetModule, (module, library));
}

CUresult entry_cuLibraryGetGlobal(CUdeviceptr *out, size_t *bytes, CUlibrary library, const char *name) {
    STARVED(cuLibraryGetGlobal, (out, bytes, library, name));
}

CUresult entry_cuLibraryGetManaged(CUdeviceptr *out, size_t *bytes, CUlibrary library, const char *name) {
    STARVED(cuLibraryGetManaged, (out, bytes, library, name));
}

CUresult entry_cuLibraryGetUnifiedFunction(void **out, CUlibrary library, const char *name) {
    STARVED(cuLibraryGetUnifiedFunction, (out, library, name));
}

CUresult entry_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    STARVED(cuModuleGetFunction, (function, module, name));
}

CUresult entry_cuModuleGetGlobal_v2(CUdeviceptr *out, size_t *bytes, CUmodule module, const char *name) {
    STARVED(cuModuleGetGlobal_v2, (out, bytes, module, name));
}

CUresult entry_cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    STARVED(cuKernelGetFunction, (function, kernel));
}

CUresult entry_cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
    STARVED(cuKernelGetAttribute, (value, attribute, kernel, device));
}

CUresult entry_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
    STARVED(cuKernelSetAttribute, (attribute, value, kernel, device));
}

CUresult entry_cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    STARVED(cuFuncGetAttribute, (value, attribute, function));
}

CUresult entry_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    STARVED(cuFuncSetAttribute, (function, attribute, value));
}

CUresult entry_cuFuncLoad(CUfunction function) {
    STARVED(cuFuncLoad, (function));
}

/* ---- graphs ---- */

CUresult entry_cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes) {
    STARVED(cuGraphInstantiate, (exec, graph, node, log, bytes));
}

CUresult entry_cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes) {
    STARVED(cuGraphInstantiate_v2, (exec, graph, node, log, bytes));
}

CUresult entry_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    STARVED(cuGraphInstantiateWithFlags, (exec, graph, flags));
}

CUresult entry_cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, void *parameters) {
    STARVED(cuGraphInstantiateWithParams, (exec, graph, parameters));
}

CUresult entry_cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, void *parameters) {
    STARVED(cuGraphInstantiateWithParams_ptsz, (exec, graph, parameters));
}

CUresult entry_cuGraphUpload(CUgraphExec exec, CUstream stream) {
    STARVED(cuGraphUpload, (exec, stream));
}

CUresult entry_cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    STARVED(cuGraphUpload_ptsz, (exec, stream));
}

CUresult entry_cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    STARVED(cuGraphLaunch, (exec, stream));
}

CUresult entry_cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    STARVED(cuGraphLaunch_ptsz, (exec, stream));
}

/* ---- launches ---- */

CUresult entry_cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                              unsigned int block_x, unsigned int block_y, unsigned int block_z,
                              unsigned int shared_bytes, CUstream stream, void **parameters, void **extra) {
    STARVED(cuLaunchKernel,
            (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra));
}

CUresult entry_cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                   unsigned int shared_bytes, CUstream stream, void **parameters, void **extra) {
    STARVED(cuLaunchKernel_ptsz,
            (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra));
}

CUresult entry_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    STARVED(cuLaunchKernelEx, (config, function, parameters, extra));
}

CUresult entry_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **parameters,
                                     void **extra) {
    STARVED(cuLaunchKernelEx_ptsz, (config, function, parameters, extra));
}

CUresult entry_cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                         unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                         unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                         void **parameters) {
    STARVED(cuLaunchCooperativeKernel,
            (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters));
}

CUresult entry_cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                              unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                              unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                              void **parameters) {
    STARVED(cuLaunchCooperativeKernel_ptsz,
            (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters));
}
