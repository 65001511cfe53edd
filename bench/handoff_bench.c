/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long until a waiter in another process goes on?
 *
 * Spinning: two processes on two processors hand a turn to and fro; one way is half of a round. The
 * floor is a bare flag for each direction, on a cache line of its own as an event is (invalidate,
 * then fetch); beside it, both flags on one line, which is what two fixed partners could do at best
 * (one transfer for each turn). Sleeping: the waiter has waited for a given
 * time; from before the wake-up call until it runs. The floor is a bare futex.
 */
#include <linux/futex.h>
#include <shmem/shmem.h>
#include <shmem/sync.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { ROUNDS = 2000, WAKES = 41 };

typedef struct shared {
    _Alignas(128) atomic_uint turn[2];
    _Alignas(128) struct {
        _Alignas(128) atomic_uint turn;
    } apart[2];
    _Alignas(128) shmem_event_t event[2];
    _Alignas(128) _Atomic double stamp;
    _Alignas(128) _Atomic double latency;
    _Alignas(128) atomic_int what; /* for the child: what to do next, 0 wait, -1 end */
    atomic_int begun;
} shared_t;

enum { CHILD_LINE = 1, CHILD_FLAGS, CHILD_EVENT, CHILD_FUTEX_SLEEP, CHILD_EVENT_SLEEP };

static shared_t *shared;
static shmem_context_t context;

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void futex(atomic_uint *word, int operation, unsigned value)
{
    syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

/* ---- the two sides ---- */

static void line_rounds(int side)
{
    for (unsigned i = 1; i <= ROUNDS; i++) {
        if (side == 0)
            atomic_store_explicit(&shared->turn[0], i, memory_order_release);
        while (atomic_load_explicit(&shared->turn[side ? 0 : 1], memory_order_acquire) != i)
            relax();
        if (side == 1)
            atomic_store_explicit(&shared->turn[1], i, memory_order_release);
    }
}

static void flag_rounds(int side)
{
    for (unsigned i = 1; i <= ROUNDS; i++) {
        if (side == 0)
            atomic_store_explicit(&shared->apart[0].turn, i, memory_order_release);
        while (atomic_load_explicit(&shared->apart[side ? 0 : 1].turn, memory_order_acquire) != i)
            relax();
        if (side == 1)
            atomic_store_explicit(&shared->apart[1].turn, i, memory_order_release);
    }
}

static void event_rounds(int side)
{
    for (unsigned i = 1; i <= ROUNDS; i++) {
        if (side == 0)
            shmem_event_set(context, &shared->event[0]);
        shmem_event_wait(context, &shared->event[side ? 0 : 1], SHMEM_FOREVER);
        if (side == 1)
            shmem_event_set(context, &shared->event[1]);
    }
}

static void child_sleep_on_futex(void)
{
    while (!atomic_load_explicit(&shared->turn[0], memory_order_acquire))
        futex(&shared->turn[0], FUTEX_WAIT, 0);
    double now = bench_now_ns();
    shared->latency = now - shared->stamp;
    atomic_store_explicit(&shared->turn[1], 1, memory_order_release);
}

static void child_sleep_on_event(void)
{
    shmem_event_wait(context, &shared->event[0], SHMEM_FOREVER);
    double now = bench_now_ns();
    shared->latency = now - shared->stamp;
    atomic_store_explicit(&shared->turn[1], 1, memory_order_release);
}

static void child(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_pin(1);
    if (shmem_context_init(&context))
        _exit(1);
    for (;;) {
        int what = atomic_exchange(&shared->what, 0);
        if (!what) {
            relax();
            continue;
        }
        atomic_store(&shared->begun, 1);
        if (what == CHILD_LINE)
            line_rounds(1);
        else if (what == CHILD_FLAGS)
            flag_rounds(1);
        else if (what == CHILD_EVENT)
            event_rounds(1);
        else if (what == CHILD_FUTEX_SLEEP)
            child_sleep_on_futex();
        else if (what == CHILD_EVENT_SLEEP)
            child_sleep_on_event();
        else
            break;
    }
    shmem_context_finalize(context);
    _exit(0);
}

static void begin_child(int what)
{
    atomic_store(&shared->turn[0], 0);
    atomic_store(&shared->turn[1], 0);
    atomic_store(&shared->apart[0].turn, 0);
    atomic_store(&shared->apart[1].turn, 0);
    atomic_store(&shared->begun, 0);
    atomic_store(&shared->what, what);
    while (!atomic_load(&shared->begun))
        relax();
}

/* ---- measuring ---- */

static double line_sample(void *arg)
{
    (void)arg;
    begin_child(CHILD_LINE);
    double begin = bench_now_ns();
    line_rounds(0);
    return (bench_now_ns() - begin) / (2.0 * ROUNDS);
}

static double flag_sample(void *arg)
{
    (void)arg;
    begin_child(CHILD_FLAGS);
    double begin = bench_now_ns();
    flag_rounds(0);
    return (bench_now_ns() - begin) / (2.0 * ROUNDS);
}

static double event_sample(void *arg)
{
    (void)arg;
    begin_child(CHILD_EVENT);
    double begin = bench_now_ns();
    event_rounds(0);
    return (bench_now_ns() - begin) / (2.0 * ROUNDS);
}

/* The caller stays awake, so that only the sleeper's processor idles. */
static void let_it_sleep(double ns)
{
    for (double end = bench_now_ns() + ns; bench_now_ns() < end;)
        relax();
}

static double futex_sample(void *idle)
{
    begin_child(CHILD_FUTEX_SLEEP);
    let_it_sleep(*(double *)idle);
    shared->stamp = bench_now_ns();
    atomic_store_explicit(&shared->turn[0], 1, memory_order_release);
    futex(&shared->turn[0], FUTEX_WAKE, 1);
    while (!atomic_load(&shared->turn[1]))
        relax();
    return shared->latency;
}

static double event_sleep_sample(void *idle)
{
    begin_child(CHILD_EVENT_SLEEP);
    let_it_sleep(*(double *)idle);
    shared->stamp = bench_now_ns();
    shmem_event_set(context, &shared->event[0]);
    while (!atomic_load(&shared->turn[1]))
        relax();
    return shared->latency;
}

static void sleeping(double idle, const char *what)
{
    bench_report("handoff", what, "bare futex", "ns", bench_repeat(WAKES, futex_sample, &idle));
    bench_report("handoff", what, "shmem event", "ns",
                 bench_repeat(WAKES, event_sleep_sample, &idle));
}

/* handoff_bench [repeats] */
int main(int argc, char **argv)
{
    int repeats = argc > 1 ? atoi(argv[1]) : 41;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || repeats < 1 || repeats > 101)
        return 1;
    for (int i = 0; i < 2; i++)
        shmem_event_init(&shared->event[i], SHMEM_EVENT_AUTO, 0);
    pid_t pid = fork();
    if (pid == 0)
        child();
    bench_pin(0);
    if (shmem_context_init(&context)) {
        fprintf(stderr, "%s\n", shmem_error_detail()->text);
        kill(pid, SIGKILL);
        return 1;
    }
    bench_report("handoff", "to a spinning waiter", "bare flags on one cache line", "ns",
                 bench_repeat(repeats, line_sample, NULL));
    bench_report("handoff", "to a spinning waiter", "bare flags, a cache line each", "ns",
                 bench_repeat(repeats, flag_sample, NULL));
    bench_report("handoff", "to a spinning waiter", "shmem event", "ns",
                 bench_repeat(repeats, event_sample, NULL));
    sleeping(200e3, "to a waiter that waited for 0.2 ms");
    sleeping(5e6, "to a waiter that waited for 5 ms");
    atomic_store(&shared->what, -1);
    waitpid(pid, NULL, 0);
    shmem_context_finalize(context);
    return 0;
}
