/* SPDX-License-Identifier: Apache-2.0 */
/* Forking and executing PEs. No thread has been started yet, so a child may do anything. */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bind.h"

/* What a child reports when it could not execute the program: through a close-on-exec pipe. */
typedef struct failure {
    int rank, error;
    char what[24];
} failure_t;

static int fail(run_launch_t *launch, const char *what)
{
    run_output_say(launch->output, "cannot %s: %s", what, strerror(errno));
    return RUN_EXIT_FAILED;
}

/* ---- guard ---- */

static void guard_main(int pipe_end, pid_t parent)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "shmem-run-guard");
    if (dup2(pipe_end, 0) < 0)
        _exit(1);
    close_range(1, ~0u, 0);
    char byte;
    while (getppid() == parent && read(0, &byte, 1) < 0 && errno == EINTR)
        ;
    kill(0, SIGKILL);
    _exit(0);
}

static int guard_start(run_launch_t *launch)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return fail(launch, "make a pipe");
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        close(ends[1]);
        guard_main(ends[0], parent);
    }
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return fail(launch, "start a process");
    }
    setpgid(pid, pid);
    launch->group = pid;
    launch->guard_pipe = ends[1];
    return 0;
}

/* ---- the child's side ---- */

static void child_fail(int report, int rank, const char *what)
{
    failure_t failure = {.rank = rank, .error = errno};
    snprintf(failure.what, sizeof failure.what, "%s", what);
    ssize_t n = write(report, &failure, sizeof failure);
    _exit(n == (ssize_t)sizeof failure ? RUN_EXIT_FAILED : RUN_EXIT_NOT_RUNNABLE);
}

static void child_environment(const run_launch_t *launch, int rank, int report)
{
    char number[16], size[16];
    snprintf(number, sizeof number, "%d", rank);
    snprintf(size, sizeof size, "%d", launch->options->pes);
    if (setenv("SHMEM_SERVER", launch->server, 1) || setenv("SHMEM_JOB", launch->job, 1) ||
        setenv("SHMEM_RANK", number, 1) || setenv("SHMEM_SIZE", size, 1))
        child_fail(report, rank, "set the environment");
}

/* Our own changes to what a process inherits are undone. */
static void child_restore(const run_inherit_t *inherit)
{
    setrlimit(RLIMIT_NOFILE, &inherit->files);
    setrlimit(RLIMIT_FSIZE, &inherit->file_size);
    sigaction(SIGPIPE, &inherit->pipe_action, NULL);
    sigaction(SIGXFSZ, &inherit->size_action, NULL);
    sigprocmask(SIG_SETMASK, &inherit->mask, NULL);
}

static void child_main(const run_launch_t *launch, int rank, const int stdio[3], int cpu,
                       pid_t parent, int report)
{
    /* First: if the parent is gone before this takes effect, we see another parent below. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL))
        child_fail(report, rank, "prepare a process");
    if (getppid() != parent)
        _exit(RUN_EXIT_FAILED);
    if (launch->group && setpgid(0, launch->group))
        child_fail(report, rank, "join the group");
    for (int i = 0; i < 3; i++)
        if (stdio[i] >= 0 && dup2(stdio[i], i) < 0)
            child_fail(report, rank, "connect the output");
    if (cpu >= 0 && run_bind_self(cpu))
        child_fail(report, rank, "bind to a processor");
    child_environment(launch, rank, report);
    child_restore(&launch->inherit);
    execvp(launch->options->argv[0], launch->options->argv);
    child_fail(report, rank, "run");
}

/* ---- the parent's side ---- */

/* Pipes for one PE: ours[] are read ends (write end for input), theirs[] go to the child. */
static int make_stdio(run_launch_t *launch, int rank, int ours[3], int theirs[3])
{
    const run_options_t *options = launch->options;
    bool direct = options->pes == 1 && !options->tag;
    for (int i = 0; i < 3; i++) {
        int ends[2];
        bool piped = i == 0 ? rank == 0 && options->pes > 1 && isatty(0) : !direct;
        if (i == 0 && rank > 0) {
            theirs[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
            if (theirs[0] < 0)
                return -1;
        } else if (piped) {
            if (pipe2(ends, O_CLOEXEC))
                return -1;
            ours[i] = ends[i == 0];
            theirs[i] = ends[i != 0];
        }
    }
    return 0;
}

static void close_all(int fds[3])
{
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static int start_pe(run_launch_t *launch, int rank, int cpu, int report)
{
    int ours[3] = {-1, -1, -1}, theirs[3] = {-1, -1, -1};
    pid_t parent = getpid(), pid = -1;
    if (make_stdio(launch, rank, ours, theirs) == 0)
        pid = fork();
    if (pid == 0)
        child_main(launch, rank, theirs, cpu, parent, report);
    int error = errno;
    close_all(theirs);
    if (pid < 0) {
        close_all(ours);
        run_output_say(launch->output,
                       "cannot start PE %d of %d: %s (see 'ulimit -u' for processes, 'ulimit -n' "
                       "for files)",
                       rank, launch->options->pes, strerror(error));
        return RUN_EXIT_FAILED;
    }
    run_pe_t *pe = &launch->pes[rank];
    pe->pid = pe->process = pid;
    run_stream_init(&pe->out, ours[1], rank, launch->options->tag, &launch->output->out);
    run_stream_init(&pe->err, ours[2], rank, launch->options->tag, launch->output->err);
    if (rank == 0 && ours[0] >= 0) {
        fcntl(ours[0], F_SETFL, O_NONBLOCK);
        launch->input.fd = ours[0];
    }
    if (launch->options->verbose)
        run_output_say(launch->output, "rank %d is process %d", rank, (int)pid);
    return 0;
}

/* The first report of a child that could not run the program; the pipe ends when all run it. */
static int read_reports(run_launch_t *launch, int report)
{
    failure_t failure;
    ssize_t n;
    do
        n = read(report, &failure, sizeof failure);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof failure)
        return 0;
    const char *program = launch->options->argv[0];
    if (strcmp(failure.what, "run") != 0) {
        run_output_say(launch->output, "rank %d: cannot %s: %s", failure.rank, failure.what,
                       strerror(failure.error));
        return RUN_EXIT_FAILED;
    }
    bool missing = failure.error == ENOENT || failure.error == ENOTDIR;
    if (missing && !strchr(program, '/'))
        run_output_say(launch->output,
                       "no program '%s' on PATH (for one in this directory write "
                       "./%s)",
                       program, program);
    else
        run_output_say(launch->output, "cannot run '%s': %s", program, strerror(failure.error));
    return missing ? RUN_EXIT_NOT_FOUND : RUN_EXIT_NOT_RUNNABLE;
}

static int start_all(run_launch_t *launch)
{
    int ends[2], *cpus = NULL, ncpus = 0, code = 0;
    if (launch->options->bind && (ncpus = run_bind_order(&cpus)) == 0)
        run_output_say(launch->output, "the system does not say which processors may be used: "
                                       "--bind is ignored");
    if (pipe2(ends, O_CLOEXEC)) {
        free(cpus);
        return fail(launch, "make a pipe");
    }
    for (int rank = 0; rank < launch->options->pes && !code; rank++)
        code = start_pe(launch, rank, ncpus ? cpus[rank % ncpus] : -1, ends[1]);
    close(ends[1]);
    free(cpus);
    if (!code)
        code = read_reports(launch, ends[0]);
    close(ends[0]);
    return code;
}

int run_launch_start(run_launch_t *launch)
{
    launch->group = 0;
    launch->guard_pipe = launch->input.fd = -1;
    for (int rank = 0; rank < launch->options->pes; rank++)
        launch->pes[rank].out.fd = launch->pes[rank].err.fd = -1;
    bool on_terminal = launch->options->pes == 1 && isatty(0);
    int code = on_terminal ? 0 : guard_start(launch);
    return code ? code : start_all(launch);
}

void run_launch_signal_pes(run_launch_t *launch, int number)
{
    for (int rank = 0; rank < launch->options->pes; rank++)
        if (launch->pes[rank].pid)
            kill(launch->pes[rank].pid, number);
}

void run_launch_signal(run_launch_t *launch, int number)
{
    if (launch->group)
        kill(-launch->group, number);
    for (int rank = 0; rank < launch->options->pes; rank++) {
        pid_t pid = launch->pes[rank].pid;
        if (pid && (!launch->group || getpgid(pid) != launch->group))
            kill(pid, number);
    }
}

void run_launch_end(run_launch_t *launch)
{
    run_input_close(&launch->input);
    if (launch->group) {
        kill(-launch->group, SIGKILL);
        while (waitpid(launch->group, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (launch->guard_pipe >= 0)
        close(launch->guard_pipe);
}
