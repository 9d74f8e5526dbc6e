/* SPDX-License-Identifier: MIT
 *
 * What poolstat itself has to say of POOL_* variables that it is asked to set.
 */
#ifndef POOLSTAT_VARIABLES_H
#define POOLSTAT_VARIABLES_H

/* A remark on stderr when the name begins with POOL_ and is none that the library knows. */
void variables_warn(const char *name);

#endif
