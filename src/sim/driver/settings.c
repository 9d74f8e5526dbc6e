/* SPDX-License-Identifier: MIT
 *
 * Reads the SIM_* variables. A value that is malformed or out of range costs one line on stderr and is replaced by the
 * default.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "settings.h"

struct settings settings;

static uint32_t number_read(const char *variable, uint32_t default_value, uint32_t least, uint32_t most) {
    const char *const text = getenv(variable);
    if (text == NULL || *text == '\0') return default_value;
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno == 0 && *end == '\0' && *text != '-' && value >= least && value <= most) return (uint32_t)value;
    fprintf(stderr, "simulated CUDA: %s=%s: expected a number from %u to %u, using %u\n", variable, text, least, most,
            default_value);
    return default_value;
}

static const char *text_read(const char *variable) {
    const char *const text = getenv(variable);
    return text != NULL && *text != '\0' ? text : NULL;
}

/* Of no value that is kept, and those that the runtime reads itself. */
static const struct {
    const char *name, *help;
} others[] = {
    {"SIM_RUNTIME_LOOKUP", "v1: the runtime asks for the driver's functions as one older than 12 does"},
    {"SIM_RUNTIME_VERSION", "version that the runtime claims (default 13000)"},
    {"SIM_HELP", "1: print these lines"},
};

static void help_print(void) {
    fputs("The simulated CUDA is set by these environment variables:\n", stderr);
#define HELP_NUMBER(field, variable, default_value, least, most, help)                                \
    fprintf(stderr, "  %-20s %s (default %u, %u to %u)\n", variable, help, (unsigned)(default_value), \
            (unsigned)(least), (unsigned)(most));
#define HELP_TEXT(field, variable, help) fprintf(stderr, "  %-20s %s\n", variable, help);
    SETTINGS(HELP_NUMBER, HELP_TEXT)
#undef HELP_NUMBER
#undef HELP_TEXT
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        fprintf(stderr, "  %-20s %s\n", others[i].name, others[i].help);
}

static bool name_known(const char *name, size_t length) {
#define NAME_NUMBER(field, variable, default_value, least, most, help) variable,
#define NAME_TEXT(field, variable, help) variable,
    static const char *const names[] = {SETTINGS(NAME_NUMBER, NAME_TEXT)};
#undef NAME_NUMBER
#undef NAME_TEXT
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0) return true;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strlen(others[i].name) == length && memcmp(others[i].name, name, length) == 0) return true;
    return false;
}

/* A misspelt name would simulate something else than was meant. */
static void unknown_report(void) {
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        const size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "SIM_", 4) == 0 && !name_known(*entry, length))
            fprintf(stderr, "simulated CUDA: unknown variable %.*s; SIM_HELP=1 lists the known ones\n", (int)length,
                    *entry);
    }
}

void settings_read(void) {
    const int before = errno;
#define READ_NUMBER(field, variable, default_value, least, most, help) \
    settings.field = number_read(variable, default_value, least, most);
#define READ_TEXT(field, variable, help) settings.field = text_read(variable);
    SETTINGS(READ_NUMBER, READ_TEXT)
#undef READ_NUMBER
#undef READ_TEXT
    unknown_report();
    const char *const help = getenv("SIM_HELP");
    if (help != NULL && strcmp(help, "1") == 0) help_print();
    errno = before;
}

bool settings_next_entry(const char **list, char *entry, unsigned size) {
    if (*list == NULL) return false;
    while (**list == ',') ++*list;
    if (**list == '\0') return false;
    const size_t length = strcspn(*list, ",");
    snprintf(entry, size, "%.*s", (int)length, *list);
    *list += length;
    return true;
}
