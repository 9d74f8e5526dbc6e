/* SPDX-License-Identifier: MIT
 *
 * `doctor`: POOL_* variables that the library does not know, or whose values it does not accept. Where the process has
 * figures, the library itself has said there which it took; else they are judged by the table, all but POOL_FIXED.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "diagnosis.h"
#include "memory.h"
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

/* Changes of one letter that make one name of the other, case ignored. */
static size_t edits(const char *name, size_t length, const char *known) {
    const size_t width = strlen(known) + 1;
    size_t *row = memory_new(width, sizeof(*row));
    for (size_t k = 0; k < width; k++) row[k] = k;
    for (size_t i = 0; i < length; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t k = 1; k < width; k++) {
            size_t best = diagonal + (strncasecmp(&name[i], &known[k - 1], 1) != 0);
            diagonal = row[k];
            if (best > row[k] + 1) best = row[k] + 1;
            if (best > row[k - 1] + 1) best = row[k - 1] + 1;
            row[k] = best;
        }
    }
    const size_t result = row[width - 1];
    free(row);
    return result;
}

/* The known name that was meant, if that is likely. */
static const char *nearest(const char *name, size_t length) {
    const char *best = NULL;
    size_t least = 5;
    for (size_t i = 0; length < 64 && i < COUNT; i++) {
        const size_t count = edits(name, length, variables[i].name);
        if (count >= least || 2 * count > strlen(variables[i].name) - strlen(PREFIX) + 1) continue;
        least = count;
        best = variables[i].name;
    }
    return best;
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
        const char *meant = nearest(entry, length);
        struct finding *finding = diagnose(diagnosis, SEVERITY_PROBLEM, "unknown_variable",
                                           "The library knows no variable %.*s.", shown, entry);
        if (meant != NULL)
            advise(finding, "Is %s meant?", meant);
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
