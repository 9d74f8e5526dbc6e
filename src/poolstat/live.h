/* SPDX-License-Identifier: MIT
 *
 * The live view, as the choice of the command sees it.
 */
#ifndef POOLSTAT_LIVE_H
#define POOLSTAT_LIVE_H

#include "options.h"

/* When no command is named: do these options go with a live view, and can the terminal show it? Where the terminal is
 * one that should but cannot, a note says why. */
bool live_is_wanted(const struct options_taken *taken);

#endif
