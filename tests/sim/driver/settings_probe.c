/* SPDX-License-Identifier: MIT
 *
 * Runs the words it is given as driver calls, and prints what each answers; for test_settings.py.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim.h"

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void print_identity(void) {
    int count = 0;
    cuDeviceGetCount(&count);
    printf("devices");
    for (int i = 0; i < count; i++) {
        char bus[16] = "";
        cuDeviceGetPCIBusId(bus, sizeof(bus), i);
        printf(" %s", bus);
    }
    printf("\n");
}

static void print_uuid(int ordinal) {
    CUuuid uuid;
    cuDeviceGetUuid(&uuid, ordinal);
    printf("uuid GPU-");
    for (int i = 0; i < 16; i++)
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)uuid.bytes[i]);
    printf("\n");
}

int main(int argc, char **argv) {
    CUcontext context;
    CUdeviceptr memory = 0;
    size_t total = 0;
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    for (int i = 1; i < argc; i++) {
        const char *const word = argv[i];
        const double begin = now_us();
        CUresult answer = CUDA_SUCCESS;
        if (strcmp(word, "init") == 0) {
            answer = cuInit(0);
        } else if (strcmp(word, "current") == 0) {
            answer = cuDevicePrimaryCtxRetain(&context, 0);
            if (answer == CUDA_SUCCESS) answer = cuCtxSetCurrent(context);
        } else if (strcmp(word, "devices") == 0) {
            print_identity();
            continue;
        } else if (strcmp(word, "uuid") == 0) {
            print_uuid(0);
            continue;
        } else if (strcmp(word, "total") == 0) {
            cuDeviceTotalMem(&total, 0);
            printf("total %zu\n", total);
            continue;
        } else if (strcmp(word, "version") == 0) {
            int version = 0;
            cuDriverGetVersion(&version);
            printf("version %d\n", version);
            continue;
        } else if (strncmp(word, "find:", 5) == 0) {
            void *function = NULL;
            CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
            int version = 0;
            cuDriverGetVersion(&version);
            cuGetProcAddress(word + 5, &function, version, 0, &status);
            printf("%s %s %d\n", word, function != NULL ? "found" : "missing", (int)status);
            continue;
        } else if (strncmp(word, "export:", 7) == 0) {
            printf("%s %s\n", word, dlsym(library, word + 7) != NULL ? "found" : "missing");
            continue;
        } else if (strncmp(word, "alloc:", 6) == 0) {
            answer = cuMemAlloc(&memory, strtoull(word + 6, NULL, 10) << 20);
        } else if (strcmp(word, "free") == 0) {
            answer = cuMemFree(memory);
        } else if (strcmp(word, "busy") == 0) {
            const struct sim_kernel kernel = {.microseconds = 30000};
            answer = (CUresult)sim_launch(&kernel, NULL);
        } else if (strcmp(word, "query") == 0) {
            answer = cuStreamQuery(NULL);
        } else if (strcmp(word, "record") == 0) {
            answer = cuCtxRecordEvent(NULL, NULL);
        } else {
            return 2;
        }
        printf("%s %d %.0f\n", word, (int)answer, now_us() - begin);
    }
    return 0;
}
