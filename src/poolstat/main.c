/* SPDX-License-Identifier: MIT
 *
 * poolstat: the choice of the command.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "commands.h"
#include "json.h"
#include "live.h"
#include "options.h"
#include "repeat.h"
#include "report.h"
#include "text.h"

static size_t terminal_width(void) {
    struct winsize size;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static int check_arguments(const struct options *options, const struct command *command, int arguments) {
    if (arguments < command->least)
        return report(options, CODE_USAGE, "an argument is missing: poolstat %s %s", command->name, command->arguments);
    if (command->most >= 0 && arguments > command->most)
        return report(options, CODE_USAGE, "too many arguments; see: poolstat %s --help", command->name);
    return CODE_OK;
}

/* What holds for whatever is printed. */
static void apply(const struct options *options) {
    if (options->bytes) text_plain_bytes();
    if (repeat_is_asked(options)) json_one_line();
}

/* Options may stand before and behind the command's name. argv[0] is poolstat's. */
static int call(struct options *options, int argc, char **argv) {
    char *nothing[] = {NULL, NULL};
    struct options_taken taken = {.options = options};
    const int first = options_take(&taken, argc, argv, true);
    const struct command *command =
        first == argc ? commands_default(live_is_wanted(&taken)) : commands_find(argv[first]);
    const bool is_named = first != argc;
    char **rest = is_named ? argv + first : nothing;
    int count = is_named ? argc - first : 1, skipped = 1;
    if (is_named) skipped = options_take(&taken, count, rest, command != NULL && command->most < 0);
    if (command != NULL) options_limit(&taken, command->groups, command->name);
    if (taken.version || (taken.help && (!is_named || command == NULL))) {
        taken.version ? help_version() : help_usage();
        return CODE_OK;
    }
    if (command == NULL)
        return report(options, CODE_USAGE, "there is no command '%s'; see: poolstat --help", argv[first]);
    if (taken.help) {
        help_command(command);
        return CODE_OK;
    }
    apply(options);
    if (taken.error[0] != '\0') return report(options, CODE_USAGE, "%s", taken.error);
    const int code = check_arguments(options, command, count - skipped);
    rest[skipped - 1] = (char *)command->name;
    return code == CODE_OK ? command->function(options, count - skipped + 1, rest + skipped - 1) : code;
}

/* A reader that has seen enough is no failure: it ends us as SIGPIPE would where that is not ignored. */
static int finish(int code) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    if (errno == EPIPE) return 128 + SIGPIPE;
    report_note("cannot write the answer: %s", strerror(errno));
    return CODE_FAILED;
}

static bool may_be_coloured(void) {
    const char *refused = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && (refused == NULL || refused[0] == '\0') &&
           (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

/* What was started with a closed stdin, stdout or stderr must not find a segment there; a program that it runs finds
 * them closed. */
static void keep_low_descriptors(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

int main(int argc, char **argv) {
    struct options options = {.width = terminal_width(), .coloured = may_be_coloured()};
    keep_low_descriptors();
    /* Copies of segments come and go: their memory is used again, and not given back and taken anew each time. */
    mallopt(M_MMAP_THRESHOLD, 1 << 26);
    mallopt(M_TRIM_THRESHOLD, 1 << 26);
    text_start();
    const int code = call(&options, argc, argv);
    free(options.choice.pids);
    return finish(code);
}
