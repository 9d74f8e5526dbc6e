/* SPDX-License-Identifier: MIT
 *
 * Work on the device: the one place where an operation is submitted, with all that it must come after; and the worker
 * threads that run what is ready. An operation knows how many others it waits for, and whom it keeps waiting; so
 * streams, events, the legacy stream and context events are the same to it. Workers start with the first work that
 * needs one, and sleep when there is none. They are never joined: a process may end whatever is queued.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "driver.h"

enum { WORKER_MAX = 128, PRIORITIES = 1 - STREAM_PRIORITY_GREATEST, INLINE_BYTES = 64 << 10 };

pthread_mutex_t scheduler_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_cond_t work = PTHREAD_COND_INITIALIZER;     /* something is ready */
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER; /* something completed, and somebody waits */
static pthread_cond_t release = PTHREAD_COND_INITIALIZER;  /* kernels were released */
static unsigned waiters, workers, idle_workers, ready_count;
static uint64_t release_round = 1;

static struct queue { struct operation *first, **end; } ready[PRIORITIES];

uint64_t scheduler_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Operations. */

struct operation *operation_new(enum operation_kind kind) {
    struct operation *const operation = calloc(1, sizeof(*operation));
    if (operation == NULL) return NULL;
    operation->kind = kind;
    atomic_store_explicit(&operation->references, 1, memory_order_relaxed);
    return operation;
}

struct operation *operation_hold(struct operation *operation) {
    atomic_fetch_add_explicit(&operation->references, 1, memory_order_relaxed);
    return operation;
}

static void program_drop(struct operation_program *program) {
    if (program != NULL && atomic_fetch_sub_explicit(&program->references, 1, memory_order_acq_rel) == 1) free(program);
}

void operation_drop(struct operation *operation) {
    if (operation == NULL || atomic_fetch_sub_explicit(&operation->references, 1, memory_order_acq_rel) > 1) return;
    if (operation->kind == OPERATION_COPY) free(operation->copy.staged);
    if (operation->kind == OPERATION_KERNEL) program_drop(operation->kernel.program);
    if (operation->clock != NULL) races_clock_release(operation->clock);
    free(operation->ranges);
    free(operation);
}

struct operation *operation_copy(const struct operation *operation) {
    struct operation *const copy = operation_new(operation->kind);
    if (copy == NULL) return NULL;
    for (size_t i = 0; i < operation->range_count; i++) {
        const struct operation_range *const range = &operation->ranges[i];
        if (operation_uses(copy, range->address, range->bytes, range->writes)) continue;
        operation_drop(copy);
        return NULL;
    }
    copy->timed = operation->timed;
    copy->context = operation->context;
    switch (operation->kind) {
    case OPERATION_KERNEL:
        copy->kernel = operation->kernel;
        if (copy->kernel.program != NULL)
            atomic_fetch_add_explicit(&copy->kernel.program->references, 1, memory_order_relaxed);
        break;
    case OPERATION_COPY:
        copy->copy = operation->copy;
        copy->copy.staged = NULL;
        break;
    case OPERATION_FILL:
        copy->fill = operation->fill;
        break;
    case OPERATION_HOST_FUNCTION:
    case OPERATION_CALLBACK:
        copy->host = operation->host;
        break;
    case OPERATION_ALLOC:
    case OPERATION_FREE:
        copy->memory = operation->memory;
        break;
    case OPERATION_RECORD:
    case OPERATION_WAIT:
        copy->event = operation->event;
        break;
    }
    return copy;
}

bool operation_uses(struct operation *operation, uint64_t address, size_t bytes, bool writes) {
    struct operation_range *const ranges = realloc(operation->ranges, (operation->range_count + 1) * sizeof(*ranges));
    if (ranges == NULL) return false;
    ranges[operation->range_count++] = (struct operation_range){.address = address, .bytes = bytes, .writes = writes};
    operation->ranges = ranges;
    return true;
}

/* Running. */

static void run_copy(const struct operation *operation) {
    const struct operation_box *const to = &operation->copy.to, *const from = &operation->copy.from;
    for (size_t z = 0; z < operation->copy.depth; z++) {
        for (size_t y = 0; y < operation->copy.height; y++) {
            const uint64_t target = to->address + z * to->slice + y * to->pitch;
            backing_touch(target, operation->copy.width);
            memmove(backing_pointer(target), backing_pointer(from->address + z * from->slice + y * from->pitch),
                    operation->copy.width);
        }
    }
}

static void fill_row(char *row, const struct operation *operation) {
    const uint32_t value = operation->fill.value;
    switch (operation->fill.element) {
    case 1:
        memset(row, (int)value, operation->fill.width);
        break;
    case 2:
        for (size_t x = 0; x < operation->fill.width; x++) ((uint16_t *)(void *)row)[x] = (uint16_t)value;
        break;
    default:
        for (size_t x = 0; x < operation->fill.width; x++) ((uint32_t *)(void *)row)[x] = value;
        break;
    }
}

static void run_fill(const struct operation *operation) {
    for (size_t y = 0; y < operation->fill.height; y++) {
        const uint64_t target = operation->fill.to.address + y * operation->fill.to.pitch;
        backing_touch(target, operation->fill.width * operation->fill.element);
        fill_row(backing_pointer(target), operation);
    }
}

static void wait_for_release(uint64_t round) {
    pthread_mutex_lock(&scheduler_lock);
    while (release_round <= round) pthread_cond_wait(&release, &scheduler_lock);
    pthread_mutex_unlock(&scheduler_lock);
}

/* No CUDA call is allowed in it. */
static void run_program(const struct operation *operation) {
    struct operation_program *const program = operation->kernel.program;
    struct thread *const thread = entry_current_thread();
    void **const pointers = calloc(operation->range_count + 1, sizeof(void *));
    if (pointers == NULL) abort(); /* going on would lose what it writes */
    for (size_t i = 0; i < operation->range_count; i++) pointers[i] = backing_pointer(operation->ranges[i].address);
    thread->in_callback = true;
    program->run(program->argument, pointers);
    thread->in_callback = false;
    free(pointers);
}

static void run_kernel(const struct operation *operation) {
    const struct operation_program *const program = operation->kernel.program;
    for (size_t i = 0; i < operation->range_count; i++) {
        const struct operation_range *const range = &operation->ranges[i];
        if (!memory_accessible(operation->context, range->address, range->bytes))
            context_fail(operation->context, CUDA_ERROR_ILLEGAL_ADDRESS);
        else if (range->writes)
            backing_touch(range->address, range->bytes);
    }
    if (operation->kernel.release_round > 0) wait_for_release(operation->kernel.release_round);
    struct timespec left = {.tv_sec = operation->kernel.microseconds / 1000000,
                            .tv_nsec = (long)(operation->kernel.microseconds % 1000000) * 1000};
    if (operation->kernel.microseconds > 0)
        while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) continue;
    if (program != NULL && program->run != NULL && atomic_load(&operation->context->error) == CUDA_SUCCESS)
        run_program(operation);
}

/* A host function is not run after its context failed; a callback is told. */
static void run_host(const struct operation *operation) {
    const CUresult error = (CUresult)atomic_load(&operation->context->error);
    struct thread *const thread = entry_current_thread();
    thread->in_callback = true;
    thread->running = operation;
    if (operation->kind == OPERATION_CALLBACK)
        operation->host.callback(operation->host.handle, error, operation->host.argument);
    else if (error == CUDA_SUCCESS)
        operation->host.function(operation->host.argument);
    thread->running = NULL;
    thread->in_callback = false;
}

static void run(const struct operation *operation) {
    switch (operation->kind) {
    case OPERATION_KERNEL:
        run_kernel(operation);
        break;
    case OPERATION_COPY:
        run_copy(operation);
        break;
    case OPERATION_FILL:
        run_fill(operation);
        break;
    case OPERATION_HOST_FUNCTION:
    case OPERATION_CALLBACK:
        run_host(operation);
        break;
    case OPERATION_FREE:
        if (operation->memory.address != 0)
            async_discard(operation->memory.address, operation->memory.buffer_id, operation);
        break;
    case OPERATION_RECORD:
    case OPERATION_WAIT:
    case OPERATION_ALLOC:
        break;
    }
}

static bool is_short(const struct operation *kernel) {
    return kernel->kernel.microseconds == 0 && kernel->kernel.release_round == 0;
}

/* Takes no time: may run at once, under the lock. */
static bool is_instant(const struct operation *operation) {
    switch (operation->kind) {
    case OPERATION_KERNEL:
        return is_short(operation) && (operation->kernel.program == NULL || operation->kernel.program->run == NULL);
    case OPERATION_RECORD:
    case OPERATION_WAIT:
    case OPERATION_ALLOC:
    case OPERATION_FREE:
        return true;
    default:
        return false;
    }
}

/* Quick enough that the submitter runs it itself, rather than wake a worker. Never a host function: the submitter may
 * hold locks that it takes. */
static bool is_quick(const struct operation *operation) {
    switch (operation->kind) {
    case OPERATION_KERNEL:
        return is_short(operation);
    case OPERATION_COPY:
        return operation->awaited ||
               operation->copy.width * operation->copy.height * operation->copy.depth <= INLINE_BYTES;
    case OPERATION_FILL:
        return operation->awaited ||
               operation->fill.width * operation->fill.height * operation->fill.element <= INLINE_BYTES;
    default:
        return false;
    }
}

/* Order. Under scheduler_lock. */

static void add_blocker(struct operation *operation, struct operation *earlier) {
    if (earlier == NULL || operation_is_done(earlier)) return;
    struct operation_edge *const edge = malloc(sizeof(*edge));
    if (edge == NULL) abort(); /* going on would lose an order */
    edge->dependent = operation;
    edge->next = earlier->dependents;
    earlier->dependents = edge;
    operation->blockers++;
}

static void set_last(struct operation **last, struct operation *operation) {
    operation_drop(*last);
    *last = operation != NULL ? operation_hold(operation) : NULL;
}

static void order_after_blocking(struct operation *operation, const struct context *context) {
    for (const struct stream *other = context->streams; other != NULL; other = other->following)
        if (stream_is_blocking(other)) add_blocker(operation, other->last);
}

static void order_after_context(struct operation *operation, const struct context *context, const struct green *green) {
    for (const struct stream *other = context->streams; other != NULL; other = other->following)
        if (green == NULL || other->green == green) add_blocker(operation, other->last);
}

static void *worker_main(void *unused);

static void start_worker(void) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (pthread_create(&thread, NULL, worker_main, NULL) == 0) {
        pthread_setname_np(thread, "simulated-gpu");
        pthread_detach(thread);
        workers++;
    } else if (workers == 0) {
        abort(); /* nothing would ever run */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void queue_push(struct operation *operation) {
    struct queue *const queue = &ready[operation->stream != NULL ? -operation->stream->priority : 0];
    operation->next_ready = NULL;
    if (queue->first == NULL) queue->end = &queue->first;
    *queue->end = operation;
    queue->end = &operation->next_ready;
    ready_count++;
    if (ready_count > idle_workers && workers < WORKER_MAX) start_worker();
    pthread_cond_signal(&work);
}

static struct operation *queue_pop(void) {
    for (int i = PRIORITIES - 1; i >= 0; i--) {
        struct operation *const operation = ready[i].first;
        if (operation == NULL) continue;
        ready[i].first = operation->next_ready;
        ready_count--;
        return operation;
    }
    return NULL;
}

/* Marks it done, and gives those that waited for it to `unblocked`. */
static void retire(struct operation *operation, struct operation **unblocked) {
    struct context *const context = operation->context;
    if (operation->timed) operation->finished_ns = scheduler_now_ns();
    atomic_store_explicit(&operation->done, true, memory_order_release);
    if (context->barrier == operation) set_last(&context->barrier, NULL);
    if (operation->stream != NULL) {
        operation->stream->depth--;
        if (operation->stream->last == operation) set_last(&operation->stream->last, NULL);
        stream_drop(operation->stream);
    }
    while (operation->dependents != NULL) {
        struct operation_edge *const edge = operation->dependents;
        operation->dependents = edge->next;
        if (--edge->dependent->blockers == 0) {
            edge->dependent->next_ready = *unblocked;
            *unblocked = edge->dependent;
        }
        free(edge);
    }
    atomic_fetch_sub_explicit(&context->pending, 1, memory_order_release);
    operation_drop(operation);
}

static void complete(struct operation *operation) {
    struct operation *unblocked = NULL;
    retire(operation, &unblocked);
    while (unblocked != NULL) {
        struct operation *const next = unblocked;
        unblocked = next->next_ready;
        if (is_instant(next)) {
            run(next);
            retire(next, &unblocked);
        } else {
            queue_push(next);
        }
    }
    if (waiters > 0) pthread_cond_broadcast(&progress);
}

static void *worker_main(void *unused) {
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* kernels as short as microseconds */
    pthread_mutex_lock(&scheduler_lock);
    for (;;) {
        struct operation *const operation = queue_pop();
        if (operation == NULL) {
            idle_workers++;
            pthread_cond_wait(&work, &scheduler_lock);
            idle_workers--;
            continue;
        }
        pthread_mutex_unlock(&scheduler_lock);
        run(operation);
        pthread_mutex_lock(&scheduler_lock);
        complete(operation);
    }
    return NULL;
}

/* All its blockers are known: runs or queues it. Takes over the caller's lock. */
static void dispatch(struct operation *operation) {
    if (operation->blockers == 0) {
        if (is_instant(operation)) {
            run(operation);
            complete(operation);
        } else if (is_quick(operation)) {
            pthread_mutex_unlock(&scheduler_lock);
            run(operation);
            pthread_mutex_lock(&scheduler_lock);
            complete(operation);
        } else {
            queue_push(operation);
        }
    }
    pthread_mutex_unlock(&scheduler_lock);
}

static void wait_for_progress(void) {
    waiters++;
    pthread_cond_wait(&progress, &scheduler_lock);
    waiters--;
}

/* The scheduler keeps a reference of its own until the operation is done. */
static void enlist(struct operation *operation, struct context *context, struct stream *stream) {
    operation_hold(operation);
    operation->context = context;
    operation->stream = stream;
    atomic_fetch_add_explicit(&context->pending, 1, memory_order_relaxed);
    add_blocker(operation, context->barrier);
    if (stream != NULL && stream->green != NULL) add_blocker(operation, stream->green->barrier);
}

static void enlist_in_stream(const struct submission *submission) {
    struct operation *const operation = submission->operation;
    struct stream *const stream = submission->stream;
    struct context *const context = stream->context;
    enlist(operation, context, stream);
    atomic_fetch_add_explicit(&stream->references, 1, memory_order_relaxed);
    stream->depth++;
    add_blocker(operation, stream->last);
    if (stream->legacy)
        order_after_blocking(operation, context);
    else if (stream_is_blocking(stream))
        add_blocker(operation, context->legacy->last);
    for (size_t i = 0; i < submission->count; i++) add_blocker(operation, submission->after[i]);
    set_last(&stream->last, operation);
    if (races_are_on()) races_submitted(operation, stream, submission->after, submission->count);
}

void scheduler_submit_together(const struct submission *submissions, size_t count) {
    pthread_mutex_lock(&scheduler_lock);
    while (submissions->stream->depth >= settings.queue_depth) wait_for_progress();
    for (size_t i = 0; i < count; i++) enlist_in_stream(&submissions[i]);
    dispatch(submissions->operation);
}

void scheduler_submit(struct operation *operation, struct stream *stream, struct operation *const *after,
                      size_t count) {
    const struct submission alone = {.operation = operation, .stream = stream, .after = after, .count = count};
    scheduler_submit_together(&alone, 1);
}

void scheduler_submit_after_context(struct operation *operation, struct context *context, const struct green *green) {
    pthread_mutex_lock(&scheduler_lock);
    enlist(operation, context, NULL);
    order_after_context(operation, context, green);
    if (races_are_on()) races_submitted_after_context(operation, context, green);
    dispatch(operation);
}

void scheduler_submit_before_context(struct operation *operation, struct context *context, struct green *green,
                                     struct operation *earlier) {
    pthread_mutex_lock(&scheduler_lock);
    enlist(operation, context, NULL);
    add_blocker(operation, earlier);
    if (green != NULL) add_blocker(operation, green->barrier);
    set_last(green != NULL ? &green->barrier : &context->barrier, operation);
    if (races_are_on()) races_submitted_before_context(operation, context, green, earlier);
    dispatch(operation);
}

/* Waiting. */

void scheduler_wait(struct operation *operation) {
    if (operation_is_done(operation)) return;
    pthread_mutex_lock(&scheduler_lock);
    while (!operation_is_done(operation)) wait_for_progress();
    pthread_mutex_unlock(&scheduler_lock);
}

void scheduler_wait_context(struct context *context) {
    if (LIKELY(atomic_load_explicit(&context->pending, memory_order_acquire) == 0) && !races_are_on()) return;
    struct operation *const all = operation_new(OPERATION_RECORD);
    if (all == NULL) abort();
    scheduler_submit_after_context(all, context, NULL);
    scheduler_wait(all);
    races_operation_observed(all);
    operation_drop(all);
}

/* Work of the legacy stream is complete when that of the blocking streams before it is; a mark after both keeps no
 * later work waiting. */
static struct operation *mark_after_legacy(struct context *context) {
    struct operation *const mark = operation_new(OPERATION_RECORD);
    if (mark == NULL) abort();
    enlist(mark, context, NULL);
    add_blocker(mark, context->legacy->last);
    order_after_blocking(mark, context);
    if (mark->blockers == 0) complete(mark);
    return mark;
}

void scheduler_wait_stream(struct stream *stream) {
    if (atomic_load_explicit(&stream->context->pending, memory_order_acquire) == 0 && !races_are_on()) return;
    pthread_mutex_lock(&scheduler_lock);
    struct race_clock *const clock = races_are_on() ? races_stream_clock(stream) : NULL;
    struct operation *last = NULL;
    if (stream->legacy)
        last = mark_after_legacy(stream->context);
    else if (stream->last != NULL)
        last = operation_hold(stream->last);
    pthread_mutex_unlock(&scheduler_lock);
    if (last != NULL) scheduler_wait(last);
    operation_drop(last);
    if (clock == NULL) return;
    races_observed(clock);
    races_clock_release(clock);
}

bool scheduler_stream_is_idle(struct stream *stream) {
    if (atomic_load_explicit(&stream->context->pending, memory_order_acquire) == 0 && !races_are_on()) return true;
    pthread_mutex_lock(&scheduler_lock);
    bool idle = stream->last == NULL;
    for (const struct stream *other = stream->context->streams; stream->legacy && idle && other != NULL;
         other = other->following)
        idle = !stream_is_blocking(other) || other->last == NULL;
    struct race_clock *const clock = idle && races_are_on() ? races_stream_clock(stream) : NULL;
    pthread_mutex_unlock(&scheduler_lock);
    if (clock == NULL) return idle;
    races_observed(clock);
    races_clock_release(clock);
    return true;
}

uint64_t scheduler_release_round(void) {
    pthread_mutex_lock(&scheduler_lock);
    const uint64_t round = release_round;
    pthread_mutex_unlock(&scheduler_lock);
    return round;
}

void scheduler_release_kernels(void) {
    pthread_mutex_lock(&scheduler_lock);
    release_round++;
    pthread_cond_broadcast(&release);
    pthread_mutex_unlock(&scheduler_lock);
}
