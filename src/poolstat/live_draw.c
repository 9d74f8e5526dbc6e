/* SPDX-License-Identifier: MIT
 *
 * Pictures of characters.
 */
#include "live_draw.h"

#include <math.h>

static const struct draw_marks unicode = {
    .live = "█",
    .cached = "▒",
    .reserved = "░",
    .empty = "·",
    .levels = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
    .heat = {"·", "░", "▒", "▓", "█"},
    .selected = "▶",
    .ascending = "▲",
    .descending = "▼",
    .rule = "─",
};

static const struct draw_marks ascii_only = {
    .live = "#",
    .cached = "=",
    .reserved = "-",
    .empty = ".",
    .levels = {" ", "_", ".", ",", "-", "=", "+", "*", "#"},
    .heat = {".", ":", "+", "*", "#"},
    .selected = ">",
    .ascending = "^",
    .descending = "v",
    .rule = "-",
};

const struct draw_marks *draw_marks(bool ascii) {
    return ascii ? &ascii_only : &unicode;
}

/* Up to where a bar reaches for the first `bytes`. */
static size_t reach(uint64_t bytes, uint64_t total, size_t columns) {
    return total == 0 ? 0 : bytes >= total ? columns : (size_t)((double)bytes / (double)total * (double)columns + 0.5);
}

/* The end of a part that begins at `start`. */
static size_t end_of(size_t start, uint64_t part, size_t reached, size_t columns) {
    const size_t least = part != 0 && start < columns ? start + 1 : start;
    return reached < least ? least : reached;
}

void draw_bar(struct canvas *canvas, const struct draw_marks *marks, size_t row, size_t column, size_t columns,
              const struct draw_memory *memory) {
    const uint64_t reserved = memory->reserved, live = memory->live < reserved ? memory->live : reserved;
    const uint64_t held = memory->cached < reserved - live ? live + memory->cached : reserved;
    const size_t live_end = end_of(0, live, reach(live, memory->total, columns), columns);
    const size_t cached_end = end_of(live_end, held - live, reach(held, memory->total, columns), columns);
    const size_t end = end_of(cached_end, reserved - held, reach(reserved, memory->total, columns), columns);
    canvas_fill(canvas, row, column, live_end, STYLE_LIVE, marks->live);
    canvas_fill(canvas, row, column + live_end, cached_end - live_end, STYLE_CACHED, marks->cached);
    canvas_fill(canvas, row, column + cached_end, end - cached_end, STYLE_RESERVED, marks->reserved);
    canvas_fill(canvas, row, column + end, columns - end, STYLE_DIM, marks->empty);
}

double draw_largest(const double *values, size_t count) {
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        if (values[i] > largest) largest = values[i];
    return largest;
}

/* One column of a history, from its lowest row up. */
static void draw_column(struct canvas *canvas, const struct draw_marks *marks, size_t row, size_t rows, size_t column,
                        enum live_style style, double part) {
    long left = (long)(part * (double)(rows * DRAW_LEVELS) + 0.5);
    if (left == 0 && part > 0) left = 1;
    for (size_t i = rows; i-- > 0 && left > 0; left -= (long)DRAW_LEVELS)
        canvas_fill(canvas, row + i, column, 1, style, marks->levels[left < (long)DRAW_LEVELS ? left : DRAW_LEVELS]);
}

void draw_history(struct canvas *canvas, const struct draw_marks *marks, size_t row, size_t rows, size_t column,
                  size_t columns, enum live_style style, const double *values, size_t count, double most) {
    const size_t shown = count < columns ? count : columns;
    values += count - shown;
    if (most <= 0) most = draw_largest(values, shown);
    for (size_t i = 0; i < shown; i++) {
        if (isnan(values[i]) || values[i] <= 0) continue;
        draw_column(canvas, marks, row, rows, column + columns - shown + i, style,
                    values[i] >= most ? 1 : values[i] / most);
    }
}

unsigned draw_heat_level(uint64_t value, uint64_t largest) {
    unsigned level = DRAW_HEAT_LEVELS;
    if (value == 0) return 0;
    while (level > 1 && value < largest / 16) {
        largest /= 16;
        level--;
    }
    return level;
}

void draw_heat(struct canvas *canvas, const struct draw_marks *marks, size_t row, size_t column, size_t columns,
               const uint64_t *values, size_t count) {
    static const enum live_style styles[] = {STYLE_DIM, STYLE_HEAT_1, STYLE_HEAT_2, STYLE_HEAT_3, STYLE_HEAT_4};
    uint64_t largest = 0;
    for (size_t i = 0; i < count; i++)
        if (values[i] > largest) largest = values[i];
    for (size_t i = 0; i < count; i++) {
        const unsigned level = draw_heat_level(values[i], largest);
        canvas_fill(canvas, row, column + i * columns, columns, styles[level], marks->heat[level]);
    }
}
