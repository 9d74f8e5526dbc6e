/* SPDX-License-Identifier: MIT
 *
 * The capture matrix: a program over the driver that makes every call amid every kind of capture. A capture has a mode,
 * and a stream that blocks or does not; the call is made by the capturing thread or by another, in each mode that a
 * thread can be in, and by one without a context. Prints the call's answer, what became of the capture and of the
 * thread's mode, and whether memory can be had afterwards, for comparing a native run with a pooled one.
 */
#include <pthread.h>
#include <stdbool.h>

#include "capture_calls.h"
#include "stream_guest.h"

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device); /* of old drivers too */

static const char *const mode_names[] = {"global", "thread-local", "relaxed"};

enum thread { SAME, ANOTHER, BARE /* without a context */ };
static const char *const thread_names[] = {"the same thread", "another thread", "a bare thread"};

struct caller {
    const struct capture_call *call;
    enum thread thread;
    struct cell *cell;
    CUstreamCaptureMode mode; /* the thread's */
    CUresult result;
};

/* ---- what the calls use ---- */

static void make_missing(struct cell *cell, bool blocking) {
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    if (!cell->streams[CAPTURING])
        must(cuStreamCreate(&cell->streams[CAPTURING], blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    if (!cell->other) cell->other = stream_new();
    if (!cell->own_pool) must(cuMemPoolCreate(&cell->own_pool, &properties));
    if (!cell->created) {
        must(cuCtxCreate_v2(&cell->created, 0, 0));
        must(cuCtxSetCurrent(primary));
    }
}

static void make_cell(struct cell *cell) {
    *cell = (struct cell){.streams = {[LEGACY] = CU_STREAM_LEGACY, [OWN] = CU_STREAM_PER_THREAD}};
    cell->streams[NON_BLOCKING] = stream_new();
    must(cuStreamCreate(&cell->streams[BLOCKING], CU_STREAM_DEFAULT));
    must(cuDeviceGetDefaultMemPool(&cell->first_pool, 0));
    must(cuDevicePrimaryCtxRetain(&cell->second, 1));
    must(cuGraphCreate(&cell->graph, 0));
    must(cuGraphInstantiate(&cell->exec, cell->graph, 0));
    cell->exported = take_plain(LARGE);
    must(cuIpcGetMemHandle(&cell->handle, cell->exported));
    must(cuEventCreate(&cell->event, CU_EVENT_DISABLE_TIMING));
}

/* Blocks of each kind; and some that are idle, so that a pool has what the calls ask for. */
static void make_blocks(struct cell *cell) {
    const CUdeviceptr idle = take_plain(SMALL);
    cell->plain = take_plain(SMALL);
    must(cuMemFree(idle));
    must(cuMemFreeAsync(take(SMALL, cell->streams[NON_BLOCKING]), cell->streams[NON_BLOCKING]));
    cell->ordered = take(SMALL, cell->streams[NON_BLOCKING]);
    cell->other_ordered = take(SMALL, cell->streams[CAPTURING]);
    cell->got = cell->after = 0;
    cell->got_on = NULL;
    must(cuEventRecord(cell->event, cell->streams[NON_BLOCKING]));
    must(cuCtxSynchronize());
}

/* ---- one cell ---- */

static void *make_call(void *argument) {
    struct caller *caller = argument;
    CUstreamCaptureMode mode = caller->mode;
    if (caller->thread != BARE) must(cuCtxSetCurrent(primary));
    must(cuThreadExchangeStreamCaptureMode(&mode));
    caller->result = caller->call->make(caller->cell);
    must(cuThreadExchangeStreamCaptureMode(&mode));
    if (mode != caller->mode) printf("the thread's mode is %s\n", mode_names[mode]);
    return NULL;
}

/* What the capture that has a graph ends with: its nodes. */
static void say_end(struct cell *cell) {
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    size_t nodes = 0;
    if (!cell->streams[CAPTURING]) {
        printf("; gone");
        return;
    }
    const CUresult asked = cuStreamIsCapturing(cell->streams[CAPTURING], &status);
    const CUresult ended = cuStreamEndCapture(cell->streams[CAPTURING], &graph);
    if (graph) must(cuGraphGetNodes(graph, NULL, &nodes));
    printf("; capture %d, status %d, ended %d, nodes %zu", (int)asked, (int)status, (int)ended, nodes);
    if (graph) must(cuGraphDestroy(graph));
}

/* What was allocated amid the capture goes; then what was freed is no block any more, and what was not is one. */
static void say_left(struct cell *cell) {
    int got = 0, after = 0;
    if (cell->got && cell->got_on == cell->streams[CAPTURING] && cell->got_on) {
        got = -1; /* a graph's */
    } else if (cell->got) {
        got = cell->got_on ? (int)cuMemFreeAsync(cell->got, cell->streams[NON_BLOCKING]) : (int)cuMemFree(cell->got);
    }
    if (cell->after) after = (int)cuMemFree(cell->after);
    printf("; left %d %d %d %d %d", got, after, (int)cuMemFree(cell->plain),
           (int)cuMemFreeAsync(cell->ordered, cell->streams[BLOCKING]),
           (int)cuMemFreeAsync(cell->other_ordered, cell->streams[NON_BLOCKING]));
    CUdeviceptr p = 0;
    const int taken = (int)cuMemAlloc(&p, SMALL), freed = (int)cuMemFree(p);
    const int taken_in_order = (int)cuMemAllocAsync(&p, SMALL, cell->streams[NON_BLOCKING]);
    const int freed_in_order = (int)cuMemFreeAsync(p, cell->streams[NON_BLOCKING]);
    printf("; works %d %d %d %d", taken, freed, taken_in_order, freed_in_order);
    printf(" %d\n", (int)cuCtxSynchronize());
}

static void say_cell(struct cell *cell, struct caller *caller) {
    make_blocks(cell);
    cell->said = 0;
    must(cuStreamBeginCapture(cell->streams[CAPTURING], cell->mode));
    if (caller->thread != SAME) {
        pthread_t thread;
        pthread_create(&thread, NULL, make_call, caller);
        pthread_join(thread, NULL);
    } else {
        make_call(caller);
    }
    printf("%s, %s in %s mode, %s: %d, said %llu", mode_names[cell->mode], thread_names[caller->thread],
           mode_names[caller->mode], caller->call->name, (int)caller->result, cell->said);
    say_end(cell);
    say_left(cell);
}

static void say_matrix(bool blocking) {
    struct cell cell;
    int version = 0;
    must(cuDriverGetVersion(&version));
    make_cell(&cell);
    for (unsigned i = 0; i < capture_call_count; i++) {
        if (capture_calls[i].since > version) continue;
        for (int each = 0; each < 3 * (3 + 3 + 1); each++) {
            struct caller caller = {&capture_calls[i], (enum thread)(each / 9), &cell,
                                    (CUstreamCaptureMode)(each / 3 % 3), CUDA_SUCCESS};
            cell.mode = (CUstreamCaptureMode)(each % 3);
            make_missing(&cell, blocking);
            say_cell(&cell, &caller);
        }
    }
}

static void say_non_blocking(void) {
    say_matrix(false);
}

static void say_blocking(void) {
    say_matrix(true);
}

/* ---- what is freed amid a capture comes back ---- */

/* Blocks that are large enough to be the only one of their kind that is free. */
static void say_freed(bool ordered, bool in_order, CUstream capturing, CUstream other) {
    const CUdeviceptr block = ordered ? take(LARGE, other) : take_plain(LARGE);
    must(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
    must(in_order ? cuMemFreeAsync(block, other) : cuMemFree(block));
    CUgraph graph;
    must(cuStreamEndCapture(capturing, &graph));
    must(cuGraphDestroy(graph));
    CUdeviceptr again = 0;
    for (int i = 0; i < 3 && again != block; i++) { /* the first one may be what has it proved */
        again = ordered ? take(LARGE, capturing) : take_plain(LARGE);
        must(cuMemFree(again));
        must(cuCtxSynchronize());
    }
    printf("memory %s, freed %s: %s\n", ordered ? "allocated in order" : "of cuMemAlloc",
           in_order ? "in order" : "by cuMemFree", which(again == block));
}

static void say_back(void) {
    const CUstream capturing = stream_new(), other = stream_new();
    for (int each = 0; each < 4; each++) say_freed(each & 1, each & 2, capturing, other);
}

static const struct guest_part parts[] = {
    {"non_blocking", say_non_blocking}, {"blocking", say_blocking}, {"back", say_back}};
GUEST_MAIN(parts)
