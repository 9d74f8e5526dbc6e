/* SPDX-License-Identifier: MIT
 *
 * The subcommands, and the one table of them. --help prints this table; manual and completion are checked against it.
 */
#ifndef POOLSTAT_COMMANDS_H
#define POOLSTAT_COMMANDS_H

#include "options.h"
#include "poolstat.h"

struct command {
    const char *name;
    /* argv[0] is the name, behind it stand the arguments alone, and NULL. Returns the exit code. */
    int (*function)(const struct options *options, int argc, char **argv);
    unsigned groups;       /* of options that it takes (enum option_group) */
    int least, most;       /* number of arguments; most −1: what follows the first one is a program's own */
    const char *arguments; /* as usage shows them */
    const char *help;      /* one line */
};

const struct command *commands_all(size_t *count);
const struct command *commands_find(const char *name); /* NULL when there is none */
const struct command *commands_default(bool live);     /* when none is named; `live`: a live view is wanted */

int command_list(const struct options *options, int argc, char **argv);
int command_live(const struct options *options, int argc, char **argv);
int command_show(const struct options *options, int argc, char **argv);
int command_check(const struct options *options, int argc, char **argv);
int command_map(const struct options *options, int argc, char **argv);
int command_run(const struct options *options, int argc, char **argv); /* without --summary returns only on failure */
int command_ctl(const struct options *options, int argc, char **argv);
int command_doctor(const struct options *options, int argc, char **argv);
int command_serve(const struct options *options, int argc, char **argv);
int command_help(const struct options *options, int argc, char **argv);

void help_usage(void);                            /* --help */
void help_command(const struct command *command); /* COMMAND --help */
void help_version(void);                          /* --version */

#endif
