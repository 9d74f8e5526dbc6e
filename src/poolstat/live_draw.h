/* SPDX-License-Identifier: MIT
 *
 * Figures as pictures of characters: bars, histories, rows of heat. Each has a form of plain ASCII, and none needs
 * colour to be read.
 */
#ifndef POOLSTAT_LIVE_DRAW_H
#define POOLSTAT_LIVE_DRAW_H

#include <stdint.h>

#include "live_canvas.h"

#define DRAW_LEVELS 8u      /* of one character of a history, beside none */
#define DRAW_HEAT_LEVELS 4u /* of a cell of heat, beside none */

/* The characters of which pictures are made. */
struct draw_marks {
    const char *live, *cached, *reserved, *empty; /* of bars */
    const char *levels[DRAW_LEVELS + 1];
    const char *heat[DRAW_HEAT_LEVELS + 1];
    const char *selected, *ascending, *descending, *rule;
};

const struct draw_marks *draw_marks(bool ascii);

/* What a bar is about; live + cached ≤ reserved ≤ total where the figures add up, and it is drawn safely where not. */
struct draw_memory {
    uint64_t live, cached, reserved, total;
};

/* `columns` wide; what is not nothing has at least one character, if there is room. */
void draw_bar(struct canvas *canvas, const struct draw_marks *marks, size_t row, size_t column, size_t columns,
              const struct draw_memory *memory);

/* The last values, oldest first, as columns that stand on the lowest of `rows`; the newest stands at the right end. NaN
 * is nothing. `most`: what fills the height; 0: the largest of the values shown. */
void draw_history(struct canvas *canvas, const struct draw_marks *marks, size_t row, size_t rows, size_t column,
                  size_t columns, enum live_style style, const double *values, size_t count, double most);

double draw_largest(const double *values, size_t count); /* 0 when none is more */

/* 0 for nothing, else 1 to DRAW_HEAT_LEVELS: each level is a sixteenth of the one above, the last one is down to a
 * sixteenth of the largest. */
unsigned draw_heat_level(uint64_t value, uint64_t largest);

/* One cell of `columns` for each value. */
void draw_heat(struct canvas *canvas, const struct draw_marks *marks, size_t row, size_t column, size_t columns,
               const uint64_t *values, size_t count);

#endif
