/* SPDX-License-Identifier: MIT
 *
 * The other process of a test: does what it is told through its socket, until that is closed.
 */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipc_peer.h"

enum { FILES = 64 };

/* By system calls, which thread sanitizer does not see: that this is no way to treat another thread's files is what is
 * tested. */
static void close_files(void) {
    for (int file = STDERR_FILENO + 1; file < FILES; file++)
        if (file != PEER_CONNECTION) syscall(SYS_close, file);
}

static void take_files(void) {
    int file;
    do {
        file = (int)syscall(SYS_openat, AT_FDCWD, "/dev/zero", O_RDWR | O_CLOEXEC);
    } while (file >= 0 && file < FILES);
}

static void spawn(void) {
    if (fork() != 0) return;
    struct pollfd ended = {.fd = PEER_CONNECTION, .events = POLLHUP};
    while ((ended.revents & POLLHUP) == 0) poll(&ended, 1, -1);
    _exit(0);
}

static CUresult make_pool(struct peer_answer *answer) {
    CUmemoryPool pool;
    const CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    const CUresult result = cuMemPoolCreate(&pool, &properties);
    if (result != CUDA_SUCCESS) return result;
    answer->value = (uint64_t)(uintptr_t)pool;
    return cuMemPoolExportToShareableHandle(&answer->descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
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
    case PEER_POOL:
        return make_pool(answer);
    case PEER_POOL_ALLOC:
        return cuMemAllocFromPoolAsync((CUdeviceptr *)&answer->value, command->bytes,
                                       (CUmemoryPool)(uintptr_t)command->number, NULL);
    case PEER_POOL_EXPORT:
        return cuMemPoolExportPointer(&answer->data, command->address);
    case PEER_POOL_DESTROY:
        return cuMemPoolDestroy((CUmemoryPool)(uintptr_t)command->number);
    }
    return result;
}

static bool reply(struct peer_answer *answer) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.space = {0}};
    struct iovec data = {.iov_base = answer, .iov_len = sizeof(*answer)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (answer->descriptor >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
        struct cmsghdr *const rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &answer->descriptor, sizeof(int));
    }
    const bool sent = sendmsg(PEER_CONNECTION, &message, MSG_NOSIGNAL) == sizeof(*answer);
    if (answer->descriptor >= 0) close(answer->descriptor);
    return sent;
}

int main(void) {
    CUcontext context;
    struct peer_command command;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return 1;
    while (recv(PEER_CONNECTION, &command, sizeof(command), 0) == sizeof(command)) {
        struct peer_answer answer = {.descriptor = -1};
        answer.result = obey(&command, &answer);
        if (!reply(&answer)) return 1;
    }
    return 0;
}
