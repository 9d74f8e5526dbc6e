/* SPDX-License-Identifier: MIT
 *
 * `poolstat run`: starts a program under the pool by becoming it, so that signals, terminal and exit status are the
 * program's own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "library.h"
#include "report.h"

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

int command_run(const struct options *options, int argc, char **argv) {
    int code = preload(options);
    (void)argc;
    if (code != CODE_OK) return code;
    execvp(argv[1], argv + 1);
    code = errno == ENOENT ? CODE_NOT_FOUND : CODE_CANNOT_EXECUTE;
    return report(options, code, "cannot execute '%s': %s", argv[1], strerror(errno));
}
