/* SPDX-License-Identifier: MIT
 *
 * `poolstat run`: starts a program under the pool by becoming it, so that signals, terminal and exit status are the
 * program's own; with --summary by staying beside it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands.h"
#include "library.h"
#include "memory.h"
#include "report.h"
#include "summary.h"
#include "supervise.h"

static int preload(const struct options *options) {
    char tried[2048];
    char *path = library_find(tried, sizeof(tried));
    if (path == NULL)
        return report(options, CODE_FAILED,
                      LIBRARY_NAME " was not found (%s); install it beside poolstat, or set POOLSTAT_LIBRARY", tried);
    const char *why = library_preload(path);
    const int code = why == NULL ? CODE_OK : report(options, CODE_FAILED, "%s: %s; install it elsewhere", path, why);
    free(path);
    return code;
}

static int report_not_executed(const struct options *options, const char *command, int error) {
    return report(options, error == ENOENT ? CODE_NOT_FOUND : CODE_CANNOT_EXECUTE, "cannot execute '%s': %s", command,
                  strerror(error));
}

static int run_with_summary(const struct options *options, char **argv) {
    struct watch *watch = memory_new(1, sizeof(*watch));
    struct outcome outcome;
    int code;
    watch_start(watch);
    supervise(argv, watch, &outcome);
    if (outcome.error != 0) {
        code = report_not_executed(options, argv[0], outcome.error);
    } else {
        summary_print(argv[0], watch, &outcome);
        code = WIFSIGNALED(outcome.status) ? 128 + WTERMSIG(outcome.status) : WEXITSTATUS(outcome.status);
    }
    watch_end(watch);
    free(watch);
    return code;
}

int command_run(const struct options *options, int argc, char **argv) {
    const int code = preload(options);
    (void)argc;
    if (code != CODE_OK) return code;
    if (options->summary) return run_with_summary(options, argv + 1);
    execvp(argv[1], argv + 1);
    return report_not_executed(options, argv[1], errno);
}
