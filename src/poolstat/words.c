/* SPDX-License-Identifier: MIT
 *
 * Tables of words.
 */
#include "words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "derive.h"
#include "procfs.h"

#define NAME(name, help) #name,

static const char *word_at(const char *const words[], size_t count, uint64_t index) {
    return index < count ? words[index] : NULL;
}

#define WORD_AT(words, index) word_at(words, sizeof(words) / sizeof((words)[0]), index)

const char *words_state(const struct process *process) {
    static const char *const words[] = {
        [LIVENESS_ALIVE] = "running", [LIVENESS_ENDED] = "ended", [LIVENESS_UNSEEN] = "unseen"};
    return words[process->liveness];
}

struct text words_mark(const struct process *process) {
    struct text text = {""};
    if (process->liveness != LIVENESS_ALIVE)
        snprintf(text.s, sizeof(text.s), "%s", words_state(process));
    else if (process->segment != NULL && derive_is_stuck(process->segment))
        snprintf(text.s, sizeof(text.s), "in driver %.36s",
                 text_duration(derive_age(process->segment, process->segment->header.in_driver_since_ns)).s);
    return text;
}

uint32_t words_pid(const struct process *process) {
    if (process->pid != 0 || process->liveness != LIVENESS_ENDED || process->segment == NULL) return process->pid;
    return process->segment->header.pid_namespace == procfs_pid_namespace(0) ? process->inner_pid : 0;
}

struct text words_time(uint64_t unix_ns) {
    const time_t seconds = (time_t)(unix_ns / 1000000000u);
    struct tm local;
    struct text text = {"-"};
    char date[24], zone[8];
    if (localtime_r(&seconds, &local) == NULL || strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &local) == 0 ||
        strftime(zone, sizeof(zone), "%z", &local) == 0)
        return text;
    snprintf(text.s, sizeof(text.s), "%s.%03u%s", date, (unsigned)(unix_ns / 1000000u % 1000u), zone);
    return text;
}

const char *words_kind(const struct poolcuda_pool *record) {
    static const char *const words[] = {[POOLCUDA_KIND_PLAIN] = "plain", [POOLCUDA_KIND_ASYNC] = "async"};
    return WORD_AT(words, record->kind);
}

const char *words_event_type(const struct poolcuda_event *event) {
    static const char *const words[] = {NULL, POOLCUDA_EVENT_TYPES(NAME)};
    return WORD_AT(words, event->type);
}

const char *words_oom_reason(const struct poolcuda_event *event) {
    static const char *const words[] = {[POOLCUDA_OOM_DRIVER] = "driver", [POOLCUDA_OOM_LIMIT] = "limit"};
    if (event->type != POOLCUDA_EVENT_oom && event->type != POOLCUDA_EVENT_oom_retry) return NULL;
    return WORD_AT(words, event->reason);
}

static struct text of_context(struct text stream, uint64_t context) {
    const size_t length = strlen(stream.s);
    if (context > 1) snprintf(stream.s + length, sizeof(stream.s) - length, ", context %" PRIu64, context);
    return stream;
}

struct text words_stream(uint64_t id) {
    struct text text = {"none"};
    const uint64_t low = (UINT64_C(1) << POOLCUDA_STREAM_THREAD_SHIFT) - 1;
    if (id & POOLCUDA_STREAM_DRIVER) {
        snprintf(text.s, sizeof(text.s), "driver %" PRIu64, id & ~POOLCUDA_STREAM_DRIVER);
    } else if (id & POOLCUDA_STREAM_PER_THREAD) {
        snprintf(text.s, sizeof(text.s), "thread %" PRIu64,
                 (id & ~POOLCUDA_STREAM_PER_THREAD) >> POOLCUDA_STREAM_THREAD_SHIFT);
        return of_context(text, id & low);
    } else if (id & POOLCUDA_STREAM_LEGACY) {
        return of_context((struct text){"legacy"}, id & ~POOLCUDA_STREAM_LEGACY);
    } else if (id != 0) {
        snprintf(text.s, sizeof(text.s), "%" PRIu64, id);
    }
    return text;
}

struct text words_uuid(const struct poolcuda_pool *record) {
    static const uint8_t none[sizeof(record->uuid)];
    struct text text = {"-"};
    const uint8_t *u = record->uuid;
    if (memcmp(u, none, sizeof(none)) == 0) return text;
    snprintf(text.s, sizeof(text.s), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
             u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    return text;
}
