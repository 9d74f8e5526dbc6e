/* SPDX-License-Identifier: MIT
 *
 * A program over a runtime with no driver below it. Prints what its calls answer, for comparing a native run with a
 * pooled one. The first argument says which calls.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lone_runtime.h"
#include "sequence.h"

#define SAY(call)                                                                \
    do {                                                                         \
        const int code_said = (call);                                            \
        printf("%s: %d, last error %d\n", #call, code_said, cudaGetLastError()); \
    } while (0)
/* A wrong free of a block's address is the pool's to refuse: the runtime does not hear of it. */
#define SAY_CODE(call)                          \
    do {                                        \
        printf("%s: %d\n", #call, (int)(call)); \
        cudaGetLastError();                     \
    } while (0)

static void say_answers(void) {
    char *p = NULL, *q = NULL;
    SAY(cudaFree(NULL));
    SAY(cudaMalloc((void **)&p, 0));
    SAY(cudaMalloc(NULL, 16));
    SAY(cudaMalloc((void **)&p, SIZE_MAX));
    SAY(cudaMalloc((void **)&p, 65 * MIB));
    SAY(cudaMalloc((void **)&p, 4096));
    SAY(cudaMalloc((void **)&q, 4096));
    SAY_CODE(cudaFree(p + 512));
    SAY(cudaFree(p));
    SAY_CODE(cudaFree(p));
    SAY_CODE(cudaFreeAsync(p, NULL));
    SAY(cudaFreeAsync(q, NULL));
    SAY_CODE(cudaFree(q));
    SAY(cudaFree(&q));
    SAY(cudaMallocAsync((void **)&p, 4096, NULL));
    SAY(cudaFreeAsync(p, NULL));
    SAY(cudaMallocAsync((void **)&p, 4096, NULL));
    SAY(cudaFree(p));
    SAY(cudaFreeAsync(NULL, NULL));
}

static void say_memory_info(void) {
    size_t before = 0, now = 0, total = 0;
    void *p;
    SAY(cudaMemGetInfo(&before, &total));
    printf("total: %zu\n", total);
    SAY(cudaMalloc(&p, 20 * MIB));
    SAY(cudaMemGetInfo(&now, &total));
    printf("gone while live: %d\n", before - now >= 20 * MIB);
    SAY(cudaFree(p));
    SAY(cudaMemGetInfo(&now, &total));
    printf("free after the free as before: %d\n", now == before);
    SAY(cudaMemGetInfo(NULL, &total));
    SAY(cudaMemGetInfo(NULL, NULL));
}

/* Nearly full: the pool's own attempts may fail on the way, and nobody is to notice. */
static void say_full(void) {
    void *p[16], *more;
    int taken = 0;
    while (taken < 15 && cudaMalloc(&p[taken], 4 * MIB) == 0) taken++;
    printf("taken: %d\n", taken);
    SAY(0);
    SAY(cudaMalloc(&p[15], 2 * MIB));
    SAY(cudaMalloc(&more, 6 * MIB));
    for (int i = 0; i < 16; i++)
        if (cudaFree(p[i])) printf("free %d\n", i);
    SAY(cudaMalloc(&more, 50 * MIB));
    SAY(cudaFree(more));
}

static int device_now(void) {
    int device = -1;
    cudaGetDevice(&device);
    return device;
}

static void say_devices(void) {
    void *p, *q;
    SAY(cudaSetDevice(1));
    SAY(cudaMalloc(&p, 4096));
    SAY(cudaSetDevice(0));
    SAY(cudaMalloc(&q, 4096));
    printf("on device %d and %d\n", lone_holds(p) - 1, lone_holds(q) - 1);
    SAY(cudaSetDevice(1));
    SAY(cudaLaunchKernel(NULL));
    SAY(cudaSetDevice(0));
    SAY(cudaLaunchKernel(NULL));
    SAY(cudaFree(p));
    printf("under way: %d %d, device %d\n", lone_pending(0), lone_pending(1), device_now());
    SAY(cudaFree(q));
    printf("under way: %d %d, device %d\n", lone_pending(0), lone_pending(1), device_now());
}

static void say_reset(void) {
    void *p, *q;
    for (int life = 0; life < 3; life++) {
        SAY(cudaMalloc(&p, 4096));
        SAY(cudaMalloc(&q, 4096));
        printf("the runtime's memory: %d\n", lone_holds(p) == 1 && lone_holds(q) == 1);
        SAY(cudaFree(p)); /* cached */
        SAY(cudaDeviceReset());
        SAY(cudaFree(q));
    }
}

/* 40 MiB of the 64 that there are. */
static void say_limit(void) {
    void *p;
    SAY(cudaMalloc(&p, 4096));
    SAY(cudaMalloc(&p, 40 * MIB));
}

static void say_fork(void) {
    void *p, *q;
    SAY(cudaMalloc(&p, 20 * MIB));
    SAY(cudaFree(p));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        SAY(cudaMalloc(&q, 20 * MIB));
        printf("the runtime's own: %d\n", (int)cudaFree(q));
        printf("cached: %d\n", lone_holds(q));
        fflush(stdout);
        _exit(3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("child's status: %d\n", WEXITSTATUS(status));
}

static void say_errno(void) {
    void *p;
    size_t a, b;
#define KEEPS(call) \
    errno = 77;     \
    (void)(call);   \
    printf("%s: errno %s\n", #call, errno == 77 ? "kept" : "changed")
    KEEPS(cudaMalloc(&p, 4096));
    KEEPS(cudaFree(p));
    KEEPS(cudaFree(p));
    KEEPS(cudaMallocAsync(&p, 4096, NULL));
    KEEPS(cudaFreeAsync(p, NULL));
    KEEPS(cudaMemGetInfo(&a, &b));
    KEEPS(cudaDeviceReset());
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*say)(void);
    } parts[] = {{"answers", say_answers}, {"memory_info", say_memory_info},
                 {"full", say_full},       {"devices", say_devices},
                 {"reset", say_reset},     {"limit", say_limit},
                 {"fork", say_fork},       {"errno", say_errno}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; argc >= 2 && i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        parts[i].say();
        if (argc == 3) wait_for_reader();
        return 0;
    }
    return 2;
}
