/* SPDX-License-Identifier: MIT
 *
 * A program with memory pools of its own. Prints what its calls answer and what it sees, for comparing a native run
 * with a pooled one. The first argument says which part.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>

#include "sim.h"

#define MIB ((size_t)1 << 20)
#define SAY(call) printf("%s: %d\n", #call, (int)(call))
/* What every run must answer alike to be worth a comparison. */
#define MUST(call)                                       \
    do {                                                 \
        const int code_must = (int)(call);               \
        if (code_must != 0) {                            \
            printf("%s answers %d\n", #call, code_must); \
            exit(3);                                     \
        }                                                \
    } while (0)

static const CUmemAllocationHandleType by_descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/* ---- what is seen ---- */

static CUcontext begin(void) {
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    return context;
}

static CUmemoryPool make_pool(int device, CUmemAllocationHandleType types) {
    CUmemoryPool pool;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .handleTypes = types,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    MUST(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static CUdeviceptr take(size_t bytes, CUstream stream, unsigned char value) {
    CUdeviceptr p = 0;
    const int code = (int)cuMemAllocAsync(&p, bytes, stream);
    if (code != 0) printf("cuMemAllocAsync of %zu: %d\n", bytes, code);
    if (code == 0) MUST(cuMemsetD8Async(p, value, bytes, stream));
    return p;
}

static int holds(CUdeviceptr p, size_t bytes, unsigned char value) {
    unsigned char *const copy = malloc(bytes);
    MUST(cuCtxSynchronize()); /* a copy does not wait for streams that do not block */
    int same = copy && cuMemcpyDtoH(copy, p, bytes) == CUDA_SUCCESS;
    for (size_t i = 0; same && i < bytes; i++) same = copy[i] == value;
    free(copy);
    return same;
}

/* The pool that memory is from, as the driver says. */
static CUmemoryPool pool_of(CUdeviceptr p) {
    CUmemoryPool pool = NULL;
    MUST(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    return pool;
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute name) {
    cuuint64_t value = 0;
    MUST(cuMemPoolGetAttribute(pool, name, &value));
    return value;
}

static uint64_t used(CUmemoryPool pool) {
    return attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

static void say_used(const char *when, CUmemoryPool pool) {
    printf("used %s: %llu\n", when, (unsigned long long)used(pool));
}

/* ---- a pool set as current ---- */

enum { BLOCKS = 8, BYTES = 5000 };

static void say_pools_of(const char *what, const CUdeviceptr *blocks, CUmemoryPool expected) {
    int right = 0;
    for (int i = 0; i < BLOCKS; i++) right += pool_of(blocks[i]) == expected;
    printf("%s: %d of %d from that pool\n", what, right, BLOCKS);
}

static void take_all(CUdeviceptr *blocks, CUstream stream, unsigned char value) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = take(BYTES, stream, (unsigned char)(value + i));
}

static void give_all(const CUdeviceptr *blocks, CUstream stream, unsigned char value) {
    int held = 0, freed = 0;
    for (int i = 0; i < BLOCKS; i++) held += holds(blocks[i], BYTES, (unsigned char)(value + i));
    for (int i = 0; i < BLOCKS; i++) freed += cuMemFreeAsync(blocks[i], stream) == CUDA_SUCCESS;
    printf("held %d, freed %d, freed again: %d\n", held, freed, (int)cuMemFreeAsync(blocks[0], stream));
}

static void say_current(void) {
    CUdeviceptr first[BLOCKS], second[BLOCKS], third[BLOCKS], plain[BLOCKS];
    CUmemoryPool usual, now;
    CUstream stream;
    begin();
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY(cuDeviceGetMemPool(&usual, 0));
    CUmemoryPool own = make_pool(0, CU_MEM_HANDLE_TYPE_NONE);
    take_all(first, stream, 10);
    SAY(cuDeviceSetMemPool(0, own));
    SAY(cuDeviceGetMemPool(&now, 0));
    printf("the own one: %d\n", now == own);
    take_all(second, stream, 30);
    say_pools_of("before", first, usual);
    say_pools_of("since", second, own);
    /* What the first pool's blocks leave behind in this stream is not for the second, and the other way round. */
    give_all(first, stream, 10);
    take_all(third, stream, 50);
    say_pools_of("after frees of the first", third, own);
    give_all(second, stream, 30);
    SAY(cuDeviceSetMemPool(0, usual));
    take_all(first, stream, 70);
    say_pools_of("set back", first, usual);
    give_all(third, stream, 50);
    give_all(first, stream, 70);
    /* Nor is it for the kind that has no pool, and the other way round. */
    SAY(cuStreamSynchronize(stream));
    for (int i = 0; i < BLOCKS; i++) MUST(cuMemAlloc(&plain[i], BYTES));
    say_pools_of("plain", plain, NULL);
    for (int i = 0; i < BLOCKS; i++) MUST(cuMemFree(plain[i]));
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    SAY(cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, own));
    take_all(first, stream, 90);
    say_pools_of("set by location", first, own);
    give_all(first, stream, 90);
    SAY(cuMemPoolDestroy(own));
    SAY(cuDeviceSetMemPool(0, NULL));
    take_all(first, stream, 110);
    say_pools_of("after the end", first, usual);
    give_all(first, stream, 110);
}

/* Each device has its own. */
static void say_devices(void) {
    CUcontext contexts[2];
    CUstream streams[2];
    CUmemoryPool own[2];
    CUdeviceptr blocks[BLOCKS];
    contexts[0] = begin();
    MUST(cuDevicePrimaryCtxRetain(&contexts[1], 1));
    for (int i = 0; i < 2; i++) {
        MUST(cuCtxSetCurrent(contexts[i]));
        MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        own[i] = make_pool(i, CU_MEM_HANDLE_TYPE_NONE);
    }
    SAY(cuDeviceSetMemPool(0, own[1]));
    for (int i = 0; i < 2; i++) SAY(cuDeviceSetMemPool(i, own[i]));
    for (int current = 0; current < 2; current++)
        for (int i = 0; i < 2; i++) {
            MUST(cuCtxSetCurrent(contexts[current]));
            take_all(blocks, streams[i], 1);
            say_pools_of("of the stream's device", blocks, own[i]);
            give_all(blocks, streams[i], 1);
        }
    for (int i = 0; i < 2; i++) SAY(cuMemPoolDestroy(own[i]));
}

/* ---- access ---- */

static int access_flags(CUdeviceptr p, CUcontext context) {
    unsigned long long flags = 77;
    CUcontext popped;
    MUST(cuCtxPushCurrent(context));
    const int code = (int)cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p);
    MUST(cuCtxPopCurrent(&popped));
    return code == 0 ? (int)(flags & 0xff) : -code;
}

static CUresult set_access(CUmemoryPool pool, CUmemAccess_flags flags) {
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, .flags = flags};
    return cuMemPoolSetAccess(pool, &access, 1);
}

static int kernel_code(CUdeviceptr p, CUcontext context, CUstream stream) {
    const struct sim_range range = {p, BYTES, true};
    const struct sim_kernel kernel = {.ranges = &range, .range_count = 1};
    CUcontext popped;
    MUST(cuCtxPushCurrent(context));
    int code = sim_launch(&kernel, stream);
    if (code == 0) code = (int)cuStreamSynchronize(stream);
    cuCtxPopCurrent(&popped);
    return code;
}

static void say_access(void) {
    CUcontext peer, popped, context = begin();
    CUmemoryPool open, closed;
    CUdeviceptr before[2], p[2];
    CUstream stream, peers_stream;
    MUST(cuDevicePrimaryCtxRetain(&peer, 1));
    MUST(cuCtxPushCurrent(peer));
    MUST(cuStreamCreate(&peers_stream, CU_STREAM_NON_BLOCKING));
    MUST(cuCtxPopCurrent(&popped));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    open = make_pool(0, CU_MEM_HANDLE_TYPE_NONE);
    closed = make_pool(0, CU_MEM_HANDLE_TYPE_NONE);
    CUmemoryPool both[2] = {open, closed};
    /* Segments from before and after the access was set. */
    for (int i = 0; i < 2; i++) {
        MUST(cuDeviceSetMemPool(0, both[i]));
        before[i] = take(BYTES, stream, 1);
    }
    SAY(set_access(open, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    for (int i = 0; i < 2; i++) {
        MUST(cuDeviceSetMemPool(0, both[i]));
        p[i] = take(BYTES, stream, 2);
        MUST(cuStreamSynchronize(stream));
        printf("may be used: %d %d, by its own device: %d\n", access_flags(before[i], peer), access_flags(p[i], peer),
               access_flags(p[i], context));
    }
    printf("a kernel of the other device: %d %d\n", kernel_code(before[0], peer, peers_stream),
           kernel_code(p[0], peer, peers_stream));
    /* What was freed comes back to the pool that it came from, with that one's access. */
    for (int i = 0; i < 2; i++) MUST(cuMemFreeAsync(p[i], stream));
    for (int i = 1; i >= 0; i--) {
        MUST(cuDeviceSetMemPool(0, both[i]));
        p[i] = take(BYTES, stream, 3);
        MUST(cuStreamSynchronize(stream));
        printf("again: may be used: %d, own pool: %d\n", access_flags(p[i], peer), pool_of(p[i]) == both[i]);
    }
    SAY(set_access(open, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    printf("taken back: %d %d\n", access_flags(before[0], peer), access_flags(p[0], peer));
    printf("a kernel of the other device: %d\n", kernel_code(p[0], peer, peers_stream));
    for (int i = 0; i < 2; i++) {
        SAY(cuMemFreeAsync(p[i], stream));
        SAY(cuMemFreeAsync(before[i], stream));
        SAY(cuMemPoolDestroy(both[i]));
    }
}

/* ---- trimmed ---- */

static void say_trim(void) {
    CUdeviceptr p[BLOCKS];
    CUstream stream;
    begin();
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmemoryPool own = make_pool(0, CU_MEM_HANDLE_TYPE_NONE), other = make_pool(0, CU_MEM_HANDLE_TYPE_NONE);
    cuuint64_t all = UINT64_MAX;
    MUST(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    const uint64_t taken = sim_bytes_in_use(0);
    MUST(cuDeviceSetMemPool(0, own));
    for (int i = 0; i < BLOCKS; i++) p[i] = take(8 * MIB, stream, (unsigned char)i);
    for (int i = 0; i < BLOCKS; i++)
        if (i != 5) MUST(cuMemFreeAsync(p[i], stream));
    MUST(cuStreamSynchronize(stream));
    SAY(cuMemPoolTrimTo(other, 0));
    printf("another's trim leaves it: %d\n", attribute(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 64 * MIB);
    SAY(cuMemPoolTrimTo(own, 0));
    printf("less than half of it stays for one block: %d, which holds: %d\n",
           attribute(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 32 * MIB, holds(p[5], 8 * MIB, 5));
    MUST(cuMemFreeAsync(p[5], stream));
    MUST(cuStreamSynchronize(stream));
    SAY(cuMemPoolTrimTo(own, 64 * MIB));
    SAY(cuMemPoolTrimTo(own, 0));
    printf("reserved: %llu, taken as before: %d\n",
           (unsigned long long)attribute(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), sim_bytes_in_use(0) == taken);
    p[0] = take(BYTES, stream, 7);
    printf("works: %d\n", holds(p[0], BYTES, 7));
    SAY(cuMemFreeAsync(p[0], stream));
    SAY(cuMemPoolDestroy(own));
    SAY(cuMemPoolDestroy(other));
}

/* ---- destroyed ---- */

static void say_destroyed(void) {
    CUdeviceptr live[BLOCKS], cached[BLOCKS], p;
    CUmemoryPool usual, now;
    CUstream stream;
    begin();
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceGetDefaultMemPool(&usual, 0));
    const uint64_t taken = sim_bytes_in_use(0);
    /* With nothing live in it: its memory is the device's again at once. */
    CUmemoryPool own = make_pool(0, CU_MEM_HANDLE_TYPE_NONE);
    MUST(cuDeviceSetMemPool(0, own));
    take_all(cached, stream, 1);
    give_all(cached, stream, 1);
    p = take(40 * MIB, stream, 3);
    MUST(cuMemFreeAsync(p, stream));
    MUST(cuStreamSynchronize(stream));
    SAY(cuMemPoolDestroy(own));
    SAY(cuDeviceGetMemPool(&now, 0));
    printf("the default one: %d, taken as before: %d\n", now == usual, sim_bytes_in_use(0) == taken);
    /* With blocks that live on, and others beside them that were freed. */
    own = make_pool(0, CU_MEM_HANDLE_TYPE_NONE);
    MUST(cuDeviceSetMemPool(0, own));
    take_all(live, stream, 20);
    take_all(cached, stream, 40);
    give_all(cached, stream, 40);
    MUST(cuStreamSynchronize(stream));
    SAY(cuMemPoolDestroy(own));
    SAY(cuMemPoolDestroy(own));
    take_all(cached, stream, 60);
    say_pools_of("since", cached, usual);
    CUmemoryPool next = make_pool(0, CU_MEM_HANDLE_TYPE_NONE);
    MUST(cuDeviceSetMemPool(0, next));
    p = take(BYTES, stream, 80);
    printf("the next one's: %d, used: %llu\n", pool_of(p) == next, (unsigned long long)used(next));
    give_all(live, stream, 20);
    give_all(cached, stream, 60);
    MUST(cuMemFreeAsync(p, stream));
    MUST(cuStreamSynchronize(stream));
    SAY(cuMemPoolTrimTo(usual, 0));
    SAY(cuMemPoolDestroy(next));
    MUST(cuCtxSynchronize());
    printf("taken as before: %d\n", sim_bytes_in_use(0) == taken);
    /* With a block that is freed while its stream works. */
    const struct sim_kernel held = {.until_released = true};
    own = make_pool(0, CU_MEM_HANDLE_TYPE_NONE);
    MUST(cuDeviceSetMemPool(0, own));
    p = take(BYTES, stream, 90);
    SAY(cuMemPoolDestroy(own));
    MUST(sim_launch(&held, stream));
    SAY(cuMemFreeAsync(p, stream));
    sim_release_kernels();
    MUST(cuStreamSynchronize(stream));
    SAY(cuDeviceSetMemPool(0, usual));
    printf("taken as before: %d\n", sim_bytes_in_use(0) == taken);
}

/* A pool that the driver keeps goes on. */
static void say_kept(void) {
    CUdeviceptr p, q;
    CUstream stream, capturing;
    CUgraph graph;
    begin();
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
    CUmemoryPool own = make_pool(0, CU_MEM_HANDLE_TYPE_NONE);
    MUST(cuDeviceSetMemPool(0, own));
    p = take(BYTES, stream, 1);
    SAY(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY(cuMemPoolDestroy(own));
    SAY(cuStreamEndCapture(capturing, &graph));
    q = take(BYTES, stream, 2);
    printf("from it: %d %d, used: %llu\n", pool_of(p) == own, pool_of(q) == own, (unsigned long long)used(own));
    printf("they hold: %d %d\n", holds(p, BYTES, 1), holds(q, BYTES, 2));
    SAY(cuMemFreeAsync(p, stream));
    SAY(cuMemFreeAsync(q, stream));
    SAY(cuMemPoolDestroy(own));
}

/* A pool that may hold 8 MiB: no larger segment fits into it. */
static void say_limited(void) {
    CUdeviceptr p[16], other;
    CUmemoryPool own;
    CUstream stream;
    int count = 0, code = 0, held = 0;
    begin();
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                       .maxSize = 8 * MIB};
    MUST(cuMemPoolCreate(&own, &properties));
    MUST(cuDeviceSetMemPool(0, own));
    while (count < 16 && (code = (int)cuMemAllocAsync(&p[count], MIB, stream)) == 0) {
        MUST(cuMemsetD8Async(p[count], (unsigned char)count, MIB, stream));
        count++;
    }
    for (int i = 0; i < count; i++) held += holds(p[i], MIB, (unsigned char)i);
    printf("%d of 1 MiB, then %d; they hold: %d, used: %llu\n", count, code, held, (unsigned long long)used(own));
    SAY(cuMemAllocAsync(&other, 9 * MIB, stream));
    for (int i = 0; i < count; i++) MUST(cuMemFreeAsync(p[i], stream));
    SAY(cuMemAllocAsync(&other, 8 * MIB, stream));
    SAY(cuMemFreeAsync(other, stream));
    SAY(cuMemPoolDestroy(own));
}

/* ---- what the default pool tells ---- */

static void say_attributes(void) {
    CUdeviceptr p, q, r, plain;
    CUmemoryPool pool;
    CUstream stream;
    cuuint64_t value;
    begin();
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    say_used("first", pool);
    p = take(1000, stream, 1);
    q = take(3 * MIB + 5, stream, 2);
    say_used("of two blocks", pool);
    SAY(cuMemAllocFromPoolAsync(&r, 2048, pool, stream));
    say_used("with one of the named pool", pool);
    MUST(cuMemAlloc(&plain, 4096));
    say_used("beside a plain one", pool);
    printf("reserved at least that: %d, high at least that: %d\n",
           attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= used(pool),
           attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= used(pool));
    SAY(cuMemFreeAsync(q, stream));
    say_used("after a free, before its stream was waited for", pool);
    value = 1;
    SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
    value = 0;
    SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
    printf("high set back, at least what is used: %d\n", attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= used(pool));
    SAY(cuMemFree(p));
    SAY(cuMemFreeAsync(r, stream));
    say_used("in the end", pool);
    SAY(cuMemFree(plain));
    value = 5 * MIB;
    SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    printf("threshold: %llu\n", (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
    int number = 7;
    SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &number));
    printf("number: %d\n", number);
    SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, NULL));
    SAY(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)99, &value));
    SAY(cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
    SAY(cuCtxSynchronize());
    SAY(cuMemPoolTrimTo(pool, 0));
    printf("trimmed: reserved %llu, used %llu\n",
           (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), (unsigned long long)used(pool));
}

/* ---- exported ---- */

enum { PASSED = 40, DATA = 41 };

/* The other process: the pool's descriptor and the data lie where its parent put them. */
static int import(void) {
    CUmemPoolPtrExportData data;
    CUmemoryPool pool;
    CUdeviceptr p;
    begin();
    SAY(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)PASSED, by_descriptor, 0));
    while (read(DATA, &data, sizeof data) == sizeof data) {
        const int code = (int)cuMemPoolImportPointer(&p, pool, &data);
        unsigned char byte = 0;
        size_t size = 0;
        if (code == 0) {
            MUST(cuMemcpyDtoH(&byte, p, 1));
            MUST(cuMemGetAddressRange(NULL, &size, p));
            MUST(cuMemsetD8(p, (unsigned char)(byte + 100), size));
            MUST(cuMemFree(p));
        }
        printf("import: %d, byte %d of %zu\n", code, byte, size);
    }
    SAY(cuMemAllocFromPoolAsync(&p, 64, pool, NULL));
    SAY(cuDeviceSetMemPool(0, pool));
    SAY(cuMemPoolDestroy(pool));
    fflush(stdout);
    return 0;
}

static void run_importer(int descriptor, const CUmemPoolPtrExportData *data, size_t count, bool pooled) {
    int ends[2], status = -1;
    MUST(pipe(ends));
    MUST(write(ends[1], data, count * sizeof *data) != (ssize_t)(count * sizeof *data));
    close(ends[1]);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        dup2(descriptor, PASSED);
        dup2(ends[0], DATA);
        if (!pooled) unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", "importer", "import", (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    waitpid(child, &status, 0);
    printf("the importer ended with %d\n", status);
}

static void say_exported(bool pooled) {
    CUdeviceptr p[BLOCKS];
    CUmemPoolPtrExportData data[BLOCKS];
    CUmemoryPool usual;
    CUstream stream;
    int descriptor = -1;
    begin();
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceGetDefaultMemPool(&usual, 0));
    CUmemoryPool own = make_pool(0, by_descriptor);
    SAY(cuMemPoolExportToShareableHandle(&descriptor, own, by_descriptor, 0));
    /* Memory of the default pool cannot be exported, wherever it lies. */
    take_all(p, stream, 1);
    for (int i = 0; i < BLOCKS; i++) printf("default: %d\n", (int)cuMemPoolExportPointer(&data[i], p[i]));
    printf("freed: %d ", (int)cuMemFreeAsync(p[0], stream));
    printf("%d\n", (int)cuMemPoolExportPointer(&data[0], p[0]));
    for (int i = 1; i < BLOCKS; i++) MUST(cuMemFreeAsync(p[i], stream));
    MUST(cuDeviceSetMemPool(0, own));
    take_all(p, stream, 10);
    say_pools_of("exportable", p, own);
    for (int i = 0; i < BLOCKS; i++) printf("own: %d\n", (int)cuMemPoolExportPointer(&data[i], p[i] + (CUdeviceptr)i));
    MUST(cuStreamSynchronize(stream));
    run_importer(descriptor, data, BLOCKS, pooled);
    give_all(p, stream, 110);
    MUST(cuStreamSynchronize(stream));
    SAY(cuMemPoolTrimTo(own, 0));
    SAY(cuMemPoolDestroy(own));
    printf("the default one again: ");
    take_all(p, stream, 5);
    say_pools_of("default", p, usual);
    give_all(p, stream, 5);
    close(descriptor);
}

int main(int argc, char **argv) {
    const char *const part = argc > 1 ? argv[1] : "";
    static const struct {
        const char *name;
        void (*say)(void);
    } parts[] = {
        {"current", say_current}, {"devices", say_devices},       {"access", say_access},
        {"trim", say_trim},       {"destroyed", say_destroyed},   {"kept", say_kept},
        {"limited", say_limited}, {"attributes", say_attributes},
    };
    if (strcmp(part, "import") == 0) return import();
    if (strcmp(part, "exported") == 0) {
        say_exported(argc == 2);
        return 0;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(part, parts[i].name) == 0) {
            parts[i].say();
            return 0;
        }
    fprintf(stderr, "no such part: %s\n", part);
    return 2;
}
