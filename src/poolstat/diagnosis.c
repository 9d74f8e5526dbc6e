/* SPDX-License-Identifier: MIT
 *
 * The list of findings.
 */
#include "diagnosis.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "text.h"

static char *safe_format(const char *format, va_list arguments) {
    char text[2048];
    vsnprintf(text, sizeof(text), format, arguments);
    return text_safe(text, sizeof(text));
}

struct finding *diagnose(struct diagnosis *diagnosis, enum severity severity, const char *id, const char *format, ...) {
    if (diagnosis->count == diagnosis->capacity) {
        diagnosis->capacity = diagnosis->capacity ? 2 * diagnosis->capacity : 16;
        diagnosis->findings = memory_grow(diagnosis->findings, diagnosis->capacity, sizeof(*diagnosis->findings));
    }
    struct finding *finding = &diagnosis->findings[diagnosis->count++];
    va_list arguments;
    va_start(arguments, format);
    *finding = (struct finding){.id = id, .severity = severity, .what = safe_format(format, arguments)};
    va_end(arguments);
    return finding;
}

void advise(struct finding *finding, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    finding->advice = safe_format(format, arguments);
    va_end(arguments);
}

bool diagnosis_has_problem(const struct diagnosis *diagnosis) {
    for (size_t i = 0; i < diagnosis->count; i++)
        if (diagnosis->findings[i].severity == SEVERITY_PROBLEM) return true;
    return false;
}

bool diagnosis_has(const struct diagnosis *diagnosis, const char *id) {
    for (size_t i = 0; i < diagnosis->count; i++)
        if (strcmp(diagnosis->findings[i].id, id) == 0) return true;
    return false;
}

void diagnosis_free(struct diagnosis *diagnosis) {
    for (size_t i = 0; i < diagnosis->count; i++) {
        free(diagnosis->findings[i].what);
        free(diagnosis->findings[i].advice);
    }
    free(diagnosis->findings);
    *diagnosis = (struct diagnosis){0};
}
