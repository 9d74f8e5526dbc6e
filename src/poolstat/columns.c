/* SPDX-License-Identifier: MIT
 *
 * The table of columns. The figures among them come from the tables that declare them.
 */
#include "columns.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "nearest.h"
#include "text.h"
#include "words.h"

static void set_text(struct value *value, const char *text) {
    value->known = text != NULL && text[0] != '\0';
    value->text = memory_copy(text == NULL ? "" : text);
}

static void set_safe(struct value *value, const char *bytes, size_t size) {
    value->text = text_safe(bytes, size);
    value->known = value->text[0] != '\0';
}

static void set_number(struct value *value, bool known, uint64_t number) {
    value->known = known && number != TEXT_UNKNOWN;
    value->number = number;
}

static void get_time(const struct row *row, struct value *value) {
    set_text(value, words_time(row->process->read_unix_ns).s);
}

static void get_pid(const struct row *row, struct value *value) {
    const uint32_t pid = words_pid(row->process);
    set_number(value, pid != 0, pid);
}

static void get_namespace_pid(const struct row *row, struct value *value) {
    set_number(value, true, row->process->inner_pid);
}

static void get_uid(const struct row *row, struct value *value) {
    set_number(value, true, row->process->file.owner);
}

static void get_command(const struct row *row, struct value *value) {
    const struct poolcuda_header *header = &row->process->segment->header;
    set_safe(value, header->command, sizeof(header->command));
}

static void get_state(const struct row *row, struct value *value) {
    set_text(value, words_state(row->process));
}

static void get_stuck(const struct row *row, struct value *value) {
    set_number(value, true, row->process->liveness == LIVENESS_ALIVE && derive_is_stuck(row->process->segment));
}

static void get_path(const struct row *row, struct value *value) {
    set_safe(value, row->process->file.path, strlen(row->process->file.path));
}

static void get_library_version(const struct row *row, struct value *value) {
    const struct poolcuda_header *header = &row->process->segment->header;
    set_safe(value, header->library_version, sizeof(header->library_version));
}

static void get_driver_version(const struct row *row, struct value *value) {
    const uint32_t version = row->process->segment->header.driver_version;
    set_number(value, version != 0, version);
}

static void get_age(const struct row *row, struct value *value) {
    set_number(value, true, derive_age(row->process->segment, row->process->segment->header.created_ns));
}

static void get_heartbeat_age(const struct row *row, struct value *value) {
    set_number(value, true, derive_age(row->process->segment, row->process->segment->header.heartbeat_ns));
}

static void get_in_driver(const struct row *row, struct value *value) {
    set_number(value, true, derive_age(row->process->segment, row->process->segment->header.in_driver_since_ns));
}

static void get_snapshot_age(const struct row *row, struct value *value) {
    set_number(value, true, derive_snapshot_age(row->process->segment));
}

static void get_device(const struct row *row, struct value *value) {
    const bool known = row->device != NULL && row->device->device >= 0;
    set_number(value, known, known ? (uint64_t)row->device->device : 0);
}

static void get_uuid(const struct row *row, struct value *value) {
    const struct text uuid =
        row->device == NULL || row->device->identity == NULL ? (struct text){""} : words_uuid(row->device->identity);
    set_text(value, uuid.s[0] == '-' ? "" : uuid.s);
}

static void get_pci(const struct row *row, struct value *value) {
    if (row->device == NULL || row->device->identity == NULL)
        set_text(value, "");
    else
        set_safe(value, row->device->identity->pci, sizeof(row->device->identity->pci));
}

static void get_device_total(const struct row *row, struct value *value) {
    const bool has_one = row->device != NULL && row->device->identity != NULL;
    const uint64_t total = has_one ? row->device->identity->device_total_bytes : 0;
    set_number(value, total != 0, total);
}

static void get_pools(const struct row *row, struct value *value) {
    set_number(value, true, row->device == NULL ? 0 : row->device->pools);
}

static void get_approximate(const struct row *row, struct value *value) {
    set_number(value, row->device != NULL, row->device != NULL && row->device->approximate);
}

#define MEASURE(name, unit, help) {#name, COLUMN_##unit, offsetof(struct device_sum, measures.name), NULL},
#define FIGURE(name, unit, kind, help) {#name, COLUMN_##unit, offsetof(struct device_sum, figures.name), NULL},
#define COUNTER(name, unit, kind, help) {#name, COLUMN_##unit, offsetof(struct device_sum, counters.name), NULL},
static const struct column columns[] = {{"time", COLUMN_TEXT, 0, get_time},
                                        {"pid", COLUMN_COUNT, 0, get_pid},
                                        {"namespace_pid", COLUMN_COUNT, 0, get_namespace_pid},
                                        {"uid", COLUMN_COUNT, 0, get_uid},
                                        {"command", COLUMN_TEXT, 0, get_command},
                                        {"state", COLUMN_TEXT, 0, get_state},
                                        {"stuck", COLUMN_FLAG, 0, get_stuck},
                                        {"path", COLUMN_TEXT, 0, get_path},
                                        {"library_version", COLUMN_TEXT, 0, get_library_version},
                                        {"driver_version", COLUMN_COUNT, 0, get_driver_version},
                                        {"age_ns", COLUMN_NS, 0, get_age},
                                        {"heartbeat_age_ns", COLUMN_NS, 0, get_heartbeat_age},
                                        {"in_driver_ns", COLUMN_NS, 0, get_in_driver},
                                        {"snapshot_age_ns", COLUMN_NS, 0, get_snapshot_age},
                                        {"device", COLUMN_COUNT, 0, get_device},
                                        {"uuid", COLUMN_TEXT, 0, get_uuid},
                                        {"pci", COLUMN_TEXT, 0, get_pci},
                                        {"device_total_bytes", COLUMN_BYTES, 0, get_device_total},
                                        {"pools", COLUMN_COUNT, 0, get_pools},
                                        {"approximate", COLUMN_FLAG, 0, get_approximate},
                                        DERIVE_MEASURES(MEASURE) POOLCUDA_POOL_FIGURES(FIGURE)
                                            POOLCUDA_CELL_COUNTERS(COUNTER)};
#define COUNT (sizeof(columns) / sizeof(columns[0]))

const struct column *columns_all(size_t *count) {
    *count = COUNT;
    return columns;
}

/* Length of the name without its unit. */
static size_t short_length(const char *name) {
    const size_t length = strlen(name);
    if (length > 6 && strcmp(name + length - 6, "_bytes") == 0) return length - 6;
    if (length > 3 && strcmp(name + length - 3, "_ns") == 0) return length - 3;
    return length;
}

const struct column *columns_find(const char *name, size_t length) {
    for (size_t i = 0; i < COUNT; i++)
        if (strncmp(columns[i].name, name, length) == 0 &&
            (columns[i].name[length] == '\0' || length == short_length(columns[i].name)))
            return &columns[i];
    return NULL;
}

const char *columns_nearest(const char *name) {
    const char *names[2 * COUNT], *near;
    char *shorts[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        shorts[i] = memory_format("%.*s", (int)short_length(columns[i].name), columns[i].name);
        names[2 * i] = columns[i].name;
        names[2 * i + 1] = shorts[i];
    }
    near = nearest(name, names, 2 * COUNT);
    const struct column *column = near == NULL ? NULL : columns_find(near, strlen(near));
    for (size_t i = 0; i < COUNT; i++) free(shorts[i]);
    return column == NULL ? NULL : column->name;
}

char *column_title(const struct column *column) {
    /* Of the first three the short names are usual; what is called so counts something else. */
    static const struct {
        const char *name, *title;
    } titles[] = {{"hit_rate", "HITS"},
                  {"external_fragmentation", "EXTFRAG"},
                  {"peak_reserved_bytes", "PEAK"},
                  {"hits", "HIT_COUNT"},
                  {"namespace_pid", "NSPID"},
                  {"device", "DEV"},
                  {"approximate", ""}};
    for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
        if (strcmp(titles[i].name, column->name) == 0) return memory_copy(titles[i].title);
    char *title = memory_format("%.*s", (int)short_length(column->name), column->name);
    for (char *at = title; *at != '\0'; at++)
        if (*at >= 'a' && *at <= 'z') *at += 'A' - 'a';
    return title;
}

struct value column_value(const struct column *column, const struct row *row) {
    struct value value = {.unit = column->unit};
    if (column->get != NULL) {
        column->get(row, &value);
    } else if (row->device != NULL) {
        const char *figure = (const char *)row->device + column->offset;
        if (column->unit == COLUMN_RATIO)
            memcpy(&value.ratio, figure, sizeof(value.ratio));
        else
            memcpy(&value.number, figure, sizeof(value.number));
        value.known = column->unit == COLUMN_RATIO ? !isnan(value.ratio) : value.number <= INT64_MAX;
    }
    return value;
}

void value_free(struct value *value) {
    free(value->text);
}

char *value_text(const struct value *value) {
    if (!value->known) return memory_copy("-");
    switch (value->unit) {
    case COLUMN_BYTES:
        return memory_copy(text_bytes(value->number).s);
    case COLUMN_NS:
        return memory_copy(text_duration(value->number).s);
    case COLUMN_COUNT:
        return memory_copy(text_count(value->number).s);
    case COLUMN_RATIO:
        return memory_copy(text_ratio(value->ratio).s);
    case COLUMN_FLAG:
        return memory_copy(value->number != 0 ? "yes" : "no");
    case COLUMN_TEXT:
        break;
    }
    return memory_copy(value->text);
}

char *value_plain(const struct value *value) {
    if (!value->known) return memory_copy("");
    switch (value->unit) {
    case COLUMN_RATIO:
        return memory_format("%.6f", value->ratio);
    case COLUMN_FLAG:
        return memory_copy(value->number != 0 ? "true" : "false");
    case COLUMN_TEXT:
        return memory_copy(value->text);
    case COLUMN_BYTES:
    case COLUMN_NS:
    case COLUMN_COUNT:
        break;
    }
    return memory_format("%" PRIu64, value->number);
}

char *column_text(const struct column *column, const struct row *row) {
    struct value value = column_value(column, row);
    char *text;
    if (column->get == get_state && words_mark(row->process).s[0] != '\0')
        text = memory_copy(words_mark(row->process).s);
    else if (column->get == get_approximate && value.known)
        text = memory_copy(value.number != 0 ? "~" : "");
    else
        text = value_text(&value);
    value_free(&value);
    return text;
}
