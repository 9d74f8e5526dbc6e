/* SPDX-License-Identifier: MIT
 *
 * The list as a table for people, and as CSV for machines.
 */
#ifndef POOLSTAT_TABLE_H
#define POOLSTAT_TABLE_H

#include <stdio.h>

#include "columns.h"
#include "poolstat.h"

/* NULL, or what is wrong with -o; the caller frees it. */
char *table_check_columns(const struct options *options);

void table_print(const struct options *options, const struct row *rows, size_t count);
/* Columns `names`, of ours. */
void table_print_names(FILE *out, const char *names, const struct row *rows, size_t count);
void table_print_csv(const struct options *options, const struct row *rows, size_t count, bool header);

#endif
