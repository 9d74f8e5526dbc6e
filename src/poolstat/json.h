/* SPDX-License-Identifier: MIT
 *
 * The JSON documents. Bytes and nanoseconds are integers; null is unknown.
 */
#ifndef POOLSTAT_JSON_H
#define POOLSTAT_JSON_H

#include <jansson.h>

#include "collect.h"
#include "columns.h"

json_t *json_document(void);                             /* schema and time, to be added to */
json_t *json_error(enum code code, const char *message); /* null when CODE_OK */
json_t *json_error_document(enum code code, const char *message);
json_t *json_listed_process(const struct process *process); /* identity, and sums by device */
json_t *json_whole_process(const struct process *process);  /* all that is known of it */
json_t *json_problem(const struct process *process);        /* a segment that could not be read */

json_t *json_value(const struct value *value);

/* A string of unknown contents, escaped as everywhere. */
json_t *json_safe_string(const char *bytes, size_t size);

void json_one_line(void);          /* from now on documents are printed so */
void json_print(json_t *document); /* to stdout; gives the document back */

#endif
