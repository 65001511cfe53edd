/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test harness. A test program is a main() that calls RUN(function) for each case and returns
 * harness_end(). A failed CHECK prints file, line and values, and ends the process (a forked child
 * thereby reports to its parent). Exit codes: 0 passed, 77 skipped, 1 failed.
 */
#ifndef SHMEM_TEST_HARNESS_H
#define SHMEM_TEST_HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "shmem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

void harness_run(const char *name, void (*function)(void));
int harness_end(void);
void harness_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
/* The rest of this case is skipped; the program goes on and exits with 77 at the end if no case
 * failed. The reason is printed. */
void harness_skip(const char *reason) __attribute__((noreturn));

#define RUN(function) harness_run(#function, function)
#define SKIP(reason)  harness_skip(reason)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            harness_fail(__FILE__, __LINE__, "%s", #condition);                                    \
    } while (0)

#define CHECK_EQ(a, b)                                                                             \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_)                                                                              \
            harness_fail(__FILE__, __LINE__, "%s == %s: %lld, %lld", #a, #b, a_, b_);              \
    } while (0)

#define CHECK_STR(a, b)                                                                            \
    do {                                                                                           \
        const char *a_ = (a), *b_ = (b);                                                           \
        if (strcmp(a_, b_) != 0)                                                                   \
            harness_fail(__FILE__, __LINE__, "%s == %s: '%s', '%s'", #a, #b, a_, b_);              \
    } while (0)

/* The call succeeds; otherwise the detail is printed. */
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        shmem_status_t s_ = (call);                                                                \
        if (s_)                                                                                    \
            harness_fail(__FILE__, __LINE__, "%s: %s: %s", #call, shmem_status_name(s_),           \
                         shmem_error_detail()->text);                                              \
    } while (0)

/* The call fails with exactly this code. */
#define CHECK_STATUS(call, expected)                                                               \
    do {                                                                                           \
        shmem_status_t s_ = (call);                                                                \
        if (s_ != (expected))                                                                      \
            harness_fail(__FILE__, __LINE__, "%s: %s, expected %s", #call, shmem_status_name(s_),  \
                         shmem_status_name(expected));                                             \
    } while (0)

/* ---- several processing elements ---- */

typedef enum harness_mode { HARNESS_PROC, HARNESS_THREAD } harness_mode_t;

/* Runs function(rank, n, arg) n times at once, as processes or as threads of this process (a
 * failing check in a thread ends the whole test). Waits at most `seconds`, then kills the processes
 * and fails. */
void harness_pes(int n, harness_mode_t mode, double seconds, void (*function)(int, int, void *),
                 void *arg);

/* Forks a child that runs function(arg) and exits 0. Returns its pid. */
pid_t harness_fork(void (*function)(void *), void *arg);

/* Waits for a child: its exit code, or minus the signal that ended it; fails after `seconds`. */
int harness_wait(pid_t pid, double seconds);

/* Shared anonymous memory, zeroed, lives as long as the process. */
void *harness_shared(size_t bytes);

/* Seconds on the monotonic clock. */
double harness_now(void);
void harness_sleep(double seconds);

/* From here on the calling thread, and what it starts, may use the first `n` of the processors that
 * it may use now, at least one. */
void harness_use_processors(int n);

/* Are the tests run by a sanitizer of this kind? (Some limits and timings differ.) */
bool harness_has_tsan(void);
bool harness_has_asan(void);

#ifdef __cplusplus
}
#endif
#endif
