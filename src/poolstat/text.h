/* SPDX-License-Identifier: MIT
 *
 * Numbers and foreign strings as text for people. What comes out of a segment is untrusted: text_safe is the only way
 * by which such a string reaches an output.
 */
#ifndef POOLSTAT_TEXT_H
#define POOLSTAT_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_UNKNOWN UINT64_MAX /* a number that is not known, shown as "-" */

/* Short texts are returned by value, so that several can stand in one call. */
struct text {
    char s[48];
};

void text_start(void); /* once, before any other: the character set */

void text_plain_bytes(void);              /* from now on text_bytes gives digits alone */
struct text text_bytes(uint64_t bytes);   /* three digits and a unit: "512 B", "1.50 GiB" */
struct text text_duration(uint64_t ns);   /* "812 ns", "4.56 ms", "3m12s" */
struct text text_count(uint64_t count);   /* all digits */
struct text text_ratio(double ratio);     /* "98.7%", ">99.9%"; NaN is unknown */
struct text text_cuda(uint32_t version);  /* 13000: "13.0"; 0 is unknown */
struct text text_handle(uint64_t handle); /* "0x7f…", as a debugger shows it */

/* A copy in which control characters, direction marks, invalid UTF-8 and backslashes are escaped (\xNN, \u{N}, \\).
 * Reads up to a terminator, at most `size` bytes. The caller frees it. */
char *text_safe(const char *bytes, size_t size);

/* Bytes of the character at `text`, and its columns. Our own texts and escaped ones hold nothing without a width. */
size_t text_character(const char *text, size_t *columns);

size_t text_width(const char *text);     /* columns on a terminal */
void text_cut(char *text, size_t width); /* shorten to `width` columns, the last one a mark that it was cut */
char *text_label(const char *name);      /* a field's name as a label: "peak_live_bytes" → "peak live" */

#endif
