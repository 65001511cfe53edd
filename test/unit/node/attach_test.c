/* SPDX-License-Identifier: Apache-2.0 */
/* Attach and detach: handshake, refusals, forks, lost descriptors, many at once. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "fixture.h"
#include "os/barrier.h"

static void handshake(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_actor_t *actor = shmemi_client_actor(client);
    CHECK(actor->slot > 0);
    CHECK(shmemi_roster_client_alive(actor->roster, actor->slot, actor->epoch));
    CHECK_STR(actor->roster->clients[actor->slot].name, "test");
    CHECK_EQ(actor->roster->clients[actor->slot].pid, getpid());
    CHECK(!shmemi_client_server_lost(client));
    CHECK_STR(shmemi_client_address(client), f->address);
    CHECK_EQ(fixture_counts(client).clients, 1);
    const shmemi_self_t *self = shmemi_self(actor);
    CHECK(self && self->row > 0);
    shmemi_client_t *other = fixture_attach(f); /* a second client of this process */
    CHECK(shmemi_client_actor(other)->roster == actor->roster);
    CHECK(shmemi_client_actor(other)->slot != actor->slot);
    CHECK_EQ(fixture_counts(client).clients, 2);
    uint32_t slot = actor->slot, epoch = actor->epoch;
    shmemi_client_detach(client);
    FIXTURE_AWAIT(other, clients, 1);
    CHECK(!shmemi_roster_client_alive(shmemi_client_actor(other)->roster, slot, epoch));
    CHECK_EQ(fixture_counts(other).deaths, 0);
    shmemi_client_detach(other);
    shmemi_client_detach(NULL);
    fixture_end(f);
}

static void nobody_there(void)
{
    shmemi_settings_t settings;
    shmemi_client_t *client = (shmemi_client_t *)&settings;
    CHECK_OK(shmemi_settings_load(&settings));
    strcpy(settings.server, "@shmem-test-nobody");
    CHECK_STATUS(shmemi_client_attach(&settings, "x", &client), SHMEM_ERR_NO_SERVER);
    CHECK(strstr(shmem_error_detail()->text, "@shmem-test-nobody"));
    CHECK(client == (shmemi_client_t *)&settings);
    memset(settings.server, 'x', 200);
    settings.server[200] = 0;
    CHECK_STATUS(shmemi_client_attach(&settings, "x", &client), SHMEM_ERR_INVALID);
}

/* A stopped server has the time to answer that the program has. */
static void patience(void)
{
    static const struct {
        int64_t timeout;
        double least, most;
    } cases[] = {{600000000, 0.6, 3}, {0, 0.1, 2}};
    fixture_server_t *f = fixture_server();
    shmemi_settings_t settings;
    shmemi_client_t *client;
    fixture_settings(f, &settings);
    kill(f->pid, SIGSTOP);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double since = harness_now();
        settings.init_timeout = cases[i].timeout;
        CHECK_STATUS(shmemi_client_attach(&settings, "x", &client), SHMEM_ERR_TIMEOUT);
        double took = harness_now() - since;
        if (took < cases[i].least || took > cases[i].most)
            harness_fail(__FILE__, __LINE__, "timeout %.3f s took %.3f s",
                         (double)cases[i].timeout / 1e9, took);
    }
    kill(f->pid, SIGCONT);
    CHECK_OK(shmemi_client_attach(&settings, "x", &client)); /* 0 is enough for one that runs */
    settings.init_timeout = -1;
    shmemi_client_detach(client);
    CHECK_OK(shmemi_client_attach(&settings, "x", &client));
    shmemi_client_detach(client);
    fixture_end(f);
}

static void version_and_layout(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_wire_message_t m;
    int fd = fixture_raw(f);
    fixture_hello(&m);
    m.header.version = 7;
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    fixture_expect_error(fd, SHMEM_ERR_VERSION, "version 3 met version 7");
    fixture_expect_closed(fd);
    close(fd);
    fd = fixture_raw(f);
    fixture_hello(&m);
    m.hello.layout ^= 0x10;
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    fixture_expect_error(fd, SHMEM_ERR_VERSION, "same build of shmem");
    fixture_expect_closed(fd);
    close(fd);
    fd = fixture_raw(f);
    fixture_hello(&m);
    m.hello.space_base += SHMEMI_SPACE_UNIT;
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    fixture_expect_error(fd, SHMEM_ERR_VERSION, "address range");
    close(fd);
    fixture_end(f);
}

static void as_stranger(void *arg)
{
    fixture_server_t *f = arg;
    shmemi_client_t *client;
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK_STATUS(fixture_try_attach(f, &client), SHMEM_ERR_ACCESS);
}

static void serve_as_stranger(void *arg)
{
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    fixture_serve(arg);
}

static void other_users(void)
{
    if (geteuid() != 0)
        SKIP("needs root to become another user");
    fixture_server_t *f = fixture_server();
    CHECK_EQ(harness_wait(harness_fork(as_stranger, f), 10), 0); /* refuses a root server's... */
    int fd; /* ... and the server refuses him, too, whatever his client thinks */
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
        fd = fixture_raw(f);
        fixture_expect_error(fd, SHMEM_ERR_ACCESS, "belongs to user 0");
        fixture_expect_closed(fd);
        _exit(0);
    }
    CHECK_EQ(harness_wait(pid, 10), 0);
    shmemi_client_t *client = fixture_attach(f);
    shmemi_client_detach(client);
    fixture_end(f);
    f = fixture_new(); /* a stranger's server is not believed, not even by root */
    f->pid = harness_fork(serve_as_stranger, f);
    while (!atomic_load(&f->ready))
        harness_sleep(0.001);
    CHECK_STATUS(fixture_try_attach(f, &client), SHMEM_ERR_ACCESS);
    CHECK(strstr(shmem_error_detail()->text, "taken by another user"));
    fixture_end(f);
}

static void without_peer_pidfd(void)
{
    fixture_server_t *f = fixture_new();
    f->fault_armed = 1;
    strcpy(f->fault, "os.identity.peerpidfd");
    f->action = SHMEMI_FAULT_FAIL;
    f->nth = 1; /* only the first question fails: an old kernel would fail both */
    fixture_start(f);
    shmemi_client_t *client = fixture_attach(f);
    CHECK_EQ(fixture_counts(client).clients, 1);
    shmemi_client_detach(client);
    fixture_end(f);
}

/* A name cannot pass for a line of the log, or steer a terminal. */
static void names_are_visible(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_settings_t settings;
    shmemi_client_t *client;
    fixture_settings(f, &settings);
    CHECK_OK(shmemi_client_attach(&settings, "a\n\x1b[31m\xc3~ \x7f", &client));
    shmemi_actor_t *actor = shmemi_client_actor(client);
    CHECK_STR(actor->roster->clients[actor->slot].name, "a??[31m?~ ?");
    shmemi_client_detach(client);
    fixture_end(f);
}

static void without_membarrier(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_roster_t *roster = shmemi_client_actor(client)->roster;
    uint32_t before = atomic_load(&roster->fence_needed);
    shmemi_barrier_refuse(true);
    shmemi_client_t *poor = fixture_attach(f);
    shmemi_barrier_refuse(false);
    CHECK_EQ(atomic_load(&roster->fence_needed), before + 1);
    shmemi_client_detach(poor);
    FIXTURE_AWAIT(client, clients, 1);
    CHECK_EQ(atomic_load(&roster->fence_needed), before);
    shmemi_client_detach(client);
    fixture_end(f);
}

static void no_leaks(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *keeper = fixture_attach(f);
    int own = 0, servers = 0;
    for (int i = 0; i < 220; i++) {
        if (i == 20) {
            FIXTURE_AWAIT(keeper, clients, 1);
            own = fixture_count_fds(getpid());
            servers = fixture_count_fds(f->pid);
        }
        shmemi_client_t *client = fixture_attach(f);
        CHECK(shmemi_self(shmemi_client_actor(client)));
        if (i % 3 == 0) /* left open: the goodbye closes it */
            fixture_segment(client, NULL, 4096);
        shmemi_client_detach(client);
    }
    FIXTURE_AWAIT(keeper, clients, 1);
    CHECK_EQ(fixture_count_fds(getpid()), own);
    CHECK_EQ(fixture_count_fds(f->pid), servers);
    CHECK_EQ(fixture_counts(keeper).segments, 0);
    shmemi_client_detach(keeper);
    fixture_end(f);
}

static void many_pe(int rank, int n, void *arg)
{
    fixture_server_t *f = arg;
    shmemi_client_t *client = fixture_attach(f);
    CHECK(shmemi_self(shmemi_client_actor(client)));
    shmemi_segment_request_t request = {
        .name = "all", .bytes = 8192, .huge = SHMEMI_HUGE_OFF, .reserve = 1, .open_existing = 1};
    shmemi_segment_t segment;
    void *address;
    CHECK_OK(shmemi_client_segment_create(client, &request, &segment));
    CHECK_OK(shmemi_space_map(segment.offset, segment.bytes, segment.fd, 1, &address));
    _Atomic int *count = address;
    atomic_fetch_add(count, 1);
    double end = harness_now() + 20;
    while (atomic_load(count) < n) {
        CHECK(harness_now() < end);
        harness_sleep(0.001);
    }
    (void)rank;
    CHECK_OK(shmemi_space_unmap(address));
    shmemi_client_segment_close(client, &segment);
    shmemi_client_detach(client);
}

static void many_at_once(void)
{
    fixture_server_t *f = fixture_server();
    if (!harness_has_tsan()) /* processes: TSan wants no threads before a fork */
        harness_pes(64, HARNESS_PROC, 30, many_pe, f);
    harness_pes(64, HARNESS_THREAD, 30, many_pe, f);
    shmemi_client_t *client = fixture_attach(f);
    FIXTURE_AWAIT(client, clients, 1);
    CHECK_EQ(fixture_counts(client).segments, 0);
    CHECK_EQ(fixture_counts(client).deaths, 0);
    shmemi_client_detach(client);
    fixture_end(f);
}

static void in_child(void *arg)
{
    shmemi_client_t *client = arg;
    shmemi_segment_t segment;
    shmemi_server_counts_t counts;
    CHECK_STATUS(shmemi_client_segment_open(client, "kept", SHMEMI_RIGHTS_WRITE, &segment),
                 SHMEM_ERR_STATE);
    CHECK_STATUS(shmemi_client_counts(client, &counts), SHMEM_ERR_STATE);
    CHECK(!shmemi_self(shmemi_client_actor(client)));
    int before = fixture_count_fds(getpid());
    shmemi_client_detach(client); /* closes copies only */
    CHECK(fixture_count_fds(getpid()) < before);
}

static void forked_child(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    fixture_segment(client, "kept", 4096);
    CHECK_EQ(harness_wait(harness_fork(in_child, client), 10), 0);
    shmemi_segment_t again;
    CHECK_OK(shmemi_client_segment_open(client, "kept", SHMEMI_RIGHTS_WRITE, &again));
    CHECK_EQ(fixture_counts(client).clients, 1);
    CHECK_EQ(fixture_counts(client).suspects, 0);
    shmemi_client_detach(client);
    fixture_end(f);
}

/* A program that closes every descriptor it does not know, and goes on with files of its own. */
static void closes_all(void *arg)
{
    fixture_server_t *f = arg;
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_t segment = fixture_segment(client, "data", 4096), other;
    void *address;
    CHECK_OK(shmemi_space_map(segment.offset, segment.bytes, segment.fd, 1, &address));
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    int mine[16];
    for (int i = 0; i < 16; i++)
        CHECK((mine[i] = memfd_create("mine", 0)) >= 0);
    *(int *)address = 42; /* what is mapped keeps working */
    CHECK_STATUS(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_WRITE, &other),
                 SHMEM_ERR_SERVER_LOST);
    CHECK(strstr(shmem_error_detail()->text, "closed the connection"));
    CHECK(shmemi_client_server_lost(client));
    shmemi_client_t *next = fixture_attach(f);
    FIXTURE_AWAIT(next, suspects, 1);
    CHECK_EQ(fixture_counts(next).clients, 3); /* it lives, and is not taken for dead */
    CHECK_EQ(fixture_counts(next).deaths, 0);
    CHECK(shmemi_roster_client_alive(shmemi_client_actor(client)->roster,
                                     shmemi_client_actor(client)->slot,
                                     shmemi_client_actor(client)->epoch));
    CHECK_OK(shmemi_client_segment_open(next, "data", SHMEMI_RIGHTS_WRITE,
                                        &other)); /* its segment stays */
    CHECK_OK(shmemi_space_unmap(address));
    shmemi_client_detach(client);
    shmemi_client_detach(next);
    for (int i = 0; i < 16; i++)
        CHECK(lseek(mine[i], 0, SEEK_END) == 0); /* neither written to nor closed */
}

static void lost_descriptors(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *watcher = fixture_attach(f);
    CHECK_EQ(harness_wait(harness_fork(closes_all, f), 10), 0);
    FIXTURE_AWAIT(watcher, clients, 1); /* the suspect's process has ended: now it is dead */
    CHECK_EQ(fixture_counts(watcher).deaths, 1);
    CHECK_EQ(fixture_counts(watcher).segments, 0);
    shmemi_client_detach(watcher);
    fixture_end(f);
}

static void injected_failures(void)
{
    static const char *const points[] = {"node.client.alloc", "node.client.opened"};
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = NULL;
    shmemi_segment_t segment = {.id = 99};
    shmemi_segment_request_t request = {.bytes = 4096, .huge = SHMEMI_HUGE_OFF};
    shmemi_fault_arm(points[0], SHMEMI_FAULT_FAIL, 1);
    CHECK_STATUS(fixture_try_attach(f, &client), SHMEM_ERR_NOMEM);
    CHECK(client == NULL);
    client = fixture_attach(f);
    shmemi_fault_arm(points[1], SHMEMI_FAULT_FAIL, 1);
    CHECK_STATUS(shmemi_client_segment_create(client, &request, &segment), SHMEM_ERR_NOMEM);
    CHECK_EQ(segment.id, 99);
    CHECK_EQ(fixture_counts(client).segments, 0);
    shmemi_fault_disarm();
    shmemi_client_detach(client);
    fixture_end(f);
}

static void growing(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_roster_t *roster = shmemi_client_actor(client)->roster;
    uint32_t limit = atomic_load(&roster->thread_limit);
    while (limit < SHMEMI_THREADS) {
        CHECK_OK(shmemi_client_grow(client));
        CHECK_EQ(atomic_load(&roster->thread_limit), 2 * limit);
        limit *= 2;
    }
    CHECK_STATUS(shmemi_client_grow(client), SHMEM_ERR_LIMIT);
    CHECK_EQ(fixture_counts(client).thread_limit, SHMEMI_THREADS);
    shmemi_client_detach(client);
    fixture_end(f);
}

/* ---- more threads than there are rows at first ---- */

enum { FIRST = 2 * SHMEMI_FIRST_ROWS, MOST = FIRST + 150, SKIPPED = 77 };

typedef struct crowd {
    shmemi_client_t *client;
    pthread_barrier_t all_there;
    _Atomic int failed;
} crowd_t;

static void *take_row(void *arg)
{
    crowd_t *crowd = arg;
    if (!shmemi_self(shmemi_client_actor(crowd->client)))
        atomic_store(&crowd->failed, 1);
    pthread_barrier_wait(&crowd->all_there); /* nobody gives a row back before all have one */
    return NULL;
}

static void many_threads(void *arg)
{
    (void)arg;
    static pthread_t threads[MOST];
    static crowd_t crowd;
    fixture_server_t *f = fixture_server();
    pthread_attr_t attr;
    crowd.client = fixture_attach(f);
    CHECK_EQ(fixture_counts(crowd.client).thread_limit, FIRST);
    CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 262144) == 0);
    CHECK(pthread_barrier_init(&crowd.all_there, NULL, MOST) == 0);
    for (unsigned i = 0; i < MOST; i++)
        if (pthread_create(&threads[i], &attr, take_row, &crowd))
            _exit(SKIPPED); /* those that are there wait for ever */
    for (unsigned i = 0; i < MOST; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(!atomic_load(&crowd.failed));
    CHECK_EQ(fixture_counts(crowd.client).thread_limit, 2 * FIRST);
    pthread_attr_destroy(&attr);
    pthread_barrier_destroy(&crowd.all_there);
    shmemi_client_detach(crowd.client);
    fixture_end(f);
}

static void threads_get_rows(void)
{
    int code = harness_wait(harness_fork(many_threads, NULL), 60);
    if (code == SKIPPED)
        SKIP("this machine does not allow 2,200 threads");
    CHECK_EQ(code, 0);
}

int main(void)
{
    RUN(handshake);
    RUN(nobody_there);
    RUN(patience);
    RUN(version_and_layout);
    RUN(other_users);
    RUN(without_peer_pidfd);
    RUN(names_are_visible);
    RUN(without_membarrier);
    RUN(no_leaks);
    RUN(forked_child);
    RUN(lost_descriptors);
    RUN(injected_failures);
    RUN(growing);
    RUN(threads_get_rows);
    RUN(many_at_once);
    return harness_end();
}
