/* SPDX-License-Identifier: MIT
 *
 * `doctor`: POOL_* variables that the library does not know, or whose values it does not accept. Where the process has
 * figures, the library itself has said there which it took; else they are judged by the table, all but POOL_FIXED.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "diagnosis.h"
#include "nearest.h"
#include "poolcuda/variables.h"

#define PREFIX "POOL_"
#define SHOWN 48 /* bytes of a foreign name or value */

enum kind { KIND_FLAG, KIND_SIZE_MB, KIND_LEVEL, KIND_WORD, KIND_PATH, KIND_FIXED };

static const struct variable {
    const char *name, *range;
    enum kind kind;
    uint64_t low, high;
} variables[] = {
#define ROW(NAME, field, kind, initial, low, high, range, help) {#NAME, range, KIND_##kind, low, high},
    POOLCUDA_VARIABLES(ROW)
#undef ROW
};
#define COUNT (sizeof(variables) / sizeof(variables[0]))

static const struct variable *find(const char *name, size_t length) {
    for (size_t i = 0; i < COUNT; i++)
        if (strlen(variables[i].name) == length && memcmp(variables[i].name, name, length) == 0) return &variables[i];
    return NULL;
}

/* The known name that was meant, if that is likely. Case does not count, nor the prefix, which all have. */
static const char *meant(const char *name, size_t length) {
    const char *names[COUNT];
    char upper[64];
    if (length >= sizeof(upper)) return NULL;
    for (size_t i = 0; i < length; i++) upper[i] = (char)toupper((unsigned char)name[i]);
    upper[length] = '\0';
    for (size_t i = 0; i < COUNT; i++) names[i] = variables[i].name + strlen(PREFIX);
    const char *best = nearest(upper + strlen(PREFIX), names, COUNT);
    return best == NULL ? NULL : best - strlen(PREFIX);
}

/* A word of a text such as "none, or 2 to 64". */
static bool range_has(const char *range, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = range; length > 0 && (at = strstr(at, word)) != NULL; at += length)
        if ((at == range || strchr(" ,", at[-1]) != NULL) && strchr(" ,", at[length]) != NULL) return true;
    return false;
}

static bool number_fits(const char *value, uint64_t low, uint64_t high) {
    if (value[0] == '\0' || strspn(value, "0123456789") != strlen(value) || strlen(value) > 18) return false;
    const uint64_t number = strtoull(value, NULL, 10);
    return number >= low && number <= high;
}

static bool value_fits(const struct variable *variable, const char *value) {
    const bool is_word = strspn(value, "abcdefghijklmnopqrstuvwxyz") == strlen(value) && strcmp(value, "or") != 0 &&
                         strcmp(value, "to") != 0 && range_has(variable->range, value);
    switch (variable->kind) {
    case KIND_FLAG:
    case KIND_LEVEL:
        return number_fits(value, variable->low, variable->high);
    case KIND_SIZE_MB:
        return is_word || number_fits(value, variable->low, variable->high);
    case KIND_WORD:
        return is_word;
    case KIND_PATH:
        return value[0] != '\0';
    case KIND_FIXED:
        return true;
    }
    return true;
}

static bool was_accepted(const struct variable *variable, const char *value, const struct segment *segment) {
    for (size_t i = 0; segment != NULL && i < segment->config_count; i++)
        if (strcmp(segment->config[i].name, variable->name) == 0) return segment->config[i].from_environment != 0;
    return value_fits(variable, value);
}

static bool stands_before(const char *environment, const char *entry, size_t length) {
    for (const char *at = environment; at < entry; at += strlen(at) + 1)
        if (strncmp(at, entry, length + 1) == 0) return true;
    return false;
}

static void judge(struct diagnosis *diagnosis, const char *entry, size_t length, const struct segment *segment) {
    const struct variable *variable = find(entry, length);
    const char *value = entry + length + 1;
    const int shown = length < SHOWN ? (int)length : SHOWN;
    if (variable == NULL) {
        const char *known = meant(entry, length);
        struct finding *finding = diagnose(diagnosis, SEVERITY_PROBLEM, "unknown_variable",
                                           "The library knows no variable %.*s.", shown, entry);
        if (known != NULL)
            advise(finding, "Is %s meant?", known);
        else
            advise(finding, "See: poolstat help config");
    } else if (!was_accepted(variable, value, segment)) {
        advise(diagnose(diagnosis, SEVERITY_PROBLEM, "bad_value", "%s=%.*s was not accepted: the default is in force.",
                        variable->name, SHOWN, value),
               "Accepted is %s.", variable->range);
    }
}

void doctor_variables(struct diagnosis *diagnosis, const char *environment, size_t bytes,
                      const struct segment *segment) {
    const char *end = environment + bytes;
    for (const char *at = environment; at != NULL && at < end; at += strlen(at) + 1) {
        const char *equals = strchr(at, '=');
        if (equals == NULL || strncmp(at, PREFIX, strlen(PREFIX)) != 0) continue;
        /* Of a name that stands twice the first counts. */
        if (!stands_before(environment, at, (size_t)(equals - at)))
            judge(diagnosis, at, (size_t)(equals - at), segment);
    }
}
