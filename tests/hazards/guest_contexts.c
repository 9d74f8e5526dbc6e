/* SPDX-License-Identifier: MIT
 *
 * A program over the driver whose blocks outlive, leave or return to their contexts: freed with another context
 * current, with none, with a dead one; contexts that end in every way and come back; ends that are none, since others
 * hold the context. Prints what the calls answer. The first argument says which.
 */
#include "guest_pointers.h"

#include <pthread.h>
#include <unistd.h>

#include <cuda.h>

#include "sim.h"

/* cuCtxAttach and cuCtxDetach are still there. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static CUcontext primary, second;
static CUstream stream;

static void begin(void) {
    alarm(60); /* what hangs fails */
    cuInit(0);
    cuDevicePrimaryCtxRetain(&primary, 0);
    cuCtxSetCurrent(primary);
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}

static int take(int async, CUdeviceptr *p, size_t bytes) {
    return (int)(async ? cuMemAllocAsync(p, bytes, stream) : cuMemAlloc(p, bytes));
}

/* A new block can be written and read. */
static int works(int async, size_t bytes) {
    CUdeviceptr p = 0;
    char byte = 0;
    const int code = take(async, &p, bytes) || cuMemsetD8Async(p, 7, bytes, NULL) || cuStreamSynchronize(NULL) ||
                     cuMemcpyDtoH(&byte, p + bytes - 1, 1) || cuMemFree(p);
    return code == 0 && byte == 7;
}

static int ordinal_of(CUdeviceptr p) {
    int ordinal = -1;
    return cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p) ? -1 : ordinal;
}

static size_t free_memory(void) {
    size_t bytes = 0, total;
    cuMemGetInfo(&bytes, &total);
    return bytes;
}

static void *in_a_thread(void *(*function)(void *), void *argument) {
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, function, argument);
    pthread_join(thread, &result);
    return result;
}

/* ---- on its own device ---- */

static void *free_bare(void *argument) {
    CUdeviceptr *p = argument;
    size_t bytes, total;
    printf("bare thread: info %d, free %d", (int)cuMemGetInfo(&bytes, &total), (int)cuMemFree(*p));
    printf(", free of another %d, of NULL %d", (int)cuMemFree(GARBAGE), (int)cuMemFree(0));
    printf(", on a stream %d\n", (int)cuMemFreeAsync(*p, stream));
    return NULL;
}

static void devices(void) {
    CUdeviceptr p, q;
    size_t before[2], after[2];
    begin();
    cuDevicePrimaryCtxRetain(&second, 1);
    for (int async = 0; async < 2; async++) {
        const char *kind = async ? "async" : "plain";
        before[0] = free_memory();
        cuCtxSetCurrent(second);
        before[1] = free_memory();
        cuCtxSetCurrent(primary);
        printf("%s: %d", kind, take(async, &p, 40 * MIB));
        printf(" %d", take(async, &q, 4096));
        cuCtxSetCurrent(second);
        printf(", on device %d", ordinal_of(p));
        printf(", freed with the other current: %d", (int)cuMemFree(p));
        printf(", again %d\n", (int)cuMemFree(p));
        cuCtxSetCurrent(NULL);
        printf("%s with none current: %d\n", kind, (int)cuMemFree(q));
        cuCtxSetCurrent(primary);
        printf("it stands: %d\n", (int)cuMemsetD8Async(q, 1, 4096, stream));
        in_a_thread(free_bare, &q);
        cuCtxSynchronize();
        /* The pool knows a moment later that a block has come back; and the driver's memory pools grow in steps. */
        for (int i = 0; i < 500 && (after[0] = free_memory()) + 32 * MIB < before[0]; i++) usleep(1000);
        cuCtxSetCurrent(second);
        after[1] = free_memory();
        printf("%s: free memory as before: %d %d\n", kind, after[0] + 32 * MIB >= before[0], after[1] == before[1]);
        printf("%s on the second: %d", kind, (int)cuMemAlloc(&p, 40 * MIB));
        printf(", on device %d", ordinal_of(p));
        printf(", freed %d\n", (int)cuMemFree(p));
        cuCtxSetCurrent(primary);
        printf("%s on the first: %d", kind, (int)cuMemAlloc(&p, 40 * MIB));
        printf(", on device %d", ordinal_of(p));
        printf(", freed %d\n", (int)cuMemFree(p));
        if (!async) cuMemFree(q);
    }
}

/* A free with the other device current waits for the block's device, and for no other. */
static void waits(void) {
    CUdeviceptr p, q;
    CUstream other;
    begin();
    cuDevicePrimaryCtxRetain(&second, 1);
    cuMemAlloc(&p, 4096);
    cuCtxSetCurrent(second);
    cuMemAlloc(&q, 4096);
    cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
    const struct sim_range range = {q, 4096, true};
    const struct sim_kernel endless = {.until_released = true, .ranges = &range, .range_count = 1};
    sim_launch(&endless, other);
    cuCtxSetCurrent(primary);
    const struct sim_range own = {p, 4096, true};
    const struct sim_kernel kernel = {.microseconds = 50000, .ranges = &own, .range_count = 1};
    sim_launch(&kernel, stream);
    cuCtxSetCurrent(second);
    printf("freed with the other current: %d", (int)cuMemFree(p));
    printf(", left on its device %zu, on the other %zu\n", sim_pending(primary), sim_pending(second));
    sim_release_kernels();
    printf("the other's: %d\n", (int)cuMemFree(q));
}

/* ---- ends, and lives after them ---- */

static int reset(CUcontext *context) {
    const int code = (int)cuDevicePrimaryCtxReset(0);
    return code || cuDevicePrimaryCtxRetain(context, 0) || cuCtxSetCurrent(*context);
}

static int release_all(CUcontext *context) {
    int code = 0, active = 1;
    unsigned int flags;
    for (int i = 0; i < 2 && !code; i++) code = (int)cuDevicePrimaryCtxRetain(context, 0);
    while (!code && active) {
        code = (int)cuDevicePrimaryCtxRelease(0);
        cuDevicePrimaryCtxGetState(0, &flags, &active);
        printf(" %d", active);
    }
    return code || cuDevicePrimaryCtxRetain(context, 0) || cuCtxSetCurrent(*context);
}

static int create_again(CUcontext *context) {
    return (int)cuCtxCreate(context, NULL, 0, 0);
}

static int destroy(CUcontext *context) {
    const int code = (int)cuCtxDestroy(*context);
    return code ? code : create_again(context);
}

static int detach(CUcontext *context) {
    const int code = (int)cuCtxDetach(*context);
    return code ? code : create_again(context);
}

/* The first detach is not the end. */
static int detach_all(CUcontext *context) {
    CUcontext attached = NULL, current;
    CUdeviceptr p = 0, kept;
    char byte = 0;
    int code = (int)cuMemAlloc(&kept, 4096) || cuMemsetD8(kept, 9, 4096);
    code = code || cuCtxAttach(&attached, 0) || cuCtxAttach(&attached, 0);
    for (int i = 0; i < 2; i++) {
        code = code || cuCtxDetach(*context) || cuCtxGetCurrent(&current) || current != *context;
        code = code || cuMemAlloc(&p, 4096) || cuMemFree(p);
    }
    code = code || cuMemcpyDtoH(&byte, kept + 4095, 1) || byte != 9 || cuMemFree(kept);
    printf(" %d %d", attached == *context, code);
    return code ? code : detach(context);
}

static void lives(void) {
    static const struct {
        const char *name;
        int (*end)(CUcontext *);
        int created;
    } ends[] = {{"reset", reset, 0},
                {"last release", release_all, 0},
                {"destroy", destroy, 1},
                {"detach", detach, 1},
                {"last detach", detach_all, 1}};
    begin();
    for (size_t i = 0; i < COUNT(ends); i++) {
        CUcontext context = primary;
        CUdeviceptr cached[4], live[2], surviving;
        printf("%s:", ends[i].name);
        int code = ends[i].created ? create_again(&context) : 0;
        for (int round = 0; round < 2; round++) {
            for (int j = 0; j < 4; j++) code |= (int)cuMemAlloc(&cached[j], j % 2 ? 4096 : 3 * MIB);
            code |= (int)cuMemAlloc(&live[0], 4096) | (int)cuMemAlloc(&live[1], 20 * MIB);
            code |= (int)cuMemAllocAsync(&surviving, 4096, CU_STREAM_LEGACY);
            for (int j = 0; j < 4; j++) code |= (int)cuMemFree(cached[j]);
            printf(" made %d, ended", code);
            printf(" %d", ends[i].end(&context));
            printf(", old ones freed %d %d %d %d", (int)cuMemFree(live[0]), (int)cuMemFree(live[1]),
                   (int)cuMemFree(cached[0]), (int)cuMemFree(cached[1]));
            printf(", survivor %d", (int)cuMemFree(surviving));
            printf(" %d", (int)cuMemFree(surviving));
            printf(", new ones work %d %d %d;", works(0, 4096), works(0, 3 * MIB), works(0, 20 * MIB));
        }
        puts("");
        if (!ends[i].created) continue;
        cuCtxDestroy(context);
        cuCtxSetCurrent(primary);
        printf("the primary works: %d\n", works(0, 4096));
    }
}

/* ---- ends that are none ---- */

static CUgreenCtx green_of(CUdevice device) {
    CUdevResource whole, part;
    CUdevResourceDesc description;
    CUgreenCtx green = NULL;
    unsigned int count = 1;
    int code = (int)cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM);
    code = code || cuDevSmResourceSplitByCount(&part, &count, &whole, NULL, 0, 8);
    code = code || cuDevResourceGenerateDesc(&description, &part, 1);
    code = code || cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
    return code ? NULL : green;
}

static CUcontext held; /* current to the allocating thread */

/* Its allocation waits in the driver for the kernel (SIM_ALLOC_WAITS): it is larger than what was freed before. */
static void *allocate(void *unused) {
    static size_t bytes = 10 * MIB;
    CUdeviceptr p = 0;
    (void)unused;
    bytes *= 4;
    cuCtxSetCurrent(held);
    const int code = (int)cuMemAlloc(&p, bytes);
    printf("allocated beside it: %d", code);
    printf(", freed %d\n", (int)cuMemFree(p));
    return NULL;
}

static void beside_an_allocation(const char *what, int (*let_go)(void)) {
    pthread_t thread;
    CUstream on;
    const struct sim_kernel endless = {.until_released = true};
    cuStreamCreate(&on, CU_STREAM_NON_BLOCKING);
    sim_launch(&endless, on);
    const uint64_t calls = sim_calls("cuMemAlloc_v2");
    pthread_create(&thread, NULL, allocate, NULL);
    while (sim_calls("cuMemAlloc_v2") == calls) usleep(1000);
    usleep(20000);
    printf("%s: %d\n", what, let_go());
    sim_release_kernels(); /* only now */
    pthread_join(thread, NULL);
    cuStreamDestroy(on);
    printf("works on: %d\n", works(0, 4096));
}

static int release(void) {
    return (int)cuDevicePrimaryCtxRelease(0);
}

static int detach_once(void) {
    return (int)cuCtxDetach(held);
}

static CUgreenCtx green;

static int destroy_green(void) {
    return (int)cuGreenCtxDestroy(green);
}

static void held_by_others(void) {
    CUcontext again;
    CUdeviceptr kept;
    char byte = 0;
    begin();
    held = primary;
    cuMemAlloc(&kept, 4096);
    cuMemsetD8(kept, 5, 4096);
    cuDevicePrimaryCtxRetain(&again, 0);
    cuDevicePrimaryCtxRetain(&again, 0);
    beside_an_allocation("one release of three", release);
    beside_an_allocation("one release of two", release);
    green = green_of(0);
    printf("green: %d\n", green != NULL);
    beside_an_allocation("a green context's end", destroy_green);
    printf("kept: %d", (int)cuMemcpyDtoH(&byte, kept, 1));
    printf(", %d", byte);
    printf(", freed %d\n", (int)cuMemFree(kept));
    cuCtxCreate(&held, NULL, 0, 0);
    cuCtxAttach(&again, 0);
    beside_an_allocation("one detach of two", detach_once);
    printf("the last detach: %d\n", (int)cuCtxDetach(held));
}

/* Threads that retain and release beside each other; the last one ends the context. */
static void *hold_now_and_then(void *bad) {
    CUcontext context;
    for (int i = 0; i < 60; i++) {
        if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) *(int *)bad |= 1;
        if (!works(0, 4096 * (size_t)(1 + i % 5))) *(int *)bad |= 2;
        cuCtxSetCurrent(NULL);
        if (cuDevicePrimaryCtxRelease(0)) *(int *)bad |= 4;
    }
    return NULL;
}

static void held_by_threads(void) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    int bad[THREADS] = {0}, active = 1;
    unsigned int flags;
    begin();
    cuCtxSetCurrent(NULL);
    cuDevicePrimaryCtxRelease(0);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, hold_now_and_then, &bad[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    cuDevicePrimaryCtxGetState(0, &flags, &active);
    printf("bad: %d %d %d %d, active %d, invariants broken: %s\n", bad[0], bad[1], bad[2], bad[3], active,
           broken_invariant());
}

/* ---- a dead context is current ---- */

static void *destroy_it(void *context) {
    printf("destroyed by another thread: %d\n", (int)cuCtxDestroy(context));
    return NULL;
}

static void say_frees(const char *when, CUdeviceptr async, CUdeviceptr plain, CUstream on) {
    CUdeviceptr p = 0;
    printf("%s: async %d", when, (int)cuMemFree(async));
    printf(", plain of the other device %d", (int)cuMemFree(plain));
    printf(", on a stream there %d", (int)cuMemFreeAsync(plain, on));
    printf(", on the default stream %d", (int)cuMemFreeAsync(async, NULL));
    printf(", garbage %d, NULL %d", (int)cuMemFree(GARBAGE), (int)cuMemFree(0));
    printf(", allocated %d", (int)cuMemAlloc(&p, 4096));
    if (p) cuMemFree(p);
    printf(" %d\n", (int)cuMemAllocAsync(&p, 4096, NULL));
}

static void dead(void) {
    CUdeviceptr async = 0, plain[2] = {0};
    CUcontext created;
    CUstream on;
    begin();
    cuDevicePrimaryCtxRetain(&second, 1);
    cuCtxSetCurrent(second);
    cuStreamCreate(&on, CU_STREAM_NON_BLOCKING);
    cuMemAlloc(&plain[0], 4096);
    cuMemAlloc(&plain[1], 4096);
    cuCtxSetCurrent(primary);
    cuMemAllocAsync(&async, 4096, CU_STREAM_LEGACY);
    cuCtxSynchronize();
    printf("reset: %d\n", (int)cuDevicePrimaryCtxReset(0));
    say_frees("after it", async, plain[0], on);
    cuDevicePrimaryCtxRetain(&primary, 0);
    say_frees("retained", async, plain[0], on);

    cuCtxCreate(&created, NULL, 0, 0);
    cuMemAllocAsync(&async, 4096, CU_STREAM_LEGACY);
    cuCtxSynchronize();
    in_a_thread(destroy_it, created);
    say_frees("destroyed", async, plain[1], on);
    cuCtxSetCurrent(primary);
    say_frees("primary", async, plain[1], on);
}

/* ---- how often a context is retained is the program's ---- */

static void *end_at_last(void *unused) {
    (void)unused;
    CUdeviceptr p;
    cuCtxSetCurrent(second);
    cuMemAllocAsync(&p, 4096, NULL);
    cuMemFreeAsync(p, NULL);
    cuCtxSetCurrent(NULL);
    return NULL;
}

static void retains(void) {
    CUdeviceptr p[200], q;
    CUcontext created;
    begin();
    cuDevicePrimaryCtxRetain(&second, 1);
    cuCtxCreate(&created, NULL, 0, 0);
    cuCtxSetCurrent(primary);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT(p); i++) take((int)i % 2, &p[i], 4096 * (1 + i % 7));
        for (size_t i = 0; i < COUNT(p); i++) cuMemFree(p[i]);
        cuMemAlloc(&q, 40 * MIB);
        cuCtxSetCurrent(second);
        cuMemFree(q);
        in_a_thread(end_at_last, NULL);
        cuMemAlloc(&q, 40 * MIB);
        cuMemFree(q);
        cuCtxSetCurrent(primary);
    }
    cuCtxDestroy(created);
    cuDevicePrimaryCtxReset(1);
    printf("retained %d times, released %d times", (int)sim_calls("cuDevicePrimaryCtxRetain"),
           (int)sim_calls("cuDevicePrimaryCtxRelease"));
    printf("; works %d\n", works(0, 4096));
}

int main(int argc, char **argv) {
    static const struct part parts[] = {
        {"devices", devices},         {"waits", waits}, {"lives", lives},    {"held", held_by_others},
        {"threads", held_by_threads}, {"dead", dead},   {"retains", retains}};
    return run_part(argc, argv, parts, COUNT(parts));
}
