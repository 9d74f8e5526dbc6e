/* SPDX-License-Identifier: MIT
 *
 * Resting blocks: just freed, idle, and not merged yet, in bins of their exact size. Programs free and allocate the
 * same sizes over and over; such a block goes out again as it came in, with no merge, no search and no split. The bins
 * hold few, and are emptied into the free index whenever a search there finds nothing: memory is never missed for
 * resting.
 */
#include "pool/internal.h"

static unsigned bin_of(size_t size) {
    return (unsigned)((size / UNIT * UINT64_C(0x9E3779B97F4A7C15)) >> 58);
}

_Static_assert(REST_BINS == 64, "a bin is named by six bits");

bool rest_takes(size_t size) {
    return size <= REST_LARGEST;
}

bool rest_has_room(const struct rest *rest, size_t size) {
    const struct block *head = rest->heads[bin_of(size)];
    return rest->count < REST_MOST && (!head || head->size == size);
}

void rest_insert(struct rest *rest, struct block *block) {
    struct block **head = &rest->heads[bin_of(block->size)];
    block->previous = NULL;
    block->next = *head;
    if (*head) (*head)->previous = block;
    *head = block;
    rest->count++;
    if (block->size > rest->largest) rest->largest = block->size;
}

static size_t largest_of(const struct rest *rest) {
    size_t largest = 0;
    for (unsigned bin = 0; rest->count && bin < REST_BINS; bin++)
        if (rest->heads[bin] && rest->heads[bin]->size > largest) largest = rest->heads[bin]->size;
    return largest;
}

void rest_remove(struct rest *rest, struct block *block) {
    if (block->previous)
        block->previous->next = block->next;
    else
        rest->heads[bin_of(block->size)] = block->next;
    if (block->next) block->next->previous = block->previous;
    block->previous = block->next = NULL;
    rest->count--;
    if (block->size == rest->largest && !rest->heads[bin_of(block->size)]) rest->largest = largest_of(rest);
}

struct block *rest_find(const struct rest *rest, size_t size) {
    struct block *head = rest->heads[bin_of(size)];
    return head && head->size == size ? head : NULL;
}

struct block *rest_any(const struct rest *rest) {
    for (unsigned bin = 0; bin < REST_BINS; bin++)
        if (rest->heads[bin]) return rest->heads[bin];
    return NULL;
}
