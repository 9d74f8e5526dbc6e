/* SPDX-License-Identifier: MIT
 *
 * What device memory a trace needs when the pool serves it: plays it over an empty device, one stream, each free idle
 * at once, no headroom. Blocks still live at the end of the trace are freed then.
 */
#ifndef BENCH_FIT_H
#define BENCH_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/pool.h"
#include "trace.h"

#define FIT_TIMES 3 /* repetitions of the longer play */

struct fit_calls {
    uint64_t allocs, frees; /* of the driver, that succeeded */
};

struct fit_report {
    /* the smallest device memory on which it completes, once and FIT_TIMES times over */
    uint64_t capacity, capacity_repeated;

    /* on an unlimited device */
    uint64_t peak_reserved;
    uint64_t stranded;     /* free bytes of segments that also hold a live block, when live bytes are at their peak */
    struct fit_calls once; /* the first time */
    uint64_t warm_calls;   /* of both kinds: the most in one repetition, of four after the fourth */

    /* once on a device of 1.10 times the peak live bytes, and on the smallest one */
    bool fits_110, fits_110_repeated;
    struct fit_calls at_110, at_capacity;
    uint64_t repeated_110; /* calls there in the last of eight repetitions, valid when fits_110_repeated */
};

/* False: `error` says why. The figures are started by the caller (stats_start). */
bool fit_measure(const struct trace *trace, const struct pool_options *options, struct fit_report *report, char *error,
                 size_t error_size);

#endif
