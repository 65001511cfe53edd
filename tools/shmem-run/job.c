/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop. Everything that happens is a descriptor that becomes ready or a time reached. */
#include "job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { AT_SIGNALS, AT_SERVER, AT_JOINS, AT_OUT, AT_ERR, AT_INPUT, AT_STREAMS = AT_INPUT + 2 };

enum { FAREWELL_NS = 500000000 };

int64_t run_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void run_job_fail(run_job_t *job, int exit_code)
{
    if (job->ending)
        return;
    job->ending = true;
    job->exit_code = exit_code;
    run_launch_signal(&job->launch, SIGTERM);
    run_launch_signal(&job->launch, SIGCONT); /* a stopped process could not act on it */
    job->kill_at = run_now() + job->options->grace_ns;
}

static void look_at_clock(run_job_t *job)
{
    int64_t now = run_now();
    if (job->deadline && now >= job->deadline && !job->ending) {
        run_output_say(&job->output, "time is up (--timeout): ending %d PE%s", job->living,
                       job->living == 1 ? "" : "s");
        run_job_fail(job, RUN_EXIT_TIMEOUT);
    }
    if (job->ending && !job->killed && now >= job->kill_at) {
        run_launch_signal(&job->launch, SIGKILL);
        job->killed = true;
    }
    if (job->joins.next && now >= job->joins.next && !job->ending && job->living &&
        run_joins_look(&job->joins, now))
        run_job_never_joined(job);
}

/* Milliseconds until the clock must be looked at again, rounded up; -1: never. */
static int poll_timeout(const run_job_t *job)
{
    int64_t times[] = {job->ending && !job->killed ? job->kill_at : 0,
                       job->ending ? 0 : job->deadline,
                       job->ending || !job->living ? 0 : job->joins.next};
    int64_t next = !job->living && job->farewell_by > run_now() ? job->farewell_by : 0;
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (times[i] && (!next || times[i] < next))
            next = times[i];
    if (!next)
        return -1;
    int64_t left = next - run_now();
    if (left <= 0)
        return 0;
    return left > 3600000000000 ? 3600000 : (int)(left / 1000000 + 1);
}

/* All PEs have ended; the server has not yet heard so of all contexts. */
static bool farewells_are_due(run_job_t *job)
{
    if (!job->farewell_by)
        job->farewell_by = run_now() + FAREWELL_NS;
    if (job->ending || job->options->pes == 1 || run_now() >= job->farewell_by)
        return false;
    for (int rank = 0; rank < job->options->pes; rank++)
        if (run_joins_has(&job->joins, job->launch.pes[rank].process, RUN_CLIENT_OPEN))
            return true;
    return false;
}

/* A sink that failed ends the job; a closed pipe does so silently, as for any other filter. Returns
 * whether text is still waiting. */
static bool flush(run_job_t *job, run_sink_t *sink)
{
    bool waiting = run_sink_flush(sink);
    if (sink->error && !job->ending) {
        if (sink->error != EPIPE)
            run_output_say(&job->output, "cannot write output: %s", strerror(sink->error));
        run_job_fail(job, sink->error == EPIPE ? 128 + SIGPIPE : RUN_EXIT_FAILED);
    }
    return waiting;
}

static int add_stream(run_job_t *job, int n, run_stream_t *stream)
{
    if (stream->fd < 0 || run_sink_is_full(stream->sink))
        return n;
    job->polls[n] = (struct pollfd){stream->fd, POLLIN, 0};
    job->polled[n] = stream;
    return n + 1;
}

static int sink_fd(const run_sink_t *sink)
{
    return sink->start != sink->end && !sink->error ? sink->fd : -1;
}

static int fill_polls(run_job_t *job)
{
    struct pollfd *polls = job->polls;
    polls[AT_SIGNALS] = (struct pollfd){job->signals, POLLIN, 0};
    polls[AT_SERVER] = (struct pollfd){job->server_ends, POLLIN, 0};
    polls[AT_JOINS] = (struct pollfd){job->joins.wake, POLLIN, 0};
    polls[AT_OUT] = (struct pollfd){sink_fd(&job->output.out), POLLOUT, 0};
    polls[AT_ERR] = (struct pollfd){sink_fd(job->output.err), POLLOUT, 0};
    run_input_poll(&job->launch.input, polls + AT_INPUT);
    int n = AT_STREAMS;
    for (int rank = 0; rank < job->options->pes; rank++) {
        n = add_stream(job, n, &job->launch.pes[rank].out);
        n = add_stream(job, n, &job->launch.pes[rank].err);
    }
    return n;
}

static void server_ended(run_job_t *job)
{
    close(job->server_ends);
    job->server_ends = -1;
    run_output_say(&job->output, "the node server of the job ended");
    run_job_fail(job, RUN_EXIT_FAILED);
}

static void act(run_job_t *job, int n)
{
    struct pollfd *polls = job->polls;
    for (int i = AT_STREAMS; i < n; i++)
        if (polls[i].revents)
            run_stream_read(job->polled[i]);
    run_input_move(&job->launch.input, polls + AT_INPUT);
    if (polls[AT_SERVER].revents)
        server_ended(job);
    if (polls[AT_JOINS].revents)
        run_job_look_for_deserters(job);
    if (polls[AT_SIGNALS].revents)
        run_job_take_signals(job);
}

int run_job_loop(run_job_t *job)
{
    size_t most = AT_STREAMS + 2 * (size_t)job->options->pes;
    job->polls = calloc(most, sizeof *job->polls);
    job->polled = calloc(most, sizeof *job->polled);
    if (!job->polls || !job->polled) {
        run_output_say(&job->output, "out of memory");
        run_job_fail(job, RUN_EXIT_FAILED);
        run_launch_signal(&job->launch, SIGKILL);
    } else {
        run_job_reap(job);
        for (;;) {
            bool waiting = flush(job, &job->output.out);
            if (job->output.err != &job->output.out)
                waiting = flush(job, job->output.err) || waiting;
            if (!job->living && (!waiting || job->interrupts) && !farewells_are_due(job))
                break;
            int n = fill_polls(job);
            if (poll(job->polls, (nfds_t)n, poll_timeout(job)) > 0)
                act(job, n);
            look_at_clock(job);
        }
    }
    free(job->polls);
    free(job->polled);
    return job->exit_code;
}
