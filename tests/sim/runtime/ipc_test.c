/* SPDX-License-Identifier: MIT
 *
 * Memory shared between processes by the runtime's names. This process starts the two, and uses no CUDA itself.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

enum { BYTES = 100000, OFFSET = 4096 };

#define REQUIRE(condition)                              \
    do {                                                \
        if (!(condition)) {                             \
            fprintf(stderr, "# not: %s\n", #condition); \
            _exit(1);                                   \
        }                                               \
    } while (0)

static void export_memory(int handles, int go_on) {
    unsigned char *memory, byte;
    cudaIpcMemHandle_t handle;
    void *opened;
    REQUIRE(cudaMalloc((void **)&memory, BYTES) == cudaSuccess);
    REQUIRE(cudaMemset(memory, 3, BYTES) == cudaSuccess);
    REQUIRE(cudaIpcGetMemHandle(&handle, memory + OFFSET) == cudaSuccess);
    REQUIRE(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess) == cudaErrorDeviceUninitialized);
    REQUIRE(cudaGetLastError() == cudaErrorDeviceUninitialized);
    REQUIRE(write(handles, &handle, sizeof(handle)) == sizeof(handle));
    REQUIRE(read(go_on, &byte, 1) == 1);
    REQUIRE(cudaMemcpy(&byte, memory + OFFSET, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
    REQUIRE(byte == 4);
    _exit(0);
}

static void import_memory(int handles, int go_on) {
    unsigned char *opened, *again, byte;
    cudaIpcMemHandle_t handle;
    struct cudaPointerAttributes attributes;
    REQUIRE(read(handles, &handle, sizeof(handle)) == sizeof(handle));
    REQUIRE(cudaIpcOpenMemHandle((void **)&opened, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess);
    REQUIRE(cudaIpcOpenMemHandle((void **)&again, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess);
    REQUIRE(again == opened);
    REQUIRE(cudaMemcpy(&byte, opened + BYTES - 1, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
    REQUIRE(byte == 3);
    REQUIRE(cudaPointerGetAttributes(&attributes, opened + 1) == cudaSuccess);
    REQUIRE(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
    REQUIRE(cudaMemset(opened + OFFSET, 4, 1) == cudaSuccess);
    REQUIRE(cudaFree(opened) == cudaErrorInvalidValue);
    REQUIRE(cudaIpcCloseMemHandle(opened) == cudaSuccess);
    REQUIRE(cudaIpcCloseMemHandle(opened) == cudaSuccess);
    REQUIRE(cudaIpcCloseMemHandle(opened) == cudaErrorInvalidValue);
    REQUIRE(write(go_on, "", 1) == 1);
    _exit(0);
}

static void one_process_opens_memory_of_another(void **state) {
    (void)state;
    int handles[2], go_on[2], status;
    assert_int_equal(pipe(handles), 0);
    assert_int_equal(pipe(go_on), 0);
    if (fork() == 0) export_memory(handles[1], go_on[0]);
    if (fork() == 0) {
        close(handles[1]);
        import_memory(handles[0], go_on[1]);
    }
    close(handles[1]);
    close(go_on[1]); /* so that neither waits for one that has ended */
    for (int i = 0; i < 2; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_process_opens_memory_of_another),
};
TESTING_MAIN(tests)
