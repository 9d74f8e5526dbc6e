/* SPDX-License-Identifier: MIT
 *
 * The same as guest_pointers.c over the runtime: what every producer makes, freed by every function that frees, wrong
 * frees among neighbours, memory that runs out; with the last error that each leaves.
 */
#include "guest_pointers.h"

#include <cuda_runtime_api.h>

static cudaStream_t stream;
static cudaMemPool_t own_pool;

static void begin(void) {
    const struct cudaMemPoolProps properties = {.allocType = cudaMemAllocationTypePinned,
                                                .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMemPoolCreate(&own_pool, &properties);
}

enum { BYTES = 5000 };

/* ---- producers ---- */

static cudaError_t make_plain(void **p) {
    return cudaMalloc(p, BYTES);
}

static cudaError_t make_large(void **p) {
    return cudaMalloc(p, 40 * MIB);
}

static cudaError_t make_async(void **p) {
    return cudaMallocAsync(p, BYTES, stream);
}

static cudaError_t make_async_default(void **p) {
    return cudaMallocAsync(p, BYTES, 0);
}

static cudaError_t make_async_own(void **p) {
    return cudaMallocAsync(p, BYTES, cudaStreamPerThread);
}

static cudaError_t make_from_own_pool(void **p) {
    return cudaMallocFromPoolAsync(p, BYTES, own_pool, stream);
}

static cudaError_t make_pitched(void **p) {
    size_t pitch;
    return cudaMallocPitch(p, &pitch, 100, 9);
}

static cudaError_t make_3d(void **p) {
    struct cudaPitchedPtr pitched = {0};
    const cudaError_t result = cudaMalloc3D(&pitched, (struct cudaExtent){100, 9, 3});
    *p = pitched.ptr;
    return result;
}

static cudaError_t make_managed(void **p) {
    return cudaMallocManaged(p, BYTES, cudaMemAttachGlobal);
}

static cudaError_t make_host(void **p) {
    return cudaMallocHost(p, BYTES);
}

static cudaError_t make_mapped(void **p) {
    return cudaHostAlloc(p, BYTES, cudaHostAllocMapped);
}

static cudaError_t make_device_of_mapped(void **p) {
    const cudaError_t result = make_mapped(p);
    return result ? result : cudaHostGetDevicePointer(p, *p, 0);
}

static char registered[4096] __attribute__((aligned(4096)));

static cudaError_t make_registered(void **p) {
    *p = registered;
    return cudaHostRegister(registered, sizeof registered, cudaHostRegisterMapped);
}

static cudaError_t make_malloc(void **p) {
    *p = malloc(BYTES);
    return cudaSuccess;
}

static cudaError_t make_stack(void **p) {
    *p = p;
    return cudaSuccess;
}

static cudaError_t make_null(void **p) {
    *p = NULL;
    return cudaSuccess;
}

static cudaError_t make_empty(void **p) {
    return cudaMalloc(p, 0);
}

static cudaError_t make_garbage(void **p) {
    *p = (void *)GARBAGE;
    return cudaSuccess;
}

static cudaError_t make_freed(void **p) {
    const cudaError_t result = make_plain(p);
    return result ? result : cudaFree(*p);
}

static cudaError_t make_array(void **p) {
    const struct cudaChannelFormatDesc format = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    return cudaMallocArray((cudaArray_t *)p, &format, 64, 4, 0);
}

static cudaGraph_t graph;
static cudaGraphExec_t executable;

static cudaError_t make_graph(void **p) {
    cudaError_t result = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
    if (!result) result = cudaMallocAsync(p, BYTES, stream);
    if (!result) result = cudaStreamEndCapture(stream, &graph);
    return result ? result : cudaGraphInstantiate(&executable, graph, 0);
}

static cudaError_t make_launched_graph(void **p) {
    cudaError_t result = make_graph(p);
    if (!result) result = cudaGraphLaunch(executable, stream);
    return result ? result : cudaStreamSynchronize(stream);
}

static int put_device(void *p) {
    return (int)cudaFree(p);
}

static int put_host(void *p) {
    return (int)cudaFreeHost(p);
}

static int put_registered(void *p) {
    return (int)cudaHostUnregister(p);
}

static int put_malloc(void *p) {
    free(p);
    return 0;
}

static int put_graph(void *p) {
    const int freed = (int)cudaFree(p);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    return freed;
}

static int put_nothing(void *p) {
    (void)p;
    return 0;
}

static const struct producer {
    const char *name;
    cudaError_t (*make)(void **p);
    int (*put)(void *p);
    size_t inside;
} producers[] = {
    {"plain", make_plain, put_device, 0},
    {"plain, 1 inside", make_plain, put_device, 1},
    {"plain, 512 inside", make_plain, put_device, 512},
    {"large", make_large, put_device, 0},
    {"large, 2 MiB inside", make_large, put_device, 2 * MIB},
    {"async", make_async, put_device, 0},
    {"async, 512 inside", make_async, put_device, 512},
    {"async on the default stream", make_async_default, put_device, 0},
    {"async on the thread's own stream", make_async_own, put_device, 0},
    {"from a pool of its own", make_from_own_pool, put_device, 0},
    {"pitched", make_pitched, put_device, 0},
    {"3d", make_3d, put_device, 0},
    {"managed", make_managed, put_device, 0},
    {"host", make_host, put_host, 0},
    {"mapped", make_mapped, put_host, 0},
    {"device pointer of mapped", make_device_of_mapped, put_host, 0},
    {"registered", make_registered, put_registered, 0},
    {"graph's", make_graph, put_graph, 0},
    {"launched graph's", make_launched_graph, put_graph, 0},
    {"malloc", make_malloc, put_malloc, 0},
    {"stack", make_stack, put_nothing, 0},
    {"NULL", make_null, put_nothing, 0},
    {"empty", make_empty, put_nothing, 0},
    {"garbage", make_garbage, put_nothing, 0},
    {"freed", make_freed, put_nothing, 0},
    {"array", make_array, put_nothing, 0},
};

/* ---- free functions ---- */

static int by_free(void *p) {
    return (int)cudaFree(p);
}

static int by_free_async(void *p) {
    return (int)cudaFreeAsync(p, stream);
}

static int by_free_async_default(void *p) {
    return (int)cudaFreeAsync(p, 0);
}

static int by_free_async_own(void *p) {
    return (int)cudaFreeAsync(p, cudaStreamPerThread);
}

static int by_free_host(void *p) {
    return (int)cudaFreeHost(p);
}

/* Code 1 or 713 for an address that is not the host's: the runtime makes a last error of either. */
static int by_unregister(void *p) {
    const int code = (int)cudaHostUnregister(p);
    if (code != cudaErrorHostMemoryNotRegistered) return code;
    cudaGetLastError();
    return (int)cudaFreeHost((void *)1); /* leaves 1 */
}

static int by_close(void *p) {
    return (int)cudaIpcCloseMemHandle(p);
}

static const struct {
    const char *name;
    int (*free)(void *p);
} functions[] = {
    {"cudaFree", by_free},
    {"cudaFreeAsync", by_free_async},
    {"cudaFreeAsync on the default stream", by_free_async_default},
    {"cudaFreeAsync on the thread's own stream", by_free_async_own},
    {"cudaFreeHost", by_free_host},
    {"cudaHostUnregister", by_unregister},
    {"cudaIpcCloseMemHandle", by_close},
};

static void say_last_error(void) {
    printf(" (last error %d", (int)cudaPeekAtLastError());
    printf(" %d", (int)cudaGetLastError());
    printf(" %d)", (int)cudaGetLastError());
}

static void free_everything(void) {
    void *neighbour;
    begin();
    cudaMalloc(&neighbour, BYTES);
    for (size_t i = 0; i < COUNT(producers); i++)
        for (size_t j = 0; j < COUNT(functions); j++) {
            const struct producer *producer = &producers[i];
            void *p = NULL;
            const int made = (int)producer->make(&p);
            printf("%s, %s: ", producer->name, functions[j].name);
            if (made) {
                printf("not made: %d", made);
                say_last_error();
                puts("");
                continue;
            }
            printf("%d", functions[j].free((char *)p + producer->inside));
            say_last_error();
            cudaDeviceSynchronize();
            struct cudaPointerAttributes attributes = {.type = (enum cudaMemoryType)77};
            printf("; then %d", (int)cudaPointerGetAttributes(&attributes, p));
            printf(", type %d", (int)attributes.type);
            cudaGetLastError();
            printf("; given back: %d", producer->put(p));
            say_last_error();
            printf("; invariants broken: %s\n", broken_invariant());
        }
    printf("the neighbour is freed: %d\n", (int)cudaFree(neighbour));
}

/* ---- wrong frees among neighbours ---- */

enum { BLOCK = 4096, BLOCKS = 6 };

static int holds(const void *p, unsigned char value) {
    unsigned char copy[BLOCK];
    if (cudaMemcpy(copy, p, BLOCK, cudaMemcpyDeviceToHost)) return 0;
    for (size_t i = 0; i < BLOCK; i++)
        if (copy[i] != value) return 0;
    return 1;
}

static cudaError_t take(int async, void **p) {
    return async ? cudaMallocAsync(p, BLOCK, stream) : cudaMalloc(p, BLOCK);
}

static void free_wrongly(int async, size_t victim, size_t first, size_t second) {
    char *p[BLOCKS], *again;
    int code = 0;
    for (int i = 0; i < BLOCKS; i++)
        code |= (int)take(async, (void **)&p[i]) | (int)cudaMemsetAsync(p[i], i + 1, BLOCK, stream);
    cudaStreamSynchronize(stream);
    printf("%s block %zu, %s, %s: made %d", async ? "async" : "plain", victim, functions[first].name,
           functions[second].name, code);
    printf("; freed %d", functions[first].free(p[victim]));
    cudaDeviceSynchronize();
    for (int i = 0; i < 2; i++) {
        printf("; again %d", functions[second].free(p[victim]));
        say_last_error();
    }
    printf("; inside others %d", functions[second].free(p[BLOCKS - 2] + 512));
    say_last_error();
    printf("; next %d", (int)take(async, (void **)&again));
    printf(" %d", (int)cudaMemsetAsync(again, 99, BLOCK, stream));
    cudaStreamSynchronize(stream);
    int whole = 1;
    for (size_t j = 0; j < BLOCKS; j++) whole &= j == victim || holds(p[j], (unsigned char)(j + 1));
    printf("; neighbours whole %d; invariants broken: %s", whole, broken_invariant());
    code = (int)cudaFree(again);
    for (size_t i = 0; i < BLOCKS; i++)
        if (i != victim) code |= (int)cudaFree(p[i]);
    printf("; the others freed %d\n", code);
}

static void free_everything_wrongly(void) {
    begin();
    for (int async = 0; async < 2; async++)
        for (size_t victim = 0; victim < BLOCKS; victim += 2)
            for (size_t first = 0; first < 2; first++)
                for (size_t second = 0; second < 4; second++) free_wrongly(async, victim, first, second);
}

/* ---- out of memory ---- */

static cudaError_t managed(void **p, size_t bytes) {
    return cudaMallocManaged(p, bytes, cudaMemAttachGlobal);
}

static cudaError_t async(void **p, size_t bytes) {
    return cudaMallocAsync(p, bytes, stream);
}

static cudaError_t async_default(void **p, size_t bytes) {
    return cudaMallocAsync(p, bytes, 0);
}

static cudaError_t pitched(void **p, size_t bytes) {
    size_t pitch;
    return cudaMallocPitch(p, &pitch, MIB, bytes / MIB);
}

static cudaError_t cubic(void **p, size_t bytes) {
    struct cudaPitchedPtr pointer = {0};
    const cudaError_t result = cudaMalloc3D(&pointer, (struct cudaExtent){MIB, bytes / MIB / 2, 2});
    *p = pointer.ptr;
    return result;
}

static cudaError_t plain(void **p, size_t bytes) {
    return cudaMalloc(p, bytes);
}

static const struct {
    const char *name;
    cudaError_t (*take)(void **p, size_t bytes);
} allocators[] = {
    {"cudaMalloc", plain},        {"cudaMallocAsync", async}, {"cudaMallocAsync on the default stream", async_default},
    {"cudaMallocPitch", pitched}, {"cudaMalloc3D", cubic},    {"cudaMallocManaged", managed}};

static void say_taken(const char *name, const char *when, int code) {
    printf("%s, %s: %d", name, when, code);
    say_last_error();
    puts("");
}

/* A program that meets an error gives something back and tries again. */
static void out_of_memory(void) {
    void *p[64], *one = NULL;
    int code = 0;
    begin();
    for (size_t i = 0; i < COUNT(allocators); i++) {
        const char *name = allocators[i].name;
        int taken = 0;
        say_taken(name, "impossible", (int)allocators[i].take(&one, (size_t)1 << 46));
        while (taken < 64 && (code = (int)cudaMalloc(&p[taken], 2 * MIB)) == 0) taken++;
        say_taken("cudaMalloc", "full", code);
        say_taken(name, "full", (int)allocators[i].take(&one, 512 * MIB));
        /* A success leaves an error that was there. */
        cudaFree((void *)GARBAGE);
        for (int j = 0; j < taken; j++) code |= (int)cudaFree(p[j]);
        say_taken("cudaFree", "all", 0);
        /* What is cached has to go back first: nothing of that is seen. */
        say_taken(name, "fits again", (int)allocators[i].take(&one, 40 * MIB));
        say_taken("cudaFree", "it", (int)cudaFree(one));
        cudaDeviceSynchronize();
        /* And with an error there already. */
        cudaFree((void *)GARBAGE);
        say_taken(name, "with an error there", (int)allocators[i].take(&one, 40 * MIB));
        say_taken("cudaFree", "it", (int)cudaFree(one));
        cudaDeviceSynchronize();
    }
}

/* Beyond a limit that the driver knows nothing of. */
static void out_of_limit(void) {
    void *p, *one = NULL;
    begin();
    say_taken("cudaMalloc", "within", (int)cudaMalloc(&p, 8 * MIB));
    for (size_t i = 0; i < 3; i++) say_taken(allocators[i].name, "beyond", (int)allocators[i].take(&one, 64 * MIB));
    say_taken("cudaFree", "it", (int)cudaFree(p));
    for (size_t i = 0; i < 3; i++) {
        say_taken(allocators[i].name, "within again", (int)allocators[i].take(&one, 24 * MIB));
        say_taken("cudaFree", "it", (int)cudaFree(one));
        cudaDeviceSynchronize();
    }
}

/* ---- attributes ---- */

static void attributes(void) {
    static const size_t sizes[] = {1, 512, 1000, 4097, 3 * MIB + 5, 40 * MIB};
    char *p, *first;
    begin();
    cudaMalloc((void **)&first, 4096);
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int kind = 0; kind < 2; kind++) {
            const int code =
                (int)(kind ? cudaMallocAsync((void **)&p, sizes[i], stream) : cudaMalloc((void **)&p, sizes[i]));
            cudaStreamSynchronize(stream);
            printf("%s of %zu bytes: %d, aligned %d", kind ? "async" : "plain", sizes[i], code,
                   (uintptr_t)p % 512 == 0);
            for (size_t at = 0; at<sizes[i]; at += sizes[i]> 1 ? sizes[i] - 1 : 1) {
                struct cudaPointerAttributes found = {.type = (enum cudaMemoryType)77, .device = 77};
                printf("; at %zu: %d", at, (int)cudaPointerGetAttributes(&found, p + at));
                printf(", type %d, device %d, itself %d, host pointer %d", (int)found.type, found.device,
                       found.devicePointer == p + at, found.hostPointer != NULL);
            }
            printf("; freed %d\n", (int)cudaFree(p));
        }
    cudaFree(first);
}

int main(int argc, char **argv) {
    static const struct part parts[] = {{"every_producer", free_everything},
                                        {"wrong_frees", free_everything_wrongly},
                                        {"out_of_memory", out_of_memory},
                                        {"out_of_limit", out_of_limit},
                                        {"attributes", attributes}};
    return run_part(argc, argv, parts, COUNT(parts));
}
