/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *case_name = "";
static pid_t case_process; /* the process that runs the cases; children differ */
static jmp_buf case_end;
static int cases_passed, cases_skipped;

void harness_fail(const char *file, int line, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "FAILED %s: %s:%d: %s\n", case_name, file, line, text);
    _exit(1);
}

void harness_skip(const char *reason)
{
    fprintf(stderr, "SKIPPED %s: %s\n", case_name, reason);
    if (getpid() != case_process)
        _exit(77);
    cases_skipped++;
    longjmp(case_end, 1);
}

void harness_run(const char *name, void (*function)(void))
{
    case_name = name;
    case_process = getpid();
    double begin = harness_now();
    int skipped = setjmp(case_end);
    if (!skipped) {
        function();
        cases_passed++;
        fprintf(stderr, "ok %s (%.2f s)\n", name, harness_now() - begin);
    }
}

int harness_end(void)
{
    fprintf(stderr, "%d passed, %d skipped\n", cases_passed, cases_skipped);
    return cases_skipped ? 77 : 0;
}

double harness_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void harness_sleep(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t) && errno == EINTR)
        ;
}

void *harness_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

pid_t harness_fork(void (*function)(void *), void *arg)
{
    fflush(NULL);
    pid_t parent = getpid();
    bool by_main = gettid() == parent; /* a thread's end would count as the parent's death */
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (by_main && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent))
            _exit(1); /* the test ended: nothing of it stays behind */
        function(arg);
        exit(0);
    }
    return pid;
}

int harness_wait(pid_t pid, double seconds)
{
    double end = harness_now() + seconds;
    int status;
    pid_t got;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0) {
        if (harness_now() > end) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            harness_fail(__FILE__, __LINE__, "process %d did not end within %.1f s", (int)pid,
                         seconds);
        }
        harness_sleep(0.0005);
    }
    CHECK(got == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* ---- processing elements ---- */

typedef struct pe {
    int rank, n;
    void (*function)(int, int, void *);
    void *arg;
} pe_t;

static void pe_in_process(void *arg)
{
    pe_t *pe = arg;
    pe->function(pe->rank, pe->n, pe->arg);
}

static void *pe_in_thread(void *arg)
{
    pe_in_process(arg);
    return NULL;
}

static void pes_as_processes(pe_t *pes, int n, double seconds)
{
    pid_t *pids = calloc((size_t)n, sizeof *pids);
    CHECK(pids);
    double end = harness_now() + seconds;
    for (int i = 0; i < n; i++)
        pids[i] = harness_fork(pe_in_process, &pes[i]);
    int failed = -1, code = 0;
    for (int i = 0; i < n; i++) {
        double left = end - harness_now();
        int result = harness_wait(pids[i], left > 0 ? left : 0);
        if (result && failed < 0) {
            failed = i;
            code = result;
        }
    }
    free(pids);
    if (failed >= 0)
        harness_fail(__FILE__, __LINE__, "PE %d of %d ended with %d", failed, n, code);
}

static void pes_as_threads(pe_t *pes, int n, double seconds)
{
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    CHECK(threads);
    for (int i = 0; i < n; i++)
        CHECK(pthread_create(&threads[i], NULL, pe_in_thread, &pes[i]) == 0);
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end); /* what pthread_timedjoin_np takes */
    end.tv_sec += (time_t)seconds + 1;
    for (int i = 0; i < n; i++)
        if (pthread_timedjoin_np(threads[i], NULL, &end))
            harness_fail(__FILE__, __LINE__, "PE %d of %d did not end within %.1f s", i, n,
                         seconds);
    free(threads);
}

void harness_pes(int n, harness_mode_t mode, double seconds, void (*function)(int, int, void *),
                 void *arg)
{
    pe_t *pes = calloc((size_t)n, sizeof *pes);
    CHECK(pes);
    for (int i = 0; i < n; i++)
        pes[i] = (pe_t){i, n, function, arg};
    if (mode == HARNESS_PROC)
        pes_as_processes(pes, n, seconds);
    else
        pes_as_threads(pes, n, seconds);
    free(pes);
}

void harness_use_processors(int n)
{
    cpu_set_t now, fewer;
    CPU_ZERO(&fewer);
    CHECK(sched_getaffinity(0, sizeof now, &now) == 0);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&fewer) < n; i++)
        if (CPU_ISSET(i, &now))
            CPU_SET(i, &fewer);
    CHECK(sched_setaffinity(0, sizeof fewer, &fewer) == 0);
}

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif

bool harness_has_tsan(void)
{
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
    return true;
#else
    return false;
#endif
}

bool harness_has_asan(void)
{
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
    return true;
#else
    return false;
#endif
}
