/* SPDX-License-Identifier: MIT
 *
 * The POOL_* variables: one table, read once. The parsed values are plain data; who needs them takes a pointer.
 *
 * Accepted is what the range text of the table says and nothing else: decimal digits without blank, sign or unit, or a
 * word of the text, in its case. An empty value is malformed. Of a name that stands twice the first counts, as for
 * getenv.
 *
 * A malformed or out-of-range value costs one line on stderr (variable, value, what is accepted, what is used instead).
 * So does an unknown name that begins with POOL_, whosever it is, since a misspelt limit that is silently ignored costs
 * more than a line: with the known name that is at most three edits away, case ignored, else with where the names are
 * listed. Both once per process, and only in processes that make a CUDA call. Nothing else is ever printed, and nothing
 * is allocated on the heap.
 *
 * A program with raised privileges (AT_SECURE) ignores POOL_LOG_FILE and POOL_TRACE without a word.
 */
#ifndef POOLCUDA_CONFIG_H
#define POOLCUDA_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "poolcuda/variables.h"

/* The table stands in poolcuda/variables.h, where readers see it too. A PATH value of config_get is a copy, absolute
 * and with %p replaced by the number of the process that read it. */
#define CONFIG_NONE POOLCUDA_VALUE_NONE
#define CONFIG_AUTO POOLCUDA_VALUE_AUTO
#define CONFIG_VARIABLES(X) POOLCUDA_VARIABLES(X)

/* Indexes of the words of POOL_FREE and POOL_FILL. */
enum config_free { CONFIG_FREE_SYNC, CONFIG_FREE_EVENT };
enum config_fill { CONFIG_FILL_NONE, CONFIG_FILL_ZERO, CONFIG_FILL_POISON };

/* POOL_FIXED: `bytes` as written, and as often as that `blocks`. */
#define CONFIG_FIXED_MOST 16
struct config_fixed {
    unsigned count; /* of sizes */
    struct {
        uint64_t bytes, blocks;
    } sizes[CONFIG_FIXED_MOST];
};

struct config {
#define CONFIG_FIELD_FLAG(field) bool field;
#define CONFIG_FIELD_SIZE_MB(field) uint64_t field; /* bytes, CONFIG_NONE or CONFIG_AUTO */
#define CONFIG_FIELD_LEVEL(field) int field;
#define CONFIG_FIELD_WORD(field) int field;
#define CONFIG_FIELD_PATH(field) const char *field; /* NULL when not set */
#define CONFIG_FIELD_FIXED(field) struct config_fixed field;
#define CONFIG_FIELD(NAME, field, kind, ...) CONFIG_FIELD_##kind(field)
    CONFIG_VARIABLES(CONFIG_FIELD)
#undef CONFIG_FIELD
    uint32_t from_environment; /* bit i: variable i of the table was set by the user to an accepted value */
};

/* The process's configuration, read from the environment at the first call; later calls cost a load. Thread-safe. Never
 * NULL. */
const struct config *config_get(void);

/* POOL_TRACE as the calling process is to read it: with its own number for %p, which a forked child's is not that of
 * the process that read the environment. False when it is not set, or does not fit. */
bool config_trace_file(char *path, size_t size);

/* Parse `environment` (as environ) into *out; complaints go to `complain` (one call a line, no newline), which may be
 * NULL. For tests and for config_get. `out` keeps pointers into `environment` for PATH values. */
void config_parse(char *const environment[], struct config *out, void (*complain)(void *arg, const char *line),
                  void *arg);

/* What POOL_SEGMENT_MB comes to: segments are of whole 2 MiB, and one above POOL_MAX_SPLIT_MB could not be shared. */
uint64_t config_segment(const struct config *config);

/* The table as data: for the figures and for help. value writes the value in force as text ("16 MiB", "auto", "sync").
 */
struct config_variable {
    const char *name, *default_text, *range, *help;
};
size_t config_variable_count(void);
const struct config_variable *config_variable_at(size_t index);
void config_value_text(const struct config *config, size_t index, char *text, size_t size);
bool config_from_environment(const struct config *config, size_t index);
bool config_is_set(const struct config *config, const char *name); /* of a variable of the table */

#endif
