/* SPDX-License-Identifier: MIT
 *
 * A process that shares memory with others by handles, told what to do line by line; it answers each with one line. A
 * block has a name and, once it is written, one byte's value all over.
 *
 *   alloc NAME BYTES, async NAME BYTES, free NAME, free_async NAME    code
 *   write NAME VALUE [BYTES], read NAME OFFSET BYTES                          code; code and "same VALUE" or "differ"
 *   export NAME OFFSET                                                code and the handle in hexadecimal digits
 *   range NAME OFFSET                                                 code, offset of the block's start, bytes
 *   attributes NAME                                                   codes and values
 *   open NAME HANDLE, close NAME                                      code and whether the address is known by a name
 *   address NAME, same NAME NAME                                      the address; yes or no
 *   child (that ends as programs do), reset, no_files (none can be written from now on), mark NAME VALUE, fork,
 * child_ends, exit                    code
 */
#include <cuda.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct block {
    char name[16];
    CUdeviceptr address;
    size_t bytes;
} blocks[512];
static pid_t child;

static struct block *find(const char *name) {
    struct block *unused = NULL;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        if (strcmp(blocks[i].name, name) == 0) return &blocks[i];
        if (!unused && !blocks[i].name[0]) unused = &blocks[i];
    }
    if (unused) snprintf(unused->name, sizeof unused->name, "%s", name);
    return unused;
}

static void forget(struct block *block) {
    *block = (struct block){0};
}

static void say_handle(int code, const CUipcMemHandle *handle) {
    printf("%d ", code);
    for (size_t i = 0; i < sizeof *handle && code == 0; i++) printf("%02x", ((const unsigned char *)handle)[i]);
    printf("\n");
}

static CUipcMemHandle handle_of(const char *digits) {
    CUipcMemHandle handle;
    for (size_t i = 0; i < sizeof handle; i++) {
        unsigned byte = 0;
        sscanf(digits + 2 * i, "%2x", &byte);
        ((unsigned char *)&handle)[i] = (unsigned char)byte;
    }
    return handle;
}

static void say_bytes(CUdeviceptr address, size_t bytes) {
    unsigned char *data = malloc(bytes);
    const int code = (int)cuMemcpyDtoH(data, address, bytes);
    bool same = code == 0;
    for (size_t i = 1; same && i < bytes; i++) same = data[i] == data[0];
    if (code != 0)
        printf("%d\n", code);
    else if (same)
        printf("0 same %u\n", data[0]);
    else
        printf("0 differ\n");
    free(data);
}

static void say_attributes(CUdeviceptr address) {
    unsigned long long capable = 0;
    unsigned type = 0, sync = 7;
    CUdeviceptr start = 0;
    size_t size = 0;
    int code = (int)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    code += (int)cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    code += (int)cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
    code += (int)cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address);
    sync = 0;
    code += (int)cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
    printf("%d type %u start %lld bytes %zu capable %llu sync %u\n", code, type, (long long)(address - start), size,
           capable & 0xff, sync & 0xff);
}

static void work(const char *verb, struct block *block, const char *first, unsigned long second) {
    const size_t number = first ? strtoul(first, NULL, 10) : 0;
    if (strcmp(verb, "alloc") == 0 || strcmp(verb, "async") == 0) {
        block->bytes = number;
        const int code = verb[1] == 'l' ? (int)cuMemAlloc(&block->address, number)
                                        : (int)cuMemAllocAsync(&block->address, number, NULL);
        printf("%d\n", code);
        if (code) forget(block);
    } else if (strcmp(verb, "free") == 0 || strcmp(verb, "free_async") == 0) {
        printf("%d\n", (int)(verb[4] ? cuMemFreeAsync(block->address, NULL) : cuMemFree(block->address)));
        forget(block);
    } else if (strcmp(verb, "write") == 0) {
        int code = (int)cuMemsetD8(block->address, (unsigned char)number, second ? second : block->bytes);
        if (!code) code = (int)cuCtxSynchronize();
        printf("%d\n", code);
    } else if (strcmp(verb, "read") == 0) {
        say_bytes(block->address + number, second);
    } else if (strcmp(verb, "export") == 0) {
        CUipcMemHandle handle;
        const int code = (int)cuIpcGetMemHandle(&handle, block->address + number);
        say_handle(code, &handle);
    } else if (strcmp(verb, "range") == 0) {
        CUdeviceptr base = 0;
        size_t bytes = 0;
        const int code = (int)cuMemGetAddressRange(&base, &bytes, block->address + number);
        printf("%d %lld %zu\n", code, (long long)(base - block->address), bytes);
    } else if (strcmp(verb, "attributes") == 0) {
        say_attributes(block->address);
    } else if (strcmp(verb, "open") == 0) {
        const CUipcMemHandle handle = handle_of(first);
        const int code = (int)cuIpcOpenMemHandle(&block->address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        printf("%d\n", code);
        if (code) forget(block);
    } else if (strcmp(verb, "close") == 0) {
        printf("%d\n", (int)cuIpcCloseMemHandle(block->address));
    } else if (strcmp(verb, "address") == 0) {
        printf("%llx\n", (unsigned long long)block->address);
    } else if (strcmp(verb, "same") == 0) {
        printf("%s\n", find(first)->address == block->address ? "yes" : "no");
    } else if (strcmp(verb, "mark") == 0) {
        const unsigned value = (unsigned)number;
        printf("%d\n", (int)cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block->address));
    } else {
        printf("unknown: %s\n", verb);
    }
}

static void reset(void) {
    CUcontext primary;
    int code = (int)cuDevicePrimaryCtxReset(0);
    if (!code) code = (int)cuDevicePrimaryCtxRetain(&primary, 0);
    if (!code) code = (int)cuCtxSetCurrent(primary);
    printf("%d\n", code);
}

static void write_no_files(void) {
    static const struct rlimit none = {0, 0};
    printf("%d\n", setrlimit(RLIMIT_FSIZE, &none));
}

static void begin_child(void) {
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int fd = 0; fd < 3; fd++) close(fd);
        pause();
        _exit(0);
    }
    printf("%d\n", child < 0);
}

static void run_child(void) {
    const pid_t pid = fork();
    if (pid == 0) exit(0);
    int status = 1;
    waitpid(pid, &status, 0);
    printf("%d\n", status);
}

static void end_child(void) {
    kill(child, SIGKILL);
    printf("%d\n", waitpid(child, NULL, 0) != child);
}

int main(void) {
    CUcontext primary;
    static char line[4096];
    setvbuf(stdout, NULL, _IOLBF, 0);
    int code = (int)cuInit(0);
    if (!code) code = (int)cuDevicePrimaryCtxRetain(&primary, 0);
    if (!code) code = (int)cuCtxSetCurrent(primary);
    printf("%d\n", code);
    while (fgets(line, sizeof line, stdin)) {
        const char *verb = strtok(line, " \n"), *name = strtok(NULL, " \n"), *first = strtok(NULL, " \n"),
                   *second = strtok(NULL, " \n");
        if (strcmp(verb, "exit") == 0) {
            printf("0\n");
            return 0;
        }
        if (strcmp(verb, "reset") == 0)
            reset();
        else if (strcmp(verb, "no_files") == 0)
            write_no_files();
        else if (strcmp(verb, "child") == 0)
            run_child();
        else if (strcmp(verb, "fork") == 0)
            begin_child();
        else if (strcmp(verb, "child_ends") == 0)
            end_child();
        else
            work(verb, find(name), first, second ? strtoul(second, NULL, 10) : 0);
    }
    return 0;
}
