/* SPDX-License-Identifier: MIT
 *
 * The one function that answers with a structure, and so cannot be among the unsimulated ones.
 */
#include "runtime.h"

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind kind) {
    return (struct cudaChannelFormatDesc){.x = x, .y = y, .z = z, .w = w, .f = kind};
}
