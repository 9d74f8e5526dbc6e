/* SPDX-License-Identifier: MIT
 *
 * The page about one process: what it is stays, its parts scroll; where there is room they stand in two columns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "live_sections.h"
#include "memory.h"
#include "text.h"
#include "words.h"

#define TWO_COLUMNS 150u /* width from which parts stand in two columns */
#define TALL 36u         /* height from which histories have several rows */
#define HISTORY_ROWS 3u

/* "user 1000  for 12m03s  CUDA 13.0  library 0.1.0"; its pid and command are in the first line. */
static char *describe(const struct live_process *process) {
    const struct segment *segment = process->process.segment;
    char *version = text_safe(segment->header.library_version, sizeof(segment->header.library_version));
    char *inner = words_pid(&process->process) == process->process.inner_pid
                      ? memory_copy("")
                      : memory_format("pid %u in its container  ", process->process.inner_pid);
    char *text = memory_format("%suser %u  for %.24s  CUDA %.8s  library %s", inner, segment->header.uid,
                               text_duration(derive_age(segment, segment->header.created_ns)).s,
                               text_cuda(segment->header.driver_version).s, version);
    free(version);
    free(inner);
    return text;
}

/* What of the configuration the user has set. */
static char *describe_settings(const struct segment *segment) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) return memory_copy("");
    for (size_t i = 0; i < segment->config_count; i++) {
        const struct poolcuda_config_entry *entry = &segment->config[i];
        if (!entry->from_environment) continue;
        char *name = text_safe(entry->name, sizeof(entry->name)),
             *value = text_safe(entry->value, sizeof(entry->value));
        fprintf(out, "%s%s=%s", ftell(out) == 0 ? "" : "  ", name, value);
        free(name);
        free(value);
    }
    fclose(out);
    return text;
}

/* Rows below the first line that do not scroll; returns the next one. */
static size_t draw_head(const struct live *live, struct canvas *canvas, const struct live_process *process) {
    const struct text mark = live_mark(live, process);
    char *text = describe(process), *settings = describe_settings(process->process.segment);
    size_t row = 1;
    canvas_put(canvas, row++, 1, SIZE_MAX, STYLE_PLAIN, text);
    if (settings[0] != '\0') canvas_put(canvas, row++, 1, SIZE_MAX, STYLE_DIM, settings);
    if (mark.s[0] != '\0') canvas_put(canvas, row++, 1, SIZE_MAX, STYLE_ALARM, mark.s);
    free(text);
    free(settings);
    return row;
}

void live_one_draw(struct live *live, struct canvas *canvas) {
    const struct live_process *process = live_view_opened(live);
    const struct segment *segment = process == NULL ? NULL : live_segment(process);
    if (segment == NULL) { /* its segment became unreadable */
        if (process != NULL) canvas_put(canvas, 1, 1, SIZE_MAX, STYLE_ALARM, process->process.why);
        return;
    }
    const bool is_wide = canvas->width >= TWO_COLUMNS;
    const size_t gap = 2, left = is_wide ? (canvas->width - gap) / 2 : canvas->width;
    struct canvas page, other;
    if (live->pool >= segment->pool_count) live->pool = segment->pool_count == 0 ? 0 : segment->pool_count - 1;
    canvas_start(&page, left, 0);
    canvas_start(&other, is_wide ? canvas->width - gap - left : left, 0);
    const struct live_part part = {live, process, segment,
                                   segment->pool_count == 0 ? NULL : &segment->pools[live->pool], &page};
    struct live_part beside = part;
    if (is_wide) beside.page = &other;
    part_histories(&part, canvas->height >= TALL ? HISTORY_ROWS : 1);
    part_pools(&part);
    part_classes(&part);
    part_streams(&part);
    part_map(&beside);
    part_events(&beside);
    part_figures(&part);

    struct canvas whole;
    canvas_start(&whole, canvas->width, page.height > other.height ? page.height : other.height);
    canvas_copy(&whole, 0, 0, &page, 0, page.height);
    canvas_copy(&whole, 0, left + gap, &other, 0, other.height);
    const size_t row = draw_head(live, canvas, process);
    live_scroll_draw(live, canvas, row, canvas->height - 1 - row, &whole);
    canvas_free(&page);
    canvas_free(&other);
    canvas_free(&whole);
}
