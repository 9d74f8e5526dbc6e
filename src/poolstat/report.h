/* SPDX-License-Identifier: MIT
 *
 * Errors: on stderr, saying what to do; as a JSON document on stdout too when JSON was asked.
 */
#ifndef POOLSTAT_REPORT_H
#define POOLSTAT_REPORT_H

#include "poolstat.h"

/* The whole answer is this error. Returns `code`. */
int report(const struct options *options, enum code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A remark beside an answer: stderr alone. */
void report_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
