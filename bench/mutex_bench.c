/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a lock cost, alone and under load, and who gets it?
 *
 * Beside the mutex of this library: a bare atomic-exchange spin lock (the floor: no owner, no
 * sleep), and a robust process-shared pthread mutex. Alone: nanoseconds for lock and unlock by one
 * thread. Under load: 8 processes on 2 processors, each adding to a counter inside; acquisitions
 * per second and fairness (fewest / most acquisitions of a process).
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <shmem/shmem.h>
#include <shmem/sync.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { PROCESSES = 8, PROCESSORS = 2, ALONE_ROUNDS = 400000, ALONE_REPEATS = 31 };

typedef struct shared {
    _Alignas(128) atomic_int spin;
    _Alignas(128) pthread_mutex_t robust;
    _Alignas(128) shmem_mutex_t mutex;
    _Alignas(128) volatile uint64_t counter;
    _Alignas(128) atomic_int ready, go, stop;
    _Alignas(128) struct {
        _Alignas(128) volatile uint64_t acquisitions;
    } of[PROCESSES];
} shared_t;

typedef struct lock {
    const char *name;
    void (*acquire)(void);
    void (*release)(void);
} lock_t;

static shared_t *shared;
static shmem_context_t context;

static __attribute__((noinline)) void spin_acquire(void)
{
    while (atomic_exchange_explicit(&shared->spin, 1, memory_order_acquire))
        ;
}

static __attribute__((noinline)) void spin_release(void)
{
    atomic_store_explicit(&shared->spin, 0, memory_order_release);
}

static void robust_acquire(void)
{
    if (pthread_mutex_lock(&shared->robust) == EOWNERDEAD)
        pthread_mutex_consistent(&shared->robust);
}

static void robust_release(void)
{
    pthread_mutex_unlock(&shared->robust);
}
static void shmem_acquire(void)
{
    shmem_mutex_lock(context, &shared->mutex);
}
static void shmem_release(void)
{
    shmem_mutex_unlock(context, &shared->mutex);
}

static const lock_t locks[] = {{"exchange spin lock", spin_acquire, spin_release},
                               {"robust pthread mutex", robust_acquire, robust_release},
                               {"shmem", shmem_acquire, shmem_release}};

static double alone(void *arg)
{
    (void)arg;
    double begin = bench_now_ns();
    for (int i = 0; i < ALONE_ROUNDS; i++) {
        shmem_mutex_lock(context, &shared->mutex);
        shmem_mutex_unlock(context, &shared->mutex);
    }
    return (bench_now_ns() - begin) / ALONE_ROUNDS;
}

static double alone_robust(void *arg)
{
    (void)arg;
    double begin = bench_now_ns();
    for (int i = 0; i < ALONE_ROUNDS; i++) {
        pthread_mutex_lock(&shared->robust);
        pthread_mutex_unlock(&shared->robust);
    }
    return (bench_now_ns() - begin) / ALONE_ROUNDS;
}

/* Inlined: the bare instructions, not even a call. */
static double alone_spin(void *arg)
{
    (void)arg;
    double begin = bench_now_ns();
    for (int i = 0; i < ALONE_ROUNDS; i++) {
        while (atomic_exchange_explicit(&shared->spin, 1, memory_order_acquire))
            ;
        atomic_store_explicit(&shared->spin, 0, memory_order_release);
    }
    return (bench_now_ns() - begin) / ALONE_ROUNDS;
}

static void work(const lock_t *lock, int rank)
{
    bench_pin(rank % PROCESSORS);
    if (lock->acquire == shmem_acquire && shmem_context_init(&context))
        _exit(1);
    atomic_fetch_add(&shared->ready, 1);
    while (!atomic_load(&shared->go))
        usleep(100);
    uint64_t n = 0;
    while (!atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
        lock->acquire();
        shared->counter++;
        lock->release();
        n++;
    }
    shared->of[rank].acquisitions = n;
    if (lock->acquire == shmem_acquire)
        shmem_context_finalize(context);
    _exit(0);
}

/* One run of `seconds`; the spin lock may leave somebody spinning for ever, hence the kill. */
static void loaded_once(const lock_t *lock, double seconds, double *rate, double *fairness)
{
    pid_t pids[PROCESSES];
    shared->counter = 0;
    shared->ready = shared->go = shared->stop = 0;
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            work(lock, i);
    }
    while (atomic_load(&shared->ready) < PROCESSES && waitpid(-1, NULL, WNOHANG) == 0)
        usleep(1000);
    double begin = bench_now_ns();
    atomic_store(&shared->go, 1);
    usleep((useconds_t)(seconds * 1e6));
    atomic_store(&shared->stop, 1);
    double took = (bench_now_ns() - begin) * 1e-9;
    uint64_t total = 0, most = 0, least = UINT64_MAX;
    for (int i = 0; i < PROCESSES; i++) {
        waitpid(pids[i], NULL, 0);
        uint64_t n = shared->of[i].acquisitions;
        total += n;
        most = n > most ? n : most;
        least = n < least ? n : least;
    }
    if (total != shared->counter)
        fprintf(stderr, "%s: %llu acquisitions, but %llu counted: no mutual exclusion\n",
                lock->name, (unsigned long long)total, (unsigned long long)shared->counter);
    *rate = (double)total / took * 1e-6;
    *fairness = most ? (double)least / (double)most : 0;
}

static void loaded(const lock_t *lock, int repeats, double seconds)
{
    double rates[31], fairnesses[31];
    for (int i = 0; i < repeats; i++)
        loaded_once(lock, seconds, &rates[i], &fairnesses[i]);
    bench_report("mutex", "8 processes on 2 processors", lock->name, "M/s",
                 bench_summary(rates, repeats));
    bench_report("mutex", "8 processes on 2 processors, fairness", lock->name, "min/max",
                 bench_summary(fairnesses, repeats));
}

static void robust_init(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->robust, &attributes);
}

/* As in a container whose filter does not know membarrier: every unlock has to fence. */
static void alone_without_membarrier(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    const char *what = "lock and unlock, alone, no membarrier";
    fflush(stdout);
    pid_t pid = fork();
    if (pid) {
        waitpid(pid, NULL, 0);
        return;
    }
    bench_pin(0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        bench_missing("mutex", what, "shmem", "seccomp filters are refused");
    else if (shmem_context_init(&context))
        bench_missing("mutex", what, "shmem", shmem_error_detail()->text);
    else {
        bench_report("mutex", what, "shmem", "ns", bench_repeat(ALONE_REPEATS, alone, NULL));
        shmem_context_finalize(context);
    }
    fflush(stdout);
    _exit(0);
}

/* mutex_bench [repeats [seconds]] */
int main(int argc, char **argv)
{
    int repeats = argc > 1 ? atoi(argv[1]) : 5;
    double seconds = argc > 2 ? atof(argv[2]) : 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || repeats < 1 || repeats > 31)
        return 1;
    robust_init();
    shmem_mutex_init(&shared->mutex);
    for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++)
        loaded(&locks[i], repeats, seconds);
    if (shmem_context_init(&context)) {
        fprintf(stderr, "%s\n", shmem_error_detail()->text);
        return 1;
    }
    bench_pin(0);
    bench_report("mutex", "lock and unlock, alone", "exchange spin lock", "ns",
                 bench_repeat(ALONE_REPEATS, alone_spin, NULL));
    bench_report("mutex", "lock and unlock, alone", "robust pthread mutex", "ns",
                 bench_repeat(ALONE_REPEATS, alone_robust, NULL));
    bench_report("mutex", "lock and unlock, alone", "shmem", "ns",
                 bench_repeat(ALONE_REPEATS, alone, NULL));
    shmem_context_finalize(context);
    alone_without_membarrier();
    return 0;
}
