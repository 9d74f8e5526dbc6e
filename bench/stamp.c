/* SPDX-License-Identifier: MIT
 *
 * Stamps that tell whether a block was overwritten; see stamp.h.
 */
#include "stamp.h"

#include <string.h>

/* How a block of `size` bytes is stamped: `head` bytes at its start, `tail` at its end. */
static size_t head_bytes(size_t size) {
    return size < STAMP_BOTH_BYTES ? size : STAMP_BYTES;
}
static size_t tail_bytes(size_t size) {
    return size < STAMP_BOTH_BYTES ? 0 : STAMP_BYTES;
}

/* The splitmix64 sequence: numbers that lie close together give bytes that have nothing in common. */
static void stamp_make(uint64_t number, unsigned char stamp[STAMP_BOTH_BYTES]) {
    for (size_t at = 0; at < STAMP_BOTH_BYTES; at += sizeof number) {
        uint64_t mixed = (number += UINT64_C(0x9E3779B97F4A7C15));
        mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
        mixed ^= mixed >> 31;
        memcpy(stamp + at, &mixed, sizeof mixed);
    }
}

cudaError_t stamp_write(struct stamp *stamp, void *block, size_t size, uint64_t number, cudaStream_t stream) {
    size_t head = head_bytes(size), tail = tail_bytes(size);

    stamp_make(number, stamp->written);
    cudaError_t result = cudaMemcpyAsync(block, stamp->written, head, cudaMemcpyHostToDevice, stream);
    if (result == cudaSuccess && tail > 0)
        result =
            cudaMemcpyAsync((char *)block + size - tail, stamp->written + head, tail, cudaMemcpyHostToDevice, stream);
    return result;
}

cudaError_t stamp_read(struct stamp *stamp, const void *block, size_t size, cudaStream_t stream) {
    size_t head = head_bytes(size), tail = tail_bytes(size);

    cudaError_t result = cudaMemcpyAsync(stamp->found, block, head, cudaMemcpyDeviceToHost, stream);
    if (result == cudaSuccess && tail > 0)
        result = cudaMemcpyAsync(stamp->found + head, (const char *)block + size - tail, tail, cudaMemcpyDeviceToHost,
                                 stream);
    return result;
}

bool stamp_intact(const struct stamp *stamp, size_t size) {
    return memcmp(stamp->written, stamp->found, head_bytes(size) + tail_bytes(size)) == 0;
}
