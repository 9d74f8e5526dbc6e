/* SPDX-License-Identifier: MIT
 *
 * Which columns there are, and printing them. A table has some columns only where they say something; CSV has always
 * the same.
 */
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid.h"
#include "memory.h"
#include "words.h"

#define CSV_COLUMNS                                                                                                  \
    "time,pid,namespace_pid,uid,command,state,stuck,device,uuid,approximate,live_bytes,requested_bytes,"             \
    "reserved_bytes,cached_bytes,peak_live_bytes,peak_reserved_bytes,allocs,frees,hits,misses,hit_rate,utilisation," \
    "external_fragmentation,internal_fragmentation,driver_ns,oom_failures"

struct selection {
    const struct column *columns[GRID_MAX_COLUMNS];
    size_t count;
};

static char *unknown_column(const char *name, size_t length) {
    size_t count, size = 0;
    const struct column *all = columns_all(&count);
    char *message = NULL, *asked = memory_format("%.*s", (int)length, name);
    FILE *out = open_memstream(&message, &size);
    if (out == NULL) return asked;
    const char *near = columns_nearest(asked);
    fprintf(out, "there is no column '%s'%s%s%s; columns:", asked, near == NULL ? "" : "; did you mean ",
            near == NULL ? "" : near, near == NULL ? "" : "?");
    for (size_t i = 0; i < count; i++) fprintf(out, " %s", all[i].name);
    fclose(out);
    free(asked);
    return message;
}

/* Adds the columns of a list of names. NULL, or what is wrong. */
static char *select_names(struct selection *selection, const char *names) {
    for (const char *at = names;; at++) {
        const size_t length = strcspn(at, ",");
        const struct column *column = columns_find(at, length);
        if (column == NULL) return unknown_column(at, length);
        if (selection->count == GRID_MAX_COLUMNS)
            return memory_format("there are more than %u columns", GRID_MAX_COLUMNS);
        selection->columns[selection->count++] = column;
        at += length;
        if (*at == '\0') return NULL;
    }
}

static void select_default(struct selection *selection, const char *names) {
    free(select_names(selection, names)); /* ours are right */
}

struct hints {
    bool has_inner_pids; /* some process has another pid in its own namespace, or none that we see */
    bool has_marks;      /* some process does not just run */
    bool has_approximate;
};

static struct hints look_at(const struct row *rows, size_t count) {
    struct hints hints = {0};
    for (size_t i = 0; i < count; i++) {
        hints.has_inner_pids |= words_pid(rows[i].process) != rows[i].process->inner_pid;
        hints.has_marks |= words_mark(rows[i].process).s[0] != '\0';
        hints.has_approximate |= rows[i].device != NULL && rows[i].device->approximate;
    }
    return hints;
}

static void select_for_people(const struct options *options, const struct hints *hints, struct selection *selection) {
    if (options->timestamps) select_default(selection, "time");
    select_default(selection, "pid");
    if (hints->has_inner_pids) select_default(selection, "namespace_pid");
    select_default(selection, "command");
    if (hints->has_marks) select_default(selection, "state");
    select_default(selection, "device");
    if (hints->has_approximate) select_default(selection, "approximate");
    select_default(selection,
                   "live_bytes,reserved_bytes,cached_bytes,peak_reserved_bytes,hit_rate,external_fragmentation");
}

/* What is asked by -o, or beside the defaults by -o +…. */
static char *select_columns(const struct options *options, const struct hints *hints, struct selection *selection) {
    const char *asked = options->columns;
    if (asked == NULL || asked[0] == '+') {
        if (options->csv)
            select_default(selection, CSV_COLUMNS);
        else
            select_for_people(options, hints, selection);
    } else if (options->timestamps) {
        select_default(selection, "time");
    }
    return asked == NULL ? NULL : select_names(selection, asked + (asked[0] == '+'));
}

char *table_check_columns(const struct options *options) {
    const struct hints all = {true, true, true};
    struct selection selection = {0};
    return select_columns(options, &all, &selection);
}

static enum grid_style style_of(const struct process *process) {
    if (process->liveness != LIVENESS_ALIVE) return GRID_DIM;
    return derive_is_stuck(process->segment) ? GRID_ALARM : GRID_PLAIN;
}

static void print(FILE *out, const struct selection *selection, struct grid *grid, const struct row *rows, size_t count,
                  size_t indent, size_t width, bool titles) {
    char *names[GRID_MAX_COLUMNS];
    for (size_t i = 0; i < selection->count; i++) {
        const struct column *column = selection->columns[i];
        names[i] = column_title(column);
        if (strcmp(column->name, "command") == 0)
            grid_elastic_column(grid, names[i], GRID_LEFT);
        else
            grid_column(grid, names[i], column->unit == COLUMN_TEXT ? GRID_LEFT : GRID_RIGHT);
    }
    for (size_t row = 0; row < count; row++) {
        grid_style(grid, style_of(rows[row].process));
        for (size_t i = 0; i < selection->count; i++) {
            char *text = column_text(selection->columns[i], &rows[row]);
            grid_put(grid, text);
            free(text);
        }
    }
    grid_print(grid, out, indent, width, titles);
    for (size_t i = 0; i < selection->count; i++) free(names[i]);
}

void table_print(const struct options *options, const struct row *rows, size_t count) {
    struct selection selection = {0};
    struct grid grid = {.coloured = options->coloured};
    const struct hints hints = look_at(rows, count);
    free(select_columns(options, &hints, &selection)); /* was checked before */
    print(stdout, &selection, &grid, rows, count, 0, options->width, !options->no_header);
}

void table_print_names(FILE *out, const char *names, const struct row *rows, size_t count) {
    struct selection selection = {0};
    struct grid grid = {0};
    select_default(&selection, names);
    print(out, &selection, &grid, rows, count, 2, 0, true);
}

/* RFC 4180. */
static void put_field(const char *text, bool last) {
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stdout);
    } else {
        putchar('"');
        for (; *text != '\0'; text++) {
            if (*text == '"') putchar('"');
            putchar(*text);
        }
        putchar('"');
    }
    fputs(last ? "\r\n" : ",", stdout);
}

void table_print_csv(const struct options *options, const struct row *rows, size_t count, bool header) {
    const struct hints none = {0};
    struct selection selection = {0};
    free(select_columns(options, &none, &selection)); /* was checked before */
    for (size_t i = 0; header && i < selection.count; i++)
        put_field(selection.columns[i]->name, i + 1 == selection.count);
    for (size_t row = 0; row < count; row++)
        for (size_t i = 0; i < selection.count; i++) {
            struct value value = column_value(selection.columns[i], &rows[row]);
            char *text = value_plain(&value);
            put_field(text, i + 1 == selection.count);
            free(text);
            value_free(&value);
        }
}
