/* SPDX-License-Identifier: MIT
 *
 * The block map of one pool as rows of cells, whatever shows it: text, SVG, the live view.
 */
#ifndef POOLSTAT_MAP_MODEL_H
#define POOLSTAT_MAP_MODEL_H

#include "segment.h"

/* What a byte may be: the layout's states in their order, and unused, which is preallocated and in no state. */
#define MAP_COUNT_STATE(name, unit, kind, help) MAP_##name,
enum map_state { POOLCUDA_MAP_STATES(MAP_COUNT_STATE) MAP_unused, MAP_STATES };
#undef MAP_COUNT_STATE

/* How a state looks. */
struct map_look {
    const char *name;
    char letters[2];          /* of a cell that is wholly in the state, and of one that is mostly */
    const char *svg;          /* its colour, */
    const char *svg_ink;      /* and that of letters on it */
    unsigned char background; /* one of the 16 colours of a terminal */
    unsigned char ink;
};
const struct map_look *map_look(enum map_state state);
const char *map_help(enum map_state state);

struct map_cell {
    unsigned parts[MAP_STATES]; /* of the cell, in `whole` */
    unsigned whole;
    enum map_state state; /* of most of it */
    bool mixed;           /* not all of it */
    int size_class;       /* of the block that most of it belongs to, −1: none */
    unsigned blocks;      /* that begin in it; `many`: or more */
    bool many;
};

struct map_segment {
    const struct poolcuda_map_row *row;
    uint64_t bytes[MAP_STATES];
    uint64_t age_ns; /* since its blocks were looked at, UINT64_MAX when unknown */
    struct map_cell cells[POOLCUDA_MAP_CELLS];
};

struct map {
    const struct segment_pool *pool;
    struct map_segment *segments; /* by address */
    size_t count;
    uint64_t bytes[MAP_STATES];                 /* of these segments */
    uint64_t left_out_segments, left_out_bytes; /* what else the pool has, about */
    uint64_t age_ns;                            /* of the oldest row, UINT64_MAX when there is none, or it is unknown */
    bool approximate;
    /* The pool as it is now, by its figures. What is freed by a program that then rests is in no row any more. */
    uint64_t live_now, cached_now;
    bool outdated; /* the rows show something else, and have not followed for a while */
};

/* `segment` and `pool` outlive it. */
void map_make(const struct segment *segment, const struct segment_pool *pool, struct map *map);
void map_free(struct map *map);

/* Where a cell begins, in bytes from the segment's start; cell POOLCUDA_MAP_CELLS is its end. */
uint64_t map_place(const struct map_segment *segment, size_t cell);

/* The cells of a segment in at most `columns` (at least 1): neighbours are put together until they fit. Returns how
 * many there are, which divides POOLCUDA_MAP_CELLS; the same for every segment. */
size_t map_scale(const struct map_segment *segment, size_t columns, struct map_cell cells[POOLCUDA_MAP_CELLS]);

char map_letter(const struct map_cell *cell);       /* of its state */
char map_class_letter(const struct map_cell *cell); /* of its size class: 0 to 9, a to z, + above, blank for none */

#endif
