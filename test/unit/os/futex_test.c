/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping and waking on shared words, across processes, with deadlines. */
#include "os/futex.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/time.h>

#include "harness.h"

static void times_out(void)
{
    _Atomic uint32_t *word = harness_shared(4096);
    errno = 4711;
    CHECK_EQ(shmemi_futex_wait(word, 0, 0), ETIMEDOUT);
    CHECK_EQ(shmemi_futex_wait(word, 0, -5), ETIMEDOUT);
    int64_t begin = shmemi_clock_now();
    CHECK_EQ(shmemi_futex_wait(word, 0, shmemi_deadline_in(20000000)), ETIMEDOUT);
    CHECK(shmemi_clock_now() - begin >= 20000000);
    CHECK_EQ(errno, 4711);
}

static void other_value_returns(void)
{
    _Atomic uint32_t *word = harness_shared(4096);
    errno = 4711;
    CHECK_EQ(shmemi_futex_wait(word, 1, SHMEMI_FOREVER), 0);
    CHECK_EQ(shmemi_futex_wake(word, INT_MAX), 0);
    CHECK_EQ(errno, 4711);
}

typedef struct meeting {
    _Atomic uint32_t word, asleep;
} meeting_t;

static void sleep_or_wake(int rank, int n, void *arg)
{
    meeting_t *m = arg;
    if (rank) {
        atomic_fetch_add(&m->asleep, 1);
        while (atomic_load(&m->word) == 0)
            CHECK_EQ(shmemi_futex_wait(&m->word, 0, shmemi_deadline_in(5000000000)), 0);
        return;
    }
    while (atomic_load(&m->asleep) != (uint32_t)n - 1)
        harness_sleep(0.0005);
    harness_sleep(0.02); /* let them fall asleep: a wake must reach them there */
    atomic_store(&m->word, 1);
    int woken = shmemi_futex_wake(&m->word, INT_MAX);
    CHECK(woken <= n - 1);
}

static void wakes_processes(void)
{
    harness_pes(4, HARNESS_PROC, 10, sleep_or_wake, harness_shared(4096));
}

static void wakes_threads(void)
{
    harness_pes(4, HARNESS_THREAD, 10, sleep_or_wake, harness_shared(4096));
}

static void on_alarm(int number)
{
    (void)number;
}

static void signal_counts_as_wake(void)
{
    _Atomic uint32_t *word = harness_shared(4096);
    struct sigaction action = {.sa_handler = on_alarm}; /* without SA_RESTART */
    struct itimerval timer = {.it_value = {0, 10000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    CHECK_EQ(shmemi_futex_wait(word, 0, shmemi_deadline_in(10000000000)), 0);
}

int main(void)
{
    RUN(times_out);
    RUN(other_value_returns);
    RUN(wakes_processes);
    RUN(wakes_threads);
    RUN(signal_counts_as_wake);
    return harness_end();
}
