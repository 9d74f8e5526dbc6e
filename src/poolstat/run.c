/* SPDX-License-Identifier: MIT
 *
 * `poolstat run`: starts a program under the pool by becoming it, so that signals, terminal and exit status are the
 * program's own.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "library.h"
#include "report.h"

#define USAGE "poolstat run [-e VAR=VALUE]... [--] COMMAND [ARGUMENT]..."

static int set_variable(const struct options *options, char *assignment) {
    char *equals = strchr(assignment, '=');
    if (equals == NULL || equals == assignment)
        return report(options, CODE_USAGE, "-e wants VAR=VALUE, not '%s'", assignment);
    *equals = '\0';
    return setenv(assignment, equals + 1, 1) == 0 ? CODE_OK : CODE_FAILED;
}

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

static int report_bad_option(const struct options *options, char **argv) {
    const char letter[] = {'-', (char)optopt, '\0'};
    if (optopt == 'e') return report(options, CODE_USAGE, "%s needs VAR=VALUE; usage: " USAGE, argv[optind - 1]);
    return report(options, CODE_USAGE, "wrong option '%s'; usage: " USAGE, optopt == 0 ? argv[optind - 1] : letter);
}

int command_run(const struct options *options, int argc, char **argv) {
    static const struct option known[] = {
        {"env", required_argument, NULL, 'e'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    int code = CODE_OK;
    optind = 0; /* a new scan */
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "+e:h", known, NULL)) != -1;) {
        if (option == 'h') {
            help_usage();
            return CODE_OK;
        }
        if (option != 'e') return report_bad_option(options, argv);
        code = set_variable(options, optarg);
        if (code != CODE_OK) return code;
    }
    if (optind == argc) return report(options, CODE_USAGE, "a command is missing: " USAGE);
    if (options->json) return report(options, CODE_USAGE, "--json does not go with run: the output is the program's");
    code = preload(options);
    if (code != CODE_OK) return code;
    execvp(argv[optind], argv + optind);
    code = errno == ENOENT ? CODE_NOT_FOUND : CODE_CANNOT_EXECUTE;
    return report(options, code, "cannot execute '%s': %s", argv[optind], strerror(errno));
}
