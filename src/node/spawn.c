/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a program from inside a library, without the host program noticing.
 *
 *     caller --clone--> between --clone--> the program
 *
 * Both share our memory until they exec or exit (like vfork). `between` never execs, so that it
 * keeps the exit signal 0 that it was born with: no SIGCHLD reaches the program, and its wait() for
 * any child does not find it (such children are found with __WALL only). When it ends, the program
 * is an orphan: init's child, or that of a subreaper. In both nothing but system calls is made:
 * other threads may hold any lock, and sanitizers must not see it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/sanitizer.h"
#include "base/status.h"
#include "node/client_core.h"

#define LAYER "node"

enum { STACK_BYTES = 65536 };

/* ThreadSanitizer's clone() is made for fork and breaks in a child that shares memory. */
#if SHMEMI_TSAN
int __clone(int (*function)(void *), void *stack, int flags, void *arg, ...);
#define CLONE __clone
#else
#define CLONE clone
#endif

typedef struct plan {
    const char *program;
    char *const *argv;
    char *const *environment;
    int pipe;
    char *stack; /* of the second clone: its end */
} plan_t;

#if defined(__clang__)
#define UNWATCHED __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define UNWATCHED __attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))
#endif

UNWATCHED static int exec_program(void *arg)
{
    const plan_t *plan = arg;
    if (plan->pipe == SHMEMI_SPAWN_FD)
        syscall(SYS_fcntl, SHMEMI_SPAWN_FD, F_SETFD, 0);
    else
        syscall(SYS_dup3, plan->pipe, SHMEMI_SPAWN_FD, 0);
#ifdef SYS_close_range
    syscall(SYS_close_range, SHMEMI_SPAWN_FD + 1, ~0u, 0); /* where refused: the program does it */
#endif
    syscall(SYS_execve, plan->program, plan->argv, plan->environment);
    struct {
        char mark;
        char error[sizeof(int)];
    } word = {'!', {0}};
    int error = errno;
    for (unsigned i = 0; i < sizeof error; i++)
        word.error[i] = (char)(error >> (8 * i));
    syscall(SYS_write, SHMEMI_SPAWN_FD, &word, sizeof word);
    syscall(SYS_exit_group, 127);
    return 127;
}

/* Its exit code is 0, or the errno of the second clone. */
UNWATCHED static int between(void *arg)
{
    plan_t *plan = arg;
    int error = CLONE(exec_program, plan->stack, CLONE_VM | CLONE_VFORK, plan) < 0 ? errno : 0;
    syscall(SYS_exit_group, error);
    return error;
}

/* Waits for `between`. Returns its exit code. */
static int reap(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/* 0 or an errno. All signals are blocked: no handler of the program runs in the children. */
static int run(plan_t *plan, char *stack)
{
    sigset_t all, old;
    if (SHMEMI_FAULT("node.spawn.clone"))
        return EAGAIN;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid_t pid = CLONE(between, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK, plan);
    int error = pid < 0 ? errno : reap(pid);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

shmem_status_t shmemi_spawn(const char *program, char *const argv[], int *ready)
{
    int ends[2];
    char *stack = NULL;
    shmem_status_t status = SHMEM_OK;
    if (pipe2(ends, O_CLOEXEC))
        return shmemi_fail_errno(LAYER, "cannot create a pipe to start %s", program);
    if (posix_memalign((void **)&stack, 64, 2 * STACK_BYTES)) {
        status = shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory to start %s", program);
        goto close_both;
    }
    plan_t plan = {program, argv, environ, ends[1], stack + 2 * STACK_BYTES};
    errno = run(&plan, stack);
    if (errno)
        status = shmemi_fail_errno(LAYER, "cannot create a process for %s", program);
    free(stack);
    if (status)
        goto close_both;
    close(ends[1]);
    *ready = ends[0];
    return SHMEM_OK;
close_both:
    close(ends[0]);
    close(ends[1]);
    return status;
}
