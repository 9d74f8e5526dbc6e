/* SPDX-License-Identifier: MIT
 *
 * What the live view shows, as rows of cells in memory: pages are drawn here, and only what is complete goes to the
 * terminal. Nothing leaves its row, and no character is cut in half.
 */
#ifndef POOLSTAT_LIVE_CANVAS_H
#define POOLSTAT_LIVE_CANVAS_H

#include <stdbool.h>
#include <stddef.h>

/* What a piece of text is; how that looks is the screen's matter. */
enum live_style {
    STYLE_PLAIN,
    STYLE_DIM,
    STYLE_TITLE,  /* of columns and sections */
    STYLE_SORTED, /* of the column that the rows are sorted by */
    STYLE_FRAME,  /* first and last line */
    STYLE_KEY,
    STYLE_LIVE,
    STYLE_CACHED,
    STYLE_RESERVED, /* neither live nor cached */
    STYLE_HISTORY,
    STYLE_GOOD,
    STYLE_WARNING,
    STYLE_ALARM,
    STYLE_SELECTED,
    STYLE_HEAT_1, /* little */
    STYLE_HEAT_2,
    STYLE_HEAT_3,
    STYLE_HEAT_4,
    STYLE_MAP, /* of cells of the block map: this and their state (map_model.h) */
    STYLE_MAP_LAST = STYLE_MAP + 6,
    STYLE_COUNT
};

struct canvas_cell {
    char glyph[5]; /* one character; "" when the one before it takes two columns */
    unsigned char style;
};

struct canvas {
    size_t width, height;
    struct canvas_cell *cells;
};

/* All blank. canvas_free before the next. */
void canvas_start(struct canvas *canvas, size_t width, size_t height);
void canvas_free(struct canvas *canvas);

/* Writes `text` in at most `columns` (which end at the row's end); what is longer ends with a mark that it was cut.
 * Rows and columns that are not there take nothing. Returns the columns used. */
size_t canvas_put(struct canvas *canvas, size_t row, size_t column, size_t columns, enum live_style style,
                  const char *text);

/* The same character of one column in each of `columns`. */
void canvas_fill(struct canvas *canvas, size_t row, size_t column, size_t columns, enum live_style style,
                 const char *glyph);

/* Ends at the last of `columns`. */
void canvas_put_right(struct canvas *canvas, size_t row, size_t column, size_t columns, enum live_style style,
                      const char *text);

/* The whole row from `column` on, whatever is there. */
void canvas_style(struct canvas *canvas, size_t row, size_t column, size_t columns, enum live_style style);

size_t canvas_add_row(struct canvas *canvas); /* at the end; its number */

/* Rows of `from`, from `first` on, into a place of `to`. */
void canvas_copy(struct canvas *to, size_t row, size_t column, const struct canvas *from, size_t first, size_t rows);

char *canvas_row_text(const struct canvas *canvas, size_t row); /* without blanks at its end; the caller frees it */

#endif
