/* SPDX-License-Identifier: MIT
 *
 * The one table of options, and taking them out of a command line. --help prints this table; manual and completion are
 * checked against it. A letter or a name means the same in every command that takes it.
 */
#ifndef POOLSTAT_OPTIONS_H
#define POOLSTAT_OPTIONS_H

#include "poolstat.h"

/* What options are about; a command takes those of some groups. */
enum option_group {
    OPTIONS_CHOICE = 1 << 0,  /* which processes and devices */
    OPTIONS_TIME = 1 << 1,    /* when, and how often */
    OPTIONS_ANSWER = 1 << 2,  /* JSON */
    OPTIONS_TEXT = 1 << 3,    /* how text for people looks */
    OPTIONS_TABLE = 1 << 4,   /* of the list */
    OPTIONS_MAP = 1 << 5,     /* of `map` alone */
    OPTIONS_CTL = 1 << 6,     /* of `ctl` alone */
    OPTIONS_SERVE = 1 << 7,   /* of `serve` alone */
    OPTIONS_LIVE = 1 << 8,    /* of the live view alone */
    OPTIONS_RUN = 1 << 9,     /* of `run` alone */
    OPTIONS_GENERAL = 1 << 10 /* every command takes them */
};

struct option_line {
    const char *name;     /* without the dashes */
    char letter;          /* '\0': it has none */
    const char *argument; /* its argument's name, NULL when it takes none */
    unsigned groups;      /* of enum option_group */
    const char *help;     /* one line */
    /* Notes it in `options`. `text` is the argument. Returns NULL, or what is wanted instead: "a number of seconds". */
    const char *(*take)(struct options *options, const char *text);
};

const struct option_line *options_lines(size_t *count);
const char *options_group_title(enum option_group group);

/* What a command line has said so far. */
struct options_taken {
    struct options *options;
    bool help, version;       /* were asked */
    unsigned long long lines; /* which options were given: bits by index in the table */
    char error[256];          /* the first thing that is wrong, "" when nothing is */
};

/* Takes out the options of `argv`, behind argv[0]. Returns the index of the first argument; all arguments stand at the
 * end then. With `stop` the first argument ends the options, else they may stand behind it. Reads to the end whatever
 * is wrong, so that `options` says in which form to answer. */
int options_take(struct options_taken *taken, int argc, char **argv, bool stop);

/* Nothing was given that is in none of the groups. */
bool options_fit(const struct options_taken *taken, unsigned groups);

/* Notes as wrong what was given and is in none of the groups. */
void options_limit(struct options_taken *taken, unsigned groups, const char *command);

#endif
