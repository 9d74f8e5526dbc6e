/* SPDX-License-Identifier: MIT
 *
 * A program for `doctor`: allocates once, and says "ready PID" of the process to look at, until its standard input
 * ends.
 *
 *   fork     that is a child, forked after the allocation
 *   export   allocates in stream order, too, while a memory pool of its own that can be exported is current
 *   twice    frees its block twice
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void stay(void) {
    for (char byte; read(STDIN_FILENO, &byte, 1) > 0;) continue;
}

static int say_ready(void) {
    printf("ready %d\n", getpid());
    fflush(stdout);
    stay();
    return 0;
}

static int allocate_from_own_pool(void) {
    const struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                                .handleTypes = cudaMemHandleTypePosixFileDescriptor,
                                                .location = {.type = cudaMemLocationTypeDevice}};
    cudaMemPool_t own;
    void *block;
    if (cudaMemPoolCreate(&own, &properties) != cudaSuccess || cudaDeviceSetMemPool(0, own) != cudaSuccess) return 1;
    for (int i = 0; i < 3; i++)
        if (cudaMallocAsync(&block, 1000, NULL) != cudaSuccess) return 1;
    return 0;
}

int main(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    void *block;
    /* Where nobody finds the driver it fails, and doctor is to say why. */
    (void)cudaMalloc(&block, 1000);
    if (strcmp(word, "twice") == 0) {
        cudaFree(block);
        cudaFree(block);
    } else if (strcmp(word, "export") == 0) {
        if (allocate_from_own_pool() != 0) return 4;
    } else if (strcmp(word, "fork") == 0) {
        const pid_t child = fork();
        if (child == 0) _exit(say_ready());
        waitpid(child, NULL, 0);
        return 0;
    }
    return say_ready();
}
