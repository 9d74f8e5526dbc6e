/* SPDX-License-Identifier: MIT
 *
 * Graphs whose kernels use memory of before the capture, launched again and again while other memory comes and goes.
 * The simulator judges who uses whose memory, and the program looks at what its blocks hold.
 */
#include "stream_guest.h"

#define BYTES ((size_t)64 << 10)

static CUstream capturing, other;

/* ---- blocks that the simulator is told of ---- */

static CUdeviceptr take_noted_plain(size_t bytes) {
    const CUdeviceptr p = take_plain(bytes);
    must((CUresult)sim_block_allocated(p, bytes));
    return p;
}

/* A refused free leaves the block what it was. */
static CUresult try_free(CUdeviceptr p) {
    must((CUresult)sim_block_freed(p));
    const CUresult result = cuMemFree(p);
    if (result != CUDA_SUCCESS) must((CUresult)sim_block_kept(p));
    return result;
}

static CUresult try_free_async(CUdeviceptr p, CUstream stream) {
    must((CUresult)sim_block_freed_async(p, stream));
    const CUresult result = cuMemFreeAsync(p, stream);
    if (result != CUDA_SUCCESS) must((CUresult)sim_block_kept(p));
    return result;
}

/* ---- what kernels do: the first range gets a byte throughout ---- */

static void fill(void *byte, void *const *pointers) {
    memset(pointers[0], *(unsigned char *)byte, BYTES);
}

static CUresult write_byte(CUdeviceptr p, unsigned char byte, CUstream stream) {
    const struct sim_range range = {p, BYTES, true};
    const struct sim_kernel kernel = {
        .microseconds = 200, .ranges = &range, .range_count = 1, .run = fill, .argument = &byte, .argument_bytes = 1};
    return (CUresult)sim_launch(&kernel, stream);
}

static int holds(CUdeviceptr p, unsigned char byte) {
    static unsigned char copy[BYTES];
    must(cuMemcpyDtoH(copy, p, BYTES));
    for (size_t i = 0; i < BYTES; i++)
        if (copy[i] != byte) return 0;
    return 1;
}

/* ---- the parts ---- */

static CUgraphExec end_capture(void) {
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    SAY(cuStreamEndCapture(capturing, &graph));
    if (!graph) return NULL;
    must(cuGraphInstantiate(&exec, graph, 0));
    must(cuGraphDestroy(graph));
    return exec;
}

/* Others allocate, use and free all the while, in both orders; what the graph has written is there, and only there. */
static void replay(CUgraphExec exec, CUdeviceptr plain, CUdeviceptr ordered) {
    CUdeviceptr kept[4] = {0};
    int right = 0;
    for (unsigned round = 0; round < 24; round++) {
        CUdeviceptr *place = &kept[round % 4];
        if (*place) must(round % 2 ? try_free(*place) : try_free_async(*place, other));
        must(cuGraphLaunch(exec, capturing));
        *place = round % 3 ? take_noted_plain(BYTES) : take_noted(BYTES, other);
        if (round % 3) must(cuCtxSynchronize());
        must(write_byte(*place, (unsigned char)(100 + round), other));
        must(cuCtxSynchronize());
        right += holds(plain, 1) && holds(ordered, 2) && holds(*place, (unsigned char)(100 + round));
        must(cuMemsetD8(plain, 0, BYTES));
        must(cuMemsetD8(ordered, 0, BYTES));
        must(cuCtxSynchronize());
    }
    for (int i = 0; i < 4; i++) must(try_free(kept[i]));
    printf("right: %d of 24\n", right);
}

/* Each refused or permitted call is tried amid a capture that uses the block that it is about; then the graph is made
 * in a capture without it. */
static void say_replays(CUstreamCaptureMode mode, bool call_first, CUresult (*call)(CUdeviceptr)) {
    CUdeviceptr plain = take_noted_plain(BYTES), ordered = take_noted(BYTES, other);
    must(cuCtxSynchronize());
    SAY(cuStreamBeginCapture(capturing, mode));
    if (call_first) printf("tried: %d\n", (int)call(plain));
    SAY(write_byte(plain, 1, capturing));
    if (!call_first) printf("tried: %d\n", (int)call(plain));
    SAY(write_byte(ordered, 2, capturing));
    CUgraphExec exec = end_capture();
    if (!exec) {
        SAY(cuStreamBeginCapture(capturing, mode));
        SAY(write_byte(plain, 1, capturing));
        SAY(write_byte(ordered, 2, capturing));
        exec = end_capture();
    }
    replay(exec, plain, ordered);
    must(cuGraphExecDestroy(exec));
    must(cuCtxSynchronize());
    SAY(try_free(plain));
    SAY(try_free_async(ordered, other));
    must(cuCtxSynchronize());
}

static CUresult none(CUdeviceptr p) {
    (void)p;
    return CUDA_SUCCESS;
}

static CUresult free_in_order(CUdeviceptr p) {
    return try_free_async(p, capturing);
}

static CUresult allocate_and_free(CUdeviceptr p) {
    (void)p;
    CUdeviceptr q = 0;
    const CUresult result = cuMemAlloc(&q, BYTES);
    if (result != CUDA_SUCCESS) return result;
    must((CUresult)sim_block_allocated(q, BYTES));
    return try_free(q);
}

static void say_each(CUresult (*call)(CUdeviceptr), bool relaxed_too) {
    for (int mode = 0; mode < (relaxed_too ? 3 : 2); mode++) {
        say_replays((CUstreamCaptureMode)mode, false, call);
        say_replays((CUstreamCaptureMode)mode, true, call);
    }
}

/* In a relaxed capture the free of a block that the graph uses is permitted: the program's fault. */
static void say_refused(void) {
    capturing = stream_new();
    other = stream_new();
    say_each(none, true);
    say_each(try_free, false);
    say_each(free_in_order, true);
    say_each(allocate_and_free, true);
    say_races();
}

/* What is freed amid a relaxed capture is not the graph's, and goes to others; a block that the graph uses does not. */
static void say_freed(void) {
    capturing = stream_new();
    other = stream_new();
    for (int round = 0; round < 8; round++) {
        CUdeviceptr plain = take_noted_plain(BYTES), ordered = take_noted(BYTES, other), gone = take_noted_plain(BYTES),
                    gone_in_order = take_noted(BYTES, other);
        must(write_byte(gone, 3, capturing)); /* before the capture, and not over when it begins */
        must(write_byte(gone_in_order, 4, other));
        SAY(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
        SAY(write_byte(plain, 1, capturing));
        SAY(try_free(gone));
        SAY(try_free_async(gone_in_order, other));
        const CUdeviceptr beside = take_noted(BYTES, other);
        SAY(write_byte(beside, 5, other));
        SAY(write_byte(ordered, 2, capturing));
        const CUgraphExec exec = end_capture();
        must(try_free_async(beside, other));
        must(cuCtxSynchronize());
        replay(exec, plain, ordered);
        must(cuGraphExecDestroy(exec));
        must(cuCtxSynchronize());
        must(try_free(plain));
        must(try_free_async(ordered, other));
    }
    say_races();
}

static const struct guest_part parts[] = {{"refused", say_refused}, {"freed", say_freed}};
GUEST_MAIN(parts)
