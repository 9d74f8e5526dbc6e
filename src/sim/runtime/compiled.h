/* SPDX-License-Identifier: MIT
 *
 * The functions that code compiled by nvcc calls and that no public C header declares.
 */
#ifndef SIM_RUNTIME_COMPILED_H
#define SIM_RUNTIME_COMPILED_H

#include "runtime.h"

#pragma GCC visibility push(default)

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
char __cudaInitModule(void **handle);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
                            int thread_limit, uint3 *thread, uint3 *block, dim3 *block_size, dim3 *grid_size,
                            int *warp_size);
void __cudaRegisterVar(void **handle, char *host_variable, char *device_address, const char *name, int external,
                       size_t size, int constant, int global);
void __cudaRegisterManagedVar(void **handle, void **host_pointer, char *device_address, const char *name, int external,
                              size_t size, int constant, int global);

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                               cudaStream_t stream);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                    cudaStream_t stream);

#pragma GCC visibility pop

#endif
