/* SPDX-License-Identifier: MIT
 *
 * Plays an allocation trace with the CUDA runtime; see player.h.
 */
#include "player.h"

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "measure.h"
#include "ranges.h"
#include "simulated.h"
#include "stamp.h"
#include "users.h"

enum { DEFAULT_KERNEL_US = 10 };

/* A block of the trace. What it had when it was live stays until the stamps are compared. */
struct block {
    void *address; /* NULL: not live, or its allocation failed */
    struct range range;
    uint64_t number;   /* unique over all repetitions: what the stamp is made from */
    uint64_t free_seq; /* for messages */
    uint32_t lane;     /* number of its stream */
    bool in_ranges, stamped, read;
};

struct player {
    const struct trace *trace;
    const struct player_options *options;
    struct player_report *report;
    pthread_mutex_t report_lock;
    struct ranges *ranges;
    struct users *users;
    struct block *blocks;
    struct stamp *stamps;  /* of each block; pinned */
    cudaStream_t *streams; /* NULL: the default stream */
    const struct simulated *simulated;
    unsigned repetition;
};

/* One thread of the player, with counters of its own that are added to the report when it is done. */
struct hand {
    struct player *player;
    unsigned index;
    struct player_report counts;
    pthread_t thread;
};

__attribute__((format(printf, 2, 3))) static void complain(struct player *player, const char *format, ...) {
    pthread_mutex_lock(&player->report_lock);
    if (player->report->message_count < PLAYER_MESSAGES) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(player->report->messages[player->report->message_count++], sizeof player->report->messages[0], format,
                  arguments);
        va_end(arguments);
    }
    pthread_mutex_unlock(&player->report_lock);
}

/* Count and list a call that failed; true when it did. */
static bool failed(struct hand *hand, cudaError_t result, const char *call, uint64_t seq) {
    if (result == cudaSuccess) return false;
    cudaGetLastError(); /* counted here, so not to be found by a later call */
    hand->counts.other_errors++;
    complain(hand->player, "seq %" PRIu64 ": %s: %s (%s)", seq, call, cudaGetErrorName(result),
             cudaGetErrorString(result));
    return true;
}

static size_t scaled(const struct player *player, uint64_t size) {
    double bytes = (double)size * player->options->scale;
    if (bytes < 1) return 1;
    return bytes < 0x1p63 ? (size_t)bytes : (size_t)1 << 63; /* more than any device has, and a number still */
}

static uint32_t lane_of(const struct player *player, const struct trace_event *event) {
    if (player->streams == NULL) return 0;
    return (player->trace->lanes > 1 ? event->lane : event->block) % player->options->streams;
}

static cudaStream_t stream_of(const struct player *player, const struct block *block) {
    return player->streams != NULL ? player->streams[block->lane] : NULL;
}

static struct stamp *stamp_of(const struct player *player, const struct block *block) {
    return &player->stamps[block - player->blocks];
}

/* Use the whole block: a kernel, or a memset. */
static bool use(struct hand *hand, const struct block *block, cudaStream_t stream, uint64_t seq) {
    const struct player *player = hand->player;
    const struct range *range = &block->range;
    if (player->report->kernel_us > 0) {
        const struct sim_range written = {range->start, range->size, true};
        const struct sim_kernel kernel = {
            .microseconds = player->report->kernel_us, .ranges = &written, .range_count = 1};
        /* Its codes are the driver's: those that can come of a launch are the same numbers in the runtime. */
        if (failed(hand, (cudaError_t)player->simulated->launch(&kernel, stream), "sim_launch", seq)) return false;
        hand->counts.kernels++;
        return true;
    }
    if (failed(hand, cudaMemsetAsync(block->address, (int)(block->number & 0xFF), range->size, stream),
               "cudaMemsetAsync", seq))
        return false;
    hand->counts.memsets++;
    return true;
}

static void work_on(struct hand *hand, struct block *block, uint64_t seq) {
    cudaStream_t stream = stream_of(hand->player, block);
    if (!use(hand, block, stream, seq)) return;
    block->stamped = !failed(
        hand, stamp_write(stamp_of(hand->player, block), block->address, block->range.size, block->number, stream),
        "cudaMemcpyAsync", seq);
}

static const char *alloc_name(const struct player *player) {
    return player->options->async ? "cudaMallocAsync" : "cudaMalloc";
}

static void play_alloc(struct hand *hand, const struct trace_event *event) {
    struct player *player = hand->player;
    struct block *block = &player->blocks[event->block];
    struct range other;
    size_t size = scaled(player, event->size);
    void *address = NULL;

    *block = (struct block){.number = (uint64_t)player->repetition * player->trace->blocks + event->block,
                            .lane = lane_of(player, event)};
    cudaStream_t stream = stream_of(player, block);
    uint64_t start = measure_now_ns();
    cudaError_t result = player->options->async ? cudaMallocAsync(&address, size, stream) : cudaMalloc(&address, size);
    hand->counts.alloc_ns += measure_now_ns() - start;
    if (result != cudaSuccess) {
        cudaGetLastError();
        hand->counts.alloc_failures++;
        complain(player, "seq %" PRIu64 ": %s of %zu bytes: %s", event->seq, alloc_name(player), size,
                 cudaGetErrorName(result));
        return;
    }
    hand->counts.allocs++;
    block->address = address;
    block->range = (struct range){(uintptr_t)address, size};
    switch (ranges_add(player->ranges, &block->range, &other)) {
    case RANGES_ADDED:
        block->in_ranges = true;
        break;
    case RANGES_OVERLAP:
        hand->counts.overlaps++;
        complain(player, "seq %" PRIu64 ": %s gave %zu bytes at %p, but %zu bytes at %p are live", event->seq,
                 alloc_name(player), size, address, other.size, (void *)other.start);
        break;
    case RANGES_NO_MEMORY:
        hand->counts.other_errors++;
        complain(player, "seq %" PRIu64 ": out of host memory", event->seq);
        break;
    }
    if (player->streams != NULL)
        hand->counts.crossed += users_take(player->users, block->range.start, size, block->lane);
    if (player->options->work) work_on(hand, block, event->seq);
}

/* `seq` is for messages. */
static void free_block(struct hand *hand, struct block *block, uint64_t seq) {
    const struct player *player = hand->player;
    if (block->address == NULL) return;
    cudaStream_t stream = stream_of(player, block);
    block->free_seq = seq;
    if (block->stamped)
        block->read = !failed(hand, stamp_read(stamp_of(player, block), block->address, block->range.size, stream),
                              "cudaMemcpyAsync", seq);
    if (player->streams == NULL) failed(hand, cudaStreamSynchronize(NULL), "cudaStreamSynchronize", seq);
    if (block->in_ranges) ranges_remove(player->ranges, &block->range);
    void *address = block->address;
    block->address = NULL;
    uint64_t start = measure_now_ns();
    cudaError_t result = player->options->async ? cudaFreeAsync(address, stream) : cudaFree(address);
    hand->counts.free_ns += measure_now_ns() - start;
    if (!failed(hand, result, player->options->async ? "cudaFreeAsync" : "cudaFree", seq)) hand->counts.frees++;
}

/* After all frees: wait for what was read, and compare it. */
static void compare_stamps(struct hand *hand, uint64_t last_seq) {
    struct player *player = hand->player;
    if (failed(hand, cudaDeviceSynchronize(), "cudaDeviceSynchronize", last_seq)) return;
    for (size_t i = 0; i < player->trace->blocks; i++) {
        const struct block *block = &player->blocks[i];
        if (!block->read) continue;
        hand->counts.stamps_checked++;
        if (stamp_intact(stamp_of(player, block), block->range.size)) continue;
        hand->counts.stamps_violated++;
        complain(player, "seq %" PRIu64 ": the block of %zu bytes at %p was overwritten by another", block->free_seq,
                 block->range.size, (void *)block->range.start);
    }
}

static void *play_events(void *argument) {
    struct hand *hand = argument;
    struct player *player = hand->player;
    const struct trace *trace = player->trace;

    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_event *event = &trace->events[i];
        if (event->block % player->options->threads != hand->index) continue;
        if (event->op == TRACE_ALLOC)
            play_alloc(hand, event);
        else
            free_block(hand, &player->blocks[event->block], event->seq);
        if (i == trace->peak_event && player->repetition == 0)
            failed(hand, cudaMemGetInfo(&hand->counts.at_peak.free_bytes, &hand->counts.at_peak.total_bytes),
                   "cudaMemGetInfo", event->seq);
    }
    return NULL;
}

/* Let others look at the process while its blocks are live. */
static void hold(const struct player_options *options) {
    if (options->hold_s <= 0 && options->wait_fd < 0) return;
    fputs("replay: every event was played; holding\n", stderr);
    if (options->hold_s > 0) {
        double whole = (double)(time_t)options->hold_s;
        struct timespec rest = {(time_t)whole, (long)((options->hold_s - whole) * 1e9)};
        nanosleep(&rest, NULL);
    }
    if (options->wait_fd >= 0) {
        struct pollfd descriptor = {.fd = options->wait_fd, .events = POLLIN};
        poll(&descriptor, 1, -1);
    }
}

static void add_counts(struct player_report *report, const struct player_report *counts) {
    report->allocs += counts->allocs;
    report->frees += counts->frees;
    report->memsets += counts->memsets;
    report->kernels += counts->kernels;
    report->alloc_failures += counts->alloc_failures;
    report->stamps_checked += counts->stamps_checked;
    report->stamps_violated += counts->stamps_violated;
    report->overlaps += counts->overlaps;
    report->crossed += counts->crossed;
    report->other_errors += counts->other_errors;
    report->alloc_ns += counts->alloc_ns;
    report->free_ns += counts->free_ns;
    if (counts->at_peak.total_bytes > 0) report->at_peak = counts->at_peak;
}

static void play_once(struct player *player, struct hand *hands) {
    const struct player_options *options = player->options;
    const struct trace *trace = player->trace;
    uint64_t start = measure_now_ns(), held = 0;
    unsigned started = 0;

    if (options->threads == 1) {
        play_events(&hands[0]);
    } else {
        for (; started < options->threads; started++) {
            if (pthread_create(&hands[started].thread, NULL, play_events, &hands[started]) != 0) break;
        }
        if (started < options->threads) {
            player->report->other_errors++;
            complain(player, "only %u threads could be started", started);
        }
        for (unsigned i = 0; i < started; i++) pthread_join(hands[i].thread, NULL);
    }
    if (player->repetition + 1 == options->repeat) {
        held = measure_now_ns();
        hold(options);
        held = measure_now_ns() - held;
    }
    assert(options->threads > 0 && "somebody plays");
    uint64_t last_seq = trace->count > 0 ? trace->events[trace->count - 1].seq : 0;
    for (size_t i = 0; i < trace->blocks; i++) free_block(&hands[i % options->threads], &player->blocks[i], last_seq);
    compare_stamps(&hands[0], last_seq);
    options->repeat_s[player->repetition] = (double)(measure_now_ns() - start - held) / 1e9;
}

static bool streams_create(struct player *player) {
    const unsigned count = player->options->streams;
    if (count == 0) return true;
    player->streams = calloc(count, sizeof(cudaStream_t));
    if (player->streams == NULL) {
        complain(player, "out of host memory");
        return false;
    }
    for (unsigned i = 0; i < count; i++) {
        cudaError_t result = cudaStreamCreateWithFlags(&player->streams[i], cudaStreamNonBlocking);
        if (result == cudaSuccess) continue;
        complain(player, "cudaStreamCreateWithFlags: %s", cudaGetErrorString(result));
        return false;
    }
    return true;
}

static void streams_destroy(struct player *player, struct hand *hand) {
    for (unsigned i = 0; player->streams != NULL && i < player->options->streams; i++) {
        if (player->streams[i] != NULL) failed(hand, cudaStreamDestroy(player->streams[i]), "cudaStreamDestroy", 0);
    }
    free(player->streams);
}

static bool stamps_create(struct player *player) {
    cudaError_t result = cudaMallocHost((void **)&player->stamps, (player->trace->blocks + 1) * sizeof(struct stamp));
    if (result != cudaSuccess) complain(player, "cudaMallocHost: %s", cudaGetErrorString(result));
    return result == cudaSuccess;
}

static bool kernels_choose(struct player *player) {
    const int wanted = player->options->kernel_us;
    player->simulated = simulated_driver();
    player->report->simulated = player->simulated != NULL;
    if (player->simulated == NULL && wanted > 0) {
        complain(player, "kernels of a stated duration need the simulated CUDA");
        return false;
    }
    if (wanted >= 0)
        player->report->kernel_us = (unsigned)wanted;
    else if (player->simulated != NULL && player->options->streams > 0)
        player->report->kernel_us = DEFAULT_KERNEL_US;
    return true;
}

static bool memory_info(struct player *player, struct player_memory *memory) {
    cudaError_t result = cudaMemGetInfo(&memory->free_bytes, &memory->total_bytes);
    if (result != cudaSuccess)
        complain(player, "cudaMemGetInfo: %s%s", cudaGetErrorString(result),
                 result == cudaErrorInsufficientDriver || result == cudaErrorNoDevice
                     ? "; without a GPU: scripts/with-sim.sh before the command"
                     : "");
    return result == cudaSuccess;
}

static void play_all(struct player *player, struct hand *hands) {
    struct player_report *report = player->report;
    for (; player->repetition < player->options->repeat; player->repetition++) {
        uint64_t events = report->simulated ? player->simulated->calls("cuEventCreate") : 0;
        play_once(player, hands);
        if (report->simulated)
            *(player->repetition == 0 ? &report->events_first : &report->events_later) +=
                player->simulated->calls("cuEventCreate") - events;
    }
    report->pooled = own_figures_read(&report->figures);
}

bool player_play(const struct trace *trace, const struct player_options *options, struct player_report *report) {
    struct player player = {.trace = trace, .options = options, .report = report};
    bool played = false;

    *report = (struct player_report){0};
    pthread_mutex_init(&player.report_lock, NULL);
    struct hand *hands = calloc(options->threads, sizeof *hands);
    player.blocks = calloc(trace->blocks + 1, sizeof *player.blocks);
    player.ranges = ranges_create();
    player.users = users_create();
    if (hands == NULL || player.blocks == NULL || player.ranges == NULL || player.users == NULL) {
        complain(&player, "out of host memory");
        goto done;
    }
    for (unsigned i = 0; i < options->threads; i++) {
        hands[i].player = &player;
        hands[i].index = i;
    }
    if (!memory_info(&player, &report->before) || !kernels_choose(&player) || !stamps_create(&player)) goto done;
    played = streams_create(&player);
    if (played) play_all(&player, hands);
    streams_destroy(&player, &hands[0]);
    if (!memory_info(&player, &report->after)) report->other_errors++;
    for (unsigned i = 0; i < options->threads; i++) add_counts(report, &hands[i].counts);
done:
    if (player.stamps != NULL) cudaFreeHost(player.stamps);
    if (player.users != NULL) users_destroy(player.users);
    if (player.ranges != NULL) ranges_destroy(player.ranges);
    free(player.blocks);
    free(hands);
    pthread_mutex_destroy(&player.report_lock);
    return played;
}
