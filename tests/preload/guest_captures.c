/* SPDX-License-Identifier: MIT
 *
 * A program over the driver whose captures are begun and ended in odd ways: by other threads, by other names of a
 * stream, in other contexts. Prints what its calls answer. The last thing that each part does is the sequence, which is
 * to be served from the pool again; the figures tell.
 */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include <cuda.h>

#include "sequence.h"
#include "sim.h"

#define SAY(call) printf("%s: %d\n", #call, (int)(call))

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph);

static CUcontext contexts[2];
static CUgraph graph;
static CUstream stream;

static int take(void **out, size_t bytes) {
    CUdeviceptr p;
    const CUresult result = cuMemAlloc(&p, bytes);
    if (result == CUDA_SUCCESS) *out = (void *)(uintptr_t)p;
    return (int)result;
}

static int give_back(void *p) {
    return (int)cuMemFree((CUdeviceptr)(uintptr_t)p);
}

/* An allocation of the thread, which passes while something captures. */
static void say_allocation(void) {
    CUdeviceptr p = 0;
    const CUresult result = cuMemAlloc(&p, 4096);
    printf("allocate: %d, free: %d\n", (int)result, result ? 0 : (int)cuMemFree(p));
}

static void in_thread(void *(*body)(void *)) {
    pthread_t thread;
    pthread_create(&thread, NULL, body, NULL);
    pthread_join(thread, NULL);
}

/* ---- the parts ---- */

static void say_broken(void) {
    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say_allocation(); /* refused, and breaks it */
    SAY(cuStreamEndCapture(stream, &graph));
}

static void *end_here(void *unused) {
    (void)unused;
    SAY(cuCtxSetCurrent(contexts[0]));
    SAY(cuStreamEndCapture(stream, &graph)); /* refused: it is the other thread's */
    say_allocation();
    return NULL;
}

static void say_ended_by_another(void) {
    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    in_thread(end_here);
    SAY(cuStreamEndCapture(stream, &graph));
}

static void *capture_here(void *unused) {
    (void)unused;
    SAY(cuCtxSetCurrent(contexts[0]));
    SAY(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
    return NULL;
}

static void say_two_threads(void) {
    SAY(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    in_thread(capture_here);
    say_allocation();
    SAY(cuStreamDestroy(CU_STREAM_PER_THREAD)); /* no stream that can be destroyed */
    say_allocation();
    SAY(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
}

static void say_names(void) {
    SAY(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    say_allocation();
    SAY(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
    SAY(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
    say_allocation();
    SAY(cuStreamEndCapture_ptsz(NULL, &graph));
}

static void say_another_context(void) {
    CUstream other;
    SAY(cuCtxSetCurrent(contexts[1]));
    SAY(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    SAY(cuCtxSetCurrent(contexts[0]));
    SAY(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    say_allocation();
    SAY(cuDevicePrimaryCtxReset(1));
}

static void say_destroyed_context(void) {
    CUcontext created;
    CUstream other;
    SAY(cuCtxCreate(&created, NULL, 0, 0));
    SAY(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    SAY(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuCtxDestroy(created));
    SAY(cuCtxSetCurrent(contexts[0]));
}

static void say_released_context(void) {
    CUstream other;
    SAY(cuCtxSetCurrent(contexts[1]));
    SAY(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    SAY(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuCtxSetCurrent(contexts[0]));
    say_allocation();
    SAY(cuDevicePrimaryCtxRelease(1));
}

static void say_mode(void) {
    CUstream other;
    CUdeviceptr p;
    SAY(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    SAY(cuMemAlloc(&p, 4096));
    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY(cuMemFreeAsync(p, other));
    say_allocation(); /* refused: the thread's mode is as before */
    SAY(cuStreamEndCapture(stream, &graph));
    SAY(cuStreamDestroy(other));
}

/* The stream of a capture is destroyed unseen, and its handle comes back. */
static void say_unseen_end(void) {
    void *unseen = NULL, *again = NULL;
    SAY(sim_stream_create(&unseen, CU_STREAM_NON_BLOCKING));
    SAY(cuStreamBeginCapture(unseen, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(sim_stream_destroy(unseen));
    SAY(sim_stream_create(&again, CU_STREAM_NON_BLOCKING));
    printf("the same handle: %d\n", again == unseen);
    SAY(cuStreamBeginCapture(again, CU_STREAM_CAPTURE_MODE_RELAXED));
    say_allocation();
    SAY(cuStreamEndCapture(again, &graph));
    SAY(sim_stream_destroy(again));
}

/* The legacy stream would have to wait for the one that captures. */
static void say_legacy(void) {
    CUstream blocking;
    CUdeviceptr p;
    CUstreamCaptureStatus status;
    SAY(cuStreamCreate(&blocking, 0));
    SAY(cuMemAlloc(&p, 4096));
    SAY(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    SAY(cuMemFreeAsync(p, NULL));
    printf("asked: %d", (int)cuStreamIsCapturing(blocking, &status));
    printf(", status %d\n", (int)status);
    printf("ended: %d\n", (int)cuStreamEndCapture(blocking, &graph));
    SAY(cuMemFree(p));
    SAY(cuStreamDestroy(blocking));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*say)(void);
    } parts[] = {{"broken", say_broken},
                 {"ended_by_another", say_ended_by_another},
                 {"two_threads", say_two_threads},
                 {"names", say_names},
                 {"another_context", say_another_context},
                 {"destroyed_context", say_destroyed_context},
                 {"released_context", say_released_context},
                 {"mode", say_mode},
                 {"unseen_end", say_unseen_end},
                 {"legacy", say_legacy}};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; argc >= 2 && i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(argv[1], parts[i].name) != 0) continue;
        SAY(cuInit(0));
        for (int k = 0; k < 2; k++) SAY(cuDevicePrimaryCtxRetain(&contexts[k], k));
        SAY(cuCtxSetCurrent(contexts[0]));
        SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        parts[i].say();
        printf("sequence: %d\n", run_sequence(take, give_back));
        if (argc == 3) wait_for_reader();
        return 0;
    }
    return 2;
}
