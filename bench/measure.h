/* SPDX-License-Identifier: MIT
 *
 * What every measurement needs: a clock, the median, the name of the machine.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stddef.h>
#include <stdint.h>

uint64_t measure_now_ns(void); /* CLOCK_MONOTONIC */
/* Processor time of the calling thread: what other programs do to the machine stays out of it. */
uint64_t measure_thread_ns(void);

/* Of at least one value. Sorts them. */
double measure_median(double *values, size_t count);

/* Processor, cores, kernel, C library, in one line. */
void measure_machine(char *text, size_t size);

#endif
