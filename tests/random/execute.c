/* SPDX-License-Identifier: MIT
 *
 * Runs a program: each of its threads calls its operations in turn, each when those of other threads that it follows
 * have returned. Then everything is freed, and the judges are asked.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "figures.h"
#include "kernels.h"
#include "program.h"
#include "stamp.h"
#include "tally.h"

enum { SPINS = 200, PAUSE_US = 20, HELD_US = 200 };

struct live_block {
    uint64_t address; /* 0: the allocation failed, or it is freed */
    uint64_t bytes;
    bool async;
    uint8_t context;
    _Atomic(uint64_t) lane; /* that used it last, 0: none did */
};

struct live_stream {
    cudaStream_t handle;
    bool alive, unseen;
    uint8_t context;
    uint64_t lane;
};

/* All but the atomics is written by one operation and read by those that follow it. */
static struct {
    const struct program *program;
    struct live_block blocks[BLOCKS_MAX];
    struct live_stream streams[STREAMS_MAX];
    cudaEvent_t events[EVENTS_MAX];
    cudaEvent_t forks[GRAPHS_MAX][2];
    cudaGraphExec_t graphs[GRAPHS_MAX];
    uint8_t graph_contexts[GRAPHS_MAX];
    uint8_t capturing[STREAMS_MAX]; /* the graph that the stream captures into */
    CUcontext created[CONTEXTS_MAX];
    uint32_t generations[CONTEXTS_MAX];
    _Atomic(uint16_t) returned[THREADS_MAX];
    atomic_bool failed;
} running;

static _Atomic(uint64_t) lanes;

static _Thread_local struct {
    unsigned number, context;
    uint32_t generation;
    bool has_context;
} self;

static void fail(size_t operation, const char *format, ...) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&lock);
    if (!atomic_exchange(&running.failed, true)) {
        printf("# program %" PRIu64 ": ", running.program->seed);
        if (operation < running.program->count) printf("operation %zu: ", operation);
        vprintf(format, arguments);
        putchar('\n');
        fflush(stdout);
    }
    pthread_mutex_unlock(&lock);
    va_end(arguments);
    kernels_release();
}

/* False, and the program has failed, when the answer is none of those expected. */
static bool expect(size_t operation, int answer, const char *call, int expected, int or_else) {
    if (answer == expected || answer == or_else) return true;
    fail(operation, "%s answered %d", call, answer);
    return false;
}

#define DO(call) expect(number, (int)(call), #call, 0, 0)

static bool use_context(size_t number, unsigned context) {
    if (self.has_context && self.context == context && self.generation == running.generations[context]) return true;
    self.has_context =
        context < DEVICES_MAX ? DO(cudaSetDevice((int)context)) : DO(cuCtxSetCurrent(running.created[context]));
    self.context = context;
    self.generation = running.generations[context];
    return self.has_context;
}

static const struct calls *family(const struct operation *operation) {
    return operation->per_thread ? &calls_per_thread : &calls_legacy;
}

/* The operation's stream as the functions of its family are given it: their default stream as 0. */
static cudaStream_t stream_of(const struct operation *operation) {
    if (operation->stream < LEGACY_FIRST) return running.streams[operation->stream].handle;
    if (operation->stream < PER_THREAD_FIRST) return operation->per_thread ? cudaStreamLegacy : NULL;
    return operation->per_thread ? NULL : cudaStreamPerThread;
}

/* A stream as any function takes it. */
static cudaStream_t stream_named(unsigned stream) {
    if (stream < LEGACY_FIRST) return running.streams[stream].handle;
    return stream < PER_THREAD_FIRST ? cudaStreamLegacy : cudaStreamPerThread;
}

static void block_used(unsigned stream, unsigned block) {
    struct live_block *used = &running.blocks[block];
    const uint64_t lane = running.streams[stream].lane;
    if (atomic_exchange(&used->lane, lane) == 0) tally_first_use(used->address, used->bytes, lane);
}

static bool launch(const struct operation *operation, size_t number, unsigned stream) {
    struct kernel kernel = {.number = (uint32_t)number,
                            .microseconds = operation->waits ? HELD_US : operation->microseconds,
                            .until_released = operation->waits && running.program->settings.releases};
    for (unsigned i = 0; i < operation->touch_count; i++) {
        const struct touch *touch = &operation->touches[i];
        const struct live_block *block = &running.blocks[touch->block];
        if (block->address == 0) continue;
        kernel.touches[kernel.touch_count++] = (struct kernel_touch){.address = block->address,
                                                                     .bytes = block->bytes,
                                                                     .block = touch->block,
                                                                     .expected = touch->expected,
                                                                     .stamp = touch->stamp};
        if (running.capturing[operation->stream] == NOBODY) block_used(stream, touch->block);
    }
    TALLY(kernels);
    return DO(kernels_launch(&kernel, stream_named(stream)));
}

static bool stream_create(const struct operation *operation, size_t number) {
    struct live_stream *stream = &running.streams[operation->stream];
    int least = 0, greatest = 0;
    *stream = (struct live_stream){.context = operation->context, .lane = atomic_fetch_add(&lanes, 1) + 1};
    switch (operation->other) {
    case STREAM_NON_BLOCKING:
        stream->alive = DO(cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking));
        break;
    case STREAM_PRIORITY:
        stream->alive = DO(cudaDeviceGetStreamPriorityRange(&least, &greatest)) &&
                        DO(cudaStreamCreateWithPriority(&stream->handle, cudaStreamDefault, greatest));
        break;
    case STREAM_UNSEEN:
        stream->unseen = stream->alive = kernels_unseen_stream_create((void **)&stream->handle);
        if (stream->alive) break;
        /* fall through */
    default:
        stream->alive = DO(cudaStreamCreate(&stream->handle));
    }
    return stream->alive;
}

static bool stream_destroy(struct live_stream *stream, size_t number) {
    stream->alive = false;
    if (!stream->unseen) return DO(cudaStreamDestroy(stream->handle));
    kernels_unseen_stream_destroy(stream->handle);
    return true;
}

static bool allocate(const struct operation *operation, size_t number) {
    struct live_block *block = &running.blocks[operation->block];
    const bool async = operation->kind == DO_ALLOC_ASYNC;
    const cudaStream_t stream = async ? stream_of(operation) : NULL;
    CUdeviceptr address = 0;
    void *pointer = NULL;
    int answer;
    block->context = operation->context;
    kernels_allocator_entered();
    if (async && operation->by_driver)
        answer = (int)family(operation)->driver_malloc_async(&address, operation->bytes, stream);
    else if (async)
        answer = (int)family(operation)->malloc_async(&pointer, operation->bytes, stream);
    else if (operation->by_driver)
        answer = (int)cuMemAlloc(&address, operation->bytes);
    else
        answer = (int)cudaMalloc(&pointer, operation->bytes);
    kernels_allocator_left();
    const bool scarce = running.program->settings.scarce;
    if (!expect(number, answer, async ? "an allocation in stream order" : "an allocation", 0, scarce ? 2 : 0))
        return false;
    if (answer != 0) {
        TALLY(out_of_memory);
        cudaGetLastError();
        return true;
    }
    if (!operation->by_driver) address = (CUdeviceptr)(uintptr_t)pointer;
    if (async) {
        kernels_allocated_async(address, operation->bytes, stream_named(operation->stream));
        TALLY(async_allocations);
    } else {
        kernels_allocated(address, operation->bytes);
        TALLY(plain_allocations);
    }
    block->address = address;
    block->bytes = operation->bytes;
    block->async = async;
    atomic_store(&block->lane, 0);
    return true;
}

static bool allocate_too_much(const struct operation *operation, size_t number) {
    CUdeviceptr address = 0;
    void *pointer = NULL;
    const cudaStream_t stream = operation->waits ? stream_of(operation) : NULL;
    int answer;
    if (operation->waits && operation->by_driver)
        answer = (int)family(operation)->driver_malloc_async(&address, operation->bytes, stream);
    else if (operation->waits)
        answer = (int)family(operation)->malloc_async(&pointer, operation->bytes, stream);
    else
        answer = operation->by_driver ? (int)cuMemAlloc(&address, operation->bytes)
                                      : (int)cudaMalloc(&pointer, operation->bytes);
    if (!expect(number, answer, "an allocation that is too large", 2, 2)) return false;
    if (!operation->by_driver && cudaGetLastError() != cudaErrorMemoryAllocation) {
        fail(number, "the last error is not that of the allocation");
        return false;
    }
    TALLY(out_of_memory);
    return true;
}

static bool release(const struct operation *operation, size_t number) {
    struct live_block *block = &running.blocks[operation->block];
    const uint64_t address = block->address;
    void *const pointer = (void *)(uintptr_t)address;
    /* What the program leans on is done even where the block could not be had; so it is below. */
    if (address == 0) return !operation->waits || (use_context(number, block->context) && DO(cuCtxSynchronize()));
    block->address = 0;
    tally_freed(address, block->bytes, atomic_load(&block->lane));
    if (operation->kind == DO_FREE_ASYNC) {
        const cudaStream_t stream = stream_of(operation);
        if (!block->async) TALLY(plain_frees_in_stream_order);
        kernels_freed_async(address, stream_named(operation->stream));
        return operation->by_driver ? DO(family(operation)->driver_free_async(address, stream))
                                    : DO(family(operation)->free_async(pointer, stream));
    }
    if (block->async) TALLY(async_frees_by_cudafree);
    kernels_freed(address);
    return operation->by_driver ? DO(cuMemFree(address)) : DO(cudaFree(pointer));
}

static bool read_back(const struct operation *operation, size_t number) {
    const struct touch *touch = &operation->touches[0];
    const struct live_block *block = &running.blocks[touch->block];
    const cudaStream_t stream = stream_of(operation);
    if (block->address == 0) return DO(family(operation)->stream_synchronize(stream));
    block_used(operation->stream, touch->block);
    unsigned char bytes[2 * STAMP_EDGE];
    const uint64_t edge = block->bytes < STAMP_EDGE ? block->bytes : STAMP_EDGE;
    const uint64_t last = block->bytes - edge;
    if (!DO(family(operation)->copy_async(bytes, (void *)(uintptr_t)block->address, edge, cudaMemcpyDeviceToHost,
                                          stream)) ||
        !DO(family(operation)->copy_async(bytes + edge, (void *)(uintptr_t)(block->address + last), edge,
                                          cudaMemcpyDeviceToHost, stream)) ||
        !DO(family(operation)->stream_synchronize(stream)))
        return false;
    for (uint64_t i = 0; i < 2 * edge; i++) {
        const uint64_t offset = i < edge ? i : last + i - edge;
        const unsigned char should = stamp_byte(touch->expected, offset);
        if (bytes[i] == should) continue;
        fail(number, "block %u holds %u at byte %" PRIu64 ", where stamp %" PRIu32 " has %u", touch->block, bytes[i],
             offset, touch->expected, should);
        return false;
    }
    return true;
}

static bool fill(const struct operation *operation, size_t number) {
    const struct touch *touch = &operation->touches[0];
    const struct live_block *block = &running.blocks[touch->block];
    const cudaStream_t stream = stream_of(operation);
    if (block->address == 0) return launch(operation, number, operation->stream);
    block_used(operation->stream, touch->block);
    return DO(
        family(operation)->memset_async((void *)(uintptr_t)block->address, (int)touch->stamp, block->bytes, stream));
}

static bool look_up(const struct operation *operation, size_t number) {
    const struct live_block *block = &running.blocks[operation->block];
    CUdeviceptr base = 0;
    size_t bytes = 0;
    struct cudaPointerAttributes attributes;
    if (block->address == 0) return true;
    if (!DO(cuMemGetAddressRange(&base, &bytes, block->address + block->bytes / 2)) ||
        !DO(cudaPointerGetAttributes(&attributes, (void *)(uintptr_t)block->address)))
        return false;
    if (base == block->address && bytes == block->bytes && attributes.type == cudaMemoryTypeDevice) return true;
    fail(number, "block %u at %" PRIx64 " of %" PRIu64 " bytes is said to be at %" PRIx64 " of %zu bytes, type %d",
         operation->block, block->address, block->bytes, (uint64_t)base, bytes, (int)attributes.type);
    return false;
}

static bool enable_peer(const struct operation *operation, size_t number) {
    const int peer = operation->other;
    const struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = operation->context},
                                             .flags = cudaMemAccessFlagsProtReadWrite};
    cudaMemPool_t pool;
    const int answer = (int)cudaDeviceEnablePeerAccess(peer, 0);
    if (answer == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError();
    return expect(number, answer, "cudaDeviceEnablePeerAccess", 0, cudaErrorPeerAccessAlreadyEnabled) &&
           DO(cudaDeviceGetDefaultMemPool(&pool, peer)) && DO(cudaMemPoolSetAccess(pool, &access, 1));
}

/* ---- captures and graphs ---- */

static bool capture_begin(const struct operation *operation, size_t number) {
    running.capturing[operation->stream] = operation->graph;
    running.graph_contexts[operation->graph] = operation->context;
    for (unsigned i = 0; i < 2; i++)
        if (!DO(cudaEventCreateWithFlags(&running.forks[operation->graph][i], cudaEventDisableTiming))) return false;
    TALLY(captures);
    return DO(family(operation)->begin_capture(stream_of(operation), (enum cudaStreamCaptureMode)operation->other));
}

static bool capture_fork(const struct operation *operation, size_t number) {
    cudaEvent_t *events = running.forks[running.capturing[operation->stream]];
    cudaStream_t const stream = stream_named(operation->stream), other = stream_named(operation->other);
    return DO(cudaEventRecord(events[0], stream)) && DO(cudaStreamWaitEvent(other, events[0], 0)) &&
           launch(operation, number, operation->other) && DO(cudaEventRecord(events[1], other)) &&
           DO(cudaStreamWaitEvent(stream, events[1], 0));
}

/* Memory that the graph itself allocates, writes, checks and frees. */
static bool capture_temporary(const struct operation *operation, size_t number) {
    void *const stream = stream_named(operation->stream);
    void *pointer = NULL;
    if (!DO(family(operation)->malloc_async(&pointer, operation->bytes, stream))) return false;
    const uint64_t address = (uint64_t)(uintptr_t)pointer;
    kernels_allocated_async(address, operation->bytes, stream);
    const uint32_t stamp = UINT32_MAX - (uint32_t)number;
    struct kernel kernel = {.touches = {{.address = address, .bytes = operation->bytes, .stamp = stamp}},
                            .touch_count = 1,
                            .number = (uint32_t)number};
    if (!DO(kernels_launch(&kernel, stream))) return false;
    kernel.touches[0].expected = stamp;
    if (!DO(kernels_launch(&kernel, stream))) return false;
    kernels_freed_async(address, stream);
    return DO(family(operation)->free_async(pointer, stream));
}

static bool capture_end(const struct operation *operation, size_t number) {
    const cudaStream_t stream = stream_of(operation);
    cudaGraph_t graph = NULL;
    running.capturing[operation->stream] = NOBODY;
    running.graphs[operation->graph] = NULL;
    if (!DO(family(operation)->end_capture(stream, &graph))) return false;
    const int answer = (int)cudaGraphInstantiate(&running.graphs[operation->graph], graph, 0);
    if (answer == cudaErrorNotSupported) {
        TALLY(graphs_unsupported);
        cudaGetLastError();
    }
    bool done = expect(number, answer, "cudaGraphInstantiate", 0, cudaErrorNotSupported) && DO(cudaGraphDestroy(graph));
    for (unsigned i = 0; i < 2; i++) done = done && DO(cudaEventDestroy(running.forks[operation->graph][i]));
    return done;
}

static bool graph_launch(const struct operation *operation, size_t number) {
    const cudaStream_t stream = stream_of(operation);
    TALLY(graph_launches);
    return DO(family(operation)->graph_launch(running.graphs[operation->graph], stream));
}

static bool graph_destroy(unsigned graph, size_t number) {
    const cudaGraphExec_t destroyed = running.graphs[graph];
    running.graphs[graph] = NULL;
    return destroyed == NULL || DO(cudaGraphExecDestroy(destroyed));
}

/* ---- the ends of contexts ---- */

static bool context_exists(unsigned context) {
    return context < DEVICES_MAX ? context < running.program->devices : running.created[context] != NULL;
}

/* What kernels found in the context that is current. */
static bool ask_kernels(void) {
    struct kernel_wrong wrongs[KERNEL_WRONG_MAX];
    const size_t count = kernels_wrong(wrongs);
    for (size_t i = 0; i < count; i++)
        fail(wrongs[i].number, "block %u held %u at byte %" PRIu64 ", where stamp %" PRIu32 " has %u", wrongs[i].block,
             wrongs[i].is, wrongs[i].offset, wrongs[i].expected, wrongs[i].should);
    return count == 0;
}

static bool quiet(size_t number) {
    bool done = true;
    for (unsigned i = 0; done && i < CONTEXTS_MAX; i++)
        if (context_exists(i)) done = use_context(number, i) && DO(cuCtxSynchronize()) && ask_kernels();
    return done;
}

/* What the end of a context leaves without meaning. */
static bool context_leave(size_t number, unsigned context) {
    bool done = use_context(number, context) && ask_kernels();
    for (unsigned i = 0; done && i < GRAPHS_MAX; i++)
        if (running.graph_contexts[i] == context) done = graph_destroy(i, number);
    for (unsigned i = 0; i < CREATED_STREAMS_MAX; i++)
        if (running.streams[i].context == context) running.streams[i].alive = false;
    for (unsigned i = 0; i < EVENTS_OF_CONTEXT; i++) running.events[context * EVENTS_OF_CONTEXT + i] = NULL;
    for (unsigned i = 0; i < BLOCKS_MAX; i++)
        if (!running.blocks[i].async && running.blocks[i].context == context) running.blocks[i].address = 0;
    running.generations[context]++;
    figures_note();
    return done;
}

static bool device_reset(size_t number, unsigned device) {
    TALLY(resets);
    return context_leave(number, device) && DO(cudaDeviceReset());
}

static bool context_create(const struct operation *operation, size_t number) {
    CUcontext before = NULL;
    running.generations[operation->context]++;
    TALLY(contexts_created);
    return DO(cuCtxCreate(&running.created[operation->context], NULL, 0, operation->other)) &&
           DO(cuCtxPopCurrent(&before));
}

static bool context_destroy(size_t number, unsigned context) {
    const CUcontext destroyed = running.created[context];
    const bool left = context_leave(number, context);
    running.created[context] = NULL;
    self.has_context = false;
    return left && DO(cuCtxDestroy(destroyed));
}

static bool event_record(const struct operation *operation, size_t number) {
    cudaEvent_t *event = &running.events[operation->event];
    if (*event == NULL && !DO(cudaEventCreateWithFlags(event, cudaEventDisableTiming))) return false;
    return DO(family(operation)->event_record(*event, stream_of(operation)));
}

static bool memory_info(size_t number) {
    size_t available = 1, total = 0;
    if (!DO(cudaMemGetInfo(&available, &total))) return false;
    if (available <= total) return true;
    fail(number, "cudaMemGetInfo: %zu free of %zu", available, total);
    return false;
}

static bool perform(const struct operation *operation, size_t number) {
    const struct calls *calls = family(operation);
    const bool has_context = operation->kind == DO_CONTEXT_CREATE || operation->kind == DO_QUIET;
    if (!has_context && !use_context(number, operation->context)) return false;
    switch (operation->kind) {
    case DO_STREAM_CREATE:
        return stream_create(operation, number);
    case DO_STREAM_DESTROY:
        return stream_destroy(&running.streams[operation->stream], number);
    case DO_STREAM_SYNCHRONIZE:
        return DO(calls->stream_synchronize(stream_of(operation)));
    case DO_STREAM_QUERY:
        return expect(number, (int)calls->stream_query(stream_of(operation)), "cudaStreamQuery", 0, cudaErrorNotReady);
    case DO_EVENT_RECORD:
        return event_record(operation, number);
    case DO_STREAM_WAIT:
        return DO(calls->stream_wait(stream_of(operation), running.events[operation->event], 0));
    case DO_EVENT_SYNCHRONIZE:
        return DO(cudaEventSynchronize(running.events[operation->event]));
    case DO_EVENT_QUERY:
        return expect(number, (int)cudaEventQuery(running.events[operation->event]), "cudaEventQuery", 0,
                      cudaErrorNotReady);
    case DO_CONTEXT_SYNCHRONIZE:
        return operation->by_driver ? DO(cuCtxSynchronize()) : DO(cudaDeviceSynchronize());
    case DO_ALLOC:
    case DO_ALLOC_ASYNC:
        return allocate(operation, number);
    case DO_ALLOC_TOO_LARGE:
        return allocate_too_much(operation, number);
    case DO_FREE:
    case DO_FREE_ASYNC:
        return release(operation, number);
    case DO_KERNEL:
        return launch(operation, number, operation->stream);
    case DO_MEMSET:
        return fill(operation, number);
    case DO_READ_BACK:
        return read_back(operation, number);
    case DO_LOOK_UP:
        return look_up(operation, number);
    case DO_MEMORY_INFO:
        return memory_info(number);
    case DO_CAPTURE_BEGIN:
        return capture_begin(operation, number);
    case DO_CAPTURE_FORK:
        return capture_fork(operation, number);
    case DO_CAPTURE_TEMPORARY:
        return capture_temporary(operation, number);
    case DO_CAPTURE_END:
        return capture_end(operation, number);
    case DO_GRAPH_LAUNCH:
        return graph_launch(operation, number);
    case DO_GRAPH_DESTROY:
        return graph_destroy(operation->graph, number);
    case DO_PEER_ENABLE:
        return enable_peer(operation, number);
    case DO_RELEASE:
        kernels_release();
        return true;
    case DO_QUIET:
        return quiet(number);
    case DO_DEVICE_RESET:
        return device_reset(number, operation->context);
    case DO_CONTEXT_CREATE:
        return context_create(operation, number);
    case DO_CONTEXT_DESTROY:
        return context_destroy(number, operation->context);
    default:
        return true;
    }
}

static void wait_for(const struct operation *operation) {
    for (unsigned i = 0; i < THREADS_MAX; i++)
        for (unsigned spins = 0;
             atomic_load_explicit(&running.returned[i], memory_order_acquire) < operation->after[i] &&
             !atomic_load_explicit(&running.failed, memory_order_relaxed);
             spins++)
            spins < SPINS ? (void)sched_yield() : (void)usleep(PAUSE_US);
}

static void *thread_run(void *argument) {
    const struct program *program = running.program;
    memset(&self, 0, sizeof self);
    self.number = (unsigned)(uintptr_t)argument;
    for (size_t i = 0; i < program->count; i++) {
        const struct operation *operation = &program->operations[i];
        if (operation->thread != self.number) continue;
        wait_for(operation);
        if (atomic_load(&running.failed)) break;
        TALLY(operations);
        if (!perform(operation, i)) break;
        atomic_store_explicit(&running.returned[self.number], operation->position, memory_order_release);
    }
    return NULL;
}

/* ---- the end, and the judges ---- */

static bool free_all(size_t number) {
    bool done = true;
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        if (running.graphs[i] != NULL)
            done = use_context(number, running.graph_contexts[i]) && graph_destroy(i, number) && done;
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        const struct live_block *block = &running.blocks[i];
        if (block->address == 0) continue;
        const unsigned context = context_exists(block->context) ? block->context : 0;
        const struct operation last = {.kind = DO_FREE, .block = (uint16_t)i, .by_driver = i % 2 == 0};
        done = use_context(number, context) && release(&last, number) && done;
    }
    for (unsigned i = 0; i < CREATED_STREAMS_MAX; i++)
        if (running.streams[i].alive)
            done =
                use_context(number, running.streams[i].context) && stream_destroy(&running.streams[i], number) && done;
    for (unsigned i = 0; i < EVENTS_MAX; i++)
        if (running.events[i] != NULL) done = DO(cudaEventDestroy(running.events[i])) && done;
    for (unsigned i = DEVICES_MAX; i < CONTEXTS_MAX; i++)
        if (running.created[i] != NULL) done = context_destroy(number, i) && done;
    return done;
}

static void ask_judges(void) {
    char text[512];
    const size_t end = running.program->count;
    const size_t races = kernels_races();
    for (size_t i = 0; i < races && kernels_race_text(i, text, sizeof text); i++) {
        fail(end, "%zu race%s", races, races > 1 ? "s" : "");
        printf("#     %s\n", text);
    }
    if (figures_broken(text, sizeof text)) fail(end, "%s", text);
    const char *(*check)(void);
    *(void **)&check = dlsym(RTLD_DEFAULT, "poolcuda_check");
    const char *broken = check != NULL ? check() : NULL;
    if (broken != NULL) fail(end, "the pool's invariant is broken: %s", broken);
    if (cudaGetLastError() != cudaSuccess && !atomic_load(&running.failed)) fail(end, "an error was left behind");
}

bool program_run(const struct program *program) {
    pthread_t threads[THREADS_MAX];
    memset(&running, 0, sizeof running);
    memset(running.capturing, NOBODY, sizeof running.capturing);
    memset(&self, 0, sizeof self);
    running.program = program;
    for (unsigned i = LEGACY_FIRST; i < STREAMS_MAX; i++) running.streams[i].lane = atomic_fetch_add(&lanes, 1) + 1;
    kernels_judge_begin();
    for (unsigned i = 0; i < program->threads; i++) pthread_create(&threads[i], NULL, thread_run, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < program->threads; i++) pthread_join(threads[i], NULL);
    kernels_release();
    if (quiet(program->count)) free_all(program->count);
    figures_note();
    ask_judges();
    return !atomic_load(&running.failed);
}
