/* SPDX-License-Identifier: MIT
 *
 * The other process of a test: does what it is told through its socket, until that is closed.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc_peer.h"

enum { FILES = 64 };

static void close_files(void) {
    for (int file = STDERR_FILENO + 1; file < FILES; file++)
        if (file != PEER_CONNECTION) close(file);
}

static void take_files(void) {
    int file;
    do {
        file = open("/dev/zero", O_RDWR | O_CLOEXEC);
    } while (file >= 0 && file < FILES);
}

static void spawn(void) {
    if (fork() != 0) return;
    struct pollfd ended = {.fd = PEER_CONNECTION, .events = POLLHUP};
    while ((ended.revents & POLLHUP) == 0) poll(&ended, 1, -1);
    _exit(0);
}

static CUresult obey(const struct peer_command *command, struct peer_answer *answer) {
    unsigned char byte = 0;
    CUresult result = CUDA_SUCCESS;
    switch (command->what) {
    case PEER_ALLOC:
        return cuMemAlloc((CUdeviceptr *)&answer->value, command->bytes);
    case PEER_FREE:
        return cuMemFree(command->address);
    case PEER_FILL:
        return cuMemsetD8(command->address, (unsigned char)command->number, command->bytes);
    case PEER_READ:
        result = cuMemcpyDtoH(&byte, command->address, 1);
        answer->value = byte;
        return result;
    case PEER_EXPORT:
        return cuIpcGetMemHandle(&answer->handle, command->address);
    case PEER_OPEN:
        return cuIpcOpenMemHandle((CUdeviceptr *)&answer->value, command->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    case PEER_CLOSE:
        return cuIpcCloseMemHandle(command->address);
    case PEER_RESET:
        return cuDevicePrimaryCtxReset(0);
    case PEER_SPAWN:
        spawn();
        break;
    case PEER_CLOSE_FILES:
        close_files();
        break;
    case PEER_TAKE_FILES:
        take_files();
        break;
    }
    return result;
}

int main(void) {
    CUcontext context;
    struct peer_command command;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return 1;
    while (recv(PEER_CONNECTION, &command, sizeof(command), 0) == sizeof(command)) {
        struct peer_answer answer = {.value = 0};
        answer.result = obey(&command, &answer);
        if (send(PEER_CONNECTION, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer)) return 1;
    }
    return 0;
}
