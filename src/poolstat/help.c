/* SPDX-License-Identifier: MIT
 *
 * Usage, version, and the two printed tables: variables and fields.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "fields.h"
#include "grid.h"
#include "live_keys.h"
#include "memory.h"
#include "poolcuda/stats.h"
#include "poolcuda/variables.h"
#include "report.h"

#include <jansson.h>
#ifdef HAVE_MICROHTTPD
#include <microhttpd.h>
#endif
#ifdef HAVE_NCURSESW
#define NCURSES_NOMACROS
#include <curses.h>
#endif
#include <stdlib.h>

#define INDENT 2u
#define USAGE_WIDTH 40
#define GAP 2

#ifdef HAVE_NCURSESW
/* "ncurses 6.4.20221231" without the name. */
static const char *ncurses_version(void) {
    const char *version = curses_version(), *blank = strchr(version, ' ');
    return blank == NULL ? version : blank + 1;
}
#endif

/* Libraries that are built in, each only where its part of poolstat is. */
static const struct {
    const char *name;
    const char *(*version)(void);
} libraries[] = {
    {"jansson", jansson_version_str},
#ifdef HAVE_MICROHTTPD
    {"libmicrohttpd", MHD_get_version},
#endif
#ifdef HAVE_NCURSESW
    {"ncursesw", ncurses_version},
#endif
};

/* "poolstat show [OPTION]... PID", and what it does beside that or, where it is long, below. */
static void print_usage(const struct command *command) {
    const bool has_options = (command->groups & ~(unsigned)OPTIONS_RUN) != 0;
    char *usage = memory_format("poolstat %s%s%s%s", command->name, has_options ? " [OPTION]..." : "",
                                command->arguments[0] == '\0' ? "" : " ", command->arguments);
    if (strlen(usage) > USAGE_WIDTH - GAP)
        printf("  %s\n  %*s%s\n", usage, USAGE_WIDTH, "", command->help);
    else
        printf("  %-*s%s\n", USAGE_WIDTH, usage, command->help);
    free(usage);
}

static void put_option(struct grid *grid, const struct option_line *line) {
    const char letter[] = {'-', line->letter, ',', ' ', '\0'};
    char *form = memory_format("%s--%s%s%s", line->letter == '\0' ? "    " : letter, line->name,
                               line->argument == NULL ? "" : " ", line->argument == NULL ? "" : line->argument);
    grid_put(grid, form);
    grid_put(grid, line->help);
    free(form);
}

static void print_options(unsigned groups) {
    size_t count;
    const struct option_line *lines = options_lines(&count);
    for (unsigned group = 1; group <= OPTIONS_GENERAL; group <<= 1) {
        struct grid grid = {0};
        if ((groups & group) == 0) continue;
        printf("\n%s:\n", options_group_title(group));
        grid_column(&grid, "", GRID_LEFT);
        grid_column(&grid, "", GRID_LEFT);
        for (size_t i = 0; i < count; i++)
            if ((lines[i].groups & group) != 0) put_option(&grid, &lines[i]);
        grid_print(&grid, stdout, INDENT, 0, false);
    }
}

/* More about single commands. */
static const struct {
    const char *command, *text;
} notes[] = {
    {"check", "A condition compares figures (their names: poolstat help fields; _bytes and _ns may be left out)\n"
              "with numbers or each other, by < <= > >= == !=, joined by and, or, not and parentheses; stuck and\n"
              "approximate stand alone. Units: B KiB MiB GiB TiB PiB (of 1024), KB MB GB TB PB (of 1000), %,\n"
              "ns us ms s min h; without one a number is in the figure's own. Each chosen process is looked at as\n"
              "the sum of its pools, with -g of those on one device; the condition must hold of every one.\n"
              "Answers 0: it holds, 1: it does not, 2: it is wrong, 5: there is no such process, 6: what it needs\n"
              "is not known; 3 and 4: a segment cannot be read.\n"},
    {"run", "Without --summary poolstat becomes the program. With it poolstat stays beside it, in its process\n"
            "group, passes on the signals that are sent to poolstat alone, and answers with the program's code,\n"
            "or 128 and the number of the signal that ended it.\n"},
};

void help_command(const struct command *command) {
    fputs("Usage:\n", stdout);
    print_usage(command);
    print_options(command->groups | OPTIONS_GENERAL);
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++)
        if (strcmp(notes[i].command, command->name) == 0) printf("\n%s", notes[i].text);
}

void help_usage(void) {
    size_t count;
    const struct command *commands = commands_all(&count);
    printf("Usage:\n  %-*son a terminal as poolstat %s, else as poolstat %s\n", USAGE_WIDTH, "poolstat [OPTION]...",
           commands_default(true)->name, commands_default(false)->name);
    for (size_t i = 0; i < count; i++) print_usage(&commands[i]);
    print_options(~0u);
    fputs("\n"
          "Columns (on a terminal the last ones are left out where they do not fit):\n"
          "  LIVE      held by the program, rounded     HITS     served without a driver allocation\n"
          "  RESERVED  held from the driver             EXTFRAG  external fragmentation of what is ready\n"
          "  CACHED    free and kept for reuse          NSPID    pid inside its container\n"
          "  PEAK      highest RESERVED                 ~        approximate: the process is busy\n"
          "  STATE     ended, unseen (--all), or in driver: one driver call has lasted for over 10 s\n"
          "\n"
          "Exit codes:\n"
          "  0 shown   1 nothing matched   2 wrong usage   3 no permission\n"
          "  4 a segment is incompatible or damaged   5 the process went away, or there is none\n"
          "  check: 0 it holds, 1 it does not, 2 it is wrong, 6 a figure is not known\n"
          "  125 poolstat itself failed (run: the library was not found)\n"
          "  run: the program's own; 126 it cannot be executed, 127 it was not found\n"
          "\n"
          "Environment:\n"
          "  POOLSTAT_LIBRARY  run: libpoolcuda.so, when it does not lie beside poolstat\n"
          "  NO_COLOR          no colour on a terminal either\n"
          "  POOLSTAT_SHM_DIR  folder of the segments instead of /dev/shm (for tests)\n",
          stdout);
}

void help_version(void) {
    printf("poolstat %s (segment layout %u, JSON " POOLSTAT_SCHEMA ")\nbuilt in:", POOLSTAT_VERSION,
           POOLCUDA_LAYOUT_VERSION);
    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++)
        printf("%s %s %s", i == 0 ? "" : ",", libraries[i].name, libraries[i].version());
    putchar('\n');
}

static char *size_default(uint64_t mebibytes) {
    if (mebibytes == POOLCUDA_VALUE_NONE) return memory_copy("none");
    if (mebibytes == POOLCUDA_VALUE_AUTO) return memory_copy("auto");
    return memory_format("%" PRIu64, mebibytes);
}

/* The word number `index` of a text such as "none, zero or poison". */
static char *word_default(const char *words, uint64_t index) {
    static const char gap[] = " ,";
    for (;;) {
        words += strspn(words, gap);
        const size_t length = strcspn(words, gap);
        const bool is_or = length == 2 && memcmp(words, "or", 2) == 0;
        if (length == 0 || (!is_or && index-- == 0)) return memory_format("%.*s", (int)length, words);
        words += length;
    }
}

#define DEFAULT_FLAG(initial, range) memory_format("%u", (unsigned)(initial))
#define DEFAULT_LEVEL(initial, range) memory_format("%u", (unsigned)(initial))
#define DEFAULT_SIZE_MB(initial, range) size_default(initial)
#define DEFAULT_WORD(initial, range) word_default(range, initial)
#define DEFAULT_PATH(initial, range) memory_copy("none")
#define DEFAULT_FIXED(initial, range) memory_copy("none")

static void put_variable(struct grid *grid, const char *name, char *initial, const char *range, const char *help) {
    grid_put(grid, name);
    grid_put(grid, initial);
    grid_put(grid, range);
    grid_put(grid, help);
    free(initial);
}

static void print_variables(const struct options *options) {
    struct grid grid = {0};
    grid_column(&grid, "VARIABLE", GRID_LEFT);
    grid_column(&grid, "DEFAULT", GRID_LEFT);
    grid_column(&grid, "ACCEPTED", GRID_LEFT);
    grid_elastic_column(&grid, "MEANING", GRID_LEFT);
#define PUT(NAME, field, kind, initial, low, high, range, help) \
    put_variable(&grid, #NAME, DEFAULT_##kind(initial, range), range, help);
    POOLCUDA_VARIABLES(PUT)
#undef PUT
    grid_print(&grid, stdout, 0, options->width, true);
}

static void print_fields(const struct options *options) {
    for (enum field_group group = 0; group < FIELDS_GROUPS; group++) {
        size_t count;
        const struct field *fields = fields_of(group, &count);
        struct grid grid = {0};
        grid_column(&grid, "", GRID_LEFT);
        grid_column(&grid, "", GRID_LEFT);
        grid_elastic_column(&grid, "", GRID_LEFT);
        for (size_t i = 0; i < count; i++) {
            grid_put(&grid, fields[i].name);
            grid_put(&grid, fields[i].unit);
            grid_put(&grid, fields[i].help);
        }
        printf("%s%s\n", group == 0 ? "" : "\n", fields_title(group));
        grid_print(&grid, stdout, 2, options->width, false);
    }
}

static void print_keys(void) {
    size_t count;
    const struct live_key_line *keys = live_keys_lines(&count);
    struct grid grid = {0};
    grid_column(&grid, "", GRID_LEFT);
    grid_column(&grid, "", GRID_LEFT);
    for (size_t i = 0; i < count; i++) {
        grid_put(&grid, keys[i].names);
        grid_put(&grid, keys[i].help);
    }
    puts("Keys of the live view (poolstat on a terminal)");
    grid_print(&grid, stdout, INDENT, 0, false);
}

int command_help(const struct options *options, int argc, char **argv) {
    const char *topic = argc > 1 ? argv[1] : NULL;
    if (topic == NULL)
        help_usage();
    else if (strcmp(topic, "config") == 0)
        print_variables(options);
    else if (strcmp(topic, "fields") == 0)
        print_fields(options);
    else if (strcmp(topic, "keys") == 0)
        print_keys();
    else if (commands_find(topic) != NULL)
        help_command(commands_find(topic));
    else
        return report(options, CODE_USAGE, "there is no help on '%s'; try: poolstat help config, fields, keys", topic);
    return CODE_OK;
}
