/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: a second process that waits for the server's end and then becomes two, itself and the
 * server's successor.
 *
 *     server --clone--> keeper --clone, when the server was killed--> successor
 *
 * Server, keeper and successors have one table of descriptors. So the kernel closes nothing when
 * the server is killed, wherever it was: connections stay, with what clients have said in them,
 * and so do all segments, pidfds and the listener. What the descriptors are is in the state
 * (state.h), which they share, too. All other memory of a successor is that of the server at the
 * time when it made the keeper: a loop that is about to wait.
 *
 *   Invariants  state->server_life, keeper_life: pidfds, written by the kernel before the process
 *               that they stand for runs
 *               a keeper is made while the server has one thread only
 *               a keeper ends when its server stops as told; a server without keeper makes one
 *
 * The keeper stays in the server's session and process group: who ends a group means all of it. It
 * has a name of its own, so that who ends all of the server's name does not. Processes made here
 * have an exit signal of 0 and are no child that an embedding program's wait() could find.
 *
 * What it does not do: help when both are killed at once (clients then find the server lost), or
 * when the server is stopped instead of killed.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "node/server_core.h"

#define LAYER "node"

enum { CRASHES = 50, NAME_BYTES = 16 };
#define CRASHES_NS 1000000000 /* so many ends in this time: the next would end as well */
#define RETRY_NS   100000000
#define AGAIN_NS   1000000000 /* until a keeper that could not be made is tried again */

/* Like fork(), but with one table of descriptors, and without the handlers for fork: objects of the
 * library stay usable. *pidfd is there before the child runs. */
static pid_t fork_sharing(int *pidfd)
{
    return (pid_t)syscall(SYS_clone, CLONE_FILES | CLONE_PIDFD, NULL, pidfd, NULL, NULL);
}

static void await_end(int life)
{
    struct pollfd p = {.fd = life, .events = POLLIN};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
}

/* Did the last CRASHES ends fall into CRASHES_NS? */
static bool ends_too_often(int64_t *ends, unsigned *count)
{
    int64_t now = shmemi_clock_now();
    int64_t *oldest = &ends[*count % CRASHES];
    bool often = *count >= CRASHES && now - *oldest < CRASHES_NS;
    *oldest = now;
    ++*count;
    return often;
}

/* Returns in a successor. */
static void keep(shmemi_state_t *state)
{
    int64_t ends[CRASHES];
    unsigned count = 0;
    pid_t child = 0;
    for (;;) {
        await_end(state->server_life);
        if (child) /* the first server is not ours */
            waitpid(child, NULL, __WALL);
        if (ends_too_often(ends, &count)) {
            shmemi_log(SHMEM_LOG_ERROR, LAYER,
                       "the node server ended %d times within a second: it is not started again",
                       CRASHES);
            _exit(1);
        }
        shmemi_log(SHMEM_LOG_WARN, LAYER, "the node server was killed: a successor takes over");
        while ((child = fork_sharing(&state->server_life)) < 0)
            nanosleep(&(struct timespec){0, RETRY_NS}, NULL);
        if (!child)
            return;
    }
}

/* The life of the process after fork_sharing(), until it is a successor: no signal ends it but
 * SIGKILL, as the server decides when all is over. */
static void be_keeper(shmemi_state_t *state)
{
    static const char name[NAME_BYTES] = "shmem-keeper";
    char server_name[NAME_BYTES];
    sigset_t all, old;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    prctl(PR_GET_NAME, server_name);
    prctl(PR_SET_NAME, name);
    keep(state);
    prctl(PR_SET_NAME, server_name);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

/* It is tried again; said once. */
static shmem_status_t go_without(shmem_server_t server)
{
    if (!server->keeper_at)
        shmemi_log(SHMEM_LOG_WARN, LAYER,
                   "the node server has no keeper for now: should it be killed, nobody takes over "
                   "(%s)",
                   shmem_error_detail()->text);
    server->state->keeper_life = -1;
    server->keeper_due = true;
    server->keeper_at = shmemi_clock_now() + AGAIN_NS;
    return SHMEM_OK;
}

/* The kernel names this process in *life, before a keeper can ask. */
static shmem_status_t name_self(int *life)
{
    return *life >= 0 ? SHMEM_OK : shmemi_identity_self(life);
}

shmem_status_t shmemi_keeper_start(shmem_server_t server)
{
    shmemi_state_t *state = server->state;
    server->keeper_due = false;
    if (name_self(&state->server_life))
        return go_without(server);
    pid_t pid = SHMEMI_FAULT("node.keeper.fork") ? -1 : fork_sharing(&state->keeper_life);
    if (pid < 0) {
        shmemi_quiet(SHMEM_ERR_SYSTEM, LAYER, "no second process can be made: errno %d", errno);
        return go_without(server);
    }
    if (!pid) {
        be_keeper(state);
        server->keeper_child = 0;
        return shmemi_resume(server);
    }
    SHMEMI_KILL_POINT("node.keeper.started");
    server->keeper_child = pid;
    server->keeper_at = 0;
    server->keeper.fd = state->keeper_life;
    if (shmemi_server_watch(server, &server->keeper))
        shmemi_log(SHMEM_LOG_WARN, LAYER, "%s: the end of the keeper will not be noticed",
                   shmem_error_detail()->text);
    return SHMEM_OK;
}

static void reap(shmem_server_t server)
{
    if (server->keeper_child)
        waitpid(server->keeper_child, NULL, __WALL);
    server->keeper_child = 0;
    server->state->keeper_life = -1;
    shmemi_server_unwatch(server, &server->keeper);
}

void shmemi_keeper_stop(shmem_server_t server)
{
    if (server->keeper.fd < 0)
        return;
    syscall(SYS_pidfd_send_signal, server->keeper.fd, SIGKILL, NULL, 0);
    await_end(server->keeper.fd);
    reap(server);
}

void shmemi_keeper_lost(shmem_server_t server)
{
    shmemi_log(SHMEM_LOG_WARN, LAYER, "the node server's keeper was killed: another one is made");
    reap(server);
    server->keeper_due = true;
}
