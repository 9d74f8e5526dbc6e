/* SPDX-License-Identifier: MIT
 *
 * A program over the driver that frees what every producer makes by every function that frees, and frees wrongly in
 * every way; it prints what they answer and what is left. The first argument says which.
 */
#include "guest_pointers.h"

#include <unistd.h>

#include <cuda.h>

static CUcontext primary;
static CUstream stream;
static CUmemoryPool own_pool;

static void begin(void) {
    cuInit(0);
    cuDevicePrimaryCtxRetain(&primary, 0);
    cuCtxSetCurrent(primary);
    cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    cuMemPoolCreate(&own_pool, &properties);
}

/* ---- another process, whose memory is opened ---- */

static CUipcMemHandle exported;

static void export(int to, int until) {
    CUdeviceptr first, p;
    begin();
    int code = (int)cuMemAlloc(&first, 4096) || cuMemAlloc(&p, 5000) || cuIpcGetMemHandle(&exported, p);
    if (write(to, &exported, sizeof exported) != sizeof exported) code = 1;
    while (read(until, &p, 1) > 0) continue; /* as long as the importer lives */
    _exit(code);
}

/* Before this process touches CUDA. */
static void begin_exporter(void) {
    int handle[2], life[2];
    if (pipe(handle) || pipe(life)) exit(1);
    const pid_t child = fork();
    if (child < 0) exit(1);
    close(child ? handle[1] : handle[0]);
    close(child ? life[0] : life[1]);
    if (child == 0) export(handle[1], life[0]);
    if (read(handle[0], &exported, sizeof exported) != sizeof exported) exit(1);
}

/* ---- producers: 0 and a pointer, or why there is none ---- */

enum { BYTES = 5000 };

static CUresult make_plain(CUdeviceptr *p) {
    return cuMemAlloc(p, BYTES);
}

static CUresult make_large(CUdeviceptr *p) {
    return cuMemAlloc(p, 40 * MIB);
}

static CUresult make_async(CUdeviceptr *p) {
    return cuMemAllocAsync(p, BYTES, stream);
}

static CUresult make_async_default(CUdeviceptr *p) {
    return cuMemAllocAsync(p, BYTES, NULL);
}

static CUresult make_async_own(CUdeviceptr *p) {
    return cuMemAllocAsync(p, BYTES, CU_STREAM_PER_THREAD);
}

static CUresult make_from_default_pool(CUdeviceptr *p) {
    CUmemoryPool pool;
    const CUresult result = cuDeviceGetDefaultMemPool(&pool, 0);
    return result ? result : cuMemAllocFromPoolAsync(p, BYTES, pool, stream);
}

static CUresult make_from_own_pool(CUdeviceptr *p) {
    return cuMemAllocFromPoolAsync(p, BYTES, own_pool, stream);
}

static CUresult make_pitched(CUdeviceptr *p) {
    size_t pitch;
    return cuMemAllocPitch(p, &pitch, 100, 9, 4);
}

static CUresult make_managed(CUdeviceptr *p) {
    return cuMemAllocManaged(p, BYTES, CU_MEM_ATTACH_GLOBAL);
}

static CUresult make_host(CUdeviceptr *p) {
    void *host = NULL;
    const CUresult result = cuMemAllocHost(&host, BYTES);
    *p = (CUdeviceptr)(uintptr_t)host;
    return result;
}

static CUresult make_mapped(CUdeviceptr *p) {
    void *host = NULL;
    const CUresult result = cuMemHostAlloc(&host, BYTES, CU_MEMHOSTALLOC_DEVICEMAP);
    *p = (CUdeviceptr)(uintptr_t)host;
    return result;
}

static CUresult make_device_of_mapped(CUdeviceptr *p) {
    const CUresult result = make_mapped(p);
    return result ? result : cuMemHostGetDevicePointer(p, (void *)(uintptr_t)*p, 0);
}

/* Aligned as the driver wants it, and never given back: what the driver leaves of it is not asked here. */
static char registered[2][8192] __attribute__((aligned(4096)));

static CUresult make_registered(CUdeviceptr *p) {
    *p = (CUdeviceptr)(uintptr_t)registered[0];
    return cuMemHostRegister(registered[0], 4096, CU_MEMHOSTREGISTER_DEVICEMAP);
}

static CUresult make_unregistered(CUdeviceptr *p) {
    *p = (CUdeviceptr)(uintptr_t)registered[1];
    return CUDA_SUCCESS;
}

static CUresult make_malloc(CUdeviceptr *p) {
    *p = (CUdeviceptr)(uintptr_t)malloc(BYTES);
    return CUDA_SUCCESS;
}

static CUresult make_stack(CUdeviceptr *p) {
    *p = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

static CUresult make_null(CUdeviceptr *p) {
    *p = 0;
    return CUDA_SUCCESS;
}

static CUresult make_garbage(CUdeviceptr *p) {
    *p = GARBAGE;
    return CUDA_SUCCESS;
}

static CUresult make_freed(CUdeviceptr *p) {
    const CUresult result = make_plain(p);
    return result ? result : cuMemFree(*p);
}

static CUresult make_freed_async(CUdeviceptr *p) {
    CUresult result = make_async(p);
    if (!result) result = cuMemFreeAsync(*p, stream);
    return result ? result : cuStreamSynchronize(stream);
}

/* Reserved addresses with memory behind them. */
static CUresult make_virtual(CUdeviceptr *p) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemAddressReserve(p, 2 * MIB, 0, 0, 0);
    if (!result) result = cuMemCreate(&handle, 2 * MIB, &properties, 0);
    return result ? result : cuMemMap(*p, 2 * MIB, 0, handle, 0);
}

static CUresult make_array(CUdeviceptr *p) {
    const CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 64, .Height = 4, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    return cuArrayCreate((CUarray *)p, &shape);
}

static CUresult make_opened(CUdeviceptr *p) {
    return cuIpcOpenMemHandle(p, exported, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static CUgraph graph;
static CUgraphExec executable;

static CUresult make_graph(CUdeviceptr *p) {
    CUresult result = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (!result) result = cuMemAllocAsync(p, BYTES, stream);
    if (!result) result = cuStreamEndCapture(stream, &graph);
    return result ? result : cuGraphInstantiate(&executable, graph, 0);
}

static CUresult make_launched_graph(CUdeviceptr *p) {
    CUresult result = make_graph(p);
    if (!result) result = cuGraphLaunch(executable, stream);
    return result ? result : cuStreamSynchronize(stream);
}

static int put_device(CUdeviceptr p) {
    return (int)cuMemFree(p);
}

static int put_host(CUdeviceptr p) {
    return (int)cuMemFreeHost((void *)(uintptr_t)p);
}

static int put_registered(CUdeviceptr p) {
    return (int)cuMemHostUnregister((void *)(uintptr_t)p);
}

static int put_opened(CUdeviceptr p) {
    return (int)cuIpcCloseMemHandle(p);
}

static int put_malloc(CUdeviceptr p) {
    free((void *)(uintptr_t)p);
    return 0;
}

static int put_graph(CUdeviceptr p) {
    const int freed = (int)cuMemFree(p);
    cuGraphExecDestroy(executable);
    cuGraphDestroy(graph);
    return freed;
}

static int put_nothing(CUdeviceptr p) {
    (void)p;
    return 0;
}

static const struct producer {
    const char *name;
    CUresult (*make)(CUdeviceptr *p);
    int (*put)(CUdeviceptr p); /* as it should be given back */
    size_t inside;             /* frees get an address so far inside it */
} producers[] = {
    {"plain", make_plain, put_device, 0},
    {"plain, 1 inside", make_plain, put_device, 1},
    {"plain, 512 inside", make_plain, put_device, 512},
    {"plain, its last byte", make_plain, put_device, BYTES - 1},
    {"plain, past its end", make_plain, put_device, BYTES + 120},
    {"large", make_large, put_device, 0},
    {"large, 2 MiB inside", make_large, put_device, 2 * MIB},
    {"async", make_async, put_device, 0},
    {"async, 512 inside", make_async, put_device, 512},
    {"async on the default stream", make_async_default, put_device, 0},
    {"async on the thread's own stream", make_async_own, put_device, 0},
    {"from the default pool", make_from_default_pool, put_device, 0},
    {"from a pool of its own", make_from_own_pool, put_device, 0},
    {"pitched", make_pitched, put_device, 0},
    {"managed", make_managed, put_device, 0},
    {"host", make_host, put_host, 0},
    {"mapped", make_mapped, put_host, 0},
    {"device pointer of mapped", make_device_of_mapped, put_host, 0},
    {"registered", make_registered, put_registered, 0},
    {"not registered", make_unregistered, put_nothing, 0},
    {"virtual", make_virtual, put_nothing, 0},
    {"array", make_array, put_nothing, 0},
    {"graph's", make_graph, put_graph, 0},
    {"launched graph's", make_launched_graph, put_graph, 0},
    {"opened", make_opened, put_opened, 0},
    {"opened, 512 inside", make_opened, put_opened, 512},
    {"malloc", make_malloc, put_malloc, 0},
    {"stack", make_stack, put_nothing, 0},
    {"NULL", make_null, put_nothing, 0},
    {"garbage", make_garbage, put_nothing, 0},
    {"freed", make_freed, put_nothing, 0},
    {"freed async", make_freed_async, put_nothing, 0},
};

/* ---- free functions ---- */

static int by_free(CUdeviceptr p) {
    return (int)cuMemFree(p);
}

static int by_free_async(CUdeviceptr p) {
    return (int)cuMemFreeAsync(p, stream);
}

static int by_free_async_default(CUdeviceptr p) {
    return (int)cuMemFreeAsync(p, NULL);
}

static int by_free_async_own(CUdeviceptr p) {
    return (int)cuMemFreeAsync(p, CU_STREAM_PER_THREAD);
}

static int by_free_host(CUdeviceptr p) {
    return (int)cuMemFreeHost((void *)(uintptr_t)p);
}

/* Whether an address that is not the host's is an invalid one (1) or one that is not registered (713) is told nowhere.
 */
static int by_unregister(CUdeviceptr p) {
    const int code = (int)cuMemHostUnregister((void *)(uintptr_t)p);
    return code == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED ? (int)CUDA_ERROR_INVALID_VALUE : code;
}

static int by_close(CUdeviceptr p) {
    return (int)cuIpcCloseMemHandle(p);
}

static const struct {
    const char *name;
    int (*free)(CUdeviceptr p);
} functions[] = {
    {"cuMemFree", by_free},
    {"cuMemFreeAsync", by_free_async},
    {"cuMemFreeAsync on the default stream", by_free_async_default},
    {"cuMemFreeAsync on the thread's own stream", by_free_async_own},
    {"cuMemFreeHost", by_free_host},
    {"cuMemHostUnregister", by_unregister},
    {"cuIpcCloseMemHandle", by_close},
};

static void say_what_stands(CUdeviceptr p, CUdeviceptr start) {
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned int type = 0;
    cuCtxSynchronize();
    const int range = (int)cuMemGetAddressRange(&base, &size, p);
    const int known = (int)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    printf("; then range %d, from its start %d, %zu bytes; type %d %u", range, base == start, size, known,
           known ? 0 : type);
}

static void free_everything(void) {
    CUdeviceptr neighbour;
    begin_exporter();
    begin();
    cuMemAlloc(&neighbour, BYTES); /* so that no block of the producers' starts a segment of small ones */
    for (size_t i = 0; i < COUNT(producers); i++)
        for (size_t j = 0; j < COUNT(functions); j++) {
            const struct producer *producer = &producers[i];
            CUdeviceptr p = 0;
            const int made = (int)producer->make(&p);
            printf("%s, %s: ", producer->name, functions[j].name);
            if (made) {
                printf("not made: %d\n", made);
                continue;
            }
            printf("%d", functions[j].free(p + producer->inside));
            say_what_stands(p + producer->inside, p);
            printf("; given back: %d", producer->put(p));
            printf("; invariants broken: %s\n", broken_invariant());
        }
    printf("the neighbour is freed: %d\n", (int)cuMemFree(neighbour));
}

/* ---- wrong frees among neighbours ---- */

enum { BLOCK = 4096, BLOCKS = 6 };

static int holds(CUdeviceptr p, unsigned char value) {
    unsigned char copy[BLOCK];
    if (cuMemcpyDtoH(copy, p, BLOCK)) return 0;
    for (size_t i = 0; i < BLOCK; i++)
        if (copy[i] != value) return 0;
    return 1;
}

static CUresult take_plain(CUdeviceptr *p) {
    return cuMemAlloc(p, BLOCK);
}

static CUresult take_async(CUdeviceptr *p) {
    return cuMemAllocAsync(p, BLOCK, stream);
}

/* One of several equal blocks, the first of them at its segment's base, is freed twice, its freed interior too, and
 * its neighbours' interiors. */
static void free_wrongly(const char *kind, CUresult (*take)(CUdeviceptr *p), size_t victim, size_t first,
                         size_t second) {
    CUdeviceptr p[BLOCKS], again;
    int code = 0;
    for (int i = 0; i < BLOCKS; i++)
        code |= (int)take(&p[i]) || cuMemsetD8Async(p[i], (unsigned char)(i + 1), BLOCK, stream);
    cuStreamSynchronize(stream);
    printf("%s block %zu, %s, %s: made %d", kind, victim, functions[first].name, functions[second].name, code);
    printf("; freed %d", functions[first].free(p[victim]));
    cuCtxSynchronize();
    printf("; again %d %d", functions[second].free(p[victim]), functions[second].free(p[victim]));
    printf("; inside it %d", functions[second].free(p[victim] + 512));
    printf("; inside others %d %d", functions[second].free(p[BLOCKS - 2] + 1),
           functions[second].free(p[BLOCKS - 2] + 512));
    printf("; garbage %d", functions[second].free(GARBAGE));
    for (int i = 0; i < 2; i++) {
        int whole = 1;
        for (size_t j = 0; j < BLOCKS; j++) whole &= j == victim || holds(p[j], (unsigned char)(j + 1));
        printf("; neighbours whole %d", whole);
        if (i > 0) break;
        printf("; next %d", (int)take(&again));
        printf(" %d", (int)cuMemsetD8Async(again, 99, BLOCK, stream));
        cuStreamSynchronize(stream);
    }
    printf("; invariants broken: %s", broken_invariant());
    code = (int)cuMemFree(again);
    for (size_t i = 0; i < BLOCKS; i++)
        if (i != victim) code |= (int)cuMemFree(p[i]);
    printf("; the others freed %d\n", code);
}

static void free_everything_wrongly(void) {
    begin();
    for (size_t victim = 0; victim < BLOCKS; victim += 2)
        for (size_t first = 0; first < 3; first++)
            for (size_t second = 0; second < 4; second++) {
                free_wrongly("plain", take_plain, victim, first, second);
                free_wrongly("async", take_async, victim, first, second);
            }
}

/* Freed again when the driver has the memory back, and has given its addresses to somebody else. */
static void free_what_is_anothers(void) {
    CUdeviceptr p[2], other, base = 0;
    size_t size = 0, pitch;
    begin();
    for (int inside = 0; inside < 2; inside++) {
        cuMemAlloc(&p[0], 3 * MIB);
        cuMemAlloc(&p[1], 3 * MIB);
        cuMemFree(p[0]);
        cuMemFree(p[1]);
        cuMemAllocPitch(&other, &pitch, MIB, 40, 4);
        const CUdeviceptr again = inside ? other + 512 : other;
        printf("the other's: from the same address %d", other == p[0]);
        printf("; freed again %d", (int)cuMemFree(again));
        const int range = (int)cuMemGetAddressRange(&base, &size, other);
        printf("; then range %d, %zu bytes", range, range ? 0 : size);
        printf("; freed by the other %d; invariants broken: %s\n", (int)cuMemFree(other), broken_invariant());
    }
}

/* ---- attributes ---- */

#define ATTRIBUTES 21

static void say_attributes(const char *what, CUdeviceptr p, CUdeviceptr start) {
    for (int attribute = 1; attribute <= ATTRIBUTES; attribute++) {
        unsigned long long value[16];
        memset(value, 0, sizeof value);
        /* What other processes can open is told elsewhere. */
        if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) continue;
        const int code = (int)cuPointerGetAttribute(value, (CUpointer_attribute)attribute, p);
        printf("%s, attribute %d: %d", what, attribute, code);
        switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            printf(", the primary %d\n", value[0] == (uintptr_t)primary);
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            printf(", itself %d\n", value[0] == p);
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            printf(", its start %d\n", value[0] == start);
            break;
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            printf(", not beyond its start %d\n", value[0] <= start);
            break;
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
            printf(", given %d\n", value[0] != 0);
            break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
            CUmemoryPool pool;
            printf(", the default pool %d, none %d\n",
                   cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS && value[0] == (uintptr_t)pool, value[0] == 0);
            break;
        }
        default:
            printf(", %llu\n", value[0]);
        }
    }
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_MAPPED};
    unsigned int type = 77, managed = 0, mapped = 0;
    CUdeviceptr base = 1;
    size_t size = 1;
    int ordinal = 77;
    void *data[] = {&type, &managed, &base, &size, &ordinal, &mapped};
    printf("%s, several: %d", what, (int)cuPointerGetAttributes(COUNT(asked), asked, data, p));
    printf(", %u %u, its start %d, %zu, %d, %u\n", type, managed & 0xff, base == start, size, ordinal, mapped & 0xff);
    base = 1, size = 1;
    printf("%s, range: %d", what, (int)cuMemGetAddressRange(&base, &size, p));
    printf(", its start %d, %zu\n", base == start, size);
}

static void attributes(void) {
    static const size_t sizes[] = {1, 512, 1000, 4097, 3 * MIB + 5, 40 * MIB};
    CUdeviceptr p, first;
    char what[64];
    begin();
    cuMemAlloc(&first, 4096); /* starts the segment */
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int async = 0; async < 2; async++) {
            const int code = (int)(async ? cuMemAllocAsync(&p, sizes[i], stream) : cuMemAlloc(&p, sizes[i]));
            cuStreamSynchronize(stream);
            printf("%s of %zu bytes: %d, aligned %d\n", async ? "async" : "plain", sizes[i], code, p % 512 == 0);
            snprintf(what, sizeof what, "%s of %zu bytes", async ? "async" : "plain", sizes[i]);
            say_attributes(what, p, p);
            strcat(what, ", its last");
            say_attributes(what, p + sizes[i] - 1, p);
            cuMemFree(p);
            if (!async) say_attributes("freed", p, 0);
        }
    cuMemFree(first);
}

/* ---- out of memory ---- */

static void out_of_memory(void) {
    CUdeviceptr p[64], one = GARBAGE;
    int taken = 0, code = 0;
    begin();
    while (taken < 64 && (code = (int)cuMemAlloc(&p[taken], 2 * MIB)) == 0) taken++;
    printf("full: %d, filled %d\n", code, taken > 8);
    printf("impossible: %d %d %d\n", (int)cuMemAlloc(&one, SIZE_MAX), (int)cuMemAlloc(&one, SIZE_MAX / 2),
           (int)cuMemAlloc(&one, (size_t)1 << 46));
    printf("impossible, async: %d %d\n", (int)cuMemAllocAsync(&one, SIZE_MAX, stream),
           (int)cuMemAllocAsync(&one, (size_t)1 << 46, stream));
    printf("none: %d, async %d\n", (int)cuMemAlloc(&one, 8 * MIB), (int)cuMemAllocAsync(&one, 8 * MIB, stream));
    for (int i = 0; i < taken; i++) code |= (int)cuMemFree(p[i]);
    printf("after the frees: %d", (int)cuMemAlloc(&one, 40 * MIB)); /* fits if all of it went back */
    printf(", %d\n", (int)cuMemFree(one));
    printf("async: %d", (int)cuMemAllocAsync(&one, 40 * MIB, stream));
    printf(", %d", (int)cuMemFreeAsync(one, stream));
    cuCtxSynchronize();
    printf("; plain again: %d", (int)cuMemAlloc(&one, 40 * MIB));
    printf(", %d\n", (int)cuMemFree(one));
}

int main(int argc, char **argv) {
    static const struct part parts[] = {{"every_producer", free_everything},
                                        {"wrong_frees", free_everything_wrongly},
                                        {"anothers", free_what_is_anothers},
                                        {"attributes", attributes},
                                        {"out_of_memory", out_of_memory}};
    return run_part(argc, argv, parts, COUNT(parts));
}
