/* SPDX-License-Identifier: MIT
 *
 * The address ranges of live blocks; see ranges.h. A search tree in which ranges that overlap compare as equal: since
 * no two in it do, that is an order.
 */
#include "ranges.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>

struct ranges {
    pthread_mutex_t lock;
    void *root;
};

static int compare(const void *left, const void *right) {
    const struct range *a = left, *b = right;
    if (a->start + a->size <= b->start) return -1;
    if (b->start + b->size <= a->start) return 1;
    return 0;
}

struct ranges *ranges_create(void) {
    struct ranges *ranges = calloc(1, sizeof *ranges);
    if (ranges != NULL) pthread_mutex_init(&ranges->lock, NULL);
    return ranges;
}

static void keep(void *range) {
    (void)range; /* the caller's own */
}

void ranges_destroy(struct ranges *ranges) {
    tdestroy(ranges->root, keep);
    pthread_mutex_destroy(&ranges->lock);
    free(ranges);
}

enum ranges_answer ranges_add(struct ranges *ranges, const struct range *range, struct range *other) {
    enum ranges_answer answer = RANGES_ADDED;
    pthread_mutex_lock(&ranges->lock);
    const struct range *const *found = tsearch(range, &ranges->root, compare);
    if (found == NULL) {
        answer = RANGES_NO_MEMORY;
    } else if (*found != range) {
        answer = RANGES_OVERLAP;
        *other = **found;
    }
    pthread_mutex_unlock(&ranges->lock);
    return answer;
}

void ranges_remove(struct ranges *ranges, const struct range *range) {
    pthread_mutex_lock(&ranges->lock);
    tdelete(range, &ranges->root, compare);
    pthread_mutex_unlock(&ranges->lock);
}
