/* SPDX-License-Identifier: MIT
 *
 * Bitmaps of what is taken: finding, filling and clearing runs of bits.
 */
#ifndef SIM_BITS_H
#define SIM_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BITS_WORDS(count) (((count) + 63) / 64)

/* The first bit from `from` on that has `value`; `limit` when there is none. */
static inline size_t bits_next(const uint64_t *words, size_t from, size_t limit, bool value) {
    for (size_t bit = from; bit < limit; bit = (bit / 64 + 1) * 64) {
        const uint64_t word = (value ? words[bit / 64] : ~words[bit / 64]) >> (bit % 64);
        if (word == 0) continue;
        const size_t found = bit + (size_t)__builtin_ctzll(word);
        return found < limit ? found : limit;
    }
    return limit;
}

/* The first of the first `count` clear bits in a row, from `from` on; `limit` when there are none. */
static inline size_t bits_find_run(const uint64_t *words, size_t from, size_t limit, size_t count) {
    for (size_t first = bits_next(words, from, limit, false); first < limit;) {
        const size_t end = bits_next(words, first, limit, true);
        if (end - first >= count) return first;
        first = bits_next(words, end, limit, false);
    }
    return limit;
}

static inline void bits_set_run(uint64_t *words, size_t first, size_t count, bool value) {
    for (size_t bit = first; bit < first + count;) {
        const size_t left = first + count - bit, room = 64 - bit % 64, length = left < room ? left : room;
        const uint64_t mask = (length == 64 ? UINT64_MAX : (UINT64_C(1) << length) - 1) << (bit % 64);
        if (value)
            words[bit / 64] |= mask;
        else
            words[bit / 64] &= ~mask;
        bit += length;
    }
}

#endif
