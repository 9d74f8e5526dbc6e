/* SPDX-License-Identifier: MIT
 *
 * A device for the pool's unit tests: hands out addresses, keeps count, and fails when told to. No memory stands behind
 * the addresses. Thread-safe.
 */
#ifndef POOLCUDA_FAKE_DEVICE_H
#define POOLCUDA_FAKE_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

#define FAKE_DEVICES 2

struct fake_range {
    uint64_t address;
    size_t size;
    int ordinal;
};

struct fake_fill {
    uint64_t address;
    size_t bytes;
    uint8_t value;
    void *context, *stream; /* NULL: of no stream */
};

struct fake_device {
    struct device_ops ops;
    pthread_mutex_t lock;
    uint64_t memory[FAKE_DEVICES]; /* bytes each device has */
    uint64_t in_use[FAKE_DEVICES];
    uint64_t most_in_use[FAKE_DEVICES];
    bool alive[FAKE_DEVICES];  /* the primary contexts */
    struct fake_range *ranges; /* outstanding allocations, sorted by address */
    size_t range_count, range_room;
    uint64_t next_address;

    /* What was called. */
    unsigned allocs, releases, synchronizes, stream_synchronizes;
    unsigned bad_releases; /* of what was not allocated */
    void *synchronized;    /* the context that was waited for last, as a whole or by a stream of it */

    /* Marks, passed when the test says so: those up to this number. Recording gives them numbers from 1. */
    uint64_t recorded, passed;
    bool busy_elsewhere; /* work of another device never ends */
    bool passes_at_once; /* every mark, as on an idle device */
    unsigned fences, stream_marks, queries, drops, touches;
    void *marked, *marked_in;          /* the stream that was marked last, and its context */
    uint64_t stream_generation;        /* streams that are identified from now on are others than those before */
    void *memory_pool;                 /* the current one of every device; NULL: none */
    void *released_to;                 /* the memory pool of the segment that was given back last */
    struct device_stream alloc_stream; /* of the last segment of the async kind */
    void *capturing;                   /* this stream captures */
    bool releases_in_captures;         /* to give memory back, to ask and to fill harms no capture */
    unsigned fills;
    struct fake_fill filled; /* the last one */
    unsigned sync_calls;     /* to set or take back SYNC_MEMOPS */
    bool sync_on;            /* the last one set it */
    uint64_t sync_address;
    int sync_ordinal; /* of the context it was asked for under, −1: the caller's */

    /* Contexts that were borrowed, and those that are; none lives on a device without a primary context. */
    unsigned borrows;
    int borrowed[FAKE_DEVICES];
    void (*during_release)(void *arg); /* called inside each release, with no lock of the device's */

    /* What goes wrong. */
    bool no_fences;  /* the device has none; settled before the system is created */
    bool no_streams; /* no stream can be told from others */
    bool unseen;     /* no stream's end is told */
    bool not_alone;  /* another context lives */
    int record_fails_with, stream_record_fails_with, query_fails_with, touch_fails_with;
    void (*during_record)(void *arg);      /* called inside each recording, with no lock of the device's */
    void (*during_query)(void *arg);       /* likewise */
    int alloc_fails_with;                  /* not 0: every allocation answers it */
    int synchronize_fails_with;            /* likewise */
    void (*during_alloc)(void *arg);       /* called inside each allocation, with no lock of the device's */
    void (*during_synchronize)(void *arg); /* likewise */
    int fill_fails_with;
    void (*during_fill)(void *arg);
    int sync_fails_with;
    void (*during_sync)(void *arg);
    void *during_arg;
};

/* The context that the calling thread has; NULL handle: none. Created contexts have handles from FAKE_CREATED on. */
#define FAKE_PRIMARY(ordinal) ((void *)(uintptr_t)(0x1000 + (ordinal)))
#define FAKE_CREATED ((void *)(uintptr_t)0x9000)
void fake_set_current(void *handle, int ordinal);

#define FAKE_MEMORY_POOL ((void *)(uintptr_t)0x5000)

void fake_device_init(struct fake_device *fake, uint64_t memory_each);
void fake_device_destroy(struct fake_device *fake);
/* The primary context of a device is reset: its plain memory is gone. It lives again at once when `revive`. */
void fake_reset(struct fake_device *fake, int ordinal, bool revive);

#endif
