/* SPDX-License-Identifier: MIT
 *
 * What an image made by nvcc says about itself.
 */
#ifndef SIM_RUNTIME_FAT_BINARY_H
#define SIM_RUNTIME_FAT_BINARY_H

/* The architecture (as 75 for 7.5) of the code that a device of the given one would run: the newest not above it; 0
 * when the image has none, or is of another form. */
int simrt_fat_binary_architecture(const void *image, int device_architecture);

#endif
