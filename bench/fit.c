/* SPDX-License-Identifier: MIT
 *
 * See fit.h. The smallest memory is found by bisection, in the driver's steps: a pool that completes a trace on a
 * device may fail on a larger one, so it is one that completes beside one that does not.
 */
#include "fit.h"

#include <stdio.h>
#include <stdlib.h>

#include "empty_device.h"

#define STEP UINT64_C(0x200000)
#define UNLIMITED UINT64_MAX
enum { WARM_AFTER = 4, MOST_REPETITIONS = 8 };
#define MOST_TIMES_PEAK 1024 /* memory beyond which no trace is tried */

struct play {
    const struct trace *trace;
    const struct pool_options *options;
    uint64_t *addresses; /* by block, 0: not live */
    int code;            /* of the call that ended it */
};

struct outcome {
    uint64_t peak_reserved, stranded;
    struct fit_calls calls;                 /* in all */
    uint64_t repetitions[MOST_REPETITIONS]; /* calls in each */
};

/* A play ends at the first call that does not answer 0: false, and play->code. */
static bool play_once(struct play *play, struct pool_system *system, struct outcome *outcome) {
    const struct trace *trace = play->trace;
    for (size_t i = 0; i < trace->count && play->code == DEVICE_OK; i++) {
        const struct trace_event *event = &trace->events[i];
        uint64_t *address = &play->addresses[event->block];
        if (event->op == TRACE_ALLOC) {
            play->code = pool_alloc(system, event->size, POOL_DOOR_DRIVER, address);
        } else {
            play->code = pool_free(system, *address, POOL_DOOR_DRIVER);
            *address = 0;
        }
        if (play->code == DEVICE_OK && i == trace->peak_event) {
            struct pool_totals totals;
            pool_totals(system, -1, &totals);
            outcome->stranded = totals.reserved - totals.live - totals.releasable;
        }
    }
    for (size_t block = 0; block < trace->blocks && play->code == DEVICE_OK; block++) {
        if (!play->addresses[block]) continue;
        play->code = pool_free(system, play->addresses[block], POOL_DOOR_DRIVER);
        play->addresses[block] = 0;
    }
    return play->code == DEVICE_OK;
}

/* Play `times` times on one device. True when it completed. */
static bool play_on(struct play *play, uint64_t memory, unsigned times, struct outcome *outcome) {
    struct empty_device device;
    empty_device_init(&device, memory);
    *outcome = (struct outcome){0};
    struct pool_system *system = pool_system_create(&device.ops, play->options);
    if (system == NULL) {
        play->code = POOL_PASS;
        return false;
    }
    for (size_t block = 0; block < play->trace->blocks; block++) play->addresses[block] = 0;
    play->code = DEVICE_OK;
    for (unsigned i = 0; i < times && play->code == DEVICE_OK; i++) {
        const uint64_t before = device.allocs + device.releases;
        play_once(play, system, outcome);
        outcome->repetitions[i] = device.allocs + device.releases - before;
    }
    outcome->calls = (struct fit_calls){device.allocs, device.releases};
    outcome->peak_reserved = device.most_in_use;
    pool_system_destroy(system);
    return play->code == DEVICE_OK;
}

/* From 0 to MOST_TIMES_PEAK of the peak; 0: a play failed otherwise than for memory, or on all. `high` is tried
 * first. */
static uint64_t smallest_memory(struct play *play, uint64_t high, unsigned times) {
    struct outcome outcome;
    const uint64_t peak = play->trace->peak_bytes;
    uint64_t low = (peak - 1) / STEP * STEP; /* too small for the live bytes, or nothing */
    high = (high + STEP - 1) / STEP * STEP;
    while (!play_on(play, high, times, &outcome)) {
        if (play->code != DEVICE_OUT_OF_MEMORY || high / MOST_TIMES_PEAK > peak) return 0;
        low = high;
        high += (high / 4 / STEP + 1) * STEP;
    }
    while (high - low > STEP) {
        const uint64_t middle = low + (high - low) / STEP / 2 * STEP;
        if (play_on(play, middle, times, &outcome))
            high = middle;
        else if (play->code == DEVICE_OUT_OF_MEMORY)
            low = middle;
        else
            return 0;
    }
    return high;
}

static bool measure(struct play *play, struct fit_report *report) {
    struct outcome outcome;
    if (!play_on(play, UNLIMITED, 1, &outcome)) return false;
    report->peak_reserved = outcome.peak_reserved;
    report->stranded = outcome.stranded;
    report->once = outcome.calls;

    if (!play_on(play, UNLIMITED, MOST_REPETITIONS, &outcome)) return false;
    for (unsigned i = WARM_AFTER; i < MOST_REPETITIONS; i++)
        if (outcome.repetitions[i] > report->warm_calls) report->warm_calls = outcome.repetitions[i];

    report->capacity = smallest_memory(play, report->peak_reserved, 1);
    if (!report->capacity || !play_on(play, report->capacity, 1, &outcome)) return false;
    report->at_capacity = outcome.calls;

    report->capacity_repeated = smallest_memory(play, report->capacity, FIT_TIMES);
    if (!report->capacity_repeated) return false;

    const uint64_t peak = play->trace->peak_bytes;
    report->fits_110 = play_on(play, peak + peak / 10, 1, &outcome);
    report->at_110 = outcome.calls;
    if (!report->fits_110) return play->code == DEVICE_OUT_OF_MEMORY;
    report->fits_110_repeated = play_on(play, peak + peak / 10, MOST_REPETITIONS, &outcome);
    report->repeated_110 = outcome.repetitions[MOST_REPETITIONS - 1];
    return report->fits_110_repeated || play->code == DEVICE_OUT_OF_MEMORY;
}

bool fit_measure(const struct trace *trace, const struct pool_options *options, struct fit_report *report, char *error,
                 size_t error_size) {
    struct play play = {.trace = trace, .options = options};
    *report = (struct fit_report){0};
    if (trace->blocks == 0 || trace->peak_bytes > UINT64_MAX / (2 * MOST_TIMES_PEAK)) {
        snprintf(error, error_size,
                 trace->blocks == 0 ? "it allocates nothing" : "its blocks are larger than memories");
        return false;
    }
    play.addresses = calloc(trace->blocks, sizeof *play.addresses);
    if (play.addresses == NULL) {
        snprintf(error, error_size, "out of memory");
        return false;
    }
    const bool measured = measure(&play, report);
    if (!measured && play.code == POOL_PASS)
        snprintf(error, error_size, "the pool left a call to the driver: out of host memory?");
    else if (!measured)
        snprintf(error, error_size, "the pool answered %d", play.code);
    free(play.addresses);
    return measured;
}
