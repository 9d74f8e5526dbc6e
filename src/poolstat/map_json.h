/* SPDX-License-Identifier: MIT
 *
 * The block map as JSON.
 */
#ifndef POOLSTAT_MAP_JSON_H
#define POOLSTAT_MAP_JSON_H

#include <jansson.h>

#include "collect.h"
#include "map_model.h"

json_t *map_json(const struct process *process, const struct map *maps, size_t count);

#endif
