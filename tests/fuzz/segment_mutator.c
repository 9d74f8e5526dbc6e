/* SPDX-License-Identifier: MIT
 *
 * How libFuzzer changes a segment: half of the time in the header alone, on which everything else hangs, and of which
 * it would seldom meet the bytes among those of the records.
 */
#include <stdint.h>
#include <string.h>

#include "poolcuda/stats.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most); /* libFuzzer's own */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    const size_t header = sizeof(struct poolcuda_header);
    uint8_t copy[sizeof(struct poolcuda_header)];
    if (size <= header || seed % 2 == 0) return LLVMFuzzerMutate(data, size, most);
    memcpy(copy, data, header);
    /* One that became shorter keeps the rest, so that the records stay in their places. */
    const size_t changed = LLVMFuzzerMutate(copy, header, header);
    memcpy(data, copy, changed);
    return size;
}
