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

#include "doors.h"
#include "execute.h"
#include "figures.h"
#include "importer.h"
#include "kernels.h"
#include "tally.h"

enum { SPINS = 200, PAUSE_US = 20, HELD_US = 200 };

struct running running;

static _Atomic(uint64_t) lanes;

static _Thread_local struct {
    unsigned number, context;
    uint32_t generation;
    bool has_context;
} self;

void fail(size_t operation, const char *format, ...) {
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

bool expect(size_t operation, int answer, const char *call, int expected, int or_else) {
    if (answer == expected || answer == or_else) return true;
    fail(operation, "%s answered %d", call, answer);
    return false;
}

bool use_context(size_t number, unsigned context) {
    if (self.has_context && self.context == context && self.generation == running.generations[context]) return true;
    const bool had_context = self.has_context;
    self.has_context =
        context < DEVICES_MAX ? DO(device_use((int)context)) : DO(cuCtxSetCurrent(running.created[context]));
    if (had_context && context != self.context) PROGRAM_DID(contexts_in_turn);
    self.context = context;
    self.generation = running.generations[context];
    return self.has_context;
}

void block_used(unsigned stream, unsigned block) {
    struct live_block *used = &running.blocks[block];
    const uint64_t lane = running.streams[stream].lane;
    if (atomic_exchange(&used->lane, lane) == 0) tally_first_use(used->address, used->bytes, lane);
}

bool launch(const struct operation *operation, size_t number, unsigned stream) {
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

static bool enable_peer(const struct operation *operation, size_t number) {
    const int peer = operation->other;
    const struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = operation->context},
                                             .flags = cudaMemAccessFlagsProtReadWrite};
    cudaMemPool_t pool;
    const bool async = running.program->settings.async;
    const int answer = (int)cudaDeviceEnablePeerAccess(peer, 0);
    if (answer == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError();
    return expect(number, answer, "cudaDeviceEnablePeerAccess", 0, cudaErrorPeerAccessAlreadyEnabled) &&
           (!async || (DO(cudaDeviceGetDefaultMemPool(&pool, peer)) && DO(cudaMemPoolSetAccess(pool, &access, 1))));
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
    bool done = sharing_leave(number, context) && use_context(number, context) && ask_kernels();
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
    running.devices[operation->context] = operation->other;
    TALLY(contexts_created);
    return DO(door_context_create(&running.created[operation->context], operation->other)) &&
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
    case DO_FREE_WRONG:
        return release_wrong(operation, number);
    case DO_LOOK_UP:
        return look_up(operation, number);
    case DO_MARK:
        return mark(operation, number);
    case DO_POOL_CREATE:
    case DO_POOL_SET:
    case DO_POOL_ACCESS:
    case DO_POOL_ADJUST:
    case DO_POOL_TRIM:
    case DO_POOL_LOOK:
    case DO_POOL_DESTROY:
        return memory_pool_operation(operation, number);
    case DO_EXPORT:
    case DO_OPEN:
    case DO_OPEN_STALE:
    case DO_USE:
    case DO_CLOSE:
    case DO_KILL:
        return sharing_operation(operation, number);
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
        if (operation->per_thread) PROGRAM_DID(per_thread_calls);
        if (!perform(operation, i)) break;
        atomic_store_explicit(&running.returned[self.number], operation->position, memory_order_release);
    }
    return NULL;
}

/* ---- the end, and the judges ---- */

static bool free_all(size_t number) {
    const bool pools_first = running.program->seed % 2 == 0;
    bool done = sharing_end(number);
    if (pools_first) done = memory_pools_end(number) && done;
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        if (running.graphs[i] != NULL)
            done = use_context(number, running.graph_contexts[i]) && graph_destroy(i, number) && done;
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        const struct live_block *block = &running.blocks[i];
        if (block->address == 0) continue;
        const unsigned context = context_exists(block->context) ? block->context : 0;
        const struct operation last = {
            .kind = DO_FREE, .block = (uint16_t)i, .by_driver = i % 2 == 0, .door = (uint8_t)(i / 2 % DOORS)};
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
    if (!pools_first) done = memory_pools_end(number) && done;
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
    for (unsigned i = 0; i < DEVICES_MAX; i++) running.devices[i] = (uint8_t)i;
    for (unsigned i = LEGACY_FIRST; i < STREAMS_MAX; i++) running.streams[i].lane = atomic_fetch_add(&lanes, 1) + 1;
    kernels_judge_begin();
    memory_pools_begin(program->count);
    for (unsigned i = 0; i < program->threads; i++) pthread_create(&threads[i], NULL, thread_run, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < program->threads; i++) pthread_join(threads[i], NULL);
    kernels_release();
    if (quiet(program->count)) free_all(program->count);
    figures_note();
    ask_judges();
    tally_program_ended();
    return !atomic_load(&running.failed);
}
