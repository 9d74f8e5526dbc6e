/* SPDX-License-Identifier: MIT
 *
 * Both sides of the talk with another process; see importer.h.
 */
#include "importer.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

enum { ENVIRONMENT_MAX = 512 };

bool importer_we_are_pooled(void) {
    return dlsym(RTLD_DEFAULT, "poolcuda_check") != NULL;
}

int device_use(int device) {
    int version = 0, least = 0, greatest = 0;
    cudaError_t answer = cudaRuntimeGetVersion(&version);
    if (answer == cudaSuccess) answer = cudaSetDevice(device);
    /* Asked for what needs the context. */
    if (answer == cudaSuccess && version < 12000) answer = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    return (int)answer;
}

static bool transfer(int socket, void *data, size_t size, bool sends) {
    for (char *at = data; size > 0;) {
        const ssize_t moved = sends ? send(socket, at, size, MSG_NOSIGNAL) : recv(socket, at, size, 0);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) return false;
        at += moved;
        size -= (size_t)moved;
    }
    return true;
}

/* ---- the program's side ---- */

bool importer_start(struct importer *importer, bool pooled) {
    char *const arguments[] = {"random_programs", "--importer", NULL};
    char *environment[ENVIRONMENT_MAX];
    size_t count = 0;
    int sockets[2];
    for (char **entry = environ; *entry != NULL && count + 1 < ENVIRONMENT_MAX; entry++)
        if (pooled || (strncmp(*entry, "LD_PRELOAD=", 11) != 0 && strncmp(*entry, "POOL_", 5) != 0))
            environment[count++] = *entry;
    environment[count] = NULL;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, sockets[1], STDIN_FILENO);
    const int error = posix_spawn(&importer->process, "/proc/self/exe", &actions, NULL, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    close(sockets[1]);
    importer->socket = sockets[0];
    importer->pooled = pooled && importer_we_are_pooled();
    if (error == 0) return true;
    importer->process = 0;
    close(sockets[0]);
    return false;
}

bool importer_ask(struct importer *importer, const struct importer_request *request, struct importer_answer *answer) {
    struct importer_request copy = *request;
    return transfer(importer->socket, &copy, sizeof copy, true) &&
           transfer(importer->socket, answer, sizeof *answer, false);
}

static int importer_end(struct importer *importer) {
    int status = 0;
    close(importer->socket);
    while (waitpid(importer->process, &status, 0) < 0 && errno == EINTR) {
    }
    importer->process = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void importer_kill(struct importer *importer) {
    if (importer->process == 0) return;
    kill(importer->process, SIGKILL);
    importer_end(importer);
}

int importer_stop(struct importer *importer) {
    return importer->process != 0 ? importer_end(importer) : 0;
}

/* ---- that process ---- */

static int open_handle(const struct importer_request *request, uint64_t *address) {
    CUdeviceptr by_driver = 0;
    void *by_runtime = NULL;
    cudaIpcMemHandle_t handle;
    if (request->by_driver) {
        const int code = (int)cuIpcOpenMemHandle(&by_driver, request->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        *address = (uint64_t)by_driver;
        return code;
    }
    memcpy(&handle, &request->handle, sizeof handle);
    const int code = (int)cudaIpcOpenMemHandle(&by_runtime, handle, cudaIpcMemLazyEnablePeerAccess);
    *address = (uint64_t)(uintptr_t)by_runtime;
    cudaGetLastError();
    return code;
}

static int use(const struct importer_request *request, struct importer_answer *answer) {
    struct kernel_wrong wrongs[KERNEL_WRONG_MAX];
    const struct kernel kernel = {.touches = {request->used}, .touch_count = 1, .number = request->number};
    int code = kernels_launch(&kernel, cudaStreamPerThread);
    if (code == 0) code = (int)cudaDeviceSynchronize();
    answer->wrongs = kernels_wrong(wrongs);
    if (answer->wrongs > 0) answer->wrong = wrongs[0];
    return code;
}

static int close_handle(const struct importer_request *request) {
    const uint64_t address = request->used.address;
    return request->by_driver ? (int)cuIpcCloseMemHandle((CUdeviceptr)address)
                              : (int)cudaIpcCloseMemHandle((void *)(uintptr_t)address);
}

int importer_run(void) {
    struct importer_request request;
    while (transfer(STDIN_FILENO, &request, sizeof request, false)) {
        struct importer_answer answer = {.code = device_use(request.device)};
        if (answer.code == 0) {
            switch (request.task) {
            case IMPORTER_OPEN:
                answer.code = open_handle(&request, &answer.address);
                break;
            case IMPORTER_USE:
                answer.code = use(&request, &answer);
                break;
            case IMPORTER_CLOSE:
                answer.code = close_handle(&request);
            }
        }
        if (!transfer(STDIN_FILENO, &answer, sizeof answer, true)) break;
    }
    return 0;
}
