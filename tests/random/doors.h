/* SPDX-License-Identifier: MIT
 *
 * CUDA's ways to one function: linked; dlsym over all libraries, and over the one that has it; the driver's own look-up
 * in its old and its new form; the runtime's.
 */
#ifndef RANDOM_DOORS_H
#define RANDOM_DOORS_H

#include <stdbool.h>

#include <cuda.h>

enum door { DOOR_LINKED, DOOR_DLSYM, DOOR_DLSYM_LIBRARY, DOOR_LOOK_UP_OLD, DOOR_LOOK_UP, DOOR_RUNTIME };

/* The driver's function `name`, exported as `symbol`, by a door; `linked` where that door does not know it. `since`:
 * the version of CUDA that brought this form of it; the look-ups are asked for that, or (`newest`) for the driver's
 * own. */
void *door_driver(unsigned door, const char *name, const char *symbol, int since, bool newest, bool per_thread,
                  void *linked);

/* The runtime's function `symbol`: linked, or by dlsym. */
void *door_runtime(unsigned door, const char *symbol, void *linked);

/* As cuCtxCreate, with the form that the driver has. */
CUresult door_context_create(CUcontext *context, int device);

/* A function of the driver's interface that has no stream, by the door of `operation`. */
#define BY_DOOR(operation, name, symbol, since)                                                                  \
    ((__typeof__(&name))door_driver((operation)->door, #name, symbol, since, (operation)->block % 2 == 0, false, \
                                    (void *)&name))
#define BY_RUNTIME_DOOR(operation, name) ((__typeof__(&name))door_runtime((operation)->door, #name, (void *)&name))

#endif
