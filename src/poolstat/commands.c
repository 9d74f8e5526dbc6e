/* SPDX-License-Identifier: MIT
 *
 * The table of commands.
 */
#include "commands.h"

#include <limits.h>
#include <string.h>

static const struct command commands[] = {
    {"ls", command_list, OPTIONS_CHOICE | OPTIONS_TIME | OPTIONS_ANSWER | OPTIONS_TEXT | OPTIONS_TABLE, 0, 0, "",
     "processes that run on the pool, by device"},
    {"live", command_live, OPTIONS_CHOICE | OPTIONS_TIME | OPTIONS_TEXT | OPTIONS_LIVE, 0, 0, "",
     "the same as a live screen with keys (?: help)"},
    {"show", command_show, OPTIONS_CHOICE | OPTIONS_TIME | OPTIONS_ANSWER | OPTIONS_TEXT, 0, 1, "[PID]",
     "everything about one of them"},
    {"check", command_check, OPTIONS_CHOICE | OPTIONS_ANSWER | OPTIONS_TEXT, 1, 1, "CONDITION",
     "for scripts: 'hit_rate > 0.9 and reserved < 20GiB'"},
    {"map", command_map, OPTIONS_CHOICE | OPTIONS_TIME | OPTIONS_ANSWER | OPTIONS_TEXT | OPTIONS_MAP, 0, 1, "[PID]",
     "where in device memory its blocks are, as a picture"},
    {"run", command_run, OPTIONS_RUN, 1, -1, "[-e VAR=VALUE]... [--summary] [--] COMMAND [ARGUMENT]...",
     "start a program on the pool"},
    {"doctor", command_doctor, OPTIONS_ANSWER, 0, INT_MAX, "[PID|[--] COMMAND [ARGUMENT]...]",
     "why a process, or a program, is (not) pooled"},
    {"ctl", command_ctl, OPTIONS_ANSWER | OPTIONS_TEXT | OPTIONS_CTL, 2, 3,
     "PID trim [KEEP]|limit SIZE|limit none|reset-peak", "have a process give memory back, limit it, reset its peaks"},
    {"serve", command_serve, OPTIONS_CHOICE | OPTIONS_TIME | OPTIONS_SERVE, 0, 0, "",
     "a live page, and metrics for Prometheus"},
    {"help", command_help, OPTIONS_ANSWER, 0, 1, "[config|fields|keys|COMMAND]",
     "POOL_* variables; fields; keys of the live view; a command"},
};
#define COUNT (sizeof(commands) / sizeof(commands[0]))

const struct command *commands_all(size_t *count) {
    *count = COUNT;
    return commands;
}

const struct command *commands_find(const char *name) {
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

const struct command *commands_default(bool live) {
    return commands_find(live ? "live" : "ls");
}
