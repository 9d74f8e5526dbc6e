/* SPDX-License-Identifier: MIT
 *
 * Where `serve` listens: from a text such as 127.0.0.1:9178 or [::1]:9178 to a socket.
 */
#ifndef POOLSTAT_LISTEN_H
#define POOLSTAT_LISTEN_H

#include "poolstat.h"

struct listener {
    int fd;
    bool loopback;  /* reachable from this machine alone */
    char where[64]; /* address and port as in a URL */
};

/* Reports what is wrong; CODE_OK when the listener is the caller's. */
enum code listen_open(const struct options *options, const char *text, struct listener *listener);

#endif
