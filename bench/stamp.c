/* SPDX-License-Identifier: MIT
 *
 * Stamps that tell whether a block was overwritten; see stamp.h.
 */
#include "stamp.h"

#include <string.h>

enum { STAMP_BYTES = 16, BOTH_BYTES = 2 * STAMP_BYTES };

/* How a block of `size` bytes is stamped: `head` bytes at its start, `tail` at its end. */
static size_t head_bytes(size_t size) {
    return size < BOTH_BYTES ? size : STAMP_BYTES;
}
static size_t tail_bytes(size_t size) {
    return size < BOTH_BYTES ? 0 : STAMP_BYTES;
}

/* The splitmix64 sequence: numbers that lie close together give bytes that have nothing in common. */
static void stamp_make(uint64_t number, unsigned char stamp[BOTH_BYTES]) {
    for (size_t at = 0; at < BOTH_BYTES; at += sizeof number) {
        uint64_t mixed = (number += UINT64_C(0x9E3779B97F4A7C15));
        mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
        mixed ^= mixed >> 31;
        memcpy(stamp + at, &mixed, sizeof mixed);
    }
}

cudaError_t stamp_write(void *block, size_t size, uint64_t number, cudaStream_t stream) {
    unsigned char stamp[BOTH_BYTES]; /* pageable: the copies have taken it when they return */
    size_t head = head_bytes(size), tail = tail_bytes(size);

    stamp_make(number, stamp);
    cudaError_t result = cudaMemcpyAsync(block, stamp, head, cudaMemcpyHostToDevice, stream);
    if (result == cudaSuccess && tail > 0)
        result = cudaMemcpyAsync((char *)block + size - tail, stamp + head, tail, cudaMemcpyHostToDevice, stream);
    return result;
}

cudaError_t stamp_check(const void *block, size_t size, uint64_t number, cudaStream_t stream, bool *intact) {
    unsigned char stamp[BOTH_BYTES], found[BOTH_BYTES];
    size_t head = head_bytes(size), tail = tail_bytes(size);

    cudaError_t result = cudaMemcpyAsync(found, block, head, cudaMemcpyDeviceToHost, stream);
    if (result == cudaSuccess && tail > 0)
        result = cudaMemcpyAsync(found + head, (const char *)block + size - tail, tail, cudaMemcpyDeviceToHost, stream);
    /* Even after a failed second copy: the first one may still be writing into this frame. */
    cudaError_t waited = cudaStreamSynchronize(stream);
    if (result == cudaSuccess) result = waited;
    stamp_make(number, stamp);
    *intact = result == cudaSuccess && memcmp(stamp, found, head + tail) == 0;
    return result;
}
