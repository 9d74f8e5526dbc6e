/* SPDX-License-Identifier: MIT
 *
 * Exports a block to a program that is not pooled and holds it open by the driver's own handle, as a registration with
 * a network card does; then memory around the block comes, goes and runs out. Whatever is written to the block's
 * address must be what the other reads.
 *
 *     hazard_backing                exports, and says of each round whether the other read it
 *     hazard_backing IN OUT         the other: reads commands from the one descriptor, answers on the other
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>

#define MIB ((size_t)1 << 20)

enum { BLOCK = 1 << 20, NEIGHBOURS = 24, ROUNDS = 6 };

static bool get(int file, void *bytes, size_t length) {
    return read(file, bytes, length) == (ssize_t)length;
}

static bool put(int file, const void *bytes, size_t length) {
    return write(file, bytes, length) == (ssize_t)length;
}

static bool initialise(void) {
    CUcontext context;
    return !cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context);
}

/* ---- the other ---- */

static int import_and_read(int in, int out) {
    static unsigned char bytes[BLOCK];
    CUipcMemHandle handle;
    CUdeviceptr p;
    unsigned char expected;
    if (!initialise() || !get(in, &handle, sizeof handle)) return 1;
    const CUresult code = cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (!put(out, &code, sizeof code) || code) return 1;
    while (get(in, &expected, 1)) {
        unsigned wrong = cuMemcpyDtoH(bytes, p, BLOCK) != CUDA_SUCCESS;
        for (size_t i = 0; i < BLOCK; i++) wrong += bytes[i] != expected;
        if (!put(out, &wrong, sizeof wrong)) return 1;
    }
    return cuIpcCloseMemHandle(p) != CUDA_SUCCESS;
}

static pid_t start_other(const char *path, int *to, int *from) {
    int there[2], back[2];
    if (pipe(there) || pipe(back)) exit(1);
    const pid_t other = fork();
    if (other == 0) {
        char in[16], out[16];
        close(there[1]);
        close(back[0]);
        snprintf(in, sizeof in, "%d", there[0]);
        snprintf(out, sizeof out, "%d", back[1]);
        unsetenv("LD_PRELOAD");
        execl(path, path, in, out, (char *)NULL);
        _exit(127);
    }
    close(there[0]);
    close(back[1]);
    *to = there[1];
    *from = back[0];
    return other;
}

/* ---- the exporter ---- */

/* Neighbours of all sizes come and go, large ones too; then more is asked for than there is, and all that can be given
 * back is. */
static void disturb(int round) {
    CUdeviceptr blocks[NEIGHBOURS] = {0}, p;
    for (int i = 0; i < NEIGHBOURS; i++)
        if (cuMemAlloc(&blocks[i], (size_t)(1 + (i * 7 + round) % 11) * (i % 5 == 0 ? 9 * MIB : 300 << 10))) exit(1);
    for (int i = round % 2; i < NEIGHBOURS; i += 2) {
        if (cuMemFree(blocks[i])) exit(1);
        blocks[i] = 0;
    }
    if (cuMemAlloc(&p, (size_t)1 << 50) != CUDA_ERROR_OUT_OF_MEMORY) exit(1);
    for (int i = 0; i < NEIGHBOURS; i++)
        if (blocks[i] && cuMemFree(blocks[i])) exit(1);
    if (cuMemAlloc(&p, (size_t)1 << 50) != CUDA_ERROR_OUT_OF_MEMORY) exit(1);
}

int main(int argc, char **argv) {
    int to, from, status = 0;
    CUipcMemHandle handle, again;
    CUdeviceptr block, base;
    CUresult code = CUDA_ERROR_UNKNOWN;
    size_t size;
    if (argc == 3) return import_and_read(atoi(argv[1]), atoi(argv[2]));
    const pid_t other = start_other(argv[0], &to, &from);
    if (!initialise() || cuMemAlloc(&block, BLOCK) || cuIpcGetMemHandle(&handle, block)) return 1;
    if (!put(to, &handle, sizeof handle) || !get(from, &code, sizeof code)) return 1;
    printf("opened: %d\n", (int)code);
    for (int round = 1; round <= ROUNDS; round++) {
        const unsigned char pattern = (unsigned char)(round * 37);
        unsigned wrong = 1;
        disturb(round);
        if (cuMemsetD8(block, pattern, BLOCK) || cuCtxSynchronize() || cuMemGetAddressRange(&base, &size, block))
            return 1;
        if (!put(to, &pattern, 1) || !get(from, &wrong, sizeof wrong)) return 1;
        memset(&again, 0, sizeof again);
        cuIpcGetMemHandle(&again, block);
        printf("round %d: wrong bytes %u, its range %d, its handle as before %d\n", round, wrong,
               base == block && size == BLOCK, memcmp(&handle, &again, sizeof handle) == 0);
    }
    close(to);
    waitpid(other, &status, 0);
    printf("the other: %d, freed: %d\n", WEXITSTATUS(status), (int)cuMemFree(block));
    return 0;
}
