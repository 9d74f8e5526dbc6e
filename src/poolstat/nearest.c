/* SPDX-License-Identifier: MIT
 *
 * Distance between names: letters inserted, left out or exchanged.
 */
#include "nearest.h"

#include <string.h>

#define LONGEST 64u

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t distance(const char *a, const char *b) {
    const size_t length = strlen(b);
    size_t row[LONGEST + 1];
    if (strlen(a) > LONGEST || length > LONGEST) return LONGEST;
    for (size_t j = 0; j <= length; j++) row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            const size_t exchanged = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = smaller(exchanged, smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[length];
}

const char *nearest(const char *name, const char *const names[], size_t count) {
    const char *best = NULL;
    size_t least = strlen(name) / 3 + 1; /* more changes, and it is another word */
    for (size_t i = 0; i < count; i++) {
        const size_t changes = distance(name, names[i]);
        if (changes >= least) continue;
        least = changes;
        best = names[i];
    }
    return best;
}
