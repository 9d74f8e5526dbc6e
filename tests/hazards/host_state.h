/* SPDX-License-Identifier: MIT
 *
 * All that a library could change of the program that it is in, as one picture to be taken before and after a call.
 */
#ifndef POOLCUDA_TESTS_HOST_STATE_H
#define POOLCUDA_TESTS_HOST_STATE_H

/* Makes much of it differ from what a program is born with, so that a reset to that would show too. */
void state_unusual(void);

/* Take the picture, and set errno to a number that nothing gives. */
void state_before(void);

/* The names of what has changed since, each after a blank; empty when nothing has. Not counted: descriptors
 * of the simulated driver (`memfd:` is its memory, a socket how it shares that), and of the library's exports. */
const char *state_changed(void);

/* What every descriptor from `least` on is open on, one a line, each with its number where it is one of the first three
 * and with a word where a program that is started would inherit it. `give`: a buffer for the text. */
void state_descriptors(char *give, unsigned size);

/* Signals that have been raised in this process. */
unsigned state_signals(void);

#endif
