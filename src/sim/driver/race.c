/* SPDX-License-Identifier: MIT
 *
 * The race detector's ears: what the scheduler is given and in which order, what the host learns, and the program's
 * notes of its blocks. The rules of order are stated here a second time, by what CUDA promises, since the scheduler
 * forgets what is done.
 */
#include "driver.h"
#include "race.h"

enum { ROWS_MAX = 1024 }; /* of a copy or fill that is judged row by row */

pthread_mutex_t race_lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic(bool) races_running;

static bool all_noted;

/* Order. Under scheduler_lock and race_lock. */

static void stream_settle(struct stream *stream) {
    if (stream->race.epoch == race_epoch()) return;
    race_clock_release(stream->race.clock);
    stream->race = (struct race_stream){.epoch = race_epoch(), .track = race_track_new()};
}

static void join_streams(const struct context *context, const struct green *green) {
    for (const struct stream *stream = context->streams; stream != NULL; stream = stream->following)
        if (green == NULL || stream->green == green) race_clock_join(stream->race.clock);
    race_clock_join(green != NULL ? green->race.departed : context->race.departed);
}

static void join_blocking(const struct context *context) {
    for (const struct stream *stream = context->streams; stream != NULL; stream = stream->following)
        if (stream_is_blocking(stream)) race_clock_join(stream->race.clock);
    race_clock_join(context->race.departed_blocking);
}

/* All that the next operation of the stream comes after because it is in that stream. */
static void join_order(const struct stream *stream) {
    const struct context *const context = stream->context;
    race_clock_join(stream->race.clock);
    race_clock_join(context->race.barrier);
    if (stream->green != NULL) race_clock_join(stream->green->race.barrier);
    if (stream->legacy)
        join_blocking(context);
    else if (stream_is_blocking(stream))
        race_clock_join(context->legacy->race.clock);
}

static void clock_replace(struct race_clock **clock, struct race_clock *by) {
    race_clock_release(*clock);
    *clock = by;
}

/* What the clock says, and that which is in the making. */
static void clock_extend(struct race_clock **clock) {
    race_clock_join(*clock);
    clock_replace(clock, race_clock_make());
}

/* Uses. */

static const char *const words[] = {
    [OPERATION_KERNEL] = "kernel",
    [OPERATION_COPY] = "copy",
    [OPERATION_FILL] = "fill",
};

static void judge_range(const struct operation *operation, struct race_use *model, uint64_t address, size_t bytes,
                        bool writes) {
    if (bytes == 0) return;
    enum race_liveness liveness = RACE_JUDGED;
    if (entry_current_thread()->allocator_depth > 0)
        liveness = RACE_NOT_JUDGED;
    else if (all_noted && backing_device(address) != NULL)
        liveness = RACE_ALL_NOTED;
    struct sim_race_side side = model->side;
    side.what = words[operation->kind];
    side.address = address;
    side.bytes = bytes;
    side.writes = writes;
    race_map_use(race_use_new(model->track, model->position, &side), liveness);
}

static void judge_box(const struct operation *operation, struct race_use *model, const struct operation_box *box,
                      size_t width, size_t height, size_t depth, bool writes) {
    const bool whole_slices = height == 1 || box->pitch == width;
    const bool whole = whole_slices && (depth == 1 || box->slice == width * height);
    if (whole || height > ROWS_MAX / depth) {
        const size_t span = box->slice * (depth - 1) + box->pitch * (height - 1) + width;
        judge_range(operation, model, box->address, span, writes);
        return;
    }
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++)
            judge_range(operation, model, box->address + z * box->slice + y * box->pitch, width, writes);
}

static void judge(const struct operation *operation, struct race_use *model) {
    switch (operation->kind) {
    case OPERATION_KERNEL:
        if (operation->kernel.program != NULL) {
            model->side.name = operation->kernel.program->name;
            model->side.number = operation->kernel.program->number;
        }
        for (size_t i = 0; i < operation->range_count; i++)
            judge_range(operation, model, operation->ranges[i].address, operation->ranges[i].bytes,
                        operation->ranges[i].writes);
        break;
    case OPERATION_COPY:
        judge_box(operation, model, &operation->copy.from, operation->copy.width, operation->copy.height,
                  operation->copy.depth, false);
        judge_box(operation, model, &operation->copy.to, operation->copy.width, operation->copy.height,
                  operation->copy.depth, true);
        break;
    case OPERATION_FILL:
        judge_box(operation, model, &operation->fill.to, operation->fill.width * operation->fill.element,
                  operation->fill.height, 1, true);
        break;
    default:
        break;
    }
}

/* What the scheduler tells. */

void races_submitted(struct operation *operation, struct stream *stream, struct operation *const *after, size_t count) {
    pthread_mutex_lock(&race_lock);
    stream_settle(stream);
    race_clock_begin();
    join_order(stream);
    for (size_t i = 0; i < count; i++)
        if (after[i] != NULL) race_clock_join(after[i]->clock);
    struct race_use model = {.track = stream->race.track,
                             .position = race_clock_step(stream->race.track),
                             .side = {.stream = stream->id, .sequence = ++stream->race.given}};
    judge(operation, &model);
    operation->clock = race_clock_make();
    clock_replace(&stream->race.clock, race_clock_hold(operation->clock));
    pthread_mutex_unlock(&race_lock);
}

void races_submitted_after_context(struct operation *operation, struct context *context, const struct green *green) {
    pthread_mutex_lock(&race_lock);
    race_clock_begin();
    race_clock_join(context->race.barrier);
    if (green != NULL) race_clock_join(green->race.barrier);
    join_streams(context, green);
    operation->clock = race_clock_make();
    pthread_mutex_unlock(&race_lock);
}

void races_submitted_before_context(struct operation *operation, struct context *context, struct green *green,
                                    const struct operation *earlier) {
    pthread_mutex_lock(&race_lock);
    race_clock_begin();
    race_clock_join(context->race.barrier);
    race_clock_join(earlier->clock);
    clock_extend(green != NULL ? &green->race.barrier : &context->race.barrier);
    operation->clock = race_clock_hold(green != NULL ? green->race.barrier : context->race.barrier);
    pthread_mutex_unlock(&race_lock);
}

/* What a wait for the stream proves. */
struct race_clock *races_stream_clock(const struct stream *stream) {
    pthread_mutex_lock(&race_lock);
    race_clock_begin();
    race_clock_join(stream->race.clock);
    if (stream->legacy) join_blocking(stream->context);
    struct race_clock *const clock = race_clock_make();
    pthread_mutex_unlock(&race_lock);
    return clock;
}

void races_observed(struct race_clock *clock) {
    pthread_mutex_lock(&race_lock);
    race_clock_observe(clock);
    pthread_mutex_unlock(&race_lock);
}

void races_clock_release(struct race_clock *clock) {
    race_clock_release(clock);
}

/* Not an observation: the host does not know of it, so it says nothing of other memory. */
void races_forget_released(uint64_t address, size_t bytes, const struct operation *freed) {
    pthread_mutex_lock(&race_lock);
    race_clock_begin();
    race_clock_join(freed->clock);
    race_map_forget(address, bytes);
    pthread_mutex_unlock(&race_lock);
}

/* A context's events, and its legacy stream, go on coming after what its streams did. */
void races_stream_gone(struct stream *stream) {
    pthread_mutex_lock(&race_lock);
    if (stream->race.epoch == race_epoch()) {
        struct context *const context = stream->context;
        race_track_retire(stream->race.track);
        race_clock_begin();
        race_clock_join(stream->race.clock);
        clock_extend(&context->race.departed);
        if (stream->green != NULL) {
            race_clock_begin();
            race_clock_join(stream->race.clock);
            clock_extend(&stream->green->race.departed);
        }
        if (stream_is_blocking(stream)) {
            race_clock_begin();
            race_clock_join(stream->race.clock);
            clock_extend(&context->race.departed_blocking);
        }
    }
    race_clock_release(stream->race.clock);
    stream->race = (struct race_stream){0};
    pthread_mutex_unlock(&race_lock);
}

void races_context_ended(const struct context *context) {
    pthread_mutex_lock(&race_lock);
    const struct sim_race_side side = {.what = "context end"};
    race_map_end_owner(race_use_new(RACE_NO_TRACK, 0, &side), context, atomic_load(&context->id));
    pthread_mutex_unlock(&race_lock);
}

void races_forget(struct race_context *race) {
    clock_replace(&race->barrier, NULL);
    clock_replace(&race->departed, NULL);
    clock_replace(&race->departed_blocking, NULL);
}

/* The program's notes. */

void sim_races_start(void) {
    pthread_mutex_lock(&scheduler_lock);
    pthread_mutex_lock(&race_lock);
    race_clocks_reset();
    race_map_reset();
    race_report_reset();
    all_noted = false;
    atomic_store_explicit(&races_running, true, memory_order_relaxed);
    pthread_mutex_unlock(&race_lock);
    pthread_mutex_unlock(&scheduler_lock);
}

void sim_races_all_noted(void) {
    pthread_mutex_lock(&race_lock);
    all_noted = true;
    pthread_mutex_unlock(&race_lock);
}

void sim_races_stop(void) {
    atomic_store_explicit(&races_running, false, memory_order_relaxed);
}

/* A place in the stream behind all that was given to it. What comes later there comes after the place, but the place
 * brings no other order with it: the program's allocator may have given the stream nothing. */
static struct race_use *place_new(struct stream *stream, struct sim_race_side *side) {
    stream_settle(stream);
    const uint32_t track = stream->race.track;
    race_clock_begin();
    const uint64_t position = race_clock_step(track);
    clock_extend(&stream->race.clock);
    race_clock_begin();
    join_order(stream);
    side->stream = stream->id;
    side->sequence = ++stream->race.given;
    return race_use_new(track, position, side);
}

static CUresult note_allocated(uint64_t address, size_t bytes) {
    struct context *context;
    const CUresult result = context_current(entry_current_thread(), &context);
    if (result != CUDA_SUCCESS) return result;
    const struct sim_race_side side = {.what = "allocation", .address = address, .bytes = bytes};
    pthread_mutex_lock(&race_lock);
    race_map_allocate(race_use_new(RACE_NO_TRACK, 0, &side), RACE_PLAIN, context, atomic_load(&context->id));
    pthread_mutex_unlock(&race_lock);
    return CUDA_SUCCESS;
}

static CUresult note_allocated_async(uint64_t address, size_t bytes, CUstream handle) {
    struct stream *stream;
    const CUresult result = stream_named(entry_current_thread(), handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct sim_race_side side = {.what = "allocation", .address = address, .bytes = bytes};
    pthread_mutex_lock(&scheduler_lock);
    pthread_mutex_lock(&race_lock);
    if (stream->capture != NULL)
        race_map_allocate(race_use_new(RACE_NO_TRACK, 0, &side), RACE_GRAPH, NULL, 0);
    else
        race_map_allocate(place_new(stream, &side), RACE_ASYNC, NULL, 0);
    pthread_mutex_unlock(&race_lock);
    pthread_mutex_unlock(&scheduler_lock);
    return CUDA_SUCCESS;
}

static CUresult note_freed(uint64_t address) {
    const struct sim_race_side side = {.what = "free", .address = address};
    pthread_mutex_lock(&race_lock);
    const bool freed = race_map_free(race_use_new(RACE_NO_TRACK, 0, &side), false);
    pthread_mutex_unlock(&race_lock);
    return freed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult note_freed_async(uint64_t address, CUstream handle) {
    struct stream *stream;
    const CUresult result = stream_named(entry_current_thread(), handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    struct sim_race_side side = {.what = "free", .address = address};
    pthread_mutex_lock(&scheduler_lock);
    const bool captures = stream->capture != NULL;
    pthread_mutex_lock(&race_lock);
    struct race_use *const use = captures ? race_use_new(RACE_NO_TRACK, 0, &side) : place_new(stream, &side);
    const bool freed = race_map_free(use, !captures);
    pthread_mutex_unlock(&race_lock);
    pthread_mutex_unlock(&scheduler_lock);
    return freed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int sim_block_allocated(uint64_t address, size_t bytes) {
    return races_are_on() && bytes > 0 ? (int)note_allocated(address, bytes) : CUDA_SUCCESS;
}

int sim_block_allocated_async(uint64_t address, size_t bytes, void *stream) {
    return races_are_on() && bytes > 0 ? (int)note_allocated_async(address, bytes, (CUstream)stream) : CUDA_SUCCESS;
}

int sim_block_freed(uint64_t address) {
    return races_are_on() ? (int)note_freed(address) : CUDA_SUCCESS;
}

int sim_block_freed_async(uint64_t address, void *stream) {
    return races_are_on() ? (int)note_freed_async(address, (CUstream)stream) : CUDA_SUCCESS;
}

int sim_block_kept(uint64_t address) {
    if (!races_are_on()) return CUDA_SUCCESS;
    pthread_mutex_lock(&race_lock);
    const bool kept = race_map_unfree(address);
    pthread_mutex_unlock(&race_lock);
    return kept ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void sim_allocator_entered(void) {
    entry_current_thread()->allocator_depth++;
}

void sim_allocator_left(void) {
    entry_current_thread()->allocator_depth--;
}

void sim_observed(void) {
    const struct operation *const running = entry_current_thread()->running;
    if (running != NULL && races_are_on()) races_observed(running->clock);
}
