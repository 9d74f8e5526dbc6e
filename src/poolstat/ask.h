/* SPDX-License-Identifier: MIT
 *
 * Asks a process by its control file (poolcuda/control.h), and waits for the answer. The file is another program's: it
 * is read and written a record at a time, never touched as memory, and what it holds is checked.
 */
#ifndef POOLSTAT_ASK_H
#define POOLSTAT_ASK_H

#include <stdbool.h>

#include "collect.h"
#include "poolcuda/control.h"

enum ask_result {
    ASK_ANSWERED,
    ASK_NO_FILE,
    ASK_DENIED,    /* the file may not be opened, or belongs to somebody else */
    ASK_DAMAGED,   /* it is no control file of this process, or of another version; `why` says how */
    ASK_BUSY,      /* somebody else was asking all the time */
    ASK_SILENT,    /* no answer in time: the request was withdrawn */
    ASK_UNDER_WAY, /* it was taken up in time, but not carried out */
    ASK_ENDED      /* the process ended meanwhile */
};

#define ASK_WHY_SIZE 160u

/* What is waited for at most, and whether the process still runs. `why` is for words that follow "the control file ".
 * Interrupted by a signal that ends programs, it withdraws the request and lets the signal do so. */
enum ask_result ask(const struct process *process, enum poolcuda_control_command command, uint64_t value,
                    uint64_t timeout_ns, struct poolcuda_control_answer *answer, char why[ASK_WHY_SIZE]);

#endif
