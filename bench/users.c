/* SPDX-License-Identifier: MIT
 *
 * Which stream last had which addresses; see users.h. An array of pieces that share no byte, in the order of their
 * addresses.
 */
#include "users.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct piece {
    uintptr_t start, end;
    uint32_t stream;
};

struct users {
    pthread_mutex_t lock;
    struct piece *pieces;
    size_t count, room;
};

struct users *users_create(void) {
    struct users *users = calloc(1, sizeof *users);
    if (users != NULL) pthread_mutex_init(&users->lock, NULL);
    return users;
}

void users_destroy(struct users *users) {
    pthread_mutex_destroy(&users->lock);
    free(users->pieces);
    free(users);
}

/* The first piece that ends above `address`. */
static size_t first_above(const struct users *users, uintptr_t address) {
    size_t low = 0, high = users->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (users->pieces[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Put `count` pieces in the place of those from `first` up to `last`. */
static void replace(struct users *users, size_t first, size_t last, const struct piece *pieces, size_t count) {
    size_t rest = users->count - last;
    if (first + count + rest > users->room) {
        size_t room = users->room > 0 ? 2 * users->room : 1024;
        struct piece *grown = realloc(users->pieces, room * sizeof *grown);
        if (grown == NULL) return;
        users->pieces = grown;
        users->room = room;
    }
    memmove(users->pieces + first + count, users->pieces + last, rest * sizeof *pieces);
    memcpy(users->pieces + first, pieces, count * sizeof *pieces);
    users->count = first + count + rest;
}

bool users_take(struct users *users, uintptr_t start, size_t size, uint32_t stream) {
    const struct piece taken = {start, start + size, stream};
    struct piece made[3];
    size_t count = 0;
    bool crossed = false;

    pthread_mutex_lock(&users->lock);
    size_t first = first_above(users, start), last = first;
    while (last < users->count && users->pieces[last].start < taken.end) {
        crossed |= users->pieces[last].stream != stream;
        last++;
    }
    if (first < last && users->pieces[first].start < start)
        made[count++] = (struct piece){users->pieces[first].start, start, users->pieces[first].stream};
    made[count++] = taken;
    if (first < last && users->pieces[last - 1].end > taken.end)
        made[count++] = (struct piece){taken.end, users->pieces[last - 1].end, users->pieces[last - 1].stream};
    replace(users, first, last, made, count);
    pthread_mutex_unlock(&users->lock);
    return crossed;
}
