/* SPDX-License-Identifier: MIT
 *
 * A program for tests that need one of its own: another name, another user, an exec. `guest files` prints the log
 * file and the trace in force; `guest publish` makes its segment, prints `ready`, waits for the end of its input and
 * ends normally; `guest exec PROGRAM ARGUMENTS` makes its segment and becomes another program.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "stats/writer.h"

/* Ends with _exit: the leak search of a sanitizer needs rights that a program with another user has not. */
static void print_files(void) {
    const char *path = config_get()->log_file, *trace = config_get()->trace;
    dprintf(STDOUT_FILENO, "%s %s\n", path == NULL ? "none" : path, trace == NULL ? "none" : trace);
    _exit(0);
}

static int publish(void) {
    stats_start(true);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) continue;
    stats_finish();
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "files") == 0) print_files();
    if (argc == 2 && strcmp(argv[1], "publish") == 0) return publish();
    if (argc > 2 && strcmp(argv[1], "exec") == 0) {
        stats_start(true);
        execv(argv[2], argv + 2);
    }
    return 2;
}
