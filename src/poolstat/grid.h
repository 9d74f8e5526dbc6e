/* SPDX-License-Identifier: MIT
 *
 * Tables of text: columns aligned by their width on a terminal, one line a row, nothing wraps.
 */
#ifndef POOLSTAT_GRID_H
#define POOLSTAT_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define GRID_MAX_COLUMNS 96u

enum grid_align { GRID_LEFT, GRID_RIGHT };
enum grid_style { GRID_PLAIN, GRID_TITLE, GRID_DIM, GRID_ALARM }; /* of a line */

struct grid {
    struct grid_column {
        const char *title;
        enum grid_align align;
        bool elastic; /* is cut when the line would be too long for the terminal */
    } columns[GRID_MAX_COLUMNS];
    size_t column_count;
    char **cells; /* row after row */
    size_t cell_count, cell_capacity;
    bool coloured;         /* lines have styles; without, they are all plain */
    unsigned char *styles; /* of the first rows; further ones are plain */
    size_t style_count;
};

void grid_column(struct grid *grid, const char *title, enum grid_align align);
void grid_elastic_column(struct grid *grid, const char *title, enum grid_align align);

/* The next cell of the current row; a row is complete when it has a cell for each column. The text is copied. */
void grid_put(struct grid *grid, const char *text);

/* Of the row whose cells come next. */
void grid_style(struct grid *grid, enum grid_style style);

size_t grid_rows(const struct grid *grid);

/* Print with `indent` blanks in front, in at most `width` columns (0: no bound): elastic columns are cut, and the last
 * ones left out where that is not enough. The grid is empty and without columns afterwards. */
void grid_print(struct grid *grid, FILE *out, size_t indent, size_t width, bool titles);

#endif
