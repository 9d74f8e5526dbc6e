/* SPDX-License-Identifier: MIT
 *
 * poolstat: options, and the choice of the command.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "commands.h"
#include "report.h"
#include "text.h"

static size_t terminal_width(void) {
    struct winsize size;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static int report_bad_option(const struct options *options, char **argv) {
    const char letter[] = {'-', (char)optopt, '\0'};
    const bool is_long = optopt == 0 || strchr("jhV", optopt) != NULL; /* unknown, or one that takes no argument */
    return report(options, CODE_USAGE, "wrong option '%s'; see: poolstat --help", is_long ? argv[optind - 1] : letter);
}

/* Options that every command but run takes, before or after its name. Returns CODE_OK to go on with argv[optind], −1
 * when the answer was given, or an exit code. */
static int take_options(struct options *options, int argc, char **argv, const char *form) {
    static const struct option known[] = {{"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'V'},
                                          {NULL, 0, NULL, 0}};
    optind = 0; /* a new scan */
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, form, known, NULL)) != -1;) {
        switch (option) {
        case 'j':
            options->json = true;
            break;
        case 'h':
            help_usage();
            return -1;
        case 'V':
            help_version();
            return -1;
        default:
            return report_bad_option(options, argv);
        }
    }
    return CODE_OK;
}

/* argv[0] is the command's name. */
static int call(struct options *options, int argc, char **argv) {
    static const struct {
        const char *name;
        int (*function)(const struct options *options, const char *argument);
        bool needs_argument;
    } commands[] = {{"show", command_show, true}, {"help", command_help, false}};
    const size_t count = sizeof(commands) / sizeof(commands[0]);
    size_t i = 0;
    if (strcmp(argv[0], "run") == 0) return command_run(options, argc, argv);
    while (i < count && strcmp(commands[i].name, argv[0]) != 0) i++;
    if (i == count) return report(options, CODE_USAGE, "there is no command '%s'; see: poolstat --help", argv[0]);
    const int code = take_options(options, argc, argv, "jhV");
    if (code != CODE_OK) return code;
    if (argc - optind > 1) return report(options, CODE_USAGE, "%s takes one argument; see: poolstat --help", argv[0]);
    if (commands[i].needs_argument && optind == argc)
        return report(options, CODE_USAGE, "%s: a process id is missing; the list of them: poolstat", argv[0]);
    return commands[i].function(options, argv[optind]); /* argv ends with NULL */
}

static int finish(int code) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    report_note("cannot write the answer: %s", strerror(errno));
    return CODE_FAILED;
}

int main(int argc, char **argv) {
    struct options options = {.width = terminal_width()};
    text_start();
    int code = take_options(&options, argc, argv, "+jhV");
    if (code == CODE_OK) code = optind == argc ? command_list(&options) : call(&options, argc - optind, argv + optind);
    return finish(code == -1 ? CODE_OK : code);
}
