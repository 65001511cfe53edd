/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that we get, and PEs that end. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "job.h"

enum { INTERRUPTS_TO_KILL = 3 };

static const int handled[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                              SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGALRM};

void run_job_signals(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++)
        sigaddset(set, handled[i]);
}

/* ---- signals ---- */

/* The kernel sends the terminal's signals to the whole foreground group: a PE that is in our group
 * has got it already. */
static void forward(run_job_t *job, const struct signalfd_siginfo *info)
{
    int number = (int)info->ssi_signo;
    if (!job->launch.group && info->ssi_code == SI_KERNEL)
        return;
    if (number == SIGUSR1 || number == SIGUSR2 || number == SIGALRM)
        run_launch_signal_pes(&job->launch, number);
    else
        run_launch_signal(&job->launch, number);
}

static void interrupt(run_job_t *job)
{
    if (++job->interrupts < INTERRUPTS_TO_KILL || job->killed || !job->living)
        return;
    run_output_say(&job->output, "interrupted %d times: killing %d PE%s", job->interrupts,
                   job->living, job->living == 1 ? "" : "s");
    run_launch_signal(&job->launch, SIGKILL);
    job->killed = true;
}

static void take_signal(run_job_t *job, const struct signalfd_siginfo *info)
{
    switch (info->ssi_signo) {
    case SIGCHLD:
        run_job_reap(job);
        return;
    case SIGTSTP:
        forward(job, info);
        raise(SIGSTOP); /* until somebody continues us: SIGCONT is the next that we see */
        return;
    case SIGINT:
    case SIGTERM:
    case SIGQUIT:
    case SIGHUP:
        forward(job, info);
        interrupt(job);
        return;
    default:
        forward(job, info);
    }
}

void run_job_take_signals(run_job_t *job)
{
    struct signalfd_siginfo info;
    while (read(job->signals, &info, sizeof info) == (ssize_t)sizeof info)
        take_signal(job, &info);
}

/* ---- ends of PEs ---- */

static int exit_code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void say_end(run_job_t *job, int rank, pid_t pid, int status, bool first)
{
    char others[64] = "";
    if (first && job->living)
        snprintf(others, sizeof others, "; ending the other %d", job->living);
    if (WIFSIGNALED(status))
        run_output_say(&job->output, "rank %d (process %d) was killed by signal %d (%s)%s%s", rank,
                       (int)pid, WTERMSIG(status), strsignal(WTERMSIG(status)),
                       WCOREDUMP(status) ? ", core dumped" : "", others);
    else
        run_output_say(&job->output, "rank %d (process %d) ended with exit code %d%s", rank,
                       (int)pid, WEXITSTATUS(status), others);
}

static void pe_ended(run_job_t *job, int rank, pid_t pid, int status)
{
    bool first = exit_code_of(status) && !job->ending;
    /* those that we ended ourselves are no news */
    bool crashed =
        WIFSIGNALED(status) && WTERMSIG(status) != SIGTERM && WTERMSIG(status) != SIGKILL;
    if (first || crashed || job->options->verbose)
        say_end(job, rank, pid, status, first);
    if (first)
        run_job_fail(job, exit_code_of(status));
    else if (!job->ending)
        run_joins_ended(&job->joins, rank, run_now());
}

/* Marks the PE as ended and takes its last output. Returns its rank, -1 if it is none of ours. */
static int retire(run_job_t *job, pid_t pid)
{
    for (int rank = 0; rank < job->options->pes; rank++) {
        run_pe_t *pe = &job->launch.pes[rank];
        if (pe->pid != pid)
            continue;
        pe->pid = 0;
        job->living--;
        run_stream_drain(&pe->out);
        run_stream_drain(&pe->err);
        return rank;
    }
    if (pid == job->launch.group) {
        job->launch.group = 0;
        if (!job->killed) { /* else we killed it with the rest of the group */
            run_output_say(&job->output, "the guard process %d was killed", (int)pid);
            run_job_fail(job, RUN_EXIT_FAILED);
        }
    }
    return -1;
}

enum { BATCH = 64 };

/* Of PEs that are found ended at the same time, one killed by a signal counts as the first: the
 * others most likely failed because of it. */
void run_job_reap(run_job_t *job)
{
    struct {
        int rank, status;
        pid_t pid;
    } ended[BATCH];
    int n;
    do {
        for (n = 0; n < BATCH;) {
            ended[n].pid = waitpid(-1, &ended[n].status, WNOHANG);
            if (ended[n].pid <= 0)
                break;
            ended[n].rank = retire(job, ended[n].pid);
            n += ended[n].rank >= 0;
        }
        for (int signaled = 1; signaled >= 0; signaled--)
            for (int i = 0; i < n; i++)
                if (WIFSIGNALED(ended[i].status) == signaled)
                    pe_ended(job, ended[i].rank, ended[i].pid, ended[i].status);
    } while (n == BATCH);
}
