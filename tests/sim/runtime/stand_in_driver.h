/* SPDX-License-Identifier: MIT
 *
 * What the driver that stands in tells about the look-ups that it was asked for.
 */
#ifndef STAND_IN_DRIVER_H
#define STAND_IN_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

struct stand_in_look_up {
    const char *name;
    int version;
    unsigned long long flags;
    bool status_given; /* the asker wanted to know the status */
    bool initialised;  /* cuInit had been called before */
    int form;          /* 1 or 2: of cuGetProcAddress */
};

/* The look-ups so far, in their order; gives their number. */
__attribute__((visibility("default"))) size_t stand_in_look_ups(const struct stand_in_look_up **list);

#endif
