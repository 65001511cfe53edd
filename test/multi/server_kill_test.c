/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server is killed at every one of its fault points, in the 1st, 2nd, ... passage until a run
 * passes no more. Its clients get SERVER_LOST or succeed, keep what they have mapped, attach to the
 * next server, and nothing is left behind.
 */
#include "../unit/node/fixture.h"

static const char *const points[] = {
    "node.server.home",
    "node.server.listening",
    "node.accept.accepted",
    "node.receive.received",
    "node.hello.slot",
    "node.hello.admitted",
    "node.answer.ready",
    "node.answer.sent",
    "node.segment.made",
    "node.segment.held",
    "node.close.dropped",
    "node.reserve.collected",
    "node.death.marked",
    "node.death.removed",
    "node.death.queued",
    "node.death.released",
    "node.home.grow.reserved",
    "sync.roster.client_set.filled",
    "sync.roster.client_remove.bumped",
    "sync.roster.client_remove.rows",
};

/* A request may have found the server dead; anything else is wrong. */
static bool went(shmem_status_t status)
{
    if (status && status != SHMEM_ERR_SERVER_LOST && status != SHMEM_ERR_NO_SERVER)
        harness_fail(__FILE__, __LINE__, "%s: %s", shmem_status_name(status),
                     shmem_error_detail()->text);
    return status == SHMEM_OK;
}

static void short_life(void *arg)
{
    shmemi_client_t *client;
    shmemi_segment_t segment;
    if (!went(fixture_try_attach(arg, &client)))
        _exit(0);
    went(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_WRITE, &segment));
    raise(SIGKILL);
}

/* Everything that a server does for a client. */
static void use(const fixture_server_t *f, shmemi_client_t *client)
{
    shmemi_segment_request_t small = {
        .name = "data", .bytes = 8192, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
    shmemi_segment_request_t large = {
        .name = "large", .bytes = 9 << 20, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
    shmemi_server_counts_t counts;
    shmemi_segment_t data, other;
    if (!went(shmemi_client_segment_create(client, &small, &data)))
        return;
    volatile uint64_t *memory;
    CHECK_OK(shmemi_space_map(data.offset, data.bytes, data.fd, 1, (void **)&memory));
    memory[1000] = 4711;
    harness_wait(harness_fork(short_life, (void *)f), 5);
    if (went(shmemi_client_segment_create(client, &large, &other)))
        shmemi_client_segment_close(client, &other);
    went(shmemi_client_grow(client));
    if (went(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_WRITE, &other)))
        shmemi_client_segment_close(client, &other);
    for (int i = 0; i < 100 && went(shmemi_client_counts(client, &counts)) && !counts.deaths; i++)
        harness_sleep(0.002);
    CHECK_EQ(memory[1000], 4711); /* whatever became of the server */
    memory[1001] = 1;
    CHECK_OK(shmemi_space_unmap((void *)memory));
    shmemi_client_segment_close(client, &data);
}

static void run_and_leave(const fixture_server_t *f)
{
    shmemi_client_t *client, *second;
    if (!went(fixture_try_attach(f, &client)))
        return;
    use(f, client);
    if (went(fixture_try_attach(f, &second)))
        shmemi_client_detach(second);
    if (kill(f->pid, 0) == 0)
        shmemi_client_server_lost(client); /* must not harm, whatever the answer */
    shmemi_client_detach(client);
}

static void next_server_works(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_t s = fixture_segment(client, "data", 4096);
    shmemi_client_segment_close(client, &s);
    shmemi_client_detach(client);
    fixture_end(f);
}

static bool socket_is_left(const char *address)
{
    char line[256];
    bool found = false;
    FILE *file = fopen("/proc/net/unix", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        found |= strstr(line, address) != NULL;
    fclose(file);
    return found;
}

/* True: the server was killed at that passage. */
static bool killed_at(const char *point, unsigned nth, int fds)
{
    fixture_server_t *f = fixture_new();
    f->fault_armed = 1;
    snprintf(f->fault, sizeof f->fault, "%s", point);
    f->action = SHMEMI_FAULT_KILL;
    f->nth = nth;
    fixture_start(f);
    if (atomic_load(&f->ready) == 1)
        run_and_leave(f);
    kill(f->pid, SIGTERM); /* in case the point was not reached */
    int code = harness_wait(f->pid, 10);
    CHECK(code == 0 || code == -SIGKILL);
    CHECK(!f->address[0] || !socket_is_left(f->address));
    CHECK_EQ(fixture_count_fds(getpid()), fds);
    return code == -SIGKILL;
}

static void at_every_point(void)
{
    next_server_works();
    int fds = fixture_count_fds(getpid());
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        unsigned nth = 1;
        while (nth < 40 && killed_at(points[i], nth, fds))
            nth++;
        if (nth == 1)
            harness_fail(__FILE__, __LINE__, "%s was never passed", points[i]);
        next_server_works();
    }
}

static void clients_notice(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_t data = fixture_segment(client, "data", 4096), other = {.id = 5};
    void *memory;
    CHECK_OK(shmemi_space_map(data.offset, data.bytes, data.fd, 1, &memory));
    CHECK(!shmemi_client_server_lost(client));
    kill(f->pid, SIGKILL);
    CHECK_EQ(harness_wait(f->pid, 5), -SIGKILL);
    CHECK(shmemi_client_server_lost(client));
    shmemi_segment_request_t r = {
        .name = "more", .bytes = 4096, .huge = SHMEMI_HUGE_OFF, .reserve = 1};
    CHECK_STATUS(shmemi_client_segment_create(client, &r, &other), SHMEM_ERR_SERVER_LOST);
    CHECK_EQ(other.id, 5);
    CHECK(strstr(shmem_error_detail()->text, f->address));
    *(volatile int *)memory = 3;
    fixture_server_t *g = fixture_server();
    shmemi_client_t *next = fixture_attach(g); /* beside the old one */
    *(volatile int *)memory = 4;
    CHECK(shmemi_self(shmemi_client_actor(client)) && shmemi_self(shmemi_client_actor(next)));
    shmemi_client_detach(client);
    CHECK_OK(shmemi_space_unmap(memory));
    shmemi_client_detach(next);
    fixture_end(g);
}

static void stopped_server(void)
{
    fixture_server_t *f = fixture_server();
    shmemi_client_t *client = fixture_attach(f);
    kill(f->pid, SIGSTOP);
    CHECK(!shmemi_client_server_lost(client)); /* slow is not gone */
    double since = harness_now();
    shmemi_client_detach(client); /* says goodbye without waiting */
    CHECK(harness_now() - since < 1);
    kill(f->pid, SIGCONT);
    client = fixture_attach(f);
    FIXTURE_AWAIT(client, clients, 1);
    CHECK_EQ(fixture_counts(client).deaths, 0);
    shmemi_client_detach(client);
    fixture_end(f);
}

int main(void)
{
    RUN(clients_notice);
    RUN(stopped_server);
    RUN(at_every_point);
    return harness_end();
}
