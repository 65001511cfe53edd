/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every benchmark needs: pinning, a clock, repeats with median and spread, one JSON line per
 * result. A program answers one question and measures its peers in the same run.
 */
#ifndef SHMEM_BENCH_H
#define SHMEM_BENCH_H

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct bench_result {
    double median, min, max;
    int repeats;
} bench_result_t;

static inline double bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Bind the calling thread to processor `cpu` modulo their number. */
static inline void bench_pin(int cpu)
{
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    int want = cpu % CPU_COUNT(&allowed);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &allowed) && want-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(i, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Summary of n samples (sorts them). */
static inline bench_result_t bench_summary(double *samples, int n)
{
    qsort(samples, (size_t)n, sizeof *samples, bench_compare);
    bench_result_t r = {samples[n / 2], samples[0], samples[n - 1], n};
    return r;
}

/* Calls function(arg), which returns one sample, `repeats` (at most 101) times. */
static inline bench_result_t bench_repeat(int repeats, double (*function)(void *), void *arg)
{
    double samples[101];
    for (int i = 0; i < repeats; i++)
        samples[i] = function(arg);
    return bench_summary(samples, repeats);
}

/* {"bench":"mutex","what":"uncontended","who":"shmem","unit":"ns","median":...} */
static inline void bench_report(const char *bench, const char *what, const char *who,
                                const char *unit, bench_result_t r)
{
    printf("{\"bench\":\"%s\",\"what\":\"%s\",\"who\":\"%s\",\"unit\":\"%s\",\"median\":%.4g,"
           "\"min\":%.4g,\"max\":%.4g,\"repeats\":%d}\n",
           bench, what, who, unit, r.median, r.min, r.max, r.repeats);
    fflush(stdout);
}

/* A peer that is not installed, or a measurement that cannot be made here, is named. */
static inline void bench_missing(const char *bench, const char *what, const char *who,
                                 const char *why)
{
    printf("{\"bench\":\"%s\",\"what\":\"%s\",\"who\":\"%s\",\"missing\":\"%s\"}\n", bench, what,
           who, why);
}

#endif
