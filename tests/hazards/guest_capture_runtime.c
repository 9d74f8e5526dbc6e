/* SPDX-License-Identifier: MIT
 *
 * The capture matrix by the runtime's names: what each call answers amid a capture, the last error that it leaves, what
 * becomes of the capture, and whether memory can be had afterwards. For comparing a native run with a pooled one.
 */
#include <pthread.h>
#include <stdio.h>

#include <cuda_runtime_api.h>

#include "sequence.h"

#define SMALL ((size_t)64 << 10)

enum { CAPTURING, NON_BLOCKING, BLOCKING, LEGACY, OWN, STREAMS };
static const char *const stream_names[] = {"the capturing stream", "a non-blocking one", "a blocking one",
                                           "the legacy stream", "the thread's own"};
static const char *const mode_names[] = {"global", "thread-local", "relaxed"};

struct cell {
    cudaStream_t streams[STREAMS], stream; /* the one that the call is about */
    void *plain, *ordered;                 /* live when the capture begins */
    void *got;                             /* what a call allocated and did not free */
};

/* ---- the calls ---- */

#define CALL(name) static cudaError_t name(struct cell *cell)

CALL(take) {
    return cudaMalloc(&cell->got, SMALL);
}
CALL(take_nothing) {
    return cudaMalloc(&cell->got, 0);
}
CALL(take_to_null) {
    (void)cell;
    return cudaMalloc(NULL, SMALL);
}
CALL(take_pitched) {
    size_t pitch;
    return cudaMallocPitch(&cell->got, &pitch, 1000, 3);
}
CALL(take_managed) {
    return cudaMallocManaged(&cell->got, SMALL, cudaMemAttachGlobal);
}
CALL(release) {
    return cudaFree(cell->plain);
}
CALL(release_ordered) {
    return cudaFree(cell->ordered);
}
CALL(release_null) {
    (void)cell;
    return cudaFree(NULL);
}
CALL(release_inside) {
    return cudaFree((char *)cell->plain + 512);
}
CALL(release_twice) {
    const cudaError_t result = cudaFree(cell->plain);
    return result == cudaSuccess ? cudaFree(cell->plain) : result;
}
CALL(release_and_take) {
    const cudaError_t result = cudaFree(cell->plain);
    return result == cudaSuccess ? cudaMalloc(&cell->got, SMALL) : result;
}
CALL(ask_for_memory) {
    (void)cell;
    size_t free_bytes, total;
    return cudaMemGetInfo(&free_bytes, &total);
}
CALL(copy) {
    return cudaMemcpy(cell->plain, cell->ordered, SMALL, cudaMemcpyDeviceToDevice);
}
CALL(use_in_order) {
    void *p;
    cudaError_t result = cudaMallocAsync(&p, SMALL, cell->stream);
    if (result == cudaSuccess) result = cudaMemsetAsync(p, 1, SMALL, cell->stream);
    return result == cudaSuccess ? cudaFreeAsync(p, cell->stream) : result;
}
CALL(take_nothing_in_order) {
    return cudaMallocAsync(&cell->got, 0, cell->stream);
}
CALL(release_in_order) {
    return cudaFreeAsync(cell->ordered, cell->stream);
}
CALL(release_plain_in_order) {
    return cudaFreeAsync(cell->plain, cell->stream);
}
CALL(release_null_in_order) {
    return cudaFreeAsync(NULL, cell->stream);
}
CALL(release_twice_in_order) {
    const cudaError_t result = cudaFreeAsync(cell->ordered, cell->stream);
    return result == cudaSuccess ? cudaFreeAsync(cell->ordered, cell->stream) : result;
}

struct call {
    const char *name;
    cudaError_t (*make)(struct cell *);
    int streams; /* how many kinds it is about; 0: none */
};

static const struct call calls[] = {{"cudaMalloc", take, 0},
                                    {"cudaMalloc of 0", take_nothing, 0},
                                    {"cudaMalloc to NULL", take_to_null, 0},
                                    {"cudaMallocPitch", take_pitched, 0},
                                    {"cudaMallocManaged", take_managed, 0},
                                    {"cudaFree", release, 0},
                                    {"cudaFree of what was allocated in order", release_ordered, 0},
                                    {"cudaFree of NULL", release_null, 0},
                                    {"cudaFree inside a block", release_inside, 0},
                                    {"cudaFree twice", release_twice, 0},
                                    {"cudaFree and cudaMalloc", release_and_take, 0},
                                    {"cudaMemGetInfo", ask_for_memory, 0},
                                    {"cudaMemcpy", copy, 0},
                                    {"cudaMallocAsync and cudaFreeAsync", use_in_order, STREAMS},
                                    {"cudaMallocAsync of 0", take_nothing_in_order, STREAMS},
                                    {"cudaFreeAsync", release_in_order, STREAMS},
                                    {"cudaFreeAsync of plain memory", release_plain_in_order, STREAMS},
                                    {"cudaFreeAsync of NULL", release_null_in_order, STREAMS},
                                    {"cudaFreeAsync twice", release_twice_in_order, STREAMS}};

/* ---- one cell ---- */

struct caller {
    const struct call *call;
    struct cell *cell;
    enum cudaStreamCaptureMode mode; /* the thread's */
    cudaError_t result, kept, last;
};

static void *make_call(void *argument) {
    struct caller *caller = argument;
    enum cudaStreamCaptureMode mode = caller->mode;
    cudaThreadExchangeStreamCaptureMode(&mode);
    caller->result = caller->call->make(caller->cell);
    caller->kept = cudaPeekAtLastError();
    cudaGetLastError();
    caller->last = cudaGetLastError();
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (mode != caller->mode) printf("the thread's mode is %s\n", mode_names[mode]);
    return NULL;
}

static void say_cell(struct cell *cell, struct caller *caller, enum cudaStreamCaptureMode mode, int other_thread) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = NULL;
    size_t nodes = 0;
    pthread_t thread;
    cudaMalloc(&cell->plain, SMALL);
    cudaMallocAsync(&cell->ordered, SMALL, cell->streams[NON_BLOCKING]);
    cell->got = NULL;
    cudaDeviceSynchronize();
    cudaStreamBeginCapture(cell->streams[CAPTURING], mode);
    if (other_thread) {
        pthread_create(&thread, NULL, make_call, caller);
        pthread_join(thread, NULL);
    } else {
        make_call(caller);
    }
    printf(": %d, last error %d, then %d", (int)caller->result, (int)caller->kept, (int)caller->last);
    const int asked = (int)cudaStreamIsCapturing(cell->streams[CAPTURING], &status);
    const int ended = (int)cudaStreamEndCapture(cell->streams[CAPTURING], &graph);
    if (graph) cudaGraphGetNodes(graph, NULL, &nodes);
    if (graph) cudaGraphDestroy(graph);
    printf("; capture %d, status %d, ended %d, nodes %zu", asked, (int)status, ended, nodes);
    printf("; left %d", (int)cudaFree(cell->got));
    printf(" %d", (int)cudaFree(cell->plain));
    printf(" %d", (int)cudaFreeAsync(cell->ordered, cell->streams[NON_BLOCKING]));
    cudaGetLastError();
    void *p = NULL;
    printf("; works %d", (int)cudaMalloc(&p, SMALL));
    printf(" %d", (int)cudaFree(p));
    printf(" %d", (int)cudaMallocAsync(&p, SMALL, cell->streams[BLOCKING]));
    printf(" %d", (int)cudaFreeAsync(p, cell->streams[BLOCKING]));
    printf(" %d", (int)cudaDeviceSynchronize());
    printf(" %d\n", (int)cudaGetLastError());
}

static void say_call(struct cell *cell, const struct call *call) {
    for (int each = 0; each < 3 * 3 * 2; each++) {
        struct caller caller = {.call = call, .cell = cell, .mode = (enum cudaStreamCaptureMode)(each / 3 % 3)};
        printf("%s, %s thread in %s mode, %s", mode_names[each % 3], each >= 9 ? "another" : "the same",
               mode_names[caller.mode], call->name);
        say_cell(cell, &caller, (enum cudaStreamCaptureMode)(each % 3), each >= 9);
    }
}

int main(int argc, char **argv) {
    struct cell cell = {.streams = {[LEGACY] = cudaStreamLegacy, [OWN] = cudaStreamPerThread}};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int blocking = 0; blocking < 2; blocking++) {
        printf("on a %sblocking stream\n", blocking ? "" : "non-");
        cudaStreamCreateWithFlags(&cell.streams[CAPTURING], blocking ? cudaStreamDefault : cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&cell.streams[NON_BLOCKING], cudaStreamNonBlocking);
        cudaStreamCreate(&cell.streams[BLOCKING]);
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            cell.stream = NULL;
            if (!calls[i].streams) say_call(&cell, &calls[i]);
            for (int k = 0; k < calls[i].streams; k++) {
                printf("on %s\n", stream_names[k]);
                cell.stream = cell.streams[k];
                say_call(&cell, &calls[i]);
            }
        }
        for (int k = CAPTURING; k <= BLOCKING; k++) printf("destroyed: %d\n", (int)cudaStreamDestroy(cell.streams[k]));
    }
    if (argc == 2 && argv[1][0] == 'w') wait_for_reader();
    return 0;
}
