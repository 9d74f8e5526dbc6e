/* SPDX-License-Identifier: MIT
 *
 * Which stream last had which addresses, so that it can be counted how often memory goes from one stream to another.
 * Any thread may call.
 */
#ifndef BENCH_USERS_H
#define BENCH_USERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct users;

struct users *users_create(void); /* NULL: out of memory */
void users_destroy(struct users *users);

/* `stream` has these bytes from now on. True: some of them another stream had before. Bytes for which host memory runs
 * out are forgotten. */
bool users_take(struct users *users, uintptr_t start, size_t size, uint32_t stream);

#endif
