/* SPDX-License-Identifier: MIT
 *
 * The codes of a segment as words, the same in tables and in JSON.
 */
#ifndef POOLSTAT_WORDS_H
#define POOLSTAT_WORDS_H

#include "collect.h"
#include "text.h"

/* NULL when the code is none that we know. */
const char *words_state(const struct process *process);
/* What is to be known before the figures are believed to be of now: "ended", "unseen", "in driver 42.1 s"; "" when the
 * process just runs. */
struct text words_mark(const struct process *process);
uint32_t words_pid(const struct process *process); /* also of an ended one, as it was seen from here; 0 when unknown */
struct text words_time(uint64_t unix_ns);          /* local, with milliseconds: "2026-02-28T12:00:00.250+0100" */
const char *words_kind(const struct poolcuda_pool *record);
const char *words_event_type(const struct poolcuda_event *event);
const char *words_oom_reason(const struct poolcuda_event *event); /* NULL also where there is no reason */

/* A stream's id: "none", "7" (created), "legacy", "thread 3", "driver 12"; of other contexts than the first with
 * ", context N". */
struct text words_stream(uint64_t id);

struct text words_uuid(const struct poolcuda_pool *record); /* "GPU-…", or "-" when unknown */

#endif
