/* SPDX-License-Identifier: MIT
 *
 * The summary: one row for each process and device, and what stands out.
 */
#include "summary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "columns.h"
#include "derive.h"
#include "memory.h"
#include "report.h"
#include "table.h"
#include "text.h"

#define COLUMNS "pid,command,device,peak_live,peak_reserved,allocs,hit_rate,misses,driver"

#define WORTH_SAYING_NS 1000000u /* what an advice must have saved */

/* The processes with figures, and their rows. */
struct figures {
    struct process processes[WATCH_MOST];
    struct device_sum *sums[WATCH_MOST];
    size_t process_count;
    struct row *rows;
    size_t row_count;
};

static void read_figures(const struct watch *watch, struct figures *figures) {
    for (size_t i = 0; i < watch->count; i++) {
        struct process *process = &figures->processes[figures->process_count];
        *process = (struct process){.pid = watch->kept[i].pid, .inner_pid = watch->kept[i].pid};
        process->file.owner = watch->kept[i].uid;
        if (segment_read_whole(watch->kept[i].fd, &process->segment, process->why) != SEGMENT_READ) {
            report_note("process %u: the segment %s", process->pid, process->why);
            continue;
        }
        struct device_sum **sums = &figures->sums[figures->process_count];
        const size_t count = derive_devices(process->segment, sums);
        figures->process_count++;
        figures->rows = memory_grow(figures->rows, figures->row_count + count, sizeof(*figures->rows));
        for (size_t j = 0; j < count; j++) figures->rows[figures->row_count++] = (struct row){process, &(*sums)[j]};
    }
}

static char *how_it_ended(const struct outcome *outcome) {
    if (WIFSIGNALED(outcome->status))
        return memory_format("was ended by signal %d (%s%s)", WTERMSIG(outcome->status),
                             strsignal(WTERMSIG(outcome->status)),
                             WCOREDUMP(outcome->status) ? ", with a core dump" : "");
    return memory_format("ended with code %d", WEXITSTATUS(outcome->status));
}

static void print_failures(const struct row *row) {
    const struct poolcuda_pool *figures = &row->device->figures;
    const uint32_t pid = row->process->inner_pid;
    if (figures->oom_failures != 0)
        fprintf(stderr, "  process %u: %s allocations failed for lack of memory\n", pid,
                text_count(figures->oom_failures).s);
    if (figures->bad_frees != 0)
        fprintf(stderr, "  process %u: %s frees of what is no live block were refused\n", pid,
                text_count(figures->bad_frees).s);
}

static void print_advice(const struct process *process) {
    for (size_t i = 0; i < process->segment->pool_count; i++) {
        struct advice advice;
        if (!derive_advice(&process->segment->pools[i], &advice) || advice.driver_ns < WORTH_SAYING_NS) continue;
        fprintf(stderr, "  process %u, device %d: POOL_PREALLOC_MB=%llu would have saved %llu driver calls, %s\n",
                process->inner_pid, process->segment->pools[i].record.device,
                (unsigned long long)(advice.prealloc_bytes >> 20), (unsigned long long)advice.driver_calls,
                text_duration(advice.driver_ns).s);
    }
}

void summary_print(const char *command, const struct watch *watch, const struct outcome *outcome) {
    struct figures *figures = memory_new(1, sizeof(*figures));
    char *safe = text_safe(command, strlen(command)), *end = how_it_ended(outcome);
    read_figures(watch, figures);
    fflush(stdout);
    report_note("%s %s after %s%s", safe, end, text_duration(outcome->ran_ns).s,
                figures->row_count != 0 ? ""
                                        : "; it made no CUDA call through the pool, or publishes no figures "
                                          "(POOL_STATS=0)");
    if (figures->row_count != 0) table_print_names(stderr, COLUMNS, figures->rows, figures->row_count);
    for (size_t i = 0; i < figures->row_count; i++) print_failures(&figures->rows[i]);
    for (size_t i = 0; i < figures->process_count; i++) print_advice(&figures->processes[i]);
    if (watch->missed != 0) report_note("%zu further processes are not shown", watch->missed);
    for (size_t i = 0; i < figures->process_count; i++) {
        free(figures->sums[i]);
        segment_free(figures->processes[i].segment);
    }
    free(figures->rows);
    free(figures);
    free(safe);
    free(end);
}
