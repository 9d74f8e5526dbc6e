/* SPDX-License-Identifier: MIT
 *
 * `serve --textfile`: the metrics as a file for the textfile collector of node_exporter.
 */
#ifndef POOLSTAT_TEXTFILE_H
#define POOLSTAT_TEXTFILE_H

#include "poolstat.h"

#define TEXTFILE_NAME "poolcuda.prom"

/* Once, or as often as the options say; then until SIGINT or SIGTERM comes, and at the end the file is removed, since
 * its figures would stay for ever. Returns the exit code. */
int textfile_write(const struct options *options);

#endif
