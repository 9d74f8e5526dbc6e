/* SPDX-License-Identifier: MIT
 *
 * The POOL_* variables: one table, read once. The parsed values are plain data; who needs them takes a pointer.
 *
 * A malformed or out-of-range value costs one line on stderr (variable, value, what is accepted, what is used instead),
 * an unknown POOL_ name one line with the nearest known name. Nothing else is ever printed, and nothing is allocated on
 * the heap.
 */
#ifndef POOLCUDA_CONFIG_H
#define POOLCUDA_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(NAME, field, kind, default, low, high, range text, help). kind: FLAG (0 or 1), SIZE_MB (whole MiB, kept in bytes),
 * LEVEL (small number), WORD (one of the words in the range text, kept as its index), PATH (text, kept as a pointer
 * into the table's own copy). CONFIG_NONE: no default, "none"; CONFIG_AUTO: decided from the device, "auto". Users may
 * write both words. */
#define CONFIG_NONE UINT64_MAX
#define CONFIG_AUTO (UINT64_MAX - 1)

#define CONFIG_VARIABLES(X)                                                                              \
    X(POOL_ENABLE, enable, FLAG, 1, 0, 1, "0 or 1", "0: pass every call through to the driver")          \
    X(POOL_FREE, free_mode, WORD, 0, 0, 0, "sync", "what cudaFree waits for: sync (as the driver does)") \
    X(POOL_MAX_SPLIT_MB, max_split, SIZE_MB, CONFIG_AUTO, 1, 1u << 24, "auto, none, or 1 to 16777216",   \
      "blocks above this are never split, and larger requests get a segment of their own")               \
    X(POOL_SEGMENT_MB, segment, SIZE_MB, 16, 2, 1u << 20, "2 to 1048576", "least size of a segment")     \
    X(POOL_LIMIT_MB, limit, SIZE_MB, CONFIG_NONE, 1, 1u << 24, "none, or 1 to 16777216",                 \
      "most that may be reserved per device")                                                            \
    X(POOL_HEADROOM_MB, headroom, SIZE_MB, 256, 0, 1u << 24, "0 to 16777216",                            \
      "device memory that cached memory and growth leave free")                                          \
    X(POOL_TRIM_MB, trim, SIZE_MB, CONFIG_NONE, 0, 1u << 24, "none, or 0 to 16777216",                   \
      "cached memory above this is given back")                                                          \
    X(POOL_STATS, stats, FLAG, 1, 0, 1, "0 or 1", "0: publish no figures")                               \
    X(POOL_LOG, log_level, LEVEL, 0, 0, 3, "0 to 3", "0 silent, 1 warnings, 2 events, 3 everything")     \
    X(POOL_LOG_FILE, log_file, PATH, 0, 0, 0, "a path; %p is replaced by the process id",                \
      "where the log goes (default: stderr)")

struct config {
#define CONFIG_FIELD_FLAG(field) bool field;
#define CONFIG_FIELD_SIZE_MB(field) uint64_t field; /* bytes, CONFIG_NONE or CONFIG_AUTO */
#define CONFIG_FIELD_LEVEL(field) int field;
#define CONFIG_FIELD_WORD(field) int field;
#define CONFIG_FIELD_PATH(field) const char *field; /* NULL when not set */
#define CONFIG_FIELD(NAME, field, kind, ...) CONFIG_FIELD_##kind(field)
    CONFIG_VARIABLES(CONFIG_FIELD)
#undef CONFIG_FIELD
    uint32_t from_environment; /* bit i: variable i of the table was set by the user to an accepted value */
};

/* The process's configuration, read from the environment at the first call; later calls cost a load. Thread-safe. Never
 * NULL. */
const struct config *config_get(void);

/* Parse `environment` (as environ) into *out; complaints go to `complain` (one call a line, no newline), which may be
 * NULL. For tests and for config_get. `out` keeps pointers into `environment` for PATH values. */
void config_parse(char *const environment[], struct config *out, void (*complain)(void *arg, const char *line),
                  void *arg);

/* The table as data: for the figures and for help. value writes the value in force as text ("16 MiB", "auto", "sync").
 */
struct config_variable {
    const char *name, *default_text, *range, *help;
};
size_t config_variable_count(void);
const struct config_variable *config_variable_at(size_t index);
void config_value_text(const struct config *config, size_t index, char *text, size_t size);
bool config_from_environment(const struct config *config, size_t index);

#endif
