/* SPDX-License-Identifier: MIT
 *
 * The parts of the page about one process. Each adds its rows at the end of a page of given width.
 */
#ifndef POOLSTAT_LIVE_SECTIONS_H
#define POOLSTAT_LIVE_SECTIONS_H

#include "live_view.h"

struct live_part {
    const struct live *live;
    const struct live_process *process;
    const struct segment *segment;   /* as its figures are shown */
    const struct segment_pool *pool; /* the one in detail; NULL when there is none */
    struct canvas *page;
};

void part_title(const struct live_part *part, const char *title); /* with a blank row before it */

void part_histories(const struct live_part *part, size_t rows_each);
void part_pools(const struct live_part *part);
void part_classes(const struct live_part *part);
void part_streams(const struct live_part *part);
void part_figures(const struct live_part *part);
void part_map(const struct live_part *part); /* nothing where no segment has a row */
void part_events(const struct live_part *part);

#endif
