/* SPDX-License-Identifier: MIT
 *
 * Modules, libraries, functions and kernels: any image is accepted, and any name in it is a kernel. A kernel of a
 * library and the function that it is in a context are one object here.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { MODULE_MAX = 65536, FUNCTION_MAX = 1 << 16, NAME_BYTES = 8000 };

/* A module of one context, or a library of all (context NULL). */
struct module {
    struct handle handle;
    struct context *context;
    /* module_lock */
    struct function *functions;
    struct module *previous, *following; /* of all */
};

struct function {
    struct handle handle;
    struct module *module;
    struct function *next; /* of the module */
    char *name;            /* of one made from templates thousands of characters long */
};

static struct handle_table module_table = HANDLE_TABLE(struct module, MODULE_MAX, false);
static struct handle_table function_table = HANDLE_TABLE(struct function, FUNCTION_MAX, false);
static struct module *modules; /* module_lock */
static pthread_mutex_t module_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult module_make(struct context *context, void **handle, const void *image) {
    if (handle == NULL || image == NULL) return CUDA_ERROR_INVALID_VALUE;
    struct module *const module = handle_new(&module_table);
    if (module == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    module->context = context;
    pthread_mutex_lock(&module_lock);
    module->following = modules;
    if (modules != NULL) modules->previous = module;
    modules = module;
    pthread_mutex_unlock(&module_lock);
    handle_publish(module);
    *handle = module;
    return CUDA_SUCCESS;
}

static CUresult module_load(const struct thread *thread, CUmodule *handle, const void *image) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result != CUDA_SUCCESS) return result;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    return module_make(context, (void **)handle, image);
}
DRIVER_CALL(cuModuleLoad, (CUmodule * module, const char *file), module_load(thread, module, file))
DRIVER_CALL(cuModuleLoadData, (CUmodule * module, const void *image), module_load(thread, module, image))
DRIVER_CALL(cuModuleLoadDataEx,
            (CUmodule * module, const void *image, unsigned count, CUjit_option *options, void **values),
            ((void)count, (void)options, (void)values, module_load(thread, module, image)))
DRIVER_CALL(cuModuleLoadFatBinary, (CUmodule * module, const void *image), module_load(thread, module, image))

/* A library needs no context. */
DRIVER_CALL(cuLibraryLoadData,
            (CUlibrary * library, const void *image, CUjit_option *jit, void **jit_values, unsigned jit_count,
             CUlibraryOption *options, void **values, unsigned count),
            ((void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count,
             module_make(NULL, (void **)library, image)))
DRIVER_CALL(cuLibraryLoadFromFile,
            (CUlibrary * library, const char *file, CUjit_option *jit, void **jit_values, unsigned jit_count,
             CUlibraryOption *options, void **values, unsigned count),
            ((void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count,
             module_make(NULL, (void **)library, file)))

/* Under module_lock; the handle is no longer valid. */
static void module_discard(struct module *module) {
    while (module->functions != NULL) {
        struct function *const function = module->functions;
        module->functions = function->next;
        handle_kill(function);
        free(function->name);
        handle_release(&function_table, function);
    }
    if (module->following != NULL) module->following->previous = module->previous;
    if (module->previous != NULL)
        module->previous->following = module->following;
    else
        modules = module->following;
    handle_release(&module_table, module);
}

void modules_context_discard(struct context *context) {
    pthread_mutex_lock(&module_lock);
    for (struct module *module = modules; module != NULL;) {
        struct module *const following = module->following;
        if (module->context == context && handle_kill(module)) module_discard(module);
        module = following;
    }
    pthread_mutex_unlock(&module_lock);
}

static CUresult module_unload(const struct thread *thread, void *handle) {
    CUresult result = handle_check(&module_table, handle);
    if (result != CUDA_SUCCESS) return result;
    result = capture_refuse_unsafe(thread);
    if (result != CUDA_SUCCESS) return result;
    pthread_mutex_lock(&module_lock);
    if (handle_kill(handle))
        module_discard(handle);
    else
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    pthread_mutex_unlock(&module_lock);
    return result;
}
DRIVER_CALL(cuModuleUnload, (CUmodule module), module_unload(thread, module))
DRIVER_CALL(cuLibraryUnload, (CUlibrary library), module_unload(thread, library))

/* The same name gives the same handle. Under module_lock. */
static struct function *function_in(struct module *module, const char *name) {
    for (struct function *function = module->functions; function != NULL; function = function->next)
        if (strcmp(function->name, name) == 0) return function;
    char *const copy = strdup(name);
    struct function *const function = copy != NULL ? handle_new(&function_table) : NULL;
    if (function == NULL) {
        free(copy);
        return NULL;
    }
    function->module = module;
    function->name = copy;
    function->next = module->functions;
    module->functions = function;
    handle_publish(function);
    return function;
}

static CUresult module_get_function(void **handle, void *module, const char *name) {
    if (handle == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = handle_check(&module_table, module);
    if (result != CUDA_SUCCESS) return result;
    if (*name == '\0' || strlen(name) >= NAME_BYTES) return CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&module_lock);
    *handle = function_in(module, name);
    pthread_mutex_unlock(&module_lock);
    return *handle != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
DRIVER_CALL(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name),
            module_get_function((void **)function, module, name))
DRIVER_CALL(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name),
            module_get_function((void **)kernel, library, name))

static CUresult library_get_module(const struct thread *thread, CUmodule *module, CUlibrary library) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result == CUDA_SUCCESS) result = handle_check(&module_table, library);
    if (result != CUDA_SUCCESS) return result;
    if (module == NULL) return CUDA_ERROR_INVALID_VALUE;
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuLibraryGetModule, (CUmodule * module, CUlibrary library), library_get_module(thread, module, library))

static CUresult kernel_get_function(const struct thread *thread, CUfunction *function, CUkernel kernel) {
    struct context *context;
    CUresult result = context_current(thread, &context);
    if (result == CUDA_SUCCESS) result = handle_check(&function_table, kernel);
    if (result != CUDA_SUCCESS) return result;
    if (function == NULL) return CUDA_ERROR_INVALID_VALUE;
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuKernelGetFunction, (CUfunction * function, CUkernel kernel),
            kernel_get_function(thread, function, kernel))

CUresult module_function_check(const void *function, const struct context *context) {
    const CUresult result = handle_check(&function_table, function);
    if (result != CUDA_SUCCESS) return result;
    const struct context *const owner = ((const struct function *)function)->module->context;
    return owner == NULL || owner == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult function_get_name(const char **name, const void *handle) {
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = handle_check(&function_table, handle);
    if (result == CUDA_SUCCESS) *name = ((const struct function *)handle)->name;
    return result;
}
DRIVER_CALL(cuFuncGetName, (const char **name, CUfunction function), function_get_name(name, function))
DRIVER_CALL(cuKernelGetName, (const char **name, CUkernel kernel), function_get_name(name, kernel))

static CUresult function_get_module(void **module, const void *handle) {
    if (module == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = handle_check(&function_table, handle);
    if (result == CUDA_SUCCESS) *module = ((const struct function *)handle)->module;
    return result;
}
DRIVER_CALL(cuFuncGetModule, (CUmodule * module, CUfunction function), function_get_module((void **)module, function))
DRIVER_CALL(cuKernelGetLibrary, (CUlibrary * library, CUkernel kernel), function_get_module((void **)library, kernel))

/* Kernels that compute nothing need no resources. */
static CUresult function_get_attribute(int *value, CUfunction_attribute attribute, const void *handle) {
    if (value == NULL || (int)attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = handle_check(&function_table, handle);
    if (result != CUDA_SUCCESS) return result;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 90;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = 49152;
        break;
    default:
        *value = 0;
        break;
    }
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuFuncGetAttribute, (int *value, CUfunction_attribute attribute, CUfunction function),
            function_get_attribute(value, attribute, function))
DRIVER_CALL(cuKernelGetAttribute, (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device),
            device_of(device) == NULL ? CUDA_ERROR_INVALID_DEVICE : function_get_attribute(value, attribute, kernel))

DRIVER_CALL(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value),
            ((void)attribute, (void)value, handle_check(&function_table, function)))
DRIVER_CALL(cuKernelSetAttribute, (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device),
            ((void)attribute, (void)value,
             device_of(device) == NULL ? CUDA_ERROR_INVALID_DEVICE : handle_check(&function_table, kernel)))
DRIVER_CALL(cuFuncSetCacheConfig, (CUfunction function, CUfunc_cache config),
            ((void)config, handle_check(&function_table, function)))
DRIVER_CALL(cuKernelSetCacheConfig, (CUkernel kernel, CUfunc_cache config, CUdevice device),
            ((void)config,
             device_of(device) == NULL ? CUDA_ERROR_INVALID_DEVICE : handle_check(&function_table, kernel)))
DRIVER_CALL(cuFuncLoad, (CUfunction function), handle_check(&function_table, function))

static CUresult function_is_loaded(CUfunctionLoadingState *state, CUfunction function) {
    if (state == NULL) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = handle_check(&function_table, function);
    if (result == CUDA_SUCCESS) *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return result;
}
DRIVER_CALL(cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction function), function_is_loaded(state, function))

static CUresult loading_mode(CUmoduleLoadingMode *mode) {
    const char *const text = getenv("CUDA_MODULE_LOADING");
    if (mode == NULL) return CUDA_ERROR_INVALID_VALUE;
    *mode = text != NULL && strcmp(text, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode), loading_mode(mode))

/* Occupancy: what the device's 2048 threads and 32 blocks of a multiprocessor allow. */

static CUresult active_blocks(int *blocks, const void *function, int block_size) {
    if (blocks == NULL || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = handle_check(&function_table, function);
    if (result != CUDA_SUCCESS) return result;
    const int threads = (block_size + 31) / 32 * 32;
    *blocks = threads > 1024 ? 0 : 2048 / threads < 32 ? 2048 / threads : 32;
    return CUDA_SUCCESS;
}
DRIVER_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor,
            (int *blocks, CUfunction function, int block_size, size_t shared_bytes),
            ((void)shared_bytes, active_blocks(blocks, function, block_size)))
DRIVER_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
            (int *blocks, CUfunction function, int block_size, size_t shared_bytes, unsigned flags),
            ((void)shared_bytes, (void)flags, active_blocks(blocks, function, block_size)))
