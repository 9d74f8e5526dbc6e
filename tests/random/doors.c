/* SPDX-License-Identifier: MIT
 *
 * Finds functions; nothing is kept but the libraries, so that each call looks anew.
 */
#include "doors.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "program.h"
#include "tally.h"

/* Not linked, for an old driver has only the older ones. */
typedef CUresult(CUDAAPI *look_up_function)(const char *name, void **function, int version, cuuint64_t flags,
                                            CUdriverProcAddressQueryResult *status);
typedef CUresult(CUDAAPI *old_look_up_function)(const char *name, void **function, int version, cuuint64_t flags);
typedef CUresult(CUDAAPI *create_function)(CUcontext *context, CUctxCreateParams *params, unsigned flags, CUdevice on);
typedef CUresult(CUDAAPI *old_create_function)(CUcontext *context, unsigned flags, CUdevice on);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *driver_library, *runtime_library;
static look_up_function look_up;
static old_look_up_function look_up_old;
static create_function create;
static old_create_function create_old;
static int driver_version;

static void open_libraries(void) {
    Dl_info runtime;
    driver_library = dlopen("libcuda.so.1", RTLD_LAZY);
    *(void **)&look_up_old = dlsym(RTLD_DEFAULT, "cuGetProcAddress");
    *(void **)&look_up = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
    *(void **)&create = dlsym(RTLD_DEFAULT, "cuCtxCreate_v4");
    *(void **)&create_old = dlsym(RTLD_DEFAULT, "cuCtxCreate_v2");
    void *const known = dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion");
    if (known != NULL && dladdr(known, &runtime) != 0) runtime_library = dlopen(runtime.dli_fname, RTLD_LAZY);
    cuDriverGetVersion(&driver_version);
}

_Static_assert(DOOR_RUNTIME + 1 == DOORS, "each door may be drawn");

void *door_driver(unsigned door, const char *name, const char *symbol, int since, bool newest, bool per_thread,
                  void *linked) {
    void *found = NULL;
    const cuuint64_t flags =
        per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    pthread_once(&once, open_libraries);
    const int version = newest ? driver_version : since;
    switch (door) {
    case DOOR_DLSYM:
        found = dlsym(RTLD_DEFAULT, symbol);
        break;
    case DOOR_DLSYM_LIBRARY:
        if (driver_library != NULL) found = dlsym(driver_library, symbol);
        break;
    case DOOR_LOOK_UP_OLD:
        if (look_up_old == NULL || look_up_old(name, &found, version, flags) != CUDA_SUCCESS) found = NULL;
        break;
    case DOOR_LOOK_UP:
        if (look_up == NULL || look_up(name, &found, version, flags, NULL) != CUDA_SUCCESS) found = NULL;
        break;
    case DOOR_RUNTIME:
        if (cudaGetDriverEntryPointByVersion(name, &found, (unsigned)version, flags, NULL) == cudaSuccess) break;
        found = NULL;
        cudaGetLastError();
        break;
    default:
        break;
    }
    if (found == NULL) return linked;
    TALLY(calls_by_other_doors);
    return found;
}

CUresult door_context_create(CUcontext *context, int device) {
    pthread_once(&once, open_libraries);
    if (create != NULL) return create(context, NULL, 0, device);
    return create_old != NULL ? create_old(context, 0, device) : CUDA_ERROR_NOT_SUPPORTED;
}

void *door_runtime(unsigned door, const char *symbol, void *linked) {
    void *found = NULL;
    pthread_once(&once, open_libraries);
    if (door == DOOR_DLSYM)
        found = dlsym(RTLD_DEFAULT, symbol);
    else if (door == DOOR_DLSYM_LIBRARY && runtime_library != NULL)
        found = dlsym(runtime_library, symbol);
    if (found == NULL) return linked;
    TALLY(calls_by_other_doors);
    return found;
}
