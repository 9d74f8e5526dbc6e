/* SPDX-License-Identifier: MIT
 *
 * The metrics that Prometheus gathers: every figure of the tables, by process and pool, with counters, gauges and
 * histograms in base units. How many series there are is bounded by the layout of the segment; those of size classes
 * and of streams are only told when the options ask for them.
 */
#ifndef POOLSTAT_METRICS_H
#define POOLSTAT_METRICS_H

#include "exposition.h"
#include "poolstat.h"
#include "samples.h"

/* What lasts from one scrape to the next; zero at first. */
struct metrics {
    struct samples samples;
    uint64_t scrapes;
    size_t length; /* of the last exposition */
};

/* Collects, and appends the exposition of what the options choose. */
void metrics_write(struct metrics *metrics, const struct options *options, struct exposition *out);
void metrics_free(struct metrics *metrics);

#endif
