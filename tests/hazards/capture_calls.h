/* SPDX-License-Identifier: MIT
 *
 * The calls that the capture matrix makes amid a capture: all that have a hook, and a few that programs make beside
 * them. What they use is made before the capture.
 */
#ifndef HAZARDS_CAPTURE_CALLS_H
#define HAZARDS_CAPTURE_CALLS_H

#include <stdint.h>

#include <cuda.h>

#define SMALL ((size_t)64 << 10)
#define LARGE ((size_t)24 << 20)

enum { CAPTURING, NON_BLOCKING, BLOCKING, LEGACY, OWN, STREAMS };

/* One cell of the matrix. */
struct cell {
    CUstream streams[STREAMS];
    CUdeviceptr plain, ordered, other_ordered; /* live when the capture begins */
    CUdeviceptr exported;                      /* one that starts its segment */
    CUdeviceptr got;                           /* what a call allocated and did not free */
    CUstream got_on;                           /* where it was allocated, NULL: plain */
    CUdeviceptr after;                         /* another of these, to be freed by cuMemFree */
    CUstream other;                            /* what a call destroys it sets to NULL, `streams` too */
    CUcontext created, second;                 /* a created context; device 1's primary one */
    CUmemoryPool first_pool, own_pool;         /* the default one; another */
    CUgraph graph;                             /* of nothing */
    CUgraphExec exec;                          /* the same, to be launched */
    CUevent event;
    CUipcMemHandle handle; /* of `exported` */
    CUstreamCaptureMode mode;
    unsigned long long said; /* what else a call answered */
};

struct capture_call {
    const char *name;
    CUresult (*make)(struct cell *);
    int since; /* a driver before has no such call */
};

extern const struct capture_call capture_calls[];
extern const unsigned capture_call_count;

#endif
