/* SPDX-License-Identifier: MIT
 *
 * `poolstat ctl PID …`: the one command that changes something in another process, which must have been started with
 * POOL_CONTROL=1.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "choose.h"
#include "commands.h"
#include "json.h"
#include "procfs.h"
#include "report.h"
#include "size.h"
#include "text.h"

#define NONE UINT64_MAX /* of a limit */
#define DEFAULT_TIMEOUT_NS 5000000000u

struct order {
    enum poolcuda_control_command command;
    const char *name;
    uint64_t value;
};

/* ---- the command line ---- */

static int bad_order(const struct options *options, const char *word, const char *wanted) {
    return report(options, CODE_USAGE, "'%s': %s; see: poolstat ctl --help", word, wanted);
}

static int parse_trim(const struct options *options, const char *keep, struct order *order) {
    order->command = POOLCUDA_CONTROL_COMMAND_trim;
    if (keep == NULL || size_parse(keep, &order->value)) return CODE_OK;
    return bad_order(options, keep, SIZE_WANTED);
}

static int parse_limit(const struct options *options, const char *limit, struct order *order) {
    order->command = POOLCUDA_CONTROL_COMMAND_limit;
    order->value = NONE;
    if (limit == NULL)
        return report(options, CODE_USAGE, "limit: a size, or none, is missing; see: poolstat ctl --help");
    if (strcmp(limit, "none") == 0) return CODE_OK;
    if (!size_parse(limit, &order->value)) return bad_order(options, limit, SIZE_WANTED ", or none");
    if (order->value >= POOLCUDA_CONTROL_LIMIT_LEAST && order->value <= POOLCUDA_CONTROL_LIMIT_MOST) return CODE_OK;
    return report(options, CODE_USAGE, "a limit of %s cannot be kept: %s to %s, or none", limit,
                  text_bytes(POOLCUDA_CONTROL_LIMIT_LEAST).s, text_bytes(POOLCUDA_CONTROL_LIMIT_MOST).s);
}

/* argv[2] is the order's name, behind it its argument or NULL. */
static int parse_order(const struct options *options, int argc, char **argv, struct order *order) {
    *order = (struct order){.name = argv[2]};
    if (strcmp(argv[2], "trim") == 0) return parse_trim(options, argv[3], order);
    if (strcmp(argv[2], "limit") == 0) return parse_limit(options, argv[3], order);
    if (strcmp(argv[2], "reset-peak") != 0) return bad_order(options, argv[2], "trim, limit or reset-peak is wanted");
    order->command = POOLCUDA_CONTROL_COMMAND_reset_peak;
    return argc == 3 ? CODE_OK : bad_order(options, argv[3], "reset-peak takes no argument");
}

static bool parse_pid(const char *text, uint32_t *pid) {
    char *end;
    if (text[0] < '1' || text[0] > '9') return false;
    const unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || value > INT32_MAX) return false;
    *pid = (uint32_t)value;
    return true;
}

/* ---- the process ---- */

/* The one with this pid here, or else the only one with it in its container. */
static int choose_one(const struct options *options, const struct collection *collection, uint32_t pid,
                      const struct process **chosen) {
    const struct process *inner = NULL;
    size_t inner_count = 0, ended = 0;
    struct procfs_process running;
    for (size_t i = 0; i < collection->count; i++) {
        const struct process *process = &collection->processes[i];
        if (process->liveness == LIVENESS_ALIVE && process->pid == pid) {
            *chosen = process;
            return CODE_OK;
        }
        ended += process->liveness == LIVENESS_ENDED;
        if (process->liveness == LIVENESS_ENDED || process->inner_pid != pid) continue;
        inner = process;
        inner_count++;
    }
    *chosen = inner;
    if (inner_count == 1) return CODE_OK;
    if (inner_count > 1)
        return report(options, CODE_USAGE,
                      "several processes have the pid %u in their containers; use the pid on this machine (poolstat "
                      "lists both)",
                      pid);
    if (ended != 0 || !procfs_read(pid, &running))
        return report(options, CODE_GONE, "there is no process %u (any more)", pid);
    return report(options, CODE_NONE,
                  "process %u does not run on the pool, made no CUDA call yet, or has POOL_STATS=0; start it with: "
                  "poolstat run -e POOL_CONTROL=1 -- COMMAND",
                  pid);
}

static bool accepts_control(const struct segment *segment) {
    for (size_t i = 0; i < segment->config_count; i++)
        if (strcmp(segment->config[i].name, "POOL_CONTROL") == 0) return strcmp(segment->config[i].value, "1") == 0;
    return false;
}

/* ---- answers ---- */

static int report_denied(const struct options *options, uint32_t pid) {
    return report(options, CODE_DENIED, "process %u belongs to another user: run poolstat as that user, or as root",
                  pid);
}

static int report_no_answer(const struct options *options, const struct process *process, uint32_t pid,
                            enum ask_result result, const char *why) {
    const double seconds = (double)(options->timeout_ns ? options->timeout_ns : DEFAULT_TIMEOUT_NS) / 1e9;
    switch (result) {
    case ASK_NO_FILE:
        if (process->segment == NULL || accepts_control(process->segment))
            return report(options, CODE_GONE,
                          "process %u has no control file (any more): it is ending, it could not make one (POOL_LOG=1 "
                          "tells), or somebody removed it",
                          pid);
        return report(options, CODE_DENIED,
                      "process %u does not accept this; start it with POOL_CONTROL=1 in its environment", pid);
    case ASK_DENIED:
        return report_denied(options, pid);
    case ASK_DAMAGED:
        return report(options, CODE_DAMAGED, "process %u: the control file %s", pid, why);
    case ASK_BUSY:
        return report(options, CODE_NONE, "another poolstat ctl asked process %u for %g s: nothing was done", pid,
                      seconds);
    case ASK_UNDER_WAY:
        return report(options, CODE_NONE,
                      "process %u is still at it after %g s: it waits for the GPU or for the driver; what was asked "
                      "will be done, `poolstat show %u` tells when",
                      pid, seconds, pid);
    case ASK_ENDED:
        return report(options, CODE_GONE, "process %u ended before it answered", pid);
    case ASK_SILENT:
    case ASK_ANSWERED:
        break;
    }
    return report(options, CODE_NONE,
                  "process %u did not answer within %g s (is it stopped?): the request was withdrawn, nothing was done",
                  pid, seconds);
}

static int report_refused(const struct options *options, uint32_t pid, uint32_t code) {
    switch (code) {
    case POOLCUDA_CONTROL_CODE_not_pooled:
        return report(options, CODE_NONE,
                      "process %u has no pool: it made no allocation yet, or its calls pass through (`poolstat show "
                      "%u` counts why)",
                      pid, pid);
    case POOLCUDA_CONTROL_CODE_bad_value:
        return report(options, CODE_USAGE, "process %u does not accept this value", pid);
    case POOLCUDA_CONTROL_CODE_unknown_command:
        return report(options, CODE_DAMAGED, "the library of process %u is older and does not know this request", pid);
    default:
        return report(options, CODE_DAMAGED, "process %u answered with a code that is none: %u", pid, code);
    }
}

static struct text limit_text(uint64_t limit) {
    return limit == NONE ? (struct text){"none"} : text_bytes(limit);
}

static void print_answer(const struct order *order, const char *who, const struct poolcuda_control_answer *answer) {
    printf("%s: ", who);
    if (order->command == POOLCUDA_CONTROL_COMMAND_limit)
        printf("the limit was %s and is %s; ", limit_text(answer->limit_bytes_before).s,
               limit_text(answer->limit_bytes).s);
    if (order->command == POOLCUDA_CONTROL_COMMAND_reset_peak)
        printf("peaks begin anew; ");
    else
        printf("%s given back; ", text_bytes(answer->given_back_bytes).s);
    printf("now %s reserved, %s live, %s cached\n", text_bytes(answer->reserved_bytes).s,
           text_bytes(answer->live_bytes).s, text_bytes(answer->cached_bytes).s);
    if (answer->over_limit_bytes != 0)
        printf(
            "%s above the limit stay reserved, since the program uses them or a part of each; until that changes, no "
            "more is taken from the driver\n",
            text_bytes(answer->over_limit_bytes).s);
}

static json_t *number(uint64_t value) {
    return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static void print_document(const struct order *order, uint32_t pid, const char *command,
                           const struct poolcuda_control_answer *answer) {
    json_t *document = json_document(), *control = json_object();
    json_object_set_new(control, "pid", json_integer(pid));
    json_object_set_new(control, "command", json_string(command));
    json_object_set_new(control, "request", json_string(order->name));
    json_object_set_new(control, "value_bytes",
                        order->command == POOLCUDA_CONTROL_COMMAND_reset_peak ? json_null() : number(order->value));
    json_object_set_new(control, "given_back_bytes", number(answer->given_back_bytes));
    json_object_set_new(control, "reserved_bytes", number(answer->reserved_bytes));
    json_object_set_new(control, "live_bytes", number(answer->live_bytes));
    json_object_set_new(control, "cached_bytes", number(answer->cached_bytes));
    json_object_set_new(control, "limit_bytes_before", number(answer->limit_bytes_before));
    json_object_set_new(control, "limit_bytes", number(answer->limit_bytes));
    json_object_set_new(control, "over_limit_bytes", number(answer->over_limit_bytes));
    json_object_set_new(document, "control", control);
    json_object_set_new(document, "error", json_error(CODE_OK, ""));
    json_print(document);
}

static void print_done(const struct options *options, const struct process *process, uint32_t pid,
                       const struct order *order, const struct poolcuda_control_answer *answer) {
    const struct poolcuda_header *header = &process->segment->header;
    char *command = text_safe(header->command, sizeof(header->command)), who[160];
    snprintf(who, sizeof(who), "%" PRIu32 " %s", pid, command);
    if (options->json)
        print_document(order, pid, command, answer);
    else
        print_answer(order, who, answer);
    free(command);
}

static int ask_one(const struct options *options, const struct process *process, uint32_t pid,
                   const struct order *order) {
    struct poolcuda_control_answer answer;
    char why[ASK_WHY_SIZE];
    if (process->code == CODE_DENIED) return report_denied(options, pid);
    if (process->code != CODE_OK)
        return report(options, process->code, "process %u: the segment %s", pid, process->why);
    const uint64_t timeout_ns = options->timeout_ns ? options->timeout_ns : DEFAULT_TIMEOUT_NS;
    const enum ask_result result = ask(process, order->command, order->value, timeout_ns, &answer, why);
    if (result != ASK_ANSWERED) return report_no_answer(options, process, pid, result, why);
    if (answer.code != POOLCUDA_CONTROL_CODE_done) return report_refused(options, pid, answer.code);
    print_done(options, process, pid, order, &answer);
    return CODE_OK;
}

int command_ctl(const struct options *options, int argc, char **argv) {
    struct order order;
    uint32_t pid;
    if (!parse_pid(argv[1], &pid))
        return report(options, CODE_USAGE, "'%s' is no process id; the list of them: poolstat", argv[1]);
    int code = parse_order(options, argc, argv, &order);
    if (code != CODE_OK) return code;
    const struct choice choice = {.pids = &pid, .pid_count = 1, .all = true};
    const struct process *process;
    struct collection collection;
    choose_collect(&choice, &collection);
    code = choose_one(options, &collection, pid, &process);
    if (code == CODE_OK) code = ask_one(options, process, pid, &order);
    collect_free(&collection);
    return code;
}
