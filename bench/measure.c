/* SPDX-License-Identifier: MIT
 *
 * What every measurement needs; see measure.h.
 */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <gnu/libc-version.h>

uint64_t measure_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t measure_thread_ns(void) {
    struct timespec spent;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * UINT64_C(1000000000) + (uint64_t)spent.tv_nsec;
}

static int compare_values(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double measure_median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare_values);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void processor_name(char *name, size_t size) {
    char line[256];
    snprintf(name, size, "unknown processor");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (file == NULL) return;
    while (fgets(line, sizeof line, file) != NULL) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", strlen("model name")) != 0 || value == NULL) continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(name, size, "%s", value);
        break;
    }
    fclose(file);
}

void measure_machine(char *text, size_t size) {
    char name[256];
    struct utsname system = {0};
    processor_name(name, sizeof name);
    uname(&system);
    snprintf(text, size, "%s, %ld cores, %s %s %s, glibc %s", name, sysconf(_SC_NPROCESSORS_ONLN), system.sysname,
             system.release, system.machine, gnu_get_libc_version());
}
