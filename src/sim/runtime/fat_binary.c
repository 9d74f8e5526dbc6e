/* SPDX-License-Identifier: MIT
 *
 * Reads the table of contents of a fat binary: a header, then entries one after the other, each with a header of its
 * own. The code in them is not looked at.
 */
#include "fat_binary.h"

#include <stdint.h>

enum { MAGIC = 0xba55ed50u };

struct header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_size;
    uint64_t size; /* of all entries */
};

struct entry {
    uint16_t kind;
    uint16_t version;
    uint32_t header_size;
    uint64_t size; /* of what follows the entry's header */
    uint32_t details[3];
    uint32_t architecture;
};

int simrt_fat_binary_architecture(const void *image, int device_architecture) {
    const struct header *header = image;
    if (!header || header->magic != MAGIC || header->header_size < sizeof(*header)) return 0;
    int best = 0;
    uint64_t offset = 0;
    while (offset + sizeof(struct entry) <= header->size) {
        const struct entry *entry = (const void *)((const char *)image + header->header_size + offset);
        const int architecture = (int)entry->architecture;
        if (architecture <= device_architecture && architecture > best) best = architecture;
        if (entry->header_size < sizeof(*entry) || entry->size > header->size) break;
        offset += entry->header_size + entry->size;
    }
    return best;
}
