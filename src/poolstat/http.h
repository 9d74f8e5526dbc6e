/* SPDX-License-Identifier: MIT
 *
 * The server behind `serve`: one thread, which answers whoever is ready and waits for nobody.
 */
#ifndef POOLSTAT_HTTP_H
#define POOLSTAT_HTTP_H

#include "listen.h"
#include "poolstat.h"

/* Answers until SIGINT or SIGTERM comes. The listener stays the caller's. Returns the exit code. */
int http_serve(const struct options *options, const struct listener *listener);

#endif
