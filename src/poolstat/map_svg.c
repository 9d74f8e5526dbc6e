/* SPDX-License-Identifier: MIT
 *
 * Draws the block map: in each cell the states it has stand on one another, as much of its height as they have of its
 * bytes, so that little that is live is seen too. Needs nothing but itself: no font, style or script from elsewhere.
 */
#include "map_svg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "derive.h"
#include "memory.h"
#include "text.h"
#include "words.h"

/* Pixels. */
#define CELL_WIDTH 13u
#define CELL_HEIGHT 20u
#define ROW_HEIGHT 25u
#define LEFT 210u
#define MARGIN 16u
#define RIGHT 60u
#define PICTURE_WIDTH (LEFT + CELL_WIDTH * POOLCUDA_MAP_CELLS + RIGHT + MARGIN)
#define LINE 20u
#define TITLE_HEIGHT 64u
#define POOL_HEIGHT 54u /* title, sums and gap of a pool */
#define LEGEND_HEIGHT 56u

/* What an attribute or a text must not have as it is; nor may a document have U+FFFE and U+FFFF. */
static void put_escaped(FILE *out, const char *text) {
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&apos;", out);
            break;
        case '\xef':
            if (text[1] == '\xbf' && (text[2] == '\xbe' || text[2] == '\xbf')) {
                fputc('?', out);
                text += 2;
                break;
            }
            /* fall through */
        default:
            fputc(*text, out);
        }
    }
}

static void put_text(FILE *out, unsigned x, unsigned y, const char *class, const char *text) {
    fprintf(out, "<text x=\"%u\" y=\"%u\" class=\"%s\">", x, y, class);
    put_escaped(out, text);
    fputs("</text>\n", out);
}

/* ---- cells ---- */

/* Cells that look the same and have no block's begin between them that could be told: drawn as one. */
static bool is_same(const struct map_cell *a, const struct map_cell *b) {
    return !a->mixed && !b->mixed && a->state == b->state && a->size_class == b->size_class;
}

static void put_tip(FILE *out, const struct map_segment *segment, size_t from, size_t to) {
    const struct poolcuda_map_row *row = segment->row;
    const uint64_t begin = map_place(segment, from), end = map_place(segment, to);
    const struct map_cell *cell = &segment->cells[from];
    unsigned blocks = 0;
    fprintf(out, "<title>%s to ", text_handle(row->address + begin).s);
    fprintf(out, "%s (%s)", text_handle(row->address + end).s, text_bytes(end - begin).s);
    for (unsigned state = 0; state < MAP_STATES; state++) {
        if (cell->parts[state] == 0) continue;
        fprintf(out, "\n%s: ", map_look(state)->name);
        if (cell->mixed)
            fprintf(out, "about %s",
                    text_bytes((uint64_t)((double)(end - begin) * cell->parts[state] / cell->whole)).s);
        else
            fputs("all", out);
    }
    bool many = false;
    for (size_t i = from; i < to; i++) {
        blocks += segment->cells[i].blocks;
        many |= segment->cells[i].many;
    }
    fprintf(out, "\nblocks that begin here: %u%s", blocks, many ? " or more" : "");
    if (cell->size_class >= 0) {
        const uint64_t most = derive_class_bytes((unsigned)cell->size_class);
        fprintf(out, "\nmost belongs to a block of up to %s", most == UINT64_MAX ? "any size" : text_bytes(most).s);
    }
    fputs("</title>", out);
}

/* The states of a cell upon one another, from below. */
static void put_parts(FILE *out, const struct map_cell *cell, unsigned x, unsigned y, unsigned width) {
    double bottom = y + CELL_HEIGHT;
    for (unsigned state = 0; state < MAP_STATES; state++) {
        if (cell->parts[state] == 0) continue;
        const double height = (double)CELL_HEIGHT * cell->parts[state] / cell->whole;
        bottom -= height;
        fprintf(out, "<rect x=\"%u\" y=\"%.2f\" width=\"%u\" height=\"%.2f\" fill=\"%s\"/>", x, bottom, width, height,
                map_look(state)->svg);
    }
}

static void put_run(FILE *out, const struct map_segment *segment, size_t from, size_t to, unsigned y, bool classes) {
    const struct map_cell *cell = &segment->cells[from];
    const unsigned x = LEFT + (unsigned)from * CELL_WIDTH, width = (unsigned)(to - from) * CELL_WIDTH;
    const char letter = classes ? map_class_letter(cell) : map_letter(cell);
    fputs("<g>", out);
    put_tip(out, segment, from, to);
    put_parts(out, cell, x, y, width);
    if (letter != ' ')
        fprintf(out, "<text x=\"%u\" y=\"%u\" class=\"c\" style=\"fill:%s\">%c</text>", x + width / 2, y + 14,
                map_look(cell->state)->svg_ink, letter);
    fputs("</g>\n", out);
}

static void put_segment(FILE *out, const struct map_segment *segment, unsigned y, bool classes) {
    const struct poolcuda_map_row *row = segment->row;
    char *label = memory_format("%s %10s", text_handle(row->address).s, text_bytes(row->size_bytes).s);
    put_text(out, LEFT - 8, y + 14, "n", label);
    free(label);
    for (size_t from = 0, to; from < POOLCUDA_MAP_CELLS; from = to) {
        for (to = from + 1; to < POOLCUDA_MAP_CELLS && is_same(&segment->cells[from], &segment->cells[to]);) to++;
        put_run(out, segment, from, to, y, classes);
    }
    fprintf(out, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" class=\"b\"/>\n", LEFT, y,
            CELL_WIDTH * POOLCUDA_MAP_CELLS, CELL_HEIGHT);
    put_text(out, PICTURE_WIDTH - MARGIN, y + 14, "n",
             text_ratio(derive_ratio(segment->bytes[MAP_live], row->size_bytes)).s);
}

/* ---- pools ---- */

static unsigned pool_height(const struct map *map) {
    const size_t rows = map->count == 0 ? 1 : map->count;
    return POOL_HEIGHT + (unsigned)rows * ROW_HEIGHT + (map->left_out_segments != 0 ? LINE : 0);
}

static void put_pool_title(FILE *out, const struct map *map, unsigned y) {
    const struct poolcuda_pool *record = &map->pool->record;
    const char *kind = words_kind(record);
    char *device = memory_copy(text_count(record->device < 0 ? TEXT_UNKNOWN : (uint64_t)record->device).s);
    char *title =
        memory_format("Pool %u: device %s, %s segments", map->pool->number, device, kind == NULL ? "unknown" : kind);
    char *age =
        map->age_ns == UINT64_MAX ? memory_copy("") : memory_format(", as of %s earlier", text_duration(map->age_ns).s);
    char *all = memory_format("%s%s%s", title, age, map->approximate ? " (approximate)" : "");
    put_text(out, MARGIN, y, "p", all);
    free(device);
    free(title);
    free(age);
    free(all);
}

static void put_sums(FILE *out, const struct map *map, unsigned y) {
    fprintf(out, "<text x=\"%u\" y=\"%u\">", MARGIN, y);
    for (unsigned state = 0, said = 0; state < MAP_STATES; state++)
        if (map->bytes[state] != 0)
            fprintf(out, "%s%s %s", said++ == 0 ? "" : ", ", map_look(state)->name, text_bytes(map->bytes[state]).s);
    if (map->outdated) {
        fprintf(out, "; it has changed since: live %s", text_bytes(map->live_now).s);
        fprintf(out, ", cached %s", text_bytes(map->cached_now).s);
    }
    fputs("</text>\n", out);
    put_text(out, PICTURE_WIDTH - MARGIN, y, "n", map->count == 0 ? "" : "live");
}

static void put_pool(FILE *out, const struct map *map, unsigned y, bool classes) {
    put_pool_title(out, map, y + 18);
    put_sums(out, map, y + 18 + LINE);
    y += POOL_HEIGHT - 8;
    if (map->count == 0)
        put_text(out, MARGIN, y + 14, "q",
                 map->left_out_segments == 0 ? "no segments" : "its segments have not been looked at yet");
    for (size_t i = 0; i < map->count; i++, y += ROW_HEIGHT) put_segment(out, &map->segments[i], y, classes);
    if (map->count == 0 || map->left_out_segments == 0) return;
    char *more = memory_format("and %s more segment%s, %s, without a row", text_count(map->left_out_segments).s,
                               map->left_out_segments == 1 ? "" : "s", text_bytes(map->left_out_bytes).s);
    put_text(out, LEFT, y + 14, "q", more);
    free(more);
}

/* ---- the picture ---- */

static void put_legend(FILE *out, unsigned y, bool classes) {
    unsigned x = MARGIN;
    for (unsigned state = 0; state < MAP_STATES; state++) {
        const struct map_look *look = map_look(state);
        fprintf(out, "<g><title>%s</title><rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" fill=\"%s\"/>",
                map_help(state), x, y, CELL_WIDTH + 5, CELL_HEIGHT, look->svg);
        if (!classes)
            fprintf(out, "<text x=\"%u\" y=\"%u\" class=\"c\" style=\"fill:%s\">%c</text>", x + (CELL_WIDTH + 5) / 2,
                    y + 14, look->svg_ink, look->letters[0]);
        fprintf(out, "<text x=\"%u\" y=\"%u\">%s</text></g>\n", x + CELL_WIDTH + 10, y + 14, look->name);
        x += 100;
    }
    put_text(out, x, y + 14, "q",
             classes ? "0 in a cell: blocks up to 512 B; each step, to 9 and from a to z, twice that"
                     : "a small letter: mostly so; the height is the share");
}

static void put_head(FILE *out, const struct process *process, unsigned height) {
    const struct poolcuda_header *header = &process->segment->header;
    char *command = text_safe(header->command, sizeof(header->command));
    char *title =
        memory_format("Device memory of %s, process %u, %s", command,
                      process->pid == 0 ? process->inner_pid : process->pid, words_time(process->read_unix_ns).s);
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" viewBox=\"0 0 %u %u\" role=\"img\">\n"
            "<title>",
            PICTURE_WIDTH, height, PICTURE_WIDTH, height);
    put_escaped(out, title);
    fputs("</title>\n<style>text{font:13px sans-serif;fill:#222;white-space:pre}"
          ".t{font-size:18px;font-weight:bold}.p{font-size:15px;font-weight:bold}.q{fill:#555}"
          ".n{font:12px monospace;text-anchor:end}.c{font:11px monospace;text-anchor:middle;pointer-events:none}"
          ".b{fill:none;stroke:#888;pointer-events:none}</style>\n"
          "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
          out);
    put_text(out, MARGIN, 30, "t", title);
    put_text(
        out, MARGIN, 30 + LINE, "q",
        "Each row is a segment that the pool has from the driver; each cell a 64th of it, in the order of addresses.");
    free(command);
    free(title);
}

void map_svg_write(FILE *out, const struct process *process, const struct map *maps, size_t count, bool classes) {
    unsigned height = TITLE_HEIGHT + LEGEND_HEIGHT, y = TITLE_HEIGHT;
    for (size_t i = 0; i < count; i++) height += pool_height(&maps[i]);
    put_head(out, process, height);
    for (size_t i = 0; i < count; y += pool_height(&maps[i++])) put_pool(out, &maps[i], y, classes);
    put_legend(out, y + 18, classes);
    fputs("</svg>\n", out);
}

/* ---- the file ---- */

static char *failed(const char *what, const char *path, int error) {
    char *safe = text_safe(path, strlen(path));
    char *message = memory_format("%s %s: %s", what, safe, strerror(error));
    free(safe);
    return message;
}

/* What is no ordinary file is written to as it is: another must not take the place of a device or a pipe. */
static bool is_ordinary(const char *path) {
    struct stat status;
    return stat(path, &status) != 0 || S_ISREG(status.st_mode);
}

/* False and errno. */
static bool finish(FILE *out, bool durable) {
    bool good = fflush(out) == 0 && !ferror(out);
    if (good && durable) good = fsync(fileno(out)) == 0;
    const int error = errno;
    if (fclose(out) != 0 && good) return false;
    errno = error;
    return good;
}

char *map_svg_save(const char *path, const struct process *process, const struct map *maps, size_t count,
                   bool classes) {
    if (strcmp(path, "-") == 0) {
        map_svg_write(stdout, process, maps, count, classes);
        return NULL;
    }
    char *real = realpath(path, NULL); /* behind links */
    const char *target = real == NULL ? path : real;
    const bool ordinary = is_ordinary(target);
    char *name = ordinary ? memory_format("%s.XXXXXX", target) : memory_copy(target);
    const int fd = ordinary ? mkstemp(name) : -1;
    FILE *out = ordinary ? (fd < 0 ? NULL : fdopen(fd, "w")) : fopen(name, "w");
    char *error = NULL;
    if (out == NULL) {
        error = failed("cannot write", path, errno);
    } else {
        const mode_t mask = umask(0);
        umask(mask);
        if (ordinary) fchmod(fd, 0666 & ~mask);
        map_svg_write(out, process, maps, count, classes);
        if (!finish(out, ordinary) || (ordinary && rename(name, target) != 0)) {
            error = failed("cannot write", path, errno);
            if (ordinary) unlink(name);
        }
    }
    free(name);
    free(real);
    return error;
}
