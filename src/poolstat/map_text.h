/* SPDX-License-Identifier: MIT
 *
 * The block map as text: letters, and on a terminal colours.
 */
#ifndef POOLSTAT_MAP_TEXT_H
#define POOLSTAT_MAP_TEXT_H

#include "map_model.h"
#include "poolstat.h"

void map_text_print(const struct options *options, const struct map *map); /* one pool, to stdout */
void map_text_legend(const struct options *options);

#endif
