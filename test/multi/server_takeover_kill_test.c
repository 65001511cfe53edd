/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server is killed at every one of its fault points, in the 1st, 2nd, ... passage until a run
 * passes no more, and at any time while many clients work. No request of a client fails, and
 * everything that is counted is exact afterwards.
 */
#include "takeover.h"

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
    "node.state.awaited",
    "node.state.peer.published",
    "node.state.peer.dropped",
    "sync.roster.client_set.filled",
    "sync.roster.client_remove.bumped",
    "sync.roster.client_remove.rows",
    "memory.recover.claimed",
    "memory.recover.block",
    "memory.*",
    "sync.*",
    "node.resume.opened",
    "node.resume.loaded",
    "node.resume.tidied",
};

/* ---- killed at every point ---- */

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
    CHECK_OK(shmemi_client_segment_unlink(client, "data", 0));
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
        takeover_kill_server(f);
    use_segments(u.client);
    CHECK_EQ(harness_wait(harness_fork(takeover_short_life, f), 20), -SIGKILL);
    FIXTURE_AWAIT(u.client, deaths, 1);
    takeover_await_used(&u, used);
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
    fixture_server_t *f = takeover_start(point, nth, later);
    use(f);
    takeover_all_gone();
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
            CHECK_EQ(harness_wait(harness_fork(takeover_short_life, stage->f), 20), -SIGKILL);
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
        takeover_kill_server(stage->f);
    }
    atomic_store(&stage->over, 1);
}

static void at_any_time(void)
{
    pool_user_t u;
    stage = harness_shared(sizeof *stage);
    stage->f = takeover_start(NULL, 0, false);
    pool_user_open(&u, stage->f, true);
    pid_t killer = harness_fork(kill_often, NULL);
    harness_pes(WORKERS, HARNESS_PROC, 100, work, NULL);
    CHECK_EQ(harness_wait(killer, 10), 0);
    CHECK_EQ(atomic_load(&stage->f->takeovers), KILLS);
    FIXTURE_AWAIT(u.client, clients, 1);
    takeover_await_used(&u, 0);
    shmemi_server_counts_t counts = fixture_counts(u.client);
    CHECK_EQ(counts.deaths, atomic_load(&stage->deaths));
    CHECK_EQ(counts.suspects, 0);
    CHECK_EQ(counts.segments, 1);
    printf("  %u kills, %u rounds, %u deaths of clients\n", atomic_load(&stage->f->takeovers),
           atomic_load(&stage->rounds), atomic_load(&stage->deaths));
    pool_user_close(&u);
    takeover_all_gone();
}

int main(void)
{
    RUN(at_any_time);
    RUN(at_every_point);
    return harness_end();
}
