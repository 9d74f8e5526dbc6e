/* SPDX-License-Identifier: MIT
 *
 * Names of the variables, from the library's table.
 */
#include "variables.h"

#include <stdlib.h>
#include <string.h>

#include "nearest.h"
#include "poolcuda/variables.h"
#include "report.h"
#include "text.h"

void variables_warn(const char *name) {
#define NAME(NAME, field, kind, initial, low, high, range, help) #NAME,
    static const char *const names[] = {POOLCUDA_VARIABLES(NAME)};
#undef NAME
    const size_t count = sizeof(names) / sizeof(names[0]);
    if (strncmp(name, "POOL_", 5) != 0) return;
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return;
    char *safe = text_safe(name, strlen(name));
    const char *near = nearest(name, names, count);
    report_note("there is no variable %s%s%s%s (all of them: poolstat help config)", safe,
                near == NULL ? "" : "; did you mean ", near == NULL ? "" : near, near == NULL ? "" : "?");
    free(safe);
}
