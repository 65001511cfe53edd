/* SPDX-License-Identifier: Apache-2.0 */
/* Deaths: noticed within a second by the pidfd alone, repaired, whoever holds copies of the socket.
 */
#include <pthread.h>

#include "fixture.h"

typedef struct victim {
    fixture_server_t *f;
    _Atomic uint32_t slot, epoch, row, row_epoch;
    _Atomic int done;
    _Atomic pid_t grandchild;
    int how;
} victim_t;

enum { PLAIN, FORKS, MANY_CONTEXTS, THREAD_LEADER_EXITS };

static void *linger(void *arg)
{
    (void)arg;
    harness_sleep(0.3);
    raise(SIGKILL);
    return NULL;
}

static void live_and_wait(void *arg)
{
    victim_t *v = arg;
    shmemi_client_t *client = fixture_attach(v->f);
    shmemi_actor_t *actor = shmemi_client_actor(client);
    const shmemi_self_t *self = shmemi_self(actor);
    fixture_segment(client, "victims", 65536);
    fixture_segment(client, NULL, 65536);
    if (v->how == MANY_CONTEXTS)
        for (int i = 0; i < 5; i++)
            CHECK(shmemi_self(shmemi_client_actor(fixture_attach(v->f))));
    if (v->how == FORKS) {
        pid_t pid = fork(); /* holds a copy of the socket, outlives its parent */
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, 0);
            harness_sleep(3);
            _exit(0);
        }
        atomic_store(&v->grandchild, pid);
    }
    atomic_store(&v->slot, actor->slot);
    atomic_store(&v->epoch, actor->epoch);
    atomic_store(&v->row, self->row);
    atomic_store(&v->row_epoch, self->epoch);
    pthread_t thread;
    if (v->how == THREAD_LEADER_EXITS)
        CHECK(pthread_create(&thread, NULL, linger, NULL) == 0);
    atomic_store(&v->done, 1);
    if (v->how == THREAD_LEADER_EXITS)
        pthread_exit(NULL);
    for (;;)
        pause();
}

static victim_t *victim_start(fixture_server_t *f, int how, pid_t *pid)
{
    victim_t *v = harness_shared(sizeof *v);
    v->f = f;
    v->how = how;
    *pid = harness_fork(live_and_wait, v);
    while (!atomic_load(&v->done))
        harness_sleep(0.001);
    return v;
}

static void check_repaired(const fixture_server_t *f, shmemi_client_t *watcher, const victim_t *v,
                           double since, uint32_t clients)
{
    shmemi_roster_t *roster = shmemi_client_actor(watcher)->roster;
    while (atomic_load(&roster->deaths) < clients)
        CHECK(harness_now() < since + 1);
    CHECK(!shmemi_roster_client_alive(roster, v->slot, v->epoch));
    CHECK(!shmemi_roster_thread_alive(roster, v->row, v->row_epoch));
    CHECK_EQ(fixture_counts(watcher).clients, 1); /* one answer later the repair is whole */
    CHECK_EQ(fixture_counts(watcher).suspects, 0);
    CHECK_EQ(fixture_counts(watcher).segments, 0);
    CHECK_EQ(fixture_counts(watcher).deaths, clients);
    CHECK_EQ(atomic_load(&roster->threads[v->row].owner), 0);
    for (uint32_t s = 1; s < SHMEMI_CLIENTS; s++)
        if (s != shmemi_client_actor(watcher)->slot)
            CHECK_EQ(atomic_load(&roster->clients[s].state), SHMEMI_CLIENT_FREE);
    (void)f;
}

static void killed(int how, uint32_t clients)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *watcher = fixture_attach(f);
    int before = fixture_count_fds(f->pid);
    pid_t pid;
    victim_t *v = victim_start(f, how, &pid);
    shmemi_roster_t *roster = shmemi_client_actor(watcher)->roster;
    CHECK_EQ(fixture_counts(watcher).segments, 2);
    CHECK(shmemi_roster_client_alive(roster, v->slot, v->epoch));
    if (how != THREAD_LEADER_EXITS) /* its row went with the thread */
        CHECK(shmemi_roster_thread_alive(roster, v->row, v->row_epoch));
    double since = harness_now();
    if (how != THREAD_LEADER_EXITS)
        kill(pid, SIGKILL);
    check_repaired(f, watcher, v, since, clients);
    CHECK_EQ(harness_wait(pid, 5), -SIGKILL); /* it was a zombie all the while */
    CHECK_EQ(fixture_count_fds(f->pid), before);
    if (v->grandchild)
        kill(v->grandchild, SIGKILL);
    shmemi_client_detach(watcher);
    fixture_end(f);
}

static void by_kill(void)
{
    killed(PLAIN, 1);
}
static void fork_child_keeps_socket(void)
{
    killed(FORKS, 1);
}
static void several_contexts(void)
{
    killed(MANY_CONTEXTS, 6);
}
/* The first thread's end is not the process's: the pidfd waits for the last one. */
static void leader_exits_first(void)
{
    killed(THREAD_LEADER_EXITS, 1);
}

static void attach_and_exit(void *arg)
{
    shmemi_client_t *client = fixture_attach(arg);
    shmemi_client_detach(client); /* its goodbye and its end arrive together */
    _exit(0);
}

static void goodbye_is_no_death(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *watcher = fixture_attach(f);
    for (int i = 0; i < 50; i++)
        CHECK_EQ(harness_wait(harness_fork(attach_and_exit, f), 5), 0);
    FIXTURE_AWAIT(watcher, clients, 1);
    CHECK_EQ(fixture_counts(watcher).deaths, 0);
    shmemi_client_detach(watcher);
    fixture_end(f);
}

static void exit_without_goodbye(void *arg)
{
    fixture_attach(arg);
    _exit(0);
}

static void slots_return(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *watcher = fixture_attach(f);
    for (unsigned i = 1; i <= 50; i++) {
        CHECK_EQ(harness_wait(harness_fork(exit_without_goodbye, f), 5), 0);
        FIXTURE_AWAIT(watcher, deaths, i);
    }
    CHECK_EQ(fixture_counts(watcher).clients, 1);
    shmemi_client_detach(watcher);
    fixture_end(f);
}

static void survivors_keep_shared(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *watcher = fixture_attach(f);
    pid_t pid;
    victim_start(f, PLAIN, &pid);
    shmemi_segment_t s;
    CHECK_OK(shmemi_client_segment_open(watcher, "victims", SHMEMI_RIGHTS_WRITE, &s));
    kill(pid, SIGKILL);
    CHECK_EQ(harness_wait(pid, 5), -SIGKILL);
    FIXTURE_AWAIT(watcher, clients, 1);
    CHECK_EQ(fixture_counts(watcher).segments, 1); /* the anonymous one is gone, this one is ours */
    CHECK_EQ(fixture_counts(watcher).segment_bytes, 65536);
    shmemi_client_segment_close(watcher, &s);
    CHECK_EQ(fixture_counts(watcher).segments, 0);
    shmemi_client_detach(watcher);
    fixture_end(f);
}

int main(void)
{
    RUN(by_kill);
    RUN(fork_child_keeps_socket);
    RUN(several_contexts);
    RUN(leader_exits_first);
    RUN(goodbye_is_no_death);
    RUN(slots_return);
    RUN(survivors_keep_shared);
    return harness_end();
}
