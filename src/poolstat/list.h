/* SPDX-License-Identifier: MIT
 *
 * The document that `ls --json` prints, for those who hand it out otherwise.
 */
#ifndef POOLSTAT_LIST_H
#define POOLSTAT_LIST_H

#include "collect.h"
#include "json.h"

/* Of a collection that the options chose. The caller owns it. */
json_t *list_document(const struct options *options, const struct collection *collection);

#endif
