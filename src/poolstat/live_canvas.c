/* SPDX-License-Identifier: MIT
 *
 * Cells of text.
 */
#include "live_canvas.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "text.h"

static const struct canvas_cell blank = {" ", STYLE_PLAIN};

static struct canvas_cell *cell_at(const struct canvas *canvas, size_t row, size_t column) {
    return &canvas->cells[row * canvas->width + column];
}

static void clear(struct canvas *canvas, size_t first_row) {
    for (size_t i = first_row * canvas->width; i < canvas->height * canvas->width; i++) canvas->cells[i] = blank;
}

void canvas_start(struct canvas *canvas, size_t width, size_t height) {
    *canvas = (struct canvas){width, height, memory_new(width * height, sizeof(*canvas->cells))};
    clear(canvas, 0);
}

void canvas_free(struct canvas *canvas) {
    free(canvas->cells);
    *canvas = (struct canvas){0};
}

size_t canvas_add_row(struct canvas *canvas) {
    canvas->cells = memory_grow(canvas->cells, canvas->width * (canvas->height + 1), sizeof(*canvas->cells));
    clear(canvas, canvas->height++);
    return canvas->height - 1;
}

/* What shared a wide character with these columns is left without its other half. */
static void break_wide(struct canvas *canvas, size_t row, size_t column, size_t end) {
    if (column < end && cell_at(canvas, row, column)->glyph[0] == '\0') *cell_at(canvas, row, column - 1) = blank;
    if (end < canvas->width && cell_at(canvas, row, end)->glyph[0] == '\0') *cell_at(canvas, row, end) = blank;
}

size_t canvas_put(struct canvas *canvas, size_t row, size_t column, size_t columns, enum live_style style,
                  const char *text) {
    if (row >= canvas->height || column >= canvas->width) return 0;
    if (columns > canvas->width - column) columns = canvas->width - column;
    if (columns == 0) return 0;
    char *cut = memory_copy(text);
    text_cut(cut, columns);
    const size_t used = text_width(cut);
    size_t at = column, width;
    break_wide(canvas, row, column, column + used);
    for (const char *from = cut; *from != '\0'; at += width) {
        const size_t bytes = text_character(from, &width);
        struct canvas_cell *cell = cell_at(canvas, row, at);
        *cell = (struct canvas_cell){"", (unsigned char)style};
        memcpy(cell->glyph, from, bytes < sizeof(cell->glyph) ? bytes : sizeof(cell->glyph) - 1);
        if (width == 2) *cell_at(canvas, row, at + 1) = (struct canvas_cell){"", (unsigned char)style};
        from += bytes;
    }
    free(cut);
    return used;
}

void canvas_fill(struct canvas *canvas, size_t row, size_t column, size_t columns, enum live_style style,
                 const char *glyph) {
    struct canvas_cell cell = {"", (unsigned char)style};
    strncpy(cell.glyph, glyph, sizeof(cell.glyph) - 1);
    if (row >= canvas->height || column >= canvas->width || columns == 0) return;
    if (columns > canvas->width - column) columns = canvas->width - column;
    break_wide(canvas, row, column, column + columns);
    for (size_t i = 0; i < columns; i++) *cell_at(canvas, row, column + i) = cell;
}

void canvas_put_right(struct canvas *canvas, size_t row, size_t column, size_t columns, enum live_style style,
                      const char *text) {
    const size_t width = text_width(text), gap = width < columns ? columns - width : 0;
    canvas_put(canvas, row, column + gap, columns - gap, style, text);
}

void canvas_style(struct canvas *canvas, size_t row, size_t column, size_t columns, enum live_style style) {
    if (row >= canvas->height) return;
    for (size_t at = column; at < canvas->width && at - column < columns; at++)
        cell_at(canvas, row, at)->style = (unsigned char)style;
}

void canvas_copy(struct canvas *to, size_t row, size_t column, const struct canvas *from, size_t first, size_t rows) {
    if (column >= to->width) return;
    const size_t width = from->width < to->width - column ? from->width : to->width - column;
    for (size_t i = 0; i < rows && first + i < from->height && row + i < to->height; i++)
        memcpy(cell_at(to, row + i, column), cell_at(from, first + i, 0), width * sizeof(*to->cells));
}

char *canvas_row_text(const struct canvas *canvas, size_t row) {
    char *text = memory_new(canvas->width * sizeof(blank.glyph) + 1, 1), *to = text;
    for (size_t column = 0; column < canvas->width; column++) to = stpcpy(to, cell_at(canvas, row, column)->glyph);
    while (to > text && to[-1] == ' ') *--to = '\0';
    return text;
}
