/* SPDX-License-Identifier: MIT
 *
 * Choosing.
 */
#include "choose.h"

#include <fnmatch.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "words.h"

/* Decimal digits up to one of `after`, whose place *end is. */
static bool take_number(const char *text, const char *after, unsigned long most, uint32_t *number, const char **end) {
    char *stop;
    if (text[0] < '0' || text[0] > '9') return false;
    const unsigned long value = strtoul(text, &stop, 10);
    if (strchr(after, *stop) == NULL || value > most) return false;
    *number = (uint32_t)value;
    *end = stop;
    return true;
}

const char *choose_pids(struct choice *choice, const char *text) {
    static const char wanted[] = "process ids are wanted, as in 123 or 123,456";
    for (const char *at = text;; at++) {
        uint32_t pid;
        if (!take_number(at, ",", INT32_MAX, &pid, &at) || pid == 0) return wanted;
        choice->pids = memory_grow(choice->pids, choice->pid_count + 1, sizeof(*choice->pids));
        choice->pids[choice->pid_count++] = pid;
        if (*at == '\0') return NULL;
    }
}

const char *choose_user(struct choice *choice, const char *text) {
    const struct passwd *user = getpwnam(text);
    const char *end;
    choice->has_user = true;
    if (user == NULL && !take_number(text, "", UINT32_MAX, &choice->user, &end))
        return "there is no user of that name; a name or a number is wanted";
    if (user != NULL) choice->user = user->pw_uid;
    return NULL;
}

static bool is_uuid(const char *text) {
    return strncasecmp(text, "GPU-", 4) == 0 && text[4] != '\0' &&
           strspn(text + 4, "0123456789abcdefABCDEF-") == strlen(text + 4);
}

/* Domain, bus, device and function; the domain may be missing, or longer than ours, as nvidia-smi writes it. */
static const char *pci_without_domain(const char *text) {
    const char *colon = strchr(text, ':');
    const char *second = colon == NULL ? NULL : strchr(colon + 1, ':');
    return second == NULL ? text : colon + 1;
}

static bool is_pci(const char *text) {
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = pci_without_domain(text);
    const size_t bus = strspn(at, digits);
    return strspn(text, "0123456789abcdefABCDEF:.") == strlen(text) && bus >= 1 && bus <= 2 && at[bus] == ':' &&
           strspn(at + bus + 1, digits) == 2 && at[bus + 3] == '.' && at[bus + 4] != '\0' && at[bus + 5] == '\0';
}

const char *choose_gpu(struct choice *choice, const char *text) {
    uint32_t ordinal;
    const char *end;
    choice->gpu = text;
    if (take_number(text, "", INT32_MAX, &ordinal, &end) || is_uuid(text) || is_pci(text)) return NULL;
    return "an ordinal (0), a UUID (GPU-…) or a PCI address (0000:17:00.0) is wanted";
}

bool choose_is_narrowed(const struct choice *choice) {
    return choice->pid_count != 0 || choice->has_user || choice->gpu != NULL || choice->command != NULL;
}

static bool has_pid(const struct choice *choice, const struct process *process) {
    for (size_t i = 0; i < choice->pid_count; i++)
        if (process->pid == choice->pids[i] || process->inner_pid == choice->pids[i]) return true;
    return choice->pid_count == 0;
}

static bool has_command(const struct choice *choice, const struct process *process) {
    char command[sizeof(process->segment->header.command) + 1] = {0};
    if (choice->command == NULL) return true;
    if (process->segment == NULL) return false;
    memcpy(command, process->segment->header.command, sizeof(process->segment->header.command));
    return strcmp(choice->command, command) == 0 || fnmatch(choice->command, command, 0) == 0;
}

static unsigned long domain_of(const char *pci) {
    return pci_without_domain(pci) == pci ? 0 : strtoul(pci, NULL, 16);
}

static bool is_on_gpu(const char *gpu, const struct poolcuda_pool *record) {
    if (is_uuid(gpu)) return strncasecmp(words_uuid(record).s, gpu, strlen(gpu)) == 0; /* a beginning is enough */
    if (strchr(gpu, ':') == NULL) return record->device >= 0 && (unsigned long)record->device == strtoul(gpu, NULL, 10);
    char pci[sizeof(record->pci) + 1] = {0};
    memcpy(pci, record->pci, sizeof(record->pci));
    return domain_of(gpu) == domain_of(pci) && strcasecmp(pci_without_domain(gpu), pci_without_domain(pci)) == 0;
}

/* Keeps the pools on the device. False when none is there. */
static bool keep_pools(const char *gpu, struct segment *segment) {
    size_t kept = 0;
    for (size_t i = 0; i < segment->pool_count; i++) {
        if (is_on_gpu(gpu, &segment->pools[i].record)) {
            segment->pools[kept++] = segment->pools[i];
            continue;
        }
        free(segment->pools[i].cells);
        free(segment->pools[i].fixed);
    }
    segment->pool_count = kept;
    return kept != 0;
}

static bool is_chosen(const struct choice *choice, const struct process *process) {
    return has_pid(choice, process) && (!choice->has_user || process->file.owner == choice->user) &&
           has_command(choice, process) &&
           (choice->gpu == NULL || (process->segment != NULL && keep_pools(choice->gpu, process->segment)));
}

void choose_collect(const struct choice *choice, struct collection *collection) {
    size_t kept = 0;
    collect(collection, choice->all);
    for (size_t i = 0; i < collection->count; i++) {
        struct process *process = &collection->processes[i];
        if (is_chosen(choice, process))
            collection->processes[kept++] = *process;
        else
            collect_free_process(process);
    }
    collection->count = kept;
}
