/* SPDX-License-Identifier: MIT
 *
 * The table of options.
 */
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choose.h"
#include "poolcuda/stats.h"
#include "variables.h"

#define LONG_BASE 256 /* getopt's number of a long name: this and its index */

static const char *take_pid(struct options *options, const char *text) {
    return choose_pids(&options->choice, text);
}

static const char *take_user(struct options *options, const char *text) {
    return choose_user(&options->choice, text);
}

static const char *take_gpu(struct options *options, const char *text) {
    return choose_gpu(&options->choice, text);
}

static const char *take_command(struct options *options, const char *text) {
    options->choice.command = text;
    return NULL;
}

static const char *take_all(struct options *options, const char *text) {
    (void)text;
    options->choice.all = true;
    return NULL;
}

static const char *take_seconds(const char *text, uint64_t *ns) {
    static const char wanted[] = "a number of seconds is wanted, at least 0.1 and at most 1000000";
    char *end;
    const double seconds = strtod(text, &end);
    if (text[0] == '\0' || text[strspn(text, "0123456789.")] != '\0' || *end != '\0' || seconds < 0.1 || seconds > 1e6)
        return wanted;
    *ns = (uint64_t)(seconds * 1e9 + 0.5);
    return NULL;
}

static const char *take_delay(struct options *options, const char *text) {
    return take_seconds(text, &options->delay_ns);
}

static const char *take_timeout(struct options *options, const char *text) {
    return take_seconds(text, &options->timeout_ns);
}

static const char *take_count(struct options *options, const char *text) {
    const unsigned long count = strtoul(text, NULL, 10);
    if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0' || count == 0 || count > UINT32_MAX)
        return "a number is wanted, at least 1";
    options->count = count;
    return NULL;
}

static const char *take_once(struct options *options, const char *text) {
    (void)text;
    options->once = true;
    return NULL;
}

static const char *take_timestamps(struct options *options, const char *text) {
    (void)text;
    options->timestamps = true;
    return NULL;
}

static const char *take_csv(struct options *options, const char *text) {
    (void)text;
    options->csv = true;
    return NULL;
}

/* What the names are is looked at where they are used. */
static const char *take_columns(struct options *options, const char *text) {
    options->columns = text;
    return NULL;
}

static const char *take_no_header(struct options *options, const char *text) {
    (void)text;
    options->no_header = true;
    return NULL;
}

static const char *take_bytes(struct options *options, const char *text) {
    (void)text;
    options->bytes = true;
    return NULL;
}

static const char *take_color(struct options *options, const char *text) {
    if (strcmp(text, "always") == 0)
        options->coloured = true;
    else if (strcmp(text, "never") == 0)
        options->coloured = false;
    else if (strcmp(text, "auto") != 0)
        return "auto, always or never is wanted";
    return NULL;
}

static const char *take_pool(struct options *options, const char *text) {
    const unsigned long number = strtoul(text, NULL, 10);
    if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0' || number == 0 || number > POOLCUDA_MAX_POOLS)
        return "the number of a pool is wanted, as poolstat show has it";
    options->pool = (uint32_t)number;
    return NULL;
}

static const char *take_classes(struct options *options, const char *text) {
    (void)text;
    options->classes = true;
    return NULL;
}

static const char *take_svg(struct options *options, const char *text) {
    options->svg = text;
    return text[0] == '\0' ? "the name of a file is wanted, or -" : NULL;
}

/* Whether it is one is looked at where it is used. */
static const char *take_listen(struct options *options, const char *text) {
    options->listen = text;
    return NULL;
}

static const char *take_textfile(struct options *options, const char *text) {
    options->textfile = text;
    return text[0] == '\0' ? "a folder is wanted" : NULL;
}

static const char *take_with(struct options *options, const char *text) {
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ",");
        if (length == strlen("size-classes") && strncmp(at, "size-classes", length) == 0)
            options->with_size_classes = true;
        else if (length == strlen("streams") && strncmp(at, "streams", length) == 0)
            options->with_streams = true;
        else
            return "size-classes, streams or both (size-classes,streams) are wanted";
        at += length;
        if (*at == '\0') return NULL;
    }
}

static const char *take_ascii(struct options *options, const char *text) {
    (void)text;
    options->ascii = true;
    return NULL;
}

static const char *take_json(struct options *options, const char *text) {
    (void)text;
    options->json = true;
    return NULL;
}

static const char *take_env(struct options *options, const char *text) {
    const char *equals = strchr(text, '=');
    (void)options;
    if (equals == NULL || equals == text) return "VAR=VALUE is wanted";
    char *name = strndup(text, (size_t)(equals - text));
    if (name != NULL) variables_warn(name);
    const bool is_set = name != NULL && setenv(name, equals + 1, 1) == 0;
    free(name);
    return is_set ? NULL : "it cannot be set";
}

static const char *take_summary(struct options *options, const char *text) {
    (void)text;
    options->summary = true;
    return NULL;
}

/* --help and --version: options_take notes them. */
static const char *take_nothing(struct options *options, const char *text) {
    (void)options;
    (void)text;
    return NULL;
}

static const struct option_line lines[] = {
    {"pid", 'p', "PID[,PID]", OPTIONS_CHOICE, "these processes, by their ids here or in their containers", take_pid},
    {"user", 'u', "USER", OPTIONS_CHOICE, "those of a user, by name or number", take_user},
    {"gpu", 'g', "GPU", OPTIONS_CHOICE, "a GPU alone: its ordinal in the process, UUID or PCI address", take_gpu},
    {"command", 'c', "COMMAND", OPTIONS_CHOICE, "processes of this base name, or of a pattern such as 'python*'",
     take_command},
    {"all", '\0', NULL, OPTIONS_CHOICE, "also ended processes, and those that cannot be seen from here", take_all},
    {"delay", 'd', "SECONDS", OPTIONS_TIME, "again and again, so often; at least 0.1", take_delay},
    {"count", 'n', "COUNT", OPTIONS_TIME, "so many times; each second, unless -d says otherwise", take_count},
    {"once", '1', NULL, OPTIONS_TIME, "one time", take_once},
    {"timestamps", '\0', NULL, OPTIONS_TIME, "with the time at which the figures were copied", take_timestamps},
    {"json", 'j', NULL, OPTIONS_ANSWER,
     "one JSON document, with -d one in each line; bytes and nanoseconds; null is unknown", take_json},
    {"csv", '\0', NULL, OPTIONS_TABLE, "comma-separated values (RFC 4180); names: poolstat help fields", take_csv},
    {"columns", 'o', "COLUMNS", OPTIONS_TABLE, "these columns, by name: -o pid,live; -o +NAME: beside the usual ones",
     take_columns},
    {"no-header", '\0', NULL, OPTIONS_TABLE, "no line of titles", take_no_header},
    {"bytes", '\0', NULL, OPTIONS_TEXT, "sizes as numbers of bytes", take_bytes},
    {"color", '\0', "WHEN", OPTIONS_TEXT, "auto (on a terminal, unless NO_COLOR is set), always or never", take_color},
    {"pool", '\0', "NUMBER", OPTIONS_MAP, "one pool alone, by its number in poolstat show", take_pool},
    {"classes", '\0', NULL, OPTIONS_MAP, "also of what size the blocks are", take_classes},
    {"svg", '\0', "FILE", OPTIONS_MAP, "an SVG picture in place of text; -: to the standard output", take_svg},
    {"timeout", '\0', "SECONDS", OPTIONS_CTL, "for so long an answer is awaited (5)", take_timeout},
    {"ascii", 'U', NULL, OPTIONS_LIVE, "no characters but ASCII", take_ascii},
    {"env", 'e', "VAR=VALUE", OPTIONS_RUN, "set a variable for the program (see: poolstat help config)", take_env},
    {"listen", '\0', "ADDRESS:PORT", OPTIONS_SERVE, "where, instead of 127.0.0.1:9178; port 0: any that is free",
     take_listen},
    {"textfile", '\0', "DIR", OPTIONS_SERVE, "no server: write DIR/poolcuda.prom for node_exporter, again with -d",
     take_textfile},
    {"with", '\0', "WHAT", OPTIONS_SERVE, "metrics also by size-classes, streams, or both: size-classes,streams",
     take_with},
    {"summary", '\0', NULL, OPTIONS_RUN, "at its end, what it did with device memory, on stderr", take_summary},
    {"help", 'h', NULL, OPTIONS_GENERAL, "this text; behind a command, what that takes", take_nothing},
    {"version", 'V', NULL, OPTIONS_GENERAL, "version, what it reads, and what is built in", take_nothing},
};
#define COUNT (sizeof(lines) / sizeof(lines[0]))
_Static_assert(COUNT <= 64, "there is a bit for each option");

const struct option_line *options_lines(size_t *count) {
    *count = COUNT;
    return lines;
}

const char *options_group_title(enum option_group group) {
    switch (group) {
    case OPTIONS_CHOICE:
        return "Choice of processes and devices";
    case OPTIONS_TIME:
        return "Time";
    case OPTIONS_ANSWER:
        return "For programs";
    case OPTIONS_TEXT:
        return "Looks";
    case OPTIONS_TABLE:
        return "The table";
    case OPTIONS_MAP:
        return "Of map";
    case OPTIONS_CTL:
        return "Of ctl";
    case OPTIONS_RUN:
        return "Of run";
    case OPTIONS_SERVE:
        return "Of serve";
    case OPTIONS_LIVE:
        return "Of live";
    case OPTIONS_GENERAL:
        return "General";
    }
    return "";
}

/* The table in getopt's two forms. */
struct forms {
    struct option names[COUNT + 1];
    char letters[2 + 2 * COUNT + 1];
};

static void make_forms(struct forms *forms, bool stop) {
    char *letter = forms->letters;
    if (stop) *letter++ = '+';
    *letter++ = ':'; /* tell a missing argument from an unknown option */
    for (size_t i = 0; i < COUNT; i++) {
        const int has_argument = lines[i].argument == NULL ? no_argument : required_argument;
        forms->names[i] = (struct option){lines[i].name, has_argument, NULL, LONG_BASE + (int)i};
        if (lines[i].letter == '\0') continue;
        *letter++ = lines[i].letter;
        if (has_argument != no_argument) *letter++ = ':';
    }
    forms->names[COUNT] = (struct option){0};
    *letter = '\0';
}

/* Of what getopt returned, or left in optopt; COUNT when it is in no line. */
static size_t index_of(int option) {
    size_t i = 0;
    if (option >= LONG_BASE) return (size_t)(option - LONG_BASE);
    while (i < COUNT && (lines[i].letter == '\0' || lines[i].letter != option)) i++;
    return i;
}

static void note_bad_option(struct options_taken *taken, int answer, char **argv) {
    const size_t index = optopt == 0 ? COUNT : index_of(optopt);
    const char letter[] = {'-', (char)optopt, '\0'};
    if (index == COUNT)
        snprintf(taken->error, sizeof(taken->error), "wrong option '%.100s'; see: poolstat --help",
                 optopt == 0 ? argv[optind - 1] : letter);
    else if (answer == ':')
        snprintf(taken->error, sizeof(taken->error), "--%s needs %s; see: poolstat --help", lines[index].name,
                 lines[index].argument);
    else
        snprintf(taken->error, sizeof(taken->error), "--%s takes no value, but there is '%.100s'", lines[index].name,
                 argv[optind - 1]);
}

int options_take(struct options_taken *taken, int argc, char **argv, bool stop) {
    struct forms forms;
    make_forms(&forms, stop);
    optind = 0; /* a new scan */
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, forms.letters, forms.names, NULL)) != -1;) {
        if (option == '?' || option == ':') {
            if (taken->error[0] == '\0') note_bad_option(taken, option, argv);
            continue;
        }
        const size_t index = index_of(option);
        const struct option_line *line = &lines[index];
        const char *wanted = line->take(taken->options, optarg);
        taken->lines |= 1ull << index;
        taken->help |= line->letter == 'h';
        taken->version |= line->letter == 'V';
        if (wanted != NULL && taken->error[0] == '\0')
            snprintf(taken->error, sizeof(taken->error), "--%s '%.60s': %s", line->name, optarg, wanted);
    }
    return optind;
}

/* Index of the first option that is in none of the groups; COUNT when there is none. */
static size_t first_outside(const struct options_taken *taken, unsigned groups) {
    size_t i = 0;
    while (i < COUNT && ((taken->lines >> i & 1) == 0 || (lines[i].groups & (groups | OPTIONS_GENERAL)) != 0)) i++;
    return i;
}

bool options_fit(const struct options_taken *taken, unsigned groups) {
    return first_outside(taken, groups) == COUNT;
}

void options_limit(struct options_taken *taken, unsigned groups, const char *command) {
    const size_t index = first_outside(taken, groups);
    if (index == COUNT || taken->error[0] != '\0') return;
    snprintf(taken->error, sizeof(taken->error), "%s does not take --%s; see: poolstat %s --help", command,
             lines[index].name, command);
}
