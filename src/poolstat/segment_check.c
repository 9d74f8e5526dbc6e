/* SPDX-License-Identifier: MIT
 *
 * Decides whether a header may be believed. Everything later trusts the sections that pass here: each lies inside the
 * segment, behind the header, apart from the others, and its records are at least as long as ours.
 */
#include "segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct section_rule {
    const char *name;
    const struct poolcuda_section *section;
    size_t record_bytes;
};

static bool section_is_sound(const struct poolcuda_header *header, const struct section_rule *rule,
                             char why[SEGMENT_WHY_SIZE]) {
    const struct poolcuda_section *section = rule->section;
    if (section->count == 0) return true;
    /* 32-bit factors: none of this can overflow 64 bits. */
    const uint64_t end = section->offset + (uint64_t)section->count * section->stride;
    if (section->offset % 64 != 0 || section->stride % 64 != 0 || section->stride < rule->record_bytes ||
        section->offset < header->header_bytes || end > header->total_bytes) {
        snprintf(why, SEGMENT_WHY_SIZE, "is damaged: its section %s (offset %u, count %u, stride %u) cannot be right",
                 rule->name, section->offset, section->count, section->stride);
        return false;
    }
    return true;
}

static bool sections_overlap(const struct poolcuda_section *a, const struct poolcuda_section *b) {
    const uint64_t a_end = a->offset + (uint64_t)a->count * a->stride;
    const uint64_t b_end = b->offset + (uint64_t)b->count * b->stride;
    return a->count != 0 && b->count != 0 && a->offset < b_end && b->offset < a_end;
}

static bool sections_are_sound(const struct poolcuda_header *header, char why[SEGMENT_WHY_SIZE]) {
    const struct section_rule rules[] = {
        {"config", &header->config, sizeof(struct poolcuda_config_entry)},
        {"pools", &header->pools, sizeof(struct poolcuda_pool)},
        {"cells", &header->cells, sizeof(struct poolcuda_cell)},
        {"events", &header->events, sizeof(struct poolcuda_event)},
        {"fixed", &header->fixed, sizeof(struct poolcuda_fixed)},
        {"map", &header->map, sizeof(struct poolcuda_map_row)},
    };
    const size_t count = sizeof(rules) / sizeof(rules[0]);
    for (size_t i = 0; i < count; i++) {
        if (!section_is_sound(header, &rules[i], why)) return false;
        for (size_t j = 0; j < i; j++) {
            if (!sections_overlap(rules[i].section, rules[j].section)) continue;
            snprintf(why, SEGMENT_WHY_SIZE, "is damaged: its sections %s and %s overlap", rules[j].name, rules[i].name);
            return false;
        }
    }
    return true;
}

enum segment_result segment_check_header(const struct poolcuda_header *header, uint64_t file_bytes,
                                         char why[SEGMENT_WHY_SIZE]) {
    static const char no_magic[sizeof(header->magic)];
    const bool has_magic = memcmp(header->magic, POOLCUDA_MAGIC, sizeof(header->magic)) == 0;
    if (header->state == POOLCUDA_STARTING &&
        (has_magic || memcmp(header->magic, no_magic, sizeof(header->magic)) == 0)) {
        snprintf(why, SEGMENT_WHY_SIZE, "was never completed by its process; try again");
        return SEGMENT_STARTING;
    }
    if (!has_magic)
        snprintf(why, SEGMENT_WHY_SIZE, "is damaged: it does not begin with %s", POOLCUDA_MAGIC);
    else if (header->version != POOLCUDA_LAYOUT_VERSION)
        snprintf(why, SEGMENT_WHY_SIZE,
                 "has layout version %u, and this poolstat reads version %u: use the poolstat of the same release as "
                 "the library",
                 header->version, POOLCUDA_LAYOUT_VERSION);
    else if (header->header_bytes < sizeof(*header) || header->total_bytes > (uint64_t)POOLCUDA_SHM_MAX_BYTES ||
             header->header_bytes > header->total_bytes)
        snprintf(why, SEGMENT_WHY_SIZE, "is damaged: its sizes (header %u, total %" PRIu64 ") cannot be right",
                 header->header_bytes, header->total_bytes);
    else if (file_bytes < header->total_bytes)
        snprintf(why, SEGMENT_WHY_SIZE, "is cut short: %" PRIu64 " of %" PRIu64 " bytes are there", file_bytes,
                 header->total_bytes);
    else if (header->state > POOLCUDA_ENDED)
        snprintf(why, SEGMENT_WHY_SIZE, "is damaged: its state %u is none", header->state);
    else if (sections_are_sound(header, why))
        return SEGMENT_READ;
    return SEGMENT_DAMAGED;
}
