/* SPDX-License-Identifier: MIT
 *
 * A driver of several contexts and streams for tests of the device layer: it keeps count, answers what it is told to
 * answer, and fails the test when something is done that the real driver would not forgive. Its allocations of host
 * memory, and those of the device layer, come here too (see meson.build).
 */
#ifndef MOCK_DRIVER_H
#define MOCK_DRIVER_H

#include "testing.h"

#include <stdbool.h>

#include "device/driver.h"

#define MOCK_DEVICES 3

/* Context number n: 0 … 2 are the primary ones of their devices; the others, of device 0, are created or green. */
#define CONTEXT(number) ((CUcontext)(uintptr_t)(0x1000 + (number)))
#define MOCK_CONTEXTS 16
#define STREAM(number) ((CUstream)(uintptr_t)(0x50000 + 0x10 * (number)))
#define MOCK_STREAMS 512
#define MOCK_EVENTS 64

struct mock_event {
    CUcontext context; /* NULL: not created */
    bool dead;         /* its context is gone */
    bool recorded, done;
    bool of_context; /* recorded by cuCtxRecordEvent */
    CUstream stream; /* else on this one */
};

struct mock {
    bool alive[MOCK_CONTEXTS];
    bool active[MOCK_DEVICES];
    int retained[MOCK_DEVICES]; /* beyond what makes it active */
    struct mock_event events[MOCK_EVENTS];
    unsigned events_made, records, queries, synchronised;
    CUcontext synchronised_in[MOCK_CONTEXTS * 4];

    unsigned long long stream_ids[MOCK_STREAMS]; /* 0: the handle is none */
    CUcontext stream_contexts[MOCK_STREAMS];
    unsigned stream_ids_asked;
    CUstreamCaptureStatus capturing[MOCK_STREAMS];
    CUresult legacy_capturing; /* what cuStreamIsCapturing answers for the legacy stream */

    /* The call of this name fails with this code after so many that do not. */
    const char *failing;
    unsigned failing_after;
    CUresult failing_code;

    /* Called in each call, before it does anything. */
    void (*during)(const char *name);

    /* Allocations of host memory that succeed before so many fail. */
    unsigned memory_succeeds, memory_fails;
};

extern struct mock mock;
extern struct device_driver device;

/* A device lives as long as its process, so nothing ends it: those of earlier cases stay where leak checkers see them
 * (and, being known elsewhere, where the compiler leaves them). */
extern struct device_driver mock_past_devices[128];
extern const struct device_ops *const ops;

/* The primary contexts of devices 0 and 1 are active, that of 0 is current in the calling thread; no context is known
 * to the device yet. `missing`: names that the driver lacks, or NULL. */
void mock_begin(const char *const *missing);

/* The calling thread's. */
void mock_make_current(CUcontext context);
CUcontext mock_current(void);
unsigned mock_depth(void); /* of what is pushed above the current one */
CUstreamCaptureMode *mock_mode(void);

struct device_context mock_context(int number);

/* The context ends as by a reset or destruction that the program asks for, announced to the device. */
void mock_end_context(int number);

/* Events of the context become done, those of all with −1. */
void mock_complete(int number);

/* Live events that are recorded on the context, or by `stream` on that stream. */
unsigned mock_recorded(int number);

#endif
