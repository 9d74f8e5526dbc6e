/* SPDX-License-Identifier: MIT
 *
 * POOL_CONTROL: answers what others ask by the process's control file (poolcuda/control.h). A thread of the library's
 * own sleeps until somebody does; where it could not be started, the file is looked at where the pool is slow anyway.
 *
 * One at a time takes a request up, and holds no lock while it carries it out. What comes out of the file is checked,
 * and kept nowhere: whoever may write to it can make the process do what the commands say, and nothing else.
 */
#ifndef POOLCUDA_CONTROL_CONTROL_H
#define POOLCUDA_CONTROL_CONTROL_H

struct pool_system;

/* At the first CUDA call, where POOL_CONTROL asks for it: make the file and start the thread. Later calls do nothing.
 * Needs published figures, beside which others look for the file; never in a process with raised privileges. */
void control_start(void);

/* The pools that requests are about. Before, they are answered with not_pooled. */
void control_serve(struct pool_system *system);

/* For pool_options.attend: looks at the file where the thread does not. */
void control_attend(void);

/* The process ends: no request is taken up any more, and the file is removed. A request that is being carried out is
 * waited for, though not long. */
void control_finish(void);

/* In a new process: the thread, the file and the pools are its parent's. Async-signal-safe. */
void control_forget_in_child(void);

#endif
