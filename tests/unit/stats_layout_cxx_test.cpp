/* SPDX-License-Identifier: MIT
 *
 * The public headers and the pinned layout, compiled as C++: readers are written in it too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* cmocka.h does not know C++. */
extern "C" {
#include <cmocka.h>
}

#include "stats_layout_test.c"
