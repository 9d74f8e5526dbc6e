/* SPDX-License-Identifier: MIT
 *
 * Stamps: bytes made from a block's number, written at its start and its end, and compared before it is freed, so that
 * a block that another one overwrote is found out. They cannot see a write that leaves both ends alone; ranges.h does.
 */
#ifndef BENCH_STAMP_H
#define BENCH_STAMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

/* Both are ordered in `stream`; the check waits for it. A block smaller than two stamps has one, as long as itself. */
cudaError_t stamp_write(void *block, size_t size, uint64_t number, cudaStream_t stream);
cudaError_t stamp_check(const void *block, size_t size, uint64_t number, cudaStream_t stream, bool *intact);

#endif
