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

static void others_text(const run_job_t *job, char *text, size_t size)
{
    text[0] = '\0';
    if (job->living)
        snprintf(text, size, "; ending the other %d", job->living);
}

static void say_end(run_job_t *job, int rank, pid_t pid, int status, bool first)
{
    char others[64] = "";
    if (first)
        others_text(job, others, sizeof others);
    if (WIFSIGNALED(status))
        run_output_say(&job->output, "rank %d (process %d) was killed by signal %d (%s)%s%s", rank,
                       (int)pid, WTERMSIG(status), strsignal(WTERMSIG(status)),
                       WCOREDUMP(status) ? ", core dumped" : "", others);
    else
        run_output_say(&job->output, "rank %d (process %d) ended with exit code %d%s", rank,
                       (int)pid, WEXITSTATUS(status), others);
}

/* A single PE harms nobody, and who was interrupted may go as he likes. */
void run_job_look_for_deserters(run_job_t *job)
{
    uint64_t count;
    char others[64];
    if (read(job->joins.wake, &count, sizeof count) < 0 && errno != EAGAIN)
        return;
    for (int rank = 0; rank < job->options->pes && job->options->pes > 1; rank++) {
        const run_pe_t *pe = &job->launch.pes[rank];
        if (job->ending || job->interrupts)
            return;
        if (!pe->ended_well || !run_joins_has(&job->joins, pe->process, RUN_CLIENT_DIED))
            continue;
        others_text(job, others, sizeof others);
        run_output_say(&job->output,
                       "rank %d (process %d) ended with exit code 0 but without "
                       "shmem_finalize()%s",
                       rank, (int)pe->process, others);
        run_job_fail(job, EXIT_FAILURE);
    }
}

/* Has every context been made by a PE itself? Else "never joined" is a guess. */
static bool all_are_known(run_job_t *job)
{
    bool known = true;
    pthread_mutex_lock(&job->joins.lock);
    for (size_t i = 0; i < job->joins.count && known; i++) {
        known = false;
        for (int rank = 0; rank < job->options->pes && !known; rank++)
            known = job->launch.pes[rank].process == job->joins.clients[i].pid;
    }
    pthread_mutex_unlock(&job->joins.lock);
    return known;
}

void run_job_never_joined(run_job_t *job)
{
    char others[64] = "";
    bool sure = all_are_known(job);
    if (!run_joins_none(&job->joins, job->launch.pes[job->joins.rank].process))
        return;
    if (sure)
        others_text(job, others, sizeof others);
    run_output_say(&job->output,
                   "rank %d ended with exit code 0 without joining the job; the others wait for "
                   "it in shmem_init()%s",
                   job->joins.rank, others);
    if (sure)
        run_job_fail(job, EXIT_FAILURE);
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
    else if (!job->ending && run_joins_none(&job->joins, pid))
        run_joins_ended(&job->joins, rank, run_now());
}

/* Marks the PE as ended and takes its last output. Returns its rank, -1 if it is none of ours. */
static int retire(run_job_t *job, pid_t pid, int status)
{
    for (int rank = 0; rank < job->options->pes; rank++) {
        run_pe_t *pe = &job->launch.pes[rank];
        if (pe->pid != pid)
            continue;
        pe->pid = 0;
        pe->ended_well = status == 0;
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
            ended[n].rank = retire(job, ended[n].pid, ended[n].status);
            n += ended[n].rank >= 0;
        }
        run_job_look_for_deserters(job); /* others may have failed because of one */
        for (int signaled = 1; signaled >= 0; signaled--)
            for (int i = 0; i < n; i++)
                if (WIFSIGNALED(ended[i].status) == signaled)
                    pe_ended(job, ended[i].rank, ended[i].pid, ended[i].status);
    } while (n == BATCH);
}
