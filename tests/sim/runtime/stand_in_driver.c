/* SPDX-License-Identifier: MIT
 *
 * A driver that only tells how it was looked up: it notes every look-up, and its calls do next to nothing. Variables:
 * STAND_IN_INIT is cuInit's answer, STAND_IN_VERSION the driver's version, STAND_IN_MISSING one name that it lacks.
 */
#define __CUDA_API_VERSION_INTERNAL /* no macro that renames a call to another revision */
#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stand_in_driver.h"

#define EXPORTED __attribute__((visibility("default")))

static struct stand_in_look_up look_ups[1024];
static size_t look_up_count;
static bool initialised;

static long variable(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value ? strtol(value, NULL, 10) : otherwise;
}

size_t stand_in_look_ups(const struct stand_in_look_up **list) {
    *list = look_ups;
    return look_up_count;
}

static CUresult unsupported(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult init(unsigned flags) {
    initialised = true;
    return flags ? CUDA_ERROR_INVALID_VALUE : (CUresult)variable("STAND_IN_INIT", 0);
}

static CUresult driver_version(int *version) {
    *version = (int)variable("STAND_IN_VERSION", 13000);
    return CUDA_SUCCESS;
}

static CUresult device_count(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}

static _Thread_local CUcontext current;

static CUresult get_current(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *context, CUdevice device) {
    static char primary;
    *context = (CUcontext)(void *)&primary;
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult allocate(CUdeviceptr *address, size_t size) {
    *address = 0x10000;
    return size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult release(CUdeviceptr address) {
    return address == 0 || address == 0x10000 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static const struct {
    const char *name;
    void *function;
} calls[] = {
    {"cuInit", (void *)init},
    {"cuDriverGetVersion", (void *)driver_version},
    {"cuDeviceGetCount", (void *)device_count},
    {"cuCtxGetCurrent", (void *)get_current},
    {"cuCtxSetCurrent", (void *)set_current},
    {"cuDevicePrimaryCtxRetain", (void *)retain},
    {"cuMemAlloc", (void *)allocate},
    {"cuMemFree", (void *)release},
};

static CUresult look_up(const char *name, void **function, int version, cuuint64_t flags, bool status_given, int form) {
    if (look_up_count < sizeof(look_ups) / sizeof(look_ups[0]))
        look_ups[look_up_count++] = (struct stand_in_look_up){.name = name,
                                                              .version = version,
                                                              .flags = flags,
                                                              .status_given = status_given,
                                                              .initialised = initialised,
                                                              .form = form};
    const char *missing = getenv("STAND_IN_MISSING");
    *function = NULL;
    if (!*name || (missing && strcmp(missing, name) == 0)) return CUDA_SUCCESS;
    *function = (void *)unsupported;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (strcmp(calls[i].name, name) == 0) *function = calls[i].function;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
    return look_up(name, function, version, flags, false, 1);
}

EXPORTED CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                                      CUdriverProcAddressQueryResult *status) {
    return look_up(name, function, version, flags, status != NULL, 2);
}
