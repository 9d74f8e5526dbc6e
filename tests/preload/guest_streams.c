/* SPDX-License-Identifier: MIT
 *
 * A program over the driver whose streams and contexts come and go, were made by nobody, or are asked for by an old
 * driver. Prints whether calls waited and which memory was given out; the first argument says what to do.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stream_guest.h"

static const struct sim_kernel endless = {.until_released = true};

/* ---- handles that come back ---- */

static void make_stream(CUstream *stream, bool seen) {
    must(seen ? cuStreamCreate(stream, CU_STREAM_NON_BLOCKING)
              : (CUresult)sim_stream_create((void **)stream, CU_STREAM_NON_BLOCKING));
}

static void destroy_stream(CUstream stream, bool seen) {
    must(seen ? cuStreamDestroy(stream) : (CUresult)sim_stream_destroy(stream));
}

/* A stream is destroyed while its kernel uses a block that was freed on it. When the kernel has ended, which nobody has
 * observed, the stream's handle comes back: to another stream, which nothing orders after that kernel. `seen`: by calls
 * that have hooks. */
static void say_handle(bool seen) {
    for (int round = 0; round < 20; round++) {
        CUstream old = NULL, next = NULL;
        make_stream(&old, seen);
        CUdeviceptr block = take_noted(4096, old);
        const struct sim_range range = {block, 4096, true};
        const struct sim_kernel kernel = {.microseconds = 5000, .ranges = &range, .range_count = 1};
        must((CUresult)sim_launch(&kernel, old));
        release_noted(block, old);
        destroy_stream(old, seen);
        CUstream meanwhile[1000];
        int made = 0;
        for (; made < 1000 && next != old; meanwhile[made++] = next) {
            nanosleep(&(struct timespec){0, 1000000}, NULL);
            make_stream(&next, seen);
        }
        if (next != old) printf("the handle did not come back\n");
        while (--made >= 0)
            if (meanwhile[made] != next) destroy_stream(meanwhile[made], seen);
        for (int i = 0; i < 4; i++) {
            block = take_noted(4096, next);
            must(cuMemsetD8Async(block, 1, 4096, next));
            release_noted(block, next);
        }
        destroy_stream(next, seen);
    }
    say_races();
}

static void say_seen_handle(void) {
    say_handle(true);
}

static void say_unseen_handle(void) {
    say_handle(false);
}

/* ---- streams that no hook has seen ---- */

static void say_unseen(void) {
    void *unseen = NULL, *another = NULL;
    must((CUresult)sim_stream_create(&unseen, CU_STREAM_NON_BLOCKING));
    must((CUresult)sim_stream_create(&another, CU_STREAM_NON_BLOCKING));
    CUdeviceptr block = take(4096, unseen), again;
    must((CUresult)sim_launch(&endless, unseen));
    must(cuMemFreeAsync(block, unseen));
    again = take(4096, unseen);
    printf("on itself: %s\n", which(again == block));
    must(cuMemFreeAsync(again, unseen));
    again = take(4096, another);
    printf("on another: %s\n", which(again == block));
    must(cuMemFreeAsync(again, another));
    printf("and is %s\n", state_of(unseen));
    sim_release_kernels();
    must(cuCtxSynchronize());
    /* Through the program's door it ends like any other. */
    SAY(cuStreamDestroy(unseen));
    SAY(sim_stream_destroy(another));
}

/* ---- the free of plain memory ---- */

/* With POOL_FREE=event cuMemFree returns at once, and the block waits for the kernel; else the call does. */
static void say_free(void) {
    CUstream busy = stream_new();
    CUdeviceptr block = take_plain(4096), next;
    const struct sim_range range = {block, 4096, true};
    const struct sim_kernel kernel = {.microseconds = 300000, .ranges = &range, .range_count = 1};
    must((CUresult)sim_launch(&kernel, busy));
    must(cuMemFree(block));
    printf("after the free: %s\n", state_of(busy));
    next = take_plain(4096);
    printf("at once: %s\n", which(next == block));
    printf("after the allocation: %s\n", state_of(busy));
    const CUdeviceptr other = next;
    must(cuCtxSynchronize());
    bool found = next == block;
    for (unsigned i = 0; i < 16 * MIB / 4096 + 200 && !found; i++) found = (next = take_plain(4096)) == block;
    printf("after the kernel's end: %s\n", which(found));
    must(cuMemFree(other));
}

static void write_seven(void *unused, void *const *pointers) {
    (void)unused;
    memset(pointers[0], 7, MIB);
}

static void *free_elsewhere(void *block) {
    CUcontext other;
    must(cuDevicePrimaryCtxRetain(&other, 1));
    must(cuCtxSetCurrent(other));
    must(cuMemFree((CUdeviceptr)(uintptr_t)block));
    return NULL;
}

/* A kernel's result is on its way to the host when some memory is freed, by this thread or by one that uses another
 * device; then the host reads, and the program never waited. */
static void say_host_read(void) {
    static const char *const names[] = {"a non-blocking stream", "a blocking one", "the legacy stream",
                                        "the thread's own"};
    CUstream streams[] = {stream_new(), NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    unsigned char *host = NULL;
    must(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    must(cuMemHostAlloc((void **)&host, MIB, 0));
    for (int i = 0; i < 8; i++) {
        const CUstream stream = streams[i % 4];
        const CUdeviceptr block = take_plain(MIB), unused = take_plain(4096);
        const struct sim_range range = {block, MIB, true};
        const struct sim_kernel kernel = {
            .microseconds = 30000, .ranges = &range, .range_count = 1, .run = write_seven};
        size_t right = 0;
        memset(host, 0, MIB);
        must((CUresult)sim_launch(&kernel, stream));
        must(cuMemcpyDtoHAsync(host, block, MIB, stream));
        if (i < 4) {
            must(cuMemFree(unused));
        } else {
            pthread_t thread;
            pthread_create(&thread, NULL, free_elsewhere, (void *)(uintptr_t)unused);
            pthread_join(thread, NULL);
        }
        for (size_t k = 0; k < MIB; k++) right += host[k] == 7;
        printf("%s%s: %zu bytes are right\n", names[i % 4], i < 4 ? "" : ", freed elsewhere", right);
        must(cuCtxSynchronize());
        must(cuMemFree(block));
    }
    must(cuMemFreeHost(host));
}

/* cuMemFreeAsync of plain memory orders it after the stream, in its own kind. */
static void say_free_in_order(void) {
    CUstream busy = stream_new();
    CUdeviceptr block = take_plain(4096), next;
    must((CUresult)sim_launch(&endless, busy));
    must(cuMemFreeAsync(block, busy));
    printf("after the free: %s\n", state_of(busy));
    next = take_plain(4096);
    printf("to a plain allocation: %s\n", which(next == block));
    const CUdeviceptr on_stream = take(4096, busy);
    printf("to one on the stream: %s\n", which(on_stream == block));
    must(cuMemFreeAsync(on_stream, busy));
    printf("after the allocations: %s\n", state_of(busy));
    sim_release_kernels();
    must(cuCtxSynchronize());
    must(cuMemFree(next));
}

/* ---- 64 streams used once each, then one ---- */

static void say_once(void) {
    enum { STREAMS = 64 };
    CUstream streams[STREAMS], one = stream_new();
    CUdeviceptr kept[STREAMS];
    for (unsigned i = 0; i < STREAMS; i++) {
        streams[i] = stream_new();
        kept[i] = take(MIB, streams[i]);
        must(cuMemsetD8Async(kept[i], 1, MIB, streams[i]));
    }
    for (unsigned i = 0; i < STREAMS; i++) must(cuMemFreeAsync(kept[i], streams[i]));
    must(cuCtxSynchronize());
    wait_for_reader();
    for (unsigned i = 0; i < STREAMS; i++) kept[i] = take(MIB, one);
    for (unsigned i = 0; i < STREAMS; i++) must(cuMemFreeAsync(kept[i], one));
    must(cuCtxSynchronize());
}

/* Threads that come and go, each with a default stream of its own. */
static void *take_and_go(void *unused) {
    (void)unused;
    must(cuCtxSetCurrent(primary));
    for (int i = 0; i < 4; i++) must(cuMemFreeAsync(take(MIB, CU_STREAM_PER_THREAD), CU_STREAM_PER_THREAD));
    return NULL;
}

static void say_many_threads(void) {
    for (int i = 0; i < 2000; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, take_and_go, NULL);
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < 2000; i++) {
        CUstream stream = stream_new();
        must(cuMemFreeAsync(take(MIB, stream), stream));
        must(cuStreamDestroy(stream));
    }
}

/* ---- what is asked about a block ---- */

static void say_attributes_of(const char *what, CUdeviceptr p, CUdeviceptr start) {
    CUdeviceptr base = 1;
    CUmemoryPool pool = NULL, current = NULL;
    CUcontext context = primary;
    size_t size = 1;
    unsigned int type = 77;
    int ordinal = 77;
    unsigned long long id = 0;
    must(cuDeviceGetMemPool(&current, 0));
    printf("%s: start %d", what, (int)cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p));
    printf(" is right %d\n", base == start);
    printf("%s: size %d", what, (int)cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p));
    printf(" is %zu\n", size);
    printf("%s: memory type %d", what, (int)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    printf(" is %u\n", type);
    printf("%s: ordinal %d", what, (int)cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    printf(" is %d\n", ordinal);
    printf("%s: pool %d", what, (int)cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    printf(" is the current one %d\n", pool == current);
    printf("%s: context %d", what, (int)cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    printf(" is none %d\n", context == NULL);
    printf("%s: id %d\n", what, (int)cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    base = size = 1;
    printf("%s: range %d", what, (int)cuMemGetAddressRange(&base, &size, p));
    printf(" starts there %d, size %zu\n", base == start, size);
}

static void say_attributes(void) {
    CUstream stream = stream_new();
    const CUdeviceptr first = take(4096, stream), odd = take(1000, stream), last = take(4096, stream);
    say_attributes_of("at the start", odd, odd);
    say_attributes_of("inside", odd + 999, odd);
    say_attributes_of("past the end", odd + 1000, 0);
    CUipcMemHandle handle;
    SAY(cuIpcGetMemHandle(&handle, odd));
    SAY(cuMemFreeAsync(first, stream));
    SAY(cuMemFreeAsync(odd, stream));
    SAY(cuMemFreeAsync(last, stream));
}

/* ---- a child ---- */

/* The driver does not work in a forked child, nor does the pool, whatever it had at hand. */
static void say_fork(void) {
    CUstream stream = stream_new();
    CUdeviceptr p = take(4096, stream), q = take(4096, CU_STREAM_LEGACY), r = 0;
    must(cuMemFreeAsync(take(4096, stream), stream));
    const pid_t child = fork();
    if (child == 0) {
        SAY(cuMemAllocAsync(&r, 4096, stream));
        SAY(cuMemAllocAsync(&r, 4096, CU_STREAM_LEGACY));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemFreeAsync(q, CU_STREAM_LEGACY));
        SAY(cuMemFree(q));
        SAY(cuStreamDestroy(stream));
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    printf("the child: %d\n", status);
    SAY(cuMemAllocAsync(&r, 4096, stream));
    SAY(cuMemFreeAsync(r, stream));
    SAY(cuMemFreeAsync(p, stream));
    SAY(cuMemFreeAsync(q, CU_STREAM_LEGACY));
    SAY(cuStreamDestroy(stream));
}

/* ---- created contexts ---- */

/* Handles of contexts come back late: creates and destroys until one does, and so the next ones do. */
static void use_up_handles(void) {
    CUcontext created, last = NULL;
    for (int tries = 0; tries < 100000; tries++) {
        must(cuCtxCreate(&created, NULL, 0, 0));
        must(cuCtxDestroy(created));
        if (created == last) break;
        last = created;
    }
    must(cuCtxSetCurrent(primary));
}

static void say_created(void) {
    CUcontext created, again;
    char byte = 0;
    use_up_handles();
    must(cuCtxCreate(&created, NULL, 0, 0));
    for (int round = 0; round < 2; round++) {
        CUstream stream = stream_new();
        CUdeviceptr plain = take_plain(4096), ordered = take(4096, stream), kept;
        must(cuMemFree(take_plain(4096))); /* cached */
        must(cuMemsetD8(plain, 5, 4096));
        must(cuMemsetD8Async(ordered, 6, 4096, stream));
        must(cuMemFreeAsync(ordered, stream));
        kept = take(4096, stream);
        must(cuMemsetD8Async(kept, (unsigned char)(10 + round), 4096, stream));
        must((CUresult)sim_launch(&(struct sim_kernel){.microseconds = 20000}, stream));
        must(cuMemFreeAsync(take(4096, stream), stream));
        SAY(cuCtxDestroy(created));
        SAY(cuCtxSetCurrent(primary));
        SAY(cuMemcpyDtoH(&byte, kept, 1));
        printf("the ordered block holds: %d\n", byte == 10 + round);
        SAY(cuMemFree(plain)); /* it went with its context */
        SAY(cuMemFree(kept));
        must(cuCtxCreate(&again, NULL, 0, 0));
        printf("the handle came back: %d\n", again == created);
        SAY(cuMemFree(plain));
        plain = take_plain(4096);
        SAY(cuMemsetD8(plain, 1, 4096));
        SAY(cuMemFree(plain));
    }
}

/* ---- a green context ends ---- */

static CUgreenCtx make_green(void) {
    CUdevResource whole, part;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned int one = 1;
    must(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
    must(cuDevSmResourceSplitByCount(&part, &one, &whole, NULL, 0, 8));
    must(cuDevResourceGenerateDesc(&description, &part, 1));
    must(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

/* How many of the three blocks are given out now, by allocations that take all there is and keep it. */
static int given(const CUdeviceptr *blocks, CUstream stream) {
    const size_t bytes = MIB / 16;
    int found = 0;
    for (int i = 0; i < 1300; i++) {
        const CUdeviceptr p = take(bytes, stream);
        for (int k = 0; k < 3; k++) found += p <= blocks[k] && blocks[k] < p + bytes;
    }
    return found;
}

/* Its streams are gone, and their work goes on. */
static void say_green(void) {
    CUgreenCtx green = make_green();
    CUcontext context;
    CUstream on_primary = stream_new(), streams[3] = {CU_STREAM_LEGACY, NULL, NULL};
    CUdeviceptr blocks[3];
    must(cuCtxFromGreenCtx(&context, green));
    must(cuCtxSetCurrent(context));
    streams[1] = stream_new();
    must(cuGreenCtxStreamCreate(&streams[2], green, CU_STREAM_NON_BLOCKING, 0));
    for (int i = 0; i < 3; i++) {
        blocks[i] = take(4096, streams[i]);
        must((CUresult)sim_launch(&endless, streams[i]));
        must(cuMemFreeAsync(blocks[i], streams[i]));
    }
    must(cuCtxSetCurrent(primary));
    printf("given out before the end: %d\n", given(blocks, on_primary));
    SAY(cuGreenCtxDestroy(green));
    printf("after it: %d\n", given(blocks, on_primary));
    sim_release_kernels();
    must(cuCtxSynchronize());
    printf("after the kernels: %d\n", given(blocks, on_primary));
    SAY(cuGreenCtxDestroy(green));
}

/* The primary context ends with the green one that holds it last. */
static void say_last_green(void) {
    CUgreenCtx green = make_green();
    CUdeviceptr kept, p;
    unsigned int flags;
    int active = 1;
    kept = take_plain(4096);
    must(cuMemFree(take_plain(4096)));
    SAY(cuDevicePrimaryCtxRelease(0));
    SAY(cuMemsetD8(kept, 1, 4096));
    SAY(cuGreenCtxDestroy(green));
    must(cuDevicePrimaryCtxGetState(0, &flags, &active));
    printf("active: %d\n", active);
    SAY(cuDevicePrimaryCtxRetain(&primary, 0));
    SAY(cuCtxSetCurrent(primary));
    SAY(cuMemFree(kept));
    p = take_plain(4096);
    SAY(cuMemsetD8(p, 1, 4096));
    SAY(cuMemFree(p));
}

/* ---- an old driver ---- */

/* What such a driver has, and what its answers are. */
static void say_old(void) {
    typedef CUresult(CUDAAPI * alloc_function)(CUdeviceptr *, size_t, CUstream);
    typedef CUresult(CUDAAPI * free_function)(CUdeviceptr, CUstream);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    const alloc_function alloc = (alloc_function)dlsym(driver, "cuMemAllocAsync");
    const free_function release = (free_function)dlsym(driver, "cuMemFreeAsync");
    CUstream stream = stream_new();
    void *unseen = NULL;
    must((CUresult)sim_stream_create(&unseen, CU_STREAM_NON_BLOCKING));
    CUstream streams[] = {stream, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, unseen};
    for (int i = 0; i < 4; i++) {
        CUdeviceptr p = 0;
        int code = alloc ? (int)alloc(&p, 4096, streams[i]) : -1;
        if (code == 0) code = (int)cuMemsetD8Async(p, 1, 4096, streams[i]);
        if (code == 0) code = (int)release(p, streams[i]);
        printf("on stream %d: %d\n", i, code);
        p = take_plain(4096);
        must(cuMemsetD8Async(p, 1, 4096, streams[i]));
        printf("plain: %d, freed in order: %d\n", (int)cuMemFree(p),
               release ? (int)release(take_plain(4096), streams[i]) : -1);
    }
    must(cuCtxSynchronize());
    SAY(cuStreamDestroy(stream));
}

static const struct guest_part parts[] = {{"handle", say_seen_handle},
                                          {"unseen_handle", say_unseen_handle},
                                          {"unseen", say_unseen},
                                          {"free", say_free},
                                          {"host_read", say_host_read},
                                          {"free_in_order", say_free_in_order},
                                          {"once", say_once},
                                          {"many_threads", say_many_threads},
                                          {"attributes", say_attributes},
                                          {"fork", say_fork},
                                          {"created", say_created},
                                          {"green", say_green},
                                          {"last_green", say_last_green},
                                          {"old", say_old}};
GUEST_MAIN(parts)
