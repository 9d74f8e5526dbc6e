/* SPDX-License-Identifier: MIT
 *
 * Registration of compiled code. Programs compiled by nvcc call these functions before main; nothing is loaded until
 * a kernel is first asked for. Device variables are accepted, but have no storage.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "compiled.h"
#include "fat_binary.h"
#include "registry.h"

/* What the compiler puts around an image. */
struct fat_binary_wrapper {
    int magic;
    int version;
    const void *image;
    void *file_name;
};

struct managed_variable {
    void **host_pointer; /* where the program reads the variable's address */
    size_t size;
    bool ready;
    struct managed_variable *next;
};

struct simrt_binary {
    const void *image;
    CUlibrary library;
    bool loaded;
    struct simrt_kernel *kernels;
    struct managed_variable *managed;
};

/* Where a kernel is found: by its host function, and by its driver handle once that is known. */
struct key {
    const void *function;
    struct simrt_kernel *kernel;
    UT_hash_handle hh;
};

/* Guards the keys and every binary. */
static pthread_rwlock_t registry_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct key *keys;

static struct key *find_key(const void *function) {
    struct key *key;
    HASH_FIND_PTR(keys, &function, key);
    return key;
}

static bool add_key(const void *function, struct simrt_kernel *kernel) {
    struct key *key = find_key(function);
    if (key) {
        key->kernel = kernel;
        return true;
    }
    key = calloc(1, sizeof(*key));
    if (!key) return false;
    key->function = function;
    key->kernel = kernel;
    HASH_ADD_PTR(keys, function, key);
    if (key->hh.tbl) return true;
    free(key);
    return false;
}

struct simrt_kernel *simrt_kernel_of(const void *function) {
    pthread_rwlock_rdlock(&registry_lock);
    const struct key *key = find_key(function);
    struct simrt_kernel *kernel = key ? key->kernel : NULL;
    pthread_rwlock_unlock(&registry_lock);
    return kernel;
}

static CUresult load_locked(struct simrt_binary *binary) {
    if (binary->loaded) return CUDA_SUCCESS;
    const CUresult result =
        simrt_driver.cuLibraryLoadData(&binary->library, binary->image, NULL, NULL, 0, NULL, NULL, 0);
    binary->loaded = result == CUDA_SUCCESS;
    return result;
}

cudaError_t simrt_kernel_handle(struct simrt_kernel *kernel, CUkernel *handle) {
    *handle = atomic_load_explicit(&kernel->handle, memory_order_acquire);
    if (*handle) return cudaSuccess;
    pthread_rwlock_wrlock(&registry_lock);
    CUresult result = load_locked(kernel->binary);
    if (result == CUDA_SUCCESS) result = simrt_driver.cuLibraryGetKernel(handle, kernel->binary->library, kernel->name);
    if (result == CUDA_SUCCESS && !add_key(*handle, kernel)) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) atomic_store_explicit(&kernel->handle, *handle, memory_order_release);
    pthread_rwlock_unlock(&registry_lock);
    return (cudaError_t)result;
}

int simrt_kernel_architecture(const struct simrt_kernel *kernel, int device_architecture) {
    const int architecture = simrt_fat_binary_architecture(kernel->binary->image, device_architecture);
    return architecture ? architecture : device_architecture;
}

void **__cudaRegisterFatBinary(void *wrapper) {
    struct simrt_binary *binary = calloc(1, sizeof(*binary));
    if (binary) binary->image = ((const struct fat_binary_wrapper *)wrapper)->image;
    return (void **)binary;
}

void __cudaRegisterFatBinaryEnd(void **handle) {
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle) {
    struct simrt_binary *binary = (struct simrt_binary *)handle;
    if (!binary) return;
    pthread_rwlock_wrlock(&registry_lock);
    struct key *key, *following_key;
    HASH_ITER (hh, keys, key, following_key) {
        if (key->kernel->binary != binary) continue;
        HASH_DEL(keys, key);
        free(key);
    }
    pthread_rwlock_unlock(&registry_lock);
    /* At the end of the process the driver may be gone already; when a library is closed it is there. */
    if (binary->loaded && atomic_load_explicit(&simrt_state, memory_order_acquire) == SIMRT_READY)
        simrt_driver.cuLibraryUnload(binary->library);
    for (struct simrt_kernel *kernel = binary->kernels, *next; kernel; kernel = next) {
        next = kernel->next;
        free(kernel);
    }
    for (struct managed_variable *variable = binary->managed, *next; variable; variable = next) {
        next = variable->next;
        free(variable);
    }
    free(binary);
}

void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *name,
                            int thread_limit, uint3 *thread, uint3 *block, dim3 *block_size, dim3 *grid_size,
                            int *warp_size) {
    (void)device_function, (void)thread_limit, (void)thread, (void)block, (void)block_size, (void)grid_size,
        (void)warp_size;
    struct simrt_binary *binary = (struct simrt_binary *)handle;
    struct simrt_kernel *kernel = binary ? calloc(1, sizeof(*kernel)) : NULL;
    if (!kernel) return;
    kernel->name = name;
    kernel->binary = binary;
    atomic_init(&kernel->dynamic_shared_limit, -1);
    atomic_init(&kernel->shared_memory_carveout, -1);
    pthread_rwlock_wrlock(&registry_lock);
    kernel->next = binary->kernels;
    binary->kernels = kernel;
    add_key(host_function, kernel); /* without a key the kernel stays unknown, and a launch says so */
    pthread_rwlock_unlock(&registry_lock);
}

void __cudaRegisterVar(void **handle, char *host_variable, char *device_address, const char *name, int external,
                       size_t size, int constant, int global) {
    (void)handle, (void)host_variable, (void)device_address, (void)name, (void)external, (void)size, (void)constant,
        (void)global;
}

void __cudaRegisterManagedVar(void **handle, void **host_pointer, char *device_address, const char *name, int external,
                              size_t size, int constant, int global) {
    (void)device_address, (void)name, (void)external, (void)constant, (void)global;
    struct simrt_binary *binary = (struct simrt_binary *)handle;
    struct managed_variable *variable = binary ? calloc(1, sizeof(*variable)) : NULL;
    if (!variable) return;
    variable->host_pointer = host_pointer;
    variable->size = size;
    pthread_rwlock_wrlock(&registry_lock);
    variable->next = binary->managed;
    binary->managed = variable;
    pthread_rwlock_unlock(&registry_lock);
}

static CUresult place_managed_locked(struct managed_variable *variable) {
    if (variable->ready) return CUDA_SUCCESS;
    CUdeviceptr address = 0;
    const CUresult result = simrt_driver.cuMemAllocManaged(&address, variable->size, CU_MEM_ATTACH_GLOBAL);
    if (result != CUDA_SUCCESS) return result;
    *variable->host_pointer = memset((void *)address, 0, variable->size);
    variable->ready = true;
    return CUDA_SUCCESS;
}

char __cudaInitModule(void **handle) {
    struct simrt_binary *binary = (struct simrt_binary *)handle;
    const cudaError_t entered = binary ? simrt_enter_context() : cudaErrorInvalidValue;
    if (entered) {
        simrt_result(entered);
        return 0;
    }
    CUresult result = CUDA_SUCCESS;
    pthread_rwlock_wrlock(&registry_lock);
    for (struct managed_variable *variable = binary->managed; variable && result == CUDA_SUCCESS;
         variable = variable->next)
        result = place_managed_locked(variable);
    pthread_rwlock_unlock(&registry_lock);
    return simrt_result((int)result) == cudaSuccess;
}
