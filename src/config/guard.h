/* SPDX-License-Identifier: MIT
 *
 * A bracket around system calls of ours that could hurt the guest: a write to a closed pipe (SIGPIPE), a file beyond
 * RLIMIT_FSIZE (SIGXFSZ), a thread cancelled at a call that it never made. Inside the bracket the calling thread gets
 * neither signal and is not cancelled; the calls fail with their codes. Keeps errno. Brackets may be nested.
 */
#ifndef POOLCUDA_GUARD_H
#define POOLCUDA_GUARD_H

#include <signal.h>
#include <stddef.h>

struct guard {
    sigset_t mask, pending; /* the thread's, from before */
    int cancel_state, error;
};

void guard_enter(struct guard *guard);
void guard_leave(const struct guard *guard);

/* Inside a bracket: write a whole line, or as much of it as `fd` takes. A pipe's reader sees it in one piece up to
 * PIPE_BUF. */
void guard_write(int fd, const char *text, size_t length);

#endif
