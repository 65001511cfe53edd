/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A killed server is replaced, and its clients notice nothing: no request fails, what is counted
 * stays exact, the dead are found dead by the successor.
 */
#include "pool_user.h"

enum { RESUMES = 3 }; /* the last points are a successor's */

/* All of the server's; scripts/takeover_points_test.sh compares them with the sources. */
static const char *const points[] = {
    "node.keeper.started",
    "node.accept.accepted",
    "node.receive.received",
    "node.hello.slot",
    "node.hello.admitted",
    "node.answer.ready",
    "node.answer.sent",
    "node.segment.made",
    "node.segment.held",
    "node.close.dropped",
    "node.unlink.unlinked",
    "node.reserve.collected",
    "node.growing.reserved",
    "node.growing.noted",
    "node.death.marked",
    "node.death.removed",
    "node.death.queued",
    "node.death.released",
    "node.home.grow.reserved",
    "node.state.segment.written",
    "node.state.segment.dropped",
    "node.state.hold",
    "node.state.peer.published",
    "node.state.peer.dropped",
    "sync.roster.client_add.filled",
    "sync.roster.client_remove.bumped",
    "sync.roster.client_remove.rows",
    "memory.recover.claimed",
    "memory.recover.block",
    "node.resume.opened",
    "node.resume.loaded",
    "node.resume.tidied",
};

static fixture_server_t *start(const char *point, unsigned nth, bool later)
{
    fixture_server_t *f = fixture_new();
    f->takeover = 1;
    f->fault_later = later;
    f->exit_when_unused = 1; /* a test that fails leaves nothing running */
    if (point) {
        f->fault_armed = 1;
        snprintf(f->fault, sizeof f->fault, "%s", point);
        f->action = SHMEMI_FAULT_KILL;
        f->nth = nth;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* successors and keepers become ours */
    fixture_start(f);
    CHECK_EQ(atomic_load(&f->ready), 1);
    return f;
}

/* All its processes have ended. */
static void all_gone(void)
{
    double end = harness_now() + 10;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) >= 0) {
        CHECK(harness_now() < end);
        if (pid == 0)
            harness_sleep(0.001);
    }
}

static void kill_server(fixture_server_t *f)
{
    unsigned before = atomic_load(&f->takeovers);
    double end = harness_now() + 10;
    kill(atomic_load(&f->serves), SIGKILL);
    while (atomic_load(&f->takeovers) == before) {
        CHECK(harness_now() < end);
        harness_sleep(0.0005);
    }
}

/* ---- cases ---- */

static void nothing_is_noticed(void)
{
    fixture_server_t *f = start(NULL, 0, false);
    shmemi_client_t *client = fixture_attach(f), *second = fixture_attach(f);
    shmemi_segment_t data = fixture_segment(client, "data", 8192), other, unnamed;
    shmemi_segment_request_t r = {.bytes = 4096, .huge = SHMEMI_HUGE_OFF};
    int fds = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(shmemi_client_segment_create(client, &r, &unnamed));
        kill_server(f);
        CHECK(!shmemi_client_server_lost(client));
        CHECK(shmemi_self(shmemi_client_actor(client)));
        shmemi_server_counts_t counts = fixture_counts(client);
        CHECK_EQ(counts.clients, 2);
        CHECK_EQ(counts.suspects, 0);
        CHECK_EQ(counts.segments, 2);
        CHECK_EQ(counts.segment_bytes, 8192 + 4096);
        CHECK_EQ(counts.deaths, 0);
        CHECK_OK(shmemi_client_segment_open(second, "data", SHMEMI_RIGHTS_WRITE, &other));
        CHECK_EQ(other.id, data.id);
        CHECK_EQ(other.offset, data.offset);
        shmemi_client_segment_close(second, &other);
        shmemi_client_segment_close(client, &unnamed);
        CHECK_EQ(fixture_counts(client).segments, 1);
        double since = harness_now();
        shmemi_client_t *third = fixture_attach(f);
        CHECK(harness_now() - since < 5);
        shmemi_client_detach(third);
        FIXTURE_AWAIT(client, clients, 2);
        int now = fixture_count_fds(atomic_load(&f->serves));
        if (i == 0) /* a successor has closed what the first server was started with */
            fds = now;
        CHECK_EQ(now, fds);
    }
    shmemi_client_detach(second);
    shmemi_client_detach(client); /* the last: all end */
    CHECK_EQ(harness_wait(f->pid, 10), -SIGKILL);
    all_gone();
}

/* ---- killed at every point ---- */

static void short_life(void *arg)
{
    pool_user_t u;
    void *block;
    pool_user_open(&u, arg, false);
    for (int i = 0; i < 30; i++)
        CHECK_OK(shmemi_pool_alloc(u.pool, (size_t)64 << i % 12, 0, SHMEM_POOL_NEAREST, 0, &block));
    raise(SIGKILL);
}

static void await_used(const pool_user_t *u, uint64_t bytes)
{
    double end = harness_now() + 10;
    while (used_bytes(u) != bytes) {
        if (harness_now() > end)
            CHECK_EQ(used_bytes(u), bytes);
        harness_sleep(0.001);
    }
    CHECK_OK(shmemi_pool_check(u->pool));
}

static void use_segments(shmemi_client_t *client)
{
    shmemi_segment_request_t region = {.name = "region",
                                       .bytes = 4096,
                                       .limit = 1 << 20,
                                       .kind = SHMEMI_SEGMENT_REGION,
                                       .huge = SHMEMI_HUGE_OFF,
                                       .reserve = 1};
    shmemi_segment_t data = fixture_segment(client, "data", 8192), same, other;
    CHECK_OK(shmemi_client_segment_create(client, &region, &other));
    CHECK(other.created);
    CHECK_OK(shmemi_client_segment_grow(client, &other, 65536));
    shmemi_client_segment_close(client, &other);
    CHECK_OK(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_READ, &same));
    CHECK_EQ(same.id, data.id);
    CHECK(!same.created);
    shmemi_client_segment_close(client, &same);
    CHECK_OK(shmemi_client_segment_unlink(client, "data"));
    CHECK_STATUS(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_READ, &same),
                 SHMEM_ERR_NOT_FOUND);
    CHECK_OK(shmemi_client_grow(client));
    shmemi_client_segment_close(client, &data);
}

/* Everything that a server does for clients; nothing fails, and all is exact. */
static void use(fixture_server_t *f)
{
    pool_user_t u;
    void *block;
    pool_user_open(&u, f, true);
    CHECK_OK(shmemi_pool_alloc(u.pool, 5000, 0, SHMEM_POOL_NEAREST, 0, &block));
    memset(block, 17, 5000);
    uint64_t used = used_bytes(&u);
    if (f->fault_later)
        kill_server(f);
    use_segments(u.client);
    CHECK_EQ(harness_wait(harness_fork(short_life, f), 20), -SIGKILL);
    FIXTURE_AWAIT(u.client, deaths, 1);
    await_used(&u, used);
    CHECK_EQ(((unsigned char *)block)[4999], 17);
    shmemi_client_t *second = fixture_attach(f);
    CHECK(shmemi_self(shmemi_client_actor(second)));
    CHECK_EQ(fixture_counts(second).clients, 2);
    shmemi_client_detach(second);
    FIXTURE_AWAIT(u.client, clients, 1);
    shmemi_server_counts_t counts = fixture_counts(u.client);
    CHECK_EQ(counts.suspects, 0);
    CHECK_EQ(counts.segments, 1);
    CHECK_EQ(counts.segment_bytes, u.segment.bytes);
    CHECK_EQ(counts.deaths, 1);
    CHECK_OK(shmemi_pool_free(u.pool, block));
    CHECK_OK(shmemi_pool_trim(u.pool));
    CHECK_EQ(used_bytes(&u), 0);
    pool_user_close(&u);
}

/* True: a server was killed at that passage. */
static bool killed_at(const char *point, unsigned nth, bool later, int fds)
{
    fixture_server_t *f = start(point, nth, later);
    use(f);
    all_gone();
    CHECK_EQ(fixture_count_fds(getpid()), fds);
    return atomic_load(&f->takeovers) > later;
}

static void at_every_point(void)
{
    enum { POINTS = sizeof points / sizeof points[0], PASSAGES = 10 };
    int fds = fixture_count_fds(getpid());
    for (size_t i = 0; i < POINTS; i++) {
        unsigned nth = 1;
        while (nth < PASSAGES && killed_at(points[i], nth, i >= POINTS - RESUMES, fds))
            nth++;
        if (nth == 1)
            harness_fail(__FILE__, __LINE__, "%s was never passed", points[i]);
    }
}

/* ---- killed at any time ---- */

enum { WORKERS = 6, KILLS = 100, NAMES = 4 };

typedef struct stage {
    fixture_server_t *f;
    _Atomic int over;
    _Atomic unsigned deaths, rounds;
} stage_t;

static stage_t *stage;

static void work_on_names(shmemi_client_t *client, unsigned i)
{
    char name[8];
    shmemi_segment_t segment;
    snprintf(name, sizeof name, "n%u", i % NAMES);
    shmemi_segment_request_t r = {
        .name = name, .bytes = 4096, .huge = SHMEMI_HUGE_OFF, .open_existing = 1};
    if (i % 5 == 4)
        r.name = NULL;
    CHECK_OK(shmemi_client_segment_create(client, &r, &segment));
    volatile uint64_t *memory;
    CHECK_OK(shmemi_space_map(segment.offset, 4096, segment.fd, 1, (void **)&memory));
    memory[i % 512] = i;
    CHECK_OK(shmemi_space_unmap((void *)memory));
    shmemi_client_segment_close(client, &segment);
}

static void work(int rank, int n, void *arg)
{
    pool_user_t u;
    void *blocks[8] = {0};
    (void)n;
    (void)arg;
    pool_user_open(&u, stage->f, false);
    for (unsigned i = (unsigned)rank; !atomic_load(&stage->over); i++) {
        void **block = &blocks[i % 8];
        if (*block)
            CHECK_OK(shmemi_pool_free(u.pool, *block));
        *block = NULL;
        CHECK_OK(shmemi_pool_alloc(u.pool, (size_t)64 << i % 10, 0, SHMEM_POOL_NEAREST, 0, block));
        work_on_names(u.client, i);
        if (i % 16 == 0) {
            shmemi_client_t *second = fixture_attach(stage->f);
            CHECK(shmemi_self(shmemi_client_actor(second)));
            shmemi_client_detach(second);
        }
        if (rank == 0 && i % 64 == 0) {
            CHECK_EQ(harness_wait(harness_fork(short_life, stage->f), 20), -SIGKILL);
            atomic_fetch_add(&stage->deaths, 1);
        }
        atomic_fetch_add(&stage->rounds, 1);
    }
    for (int i = 0; i < 8; i++)
        if (blocks[i])
            CHECK_OK(shmemi_pool_free(u.pool, blocks[i]));
    pool_user_close(&u);
}

static void kill_often(void *arg)
{
    (void)arg;
    uint32_t seed = 4711;
    for (int i = 0; i < KILLS; i++) {
        seed = seed * 1664525 + 1013904223;
        harness_sleep(0.022 + (double)(seed >> 16) / 65536 * 0.01);
        kill_server(stage->f);
    }
    atomic_store(&stage->over, 1);
}

static void at_any_time(void)
{
    pool_user_t u;
    stage = harness_shared(sizeof *stage);
    stage->f = start(NULL, 0, false);
    pool_user_open(&u, stage->f, true);
    pid_t killer = harness_fork(kill_often, NULL);
    harness_pes(WORKERS, HARNESS_PROC, 100, work, NULL);
    CHECK_EQ(harness_wait(killer, 10), 0);
    CHECK_EQ(atomic_load(&stage->f->takeovers), KILLS);
    FIXTURE_AWAIT(u.client, clients, 1);
    await_used(&u, 0);
    shmemi_server_counts_t counts = fixture_counts(u.client);
    CHECK_EQ(counts.deaths, atomic_load(&stage->deaths));
    CHECK_EQ(counts.suspects, 0);
    CHECK_EQ(counts.segments, 1);
    printf("  %u kills, %u rounds, %u deaths of clients\n", atomic_load(&stage->f->takeovers),
           atomic_load(&stage->rounds), atomic_load(&stage->deaths));
    pool_user_close(&u);
    all_gone();
}

/* ---- keepers ---- */

static void keeper_is_replaced(void)
{
    fixture_server_t *f = start(NULL, 0, false);
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_t data = fixture_segment(client, "data", 4096), same;
    for (int i = 0; i < 4; i++) {
        pid_t old = fixture_keeper_of(atomic_load(&f->serves));
        kill(old, SIGTERM); /* is nothing to a keeper */
        kill(old, SIGKILL);
        double end = harness_now() + 10;
        while (fixture_is_keeper(old) || fixture_keeper_of(atomic_load(&f->serves)) == old) {
            CHECK(harness_now() < end);
            waitpid(old, NULL, WNOHANG | __WALL);
        }
        CHECK_EQ(fixture_counts(client).clients, 1); /* the server has been through its loop */
        if (i % 2)
            kill_server(f);
        CHECK_OK(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_WRITE, &same));
        CHECK_EQ(same.id, data.id);
        shmemi_client_segment_close(client, &same);
        CHECK_EQ(fixture_counts(client).segments, 1);
    }
    shmemi_client_detach(client);
    all_gone();
}

static void both_killed(void)
{
    fixture_server_t *f = start(NULL, 0, false);
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_t data = fixture_segment(client, "data", 4096), other;
    volatile uint64_t *memory;
    CHECK_OK(shmemi_space_map(data.offset, 4096, data.fd, 1, (void **)&memory));
    kill(f->pid, SIGSTOP);
    kill(fixture_keeper_of(atomic_load(&f->serves)), SIGKILL);
    kill(f->pid, SIGKILL);
    all_gone();
    memory[0] = 1; /* what is mapped goes on */
    CHECK(shmemi_client_server_lost(client));
    CHECK_STATUS(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_READ, &other),
                 SHMEM_ERR_SERVER_LOST);
    CHECK_OK(shmemi_space_unmap((void *)memory));
    shmemi_client_detach(client);
}

/* No process can be made: the server works as if nobody had thought of a keeper. */
static void no_keeper_to_be_had(void)
{
    fixture_server_t *f = fixture_new();
    f->takeover = f->exit_when_unused = f->fault_armed = 1;
    snprintf(f->fault, sizeof f->fault, "node.keeper.fork");
    f->action = SHMEMI_FAULT_FAIL;
    f->nth = 1;
    fixture_start(f);
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_t data = fixture_segment(client, "data", 4096);
    shmemi_client_segment_close(client, &data);
    kill(f->pid, SIGKILL);
    all_gone();
    CHECK(shmemi_client_server_lost(client));
    shmemi_client_detach(client);
}

static void given_up_when_it_crashes_always(void)
{
    fixture_server_t *f = fixture_new();
    f->takeover = f->exit_when_unused = 1;
    f->crashes = 100000;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fixture_start(f);
    shmemi_client_t *client = fixture_attach(f);
    kill(f->pid, SIGKILL);
    all_gone();
    CHECK(atomic_load(&f->takeovers) >= 50);
    CHECK(shmemi_client_server_lost(client));
    shmemi_client_detach(client);
}

/* A client dies while no server runs: the keeper is stopped. */
static void deaths_meanwhile(void)
{
    fixture_server_t *f = start(NULL, 0, false);
    pool_user_t u;
    pool_user_open(&u, f, true);
    pid_t keeper = fixture_keeper_of(atomic_load(&f->serves)), client = harness_fork(short_life, f);
    kill(keeper, SIGSTOP);
    CHECK_EQ(harness_wait(client, 20), -SIGKILL);
    kill(f->pid, SIGKILL); /* mostly before it noticed */
    harness_sleep(0.02);
    kill(keeper, SIGCONT);
    FIXTURE_AWAIT(u.client, deaths, 1);
    await_used(&u, 0);
    CHECK_EQ(fixture_counts(u.client).clients, 1);
    pool_user_close(&u);
    all_gone();
}

/* ---- rights and quotas ---- */

enum { QUOTA = 65536, PART = 40960 };

static shmemi_pool_t *as_tenant(const pool_user_t *u)
{
    shmemi_pool_t *pool = NULL;
    shmemi_pool_source_t source = {.memory = u->memory,
                                   .segment_bytes = u->segment.bytes,
                                   .actor = shmemi_client_actor(u->client),
                                   .topology = u->topology,
                                   .task = "tenant",
                                   .fd = u->segment.fd};
    CHECK_OK(shmemi_pool_attach(&source, &pool));
    return pool;
}

static void tenant_dies(void *arg)
{
    pool_user_t u;
    void *block;
    pool_user_open(&u, arg, false);
    CHECK_OK(shmemi_pool_alloc(as_tenant(&u), PART / 4, 0, SHMEM_POOL_NEAREST, 0, &block));
    raise(SIGKILL);
}

static uint64_t held(const pool_user_t *u)
{
    shmem_quota_t quota = SHMEM_QUOTA_INIT;
    CHECK_OK(shmemi_pool_quota_get(u->pool, "tenant", &quota));
    CHECK_EQ(quota.limit, QUOTA);
    return quota.held;
}

static void quotas_stay(void)
{
    fixture_server_t *f = start(NULL, 0, false);
    shmem_quota_t quota = SHMEM_QUOTA_INIT;
    pool_user_t u;
    void *block, *other;
    pool_user_open(&u, f, true);
    quota.limit = QUOTA;
    CHECK_OK(shmemi_pool_quota_set(u.pool, "tenant", &quota));
    shmemi_pool_t *tenant = as_tenant(&u);
    CHECK_OK(shmemi_pool_alloc(tenant, PART, 0, SHMEM_POOL_NEAREST, 0, &block));
    uint64_t before = held(&u);
    CHECK(before >= PART);
    pid_t keeper = fixture_keeper_of(f->pid);
    kill(keeper, SIGSTOP); /* for a while there is no server */
    kill(f->pid, SIGSTOP);
    kill(f->pid, SIGKILL);
    CHECK_STATUS(shmemi_pool_alloc(tenant, PART, 0, SHMEM_POOL_NEAREST, 0, &other),
                 SHMEM_ERR_QUOTA);
    kill(keeper, SIGCONT);
    CHECK_EQ(harness_wait(harness_fork(tenant_dies, f), 20), -SIGKILL);
    kill_server(f);
    FIXTURE_AWAIT(u.client, deaths, 1);
    double end = harness_now() + 10;
    while (held(&u) != before && harness_now() < end)
        harness_sleep(0.001);
    CHECK_EQ(held(&u), before);
    CHECK_STATUS(shmemi_pool_alloc(tenant, PART, 0, SHMEM_POOL_NEAREST, 0, &other),
                 SHMEM_ERR_QUOTA);
    CHECK_OK(shmemi_pool_free(tenant, block));
    CHECK_OK(shmemi_pool_alloc(tenant, PART, 0, SHMEM_POOL_NEAREST, 0, &block));
    CHECK_OK(shmemi_pool_free(tenant, block));
    shmemi_pool_detach(tenant);
    CHECK_EQ(held(&u), 0);
    pool_user_close(&u);
    all_gone();
}

static void as_another_user(void *arg)
{
    shmemi_client_t *client;
    if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
        _exit(3);
    CHECK_STATUS(fixture_try_attach(arg, &client), SHMEM_ERR_ACCESS);
}

static void other_users_stay_out(void)
{
    if (geteuid() != 0)
        SKIP("only root can become another user");
    fixture_server_t *f = start(NULL, 0, false);
    shmemi_client_t *client = fixture_attach(f);
    kill_server(f);
    CHECK_EQ(harness_wait(harness_fork(as_another_user, f), 10), 0);
    CHECK_EQ(fixture_counts(client).clients, 1);
    shmemi_client_detach(client);
    all_gone();
}

int main(void)
{
    RUN(nothing_is_noticed);
    RUN(keeper_is_replaced);
    RUN(both_killed);
    RUN(no_keeper_to_be_had);
    RUN(given_up_when_it_crashes_always);
    RUN(deaths_meanwhile);
    RUN(other_users_stay_out);
    RUN(quotas_stay);
    RUN(at_any_time);
    RUN(at_every_point);
    return harness_end();
}
