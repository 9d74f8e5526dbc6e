/* SPDX-License-Identifier: MIT
 *
 * The conditions of `check`: figures by the names of the glossary, compared with numbers or with each other.
 *
 *   condition  = condition "or" condition | condition "and" condition | "not" condition | "(" condition ")"
 *              | operand ("<" | "<=" | ">" | ">=" | "==" | "!=") operand | flag
 *   operand    = name | number [unit]
 *   unit       = B KiB MiB GiB TiB PiB (of 1024) | KB MB GB TB PB (of 1000) | % | ns us ms s min h
 *
 * "not" binds strongest, then "and". A number without a unit is in the figure's own.
 */
#ifndef POOLSTAT_EXPRESSION_H
#define POOLSTAT_EXPRESSION_H

#include "columns.h"

enum verdict { VERDICT_FAILS, VERDICT_HOLDS, VERDICT_UNKNOWN };

struct expression;

/* NULL when it is wrong: `why` then says so, and *at is the place, bytes from the start of `text`. */
struct expression *expression_parse(const char *text, char *why, size_t size, size_t *at);
void expression_free(struct expression *expression);

/* Unknown only when what is not known could turn the answer. */
enum verdict expression_evaluate(const struct expression *expression, const struct row *row);

/* The figures that it names, each once, in their order. The caller frees *columns. */
size_t expression_columns(const struct expression *expression, const struct column ***columns);

#endif
