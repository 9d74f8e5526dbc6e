/* SPDX-License-Identifier: MIT
 *
 * Memory that goes from a stream of one kind to one of another: for each two kinds, a block is freed while a kernel of
 * the first stream uses it, and what the second stream is given at once is used there. What CUDA does not order may not
 * share memory; the simulator judges. Prints where the block went, and the races.
 */
#include <pthread.h>
#include <unistd.h>

#include "stream_guest.h"

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);

#define BYTES ((size_t)4096)

enum kind {
    BLOCKING,
    OTHER_BLOCKING,
    NON_BLOCKING,
    OTHER_NON_BLOCKING,
    LEGACY,
    OWN,
    OWN_BY_DEFAULT,
    OF_A_THREAD,
    KINDS
};
static const char *const names[KINDS] = {"a blocking stream", "another blocking one",     "a non-blocking one",
                                         "another such",      "the legacy stream",        "the thread's own",
                                         "its stream 0",      "the own of another thread"};
static CUstream streams[KINDS];

/* ---- another thread, that does what it is told ---- */

struct task {
    void (*make)(struct task *);
    enum kind kind;
    CUdeviceptr block;
    bool plain; /* memory of cuMemAlloc and cuMemFree */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct task *given;

static void *work(void *unused) {
    (void)unused;
    must(cuCtxSetCurrent(primary));
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!given) pthread_cond_wait(&changed, &lock);
        given->make(given);
        given = NULL;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

static void make(struct task *task, void (*what)(struct task *)) {
    task->make = what;
    if (task->kind != OF_A_THREAD) {
        what(task);
        return;
    }
    pthread_mutex_lock(&lock);
    given = task;
    pthread_cond_broadcast(&changed);
    while (given) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- what is done on a stream ---- */

static void allocate(struct task *task) {
    const CUstream stream = streams[task->kind];
    if (task->plain) {
        task->block = take_plain(BYTES);
        must((CUresult)sim_block_allocated(task->block, BYTES));
        return;
    }
    must(task->kind == OWN_BY_DEFAULT ? cuMemAllocAsync_ptsz(&task->block, BYTES, NULL)
                                      : cuMemAllocAsync(&task->block, BYTES, stream));
    must((CUresult)sim_block_allocated_async(task->block, BYTES, stream));
}

/* Where no call waits for it, until it is released. */
static void use(struct task *task) {
    const struct sim_range range = {task->block, BYTES, true};
    const struct sim_kernel kernel = {
        .microseconds = 500, .until_released = !task->plain, .ranges = &range, .range_count = 1};
    must((CUresult)sim_launch(&kernel, streams[task->kind]));
}

static void release(struct task *task) {
    const CUstream stream = streams[task->kind];
    if (task->plain) {
        must((CUresult)sim_block_freed(task->block));
        must(cuMemFree(task->block));
        return;
    }
    must((CUresult)sim_block_freed_async(task->block, stream));
    must(task->kind == OWN_BY_DEFAULT ? cuMemFreeAsync_ptsz(task->block, NULL) : cuMemFreeAsync(task->block, stream));
}

/* Allocates, uses and frees on one, then on the other. */
static void say_two(enum kind from, enum kind to, bool plain) {
    struct task first = {.kind = from, .plain = plain}, second = {.kind = to, .plain = plain};
    make(&first, allocate);
    make(&first, use);
    make(&first, release);
    make(&second, allocate);
    make(&second, use);
    make(&second, release);
    if (!plain) printf("%s, then %s: %s\n", names[from], names[to], which(first.block == second.block));
}

static void say_all(bool plain) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    must(cuStreamCreate(&streams[BLOCKING], CU_STREAM_DEFAULT));
    must(cuStreamCreate(&streams[OTHER_BLOCKING], CU_STREAM_DEFAULT));
    streams[NON_BLOCKING] = stream_new();
    streams[OTHER_NON_BLOCKING] = stream_new();
    streams[LEGACY] = CU_STREAM_LEGACY;
    for (int kind = OWN; kind < KINDS; kind++) streams[kind] = CU_STREAM_PER_THREAD;
    for (int from = 0; from < KINDS; from++) {
        for (int to = 0; to < KINDS; to++) {
            say_two((enum kind)from, (enum kind)to, plain);
            sim_release_kernels();
            must(cuCtxSynchronize());
        }
    }
    say_races();
}

static void say_ordered(void) {
    say_all(false);
}

static void say_plain(void) {
    say_all(true);
}

static const struct guest_part parts[] = {{"ordered", say_ordered}, {"plain", say_plain}};
GUEST_MAIN(parts)
