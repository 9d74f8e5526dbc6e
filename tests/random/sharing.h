/* SPDX-License-Identifier: MIT
 *
 * After the last program: the end of the other processes.
 */
#ifndef RANDOM_SHARING_H
#define RANDOM_SHARING_H

#include <stdbool.h>

/* False when one of them did not end well. */
bool sharing_finish(void);

#endif
