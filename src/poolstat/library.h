/* SPDX-License-Identifier: MIT
 *
 * Where libpoolcuda.so is, and how it gets into a program's environment.
 */
#ifndef POOLSTAT_LIBRARY_H
#define POOLSTAT_LIBRARY_H

#include <stddef.h>

#define LIBRARY_NAME "libpoolcuda.so"

/* Its absolute path: POOLSTAT_LIBRARY, else beside this program, in the build tree or as installed. NULL when it is not
 * there; `tried` then says where it was looked for. The caller frees it. */
char *library_find(char *tried, size_t size);

/* Put `path` into LD_PRELOAD of our own environment, beside what is there. NULL, or why that cannot be. */
const char *library_preload(const char *path);

#endif
