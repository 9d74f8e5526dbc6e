/* SPDX-License-Identifier: MIT
 *
 * The block map as an SVG picture.
 */
#ifndef POOLSTAT_MAP_SVG_H
#define POOLSTAT_MAP_SVG_H

#include <stdio.h>

#include "collect.h"
#include "map_model.h"

/* Writes the picture of a process's maps. `classes`: with size classes in the place of the states' letters. */
void map_svg_write(FILE *out, const struct process *process, const struct map *maps, size_t count, bool classes);

/* The same as a file, which takes the place of one of that name once it is complete; "-" is stdout. NULL, or what went
 * wrong: the caller's to free. */
char *map_svg_save(const char *path, const struct process *process, const struct map *maps, size_t count, bool classes);

#endif
