/* SPDX-License-Identifier: MIT
 *
 * The layout of tables.
 */
#include "grid.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "text.h"

#define GAP 2u             /* blanks between columns */
#define ELASTIC_MINIMUM 6u /* an elastic column is not cut below this */

void grid_column(struct grid *grid, const char *title, enum grid_align align) {
    grid->columns[grid->column_count++] = (struct grid_column){.title = title, .align = align};
}

void grid_elastic_column(struct grid *grid, const char *title, enum grid_align align) {
    grid_column(grid, title, align);
    grid->columns[grid->column_count - 1].elastic = true;
}

void grid_put(struct grid *grid, const char *text) {
    if (grid->cell_count == grid->cell_capacity) {
        grid->cell_capacity = grid->cell_capacity ? 2 * grid->cell_capacity : 64;
        grid->cells = memory_grow(grid->cells, grid->cell_capacity, sizeof(*grid->cells));
    }
    grid->cells[grid->cell_count++] = memory_copy(text);
}

void grid_style(struct grid *grid, enum grid_style style) {
    const size_t row = grid_rows(grid);
    grid->styles = memory_grow(grid->styles, row + 1, sizeof(*grid->styles));
    while (grid->style_count < row) grid->styles[grid->style_count++] = GRID_PLAIN;
    grid->styles[row] = (unsigned char)style;
    grid->style_count = row + 1;
}

size_t grid_rows(const struct grid *grid) {
    return grid->cell_count / grid->column_count;
}

/* Cut elastic columns, the last ones first. Returns the width of the line then. */
static size_t squeeze(const struct grid *grid, size_t total, size_t width, size_t *widths) {
    for (size_t column = grid->column_count; column-- > 0;) {
        if (!grid->columns[column].elastic || total <= width || widths[column] <= ELASTIC_MINIMUM) continue;
        size_t cut = total - width;
        if (cut > widths[column] - ELASTIC_MINIMUM) cut = widths[column] - ELASTIC_MINIMUM;
        widths[column] -= cut;
        total -= cut;
    }
    return total;
}

/* Widths of the columns; returns how many fit. */
static size_t measure(const struct grid *grid, size_t indent, size_t width, bool titles, size_t *widths) {
    size_t total = indent + GAP * (grid->column_count - 1), shown = grid->column_count;
    for (size_t column = 0; column < grid->column_count; column++) {
        widths[column] = titles ? text_width(grid->columns[column].title) : 0;
        for (size_t cell = column; cell < grid->cell_count; cell += grid->column_count) {
            const size_t needed = text_width(grid->cells[cell]);
            if (needed > widths[column]) widths[column] = needed;
        }
        total += widths[column];
    }
    if (width == 0) return shown;
    total = squeeze(grid, total, width, widths);
    for (; total > width && shown > 1; shown--) total -= widths[shown - 1] + GAP;
    return shown;
}

static void print_cell(FILE *out, const struct grid_column *column, const char *text, size_t width, bool last) {
    const size_t used = text_width(text);
    const int blanks = used < width ? (int)(width - used) : 0;
    if (column->align == GRID_RIGHT)
        fprintf(out, "%*s%s", blanks, "", text);
    else
        fprintf(out, "%s%*s", text, last ? 0 : blanks, "");
    if (!last) fprintf(out, "%*s", (int)GAP, "");
}

static enum grid_style style_of(const struct grid *grid, size_t row) {
    return row < grid->style_count ? (enum grid_style)grid->styles[row] : GRID_PLAIN;
}

static void start_line(const struct grid *grid, FILE *out, enum grid_style style, size_t indent) {
    static const char *const codes[] = {[GRID_TITLE] = "\033[1m", [GRID_DIM] = "\033[2m", [GRID_ALARM] = "\033[31m"};
    if (grid->coloured && style != GRID_PLAIN) fputs(codes[style], out);
    fprintf(out, "%*s", (int)indent, "");
}

static void end_line(const struct grid *grid, FILE *out, enum grid_style style) {
    if (grid->coloured && style != GRID_PLAIN) fputs("\033[0m", out);
    fputc('\n', out);
}

void grid_print(struct grid *grid, FILE *out, size_t indent, size_t width, bool titles) {
    size_t widths[GRID_MAX_COLUMNS];
    const size_t shown = measure(grid, indent, width, titles, widths);
    if (titles) {
        start_line(grid, out, GRID_TITLE, indent);
        for (size_t column = 0; column < shown; column++)
            print_cell(out, &grid->columns[column], grid->columns[column].title, widths[column], column + 1 == shown);
        end_line(grid, out, GRID_TITLE);
    }
    for (size_t cell = 0; cell < grid->cell_count; cell++) {
        const size_t column = cell % grid->column_count;
        const enum grid_style style = style_of(grid, cell / grid->column_count);
        if (column == 0) start_line(grid, out, style, indent);
        if (column < shown) {
            text_cut(grid->cells[cell], widths[column]);
            print_cell(out, &grid->columns[column], grid->cells[cell], widths[column], column + 1 == shown);
        }
        if (column + 1 == grid->column_count) end_line(grid, out, style);
        free(grid->cells[cell]);
    }
    free(grid->cells);
    free(grid->styles);
    *grid = (struct grid){0};
}
