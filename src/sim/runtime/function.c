/* SPDX-License-Identifier: MIT
 *
 * Attributes of kernels and occupancy. No code is ever looked into, so the figures are those of a modest kernel on the
 * device at hand: plausible, and enough for programs that size their grids by them. Only the architecture is the
 * image's own: templates choose their variant by it.
 */
#include "registry.h"

enum { MODEST_REGISTERS = 32, RESERVED_SHARED_BYTES = 1024, WARP = 32 };

static int attribute_here(CUdevice_attribute attribute) {
    return simrt_device_attribute(attribute, simrt_current_device());
}

static int least(int one, int other) {
    return one < other ? one : other;
}

static int function_attributes(struct cudaFuncAttributes *attributes, const void *function) {
    if (!attributes) return cudaErrorInvalidValue;
    const struct simrt_kernel *kernel = simrt_kernel_of(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    const int dynamic_shared_limit = atomic_load_explicit(&kernel->dynamic_shared_limit, memory_order_relaxed);
    const int device_architecture = attribute_here(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                                    attribute_here(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    const int architecture = simrt_kernel_architecture(kernel, device_architecture);
    *attributes = (struct cudaFuncAttributes){
        .maxThreadsPerBlock = attribute_here(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        .numRegs = MODEST_REGISTERS,
        .ptxVersion = architecture,
        .binaryVersion = architecture,
        .maxDynamicSharedSizeBytes = dynamic_shared_limit >= 0
                                         ? dynamic_shared_limit
                                         : attribute_here(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        .preferredShmemCarveout = atomic_load_explicit(&kernel->shared_memory_carveout, memory_order_relaxed),
    };
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    SIMRT_RETURN_IN_CONTEXT(function_attributes(attributes, function));
}

static int set_attribute(const void *function, enum cudaFuncAttribute attribute, int value) {
    struct simrt_kernel *kernel = simrt_kernel_of(function);
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    switch ((int)attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || value > attribute_here(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN))
            return cudaErrorInvalidValue;
        atomic_store_explicit(&kernel->dynamic_shared_limit, value, memory_order_relaxed);
        return cudaSuccess;
    case cudaFuncAttributePreferredSharedMemoryCarveout:
        if (value < -1 || value > 100) return cudaErrorInvalidValue;
        atomic_store_explicit(&kernel->shared_memory_carveout, value, memory_order_relaxed);
        return cudaSuccess;
    case cudaFuncAttributeClusterDimMustBeSet:
    case cudaFuncAttributeRequiredClusterWidth:
    case cudaFuncAttributeRequiredClusterHeight:
    case cudaFuncAttributeRequiredClusterDepth:
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
    case cudaFuncAttributeClusterSchedulingPolicyPreference:
        return cudaSuccess; /* clusters change nothing about a kernel that computes nothing */
    }
    return cudaErrorInvalidValue;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
    SIMRT_RETURN_IN_CONTEXT(set_attribute(function, attribute, value));
}

cudaError_t cudaFuncSetCacheConfig(const void *function, enum cudaFuncCache config) {
    (void)config; /* a preference */
    SIMRT_RETURN_IN_CONTEXT(simrt_kernel_of(function) ? cudaSuccess : cudaErrorInvalidDeviceFunction);
}

static int function_name(const char **name, const void *function) {
    const struct simrt_kernel *kernel = simrt_kernel_of(function);
    if (!name) return cudaErrorInvalidValue;
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    *name = kernel->name;
    return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char **name, const void *function) {
    SIMRT_RETURN_IN_CONTEXT(function_name(name, function));
}

static int active_blocks(int *blocks, const void *function, int block_size, size_t shared_bytes) {
    if (!blocks || block_size <= 0) return cudaErrorInvalidValue;
    if (!simrt_kernel_of(function)) return cudaErrorInvalidDeviceFunction;
    *blocks = 0; /* the answer where not even one block fits */
    if (block_size > attribute_here(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) return cudaSuccess;
    const int warps = (block_size + WARP - 1) / WARP;
    const size_t shared_total = (size_t)attribute_here(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    const size_t by_shared = shared_total / (shared_bytes + RESERVED_SHARED_BYTES);
    const int by_threads = attribute_here(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / (warps * WARP);
    const int most = least(by_threads, attribute_here(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
    *blocks = by_shared < (size_t)most ? (int)by_shared : most;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int block_size,
                                                          size_t shared_bytes) {
    SIMRT_RETURN_IN_CONTEXT(active_blocks(blocks, function, block_size, shared_bytes));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int block_size,
                                                                   size_t shared_bytes, unsigned flags) {
    SIMRT_RETURN_IN_CONTEXT(flags <= cudaOccupancyDisableCachingOverride
                                ? active_blocks(blocks, function, block_size, shared_bytes)
                                : (int)cudaErrorInvalidValue);
}

static int available_shared(size_t *shared_bytes, const void *function, int blocks, int block_size) {
    if (!shared_bytes || blocks <= 0 || block_size <= 0) return cudaErrorInvalidValue;
    if (!simrt_kernel_of(function)) return cudaErrorInvalidDeviceFunction;
    const int share = attribute_here(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / blocks;
    const int most = attribute_here(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    *shared_bytes = share > RESERVED_SHARED_BYTES ? (size_t)least(share - RESERVED_SHARED_BYTES, most) : 0;
    return cudaSuccess;
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *shared_bytes, const void *function, int blocks,
                                                      int block_size) {
    SIMRT_RETURN_IN_CONTEXT(available_shared(shared_bytes, function, blocks, block_size));
}
