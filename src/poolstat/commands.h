/* SPDX-License-Identifier: MIT
 *
 * The subcommands. Each gets the options in force and its own arguments, and returns the exit code.
 */
#ifndef POOLSTAT_COMMANDS_H
#define POOLSTAT_COMMANDS_H

#include "poolstat.h"

int command_list(const struct options *options);
int command_show(const struct options *options, const char *pid);
int command_run(const struct options *options, int argc, char **argv); /* argv[0] is "run"; returns only on failure */
int command_help(const struct options *options, const char *topic);    /* topic may be NULL */

void help_usage(void);   /* --help */
void help_version(void); /* --version */

#endif
