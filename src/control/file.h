/* SPDX-License-Identifier: MIT
 *
 * The control file as the process sees it. Others may cut it short, remove it or fill it with anything, and the program
 * may close its descriptor: then there is nothing to be read, and no harm is done. Internal to src/control; by one
 * thread at a time. Call inside a guard, or where all signals are blocked.
 */
#ifndef POOLCUDA_CONTROL_FILE_H
#define POOLCUDA_CONTROL_FILE_H

#include <stdbool.h>

#include "poolcuda/control.h"

/* False when there can be none; *step and errno say why. */
bool control_file_make(const char **step);

/* A whole copy of the request that the file holds; false when there is none, or it cannot be had at the moment. */
bool control_file_request(struct poolcuda_control_request *request);

/* Publish an answer, its turn and check filled in, and wake who waits for it. */
void control_file_answer(struct poolcuda_control_answer *answer);

/* Sleep until the file holds another request than the last call of control_file_request saw; where that saw nothing,
 * for a second. May return early. */
void control_file_wait(void);

/* Remove the file, unless its name is another's by now. */
void control_file_remove(void);

/* In a child: let go of the parent's. Async-signal-safe. */
void control_file_forget(void);

#endif
