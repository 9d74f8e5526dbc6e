/* SPDX-License-Identifier: MIT
 *
 * Stamps: bytes made from a block's number, written at its start and its end by its stream, and read back by it before
 * the block is freed, so that a block that another one overwrote is found out. They cannot see a write that leaves both
 * ends alone; ranges.h does.
 */
#ifndef BENCH_STAMP_H
#define BENCH_STAMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

enum { STAMP_BYTES = 16, STAMP_BOTH_BYTES = 2 * STAMP_BYTES };

/* One block's stamps in host memory: to be pinned, so that no copy waits; and left alone while copies may run. */
struct stamp {
    unsigned char written[STAMP_BOTH_BYTES], found[STAMP_BOTH_BYTES];
};

/* Both are ordered in `stream` and wait for nothing. A block smaller than two stamps has one, as long as itself. */
cudaError_t stamp_write(struct stamp *stamp, void *block, size_t size, uint64_t number, cudaStream_t stream);
cudaError_t stamp_read(struct stamp *stamp, const void *block, size_t size, cudaStream_t stream);

/* When what was read has come: is it what was written? */
bool stamp_intact(const struct stamp *stamp, size_t size);

#endif
