/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A killed server is replaced, and its clients notice nothing: no request fails, what is counted
 * stays exact, the dead are found dead by the successor.
 */
#include "shmem/context.h"
#include "takeover.h"

/* ---- cases ---- */

static void nothing_is_noticed(void)
{
    fixture_server_t *f = takeover_start(NULL, 0, false);
    shmemi_client_t *client = fixture_attach(f), *second = fixture_attach(f);
    shmemi_segment_t data = fixture_segment(client, "data", 8192), other, unnamed;
    shmemi_segment_request_t r = {.bytes = 4096, .huge = SHMEMI_HUGE_OFF};
    int fds = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(shmemi_client_segment_create(client, &r, &unnamed));
        takeover_kill_server(f);
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
    takeover_all_gone();
}

/* ---- keepers ---- */

static void keeper_is_replaced(void)
{
    fixture_server_t *f = takeover_start(NULL, 0, false);
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
            takeover_kill_server(f);
        CHECK_OK(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_WRITE, &same));
        CHECK_EQ(same.id, data.id);
        shmemi_client_segment_close(client, &same);
        CHECK_EQ(fixture_counts(client).segments, 1);
    }
    shmemi_client_detach(client);
    takeover_all_gone();
}

static void both_killed(void)
{
    fixture_server_t *f = takeover_start(NULL, 0, false);
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_t data = fixture_segment(client, "data", 4096), other;
    volatile uint64_t *memory;
    CHECK_OK(shmemi_space_map(data.offset, 4096, data.fd, 1, (void **)&memory));
    kill(f->pid, SIGSTOP);
    kill(fixture_keeper_of(atomic_load(&f->serves)), SIGKILL);
    kill(f->pid, SIGKILL);
    takeover_all_gone();
    memory[0] = 1; /* what is mapped goes on */
    CHECK(shmemi_client_server_lost(client));
    CHECK_STATUS(shmemi_client_segment_open(client, "data", SHMEMI_RIGHTS_READ, &other),
                 SHMEM_ERR_SERVER_LOST);
    CHECK_OK(shmemi_space_unmap((void *)memory));
    shmemi_client_detach(client);
}

/* No process can be made: the server works without, and has a keeper later. */
static void no_keeper_at_first(void)
{
    fixture_server_t *f = fixture_new();
    f->takeover = f->exit_when_unused = f->fault_armed = 1;
    snprintf(f->fault, sizeof f->fault, "node.keeper.fork");
    f->action = SHMEMI_FAULT_FAIL;
    f->nth = 1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fixture_start(f);
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_t data = fixture_segment(client, "data", 4096);
    fixture_keeper_of(f->pid);
    takeover_kill_server(f);
    shmemi_client_segment_close(client, &data);
    CHECK_EQ(fixture_counts(client).segments, 0);
    shmemi_client_detach(client);
    takeover_all_gone();
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
    takeover_all_gone();
    CHECK(atomic_load(&f->takeovers) >= 50);
    CHECK(shmemi_client_server_lost(client));
    shmemi_client_detach(client);
}

typedef struct waiting {
    fixture_server_t *f;
    _Atomic int holds;
} waiting_t;

static void hold_blocks(void *arg)
{
    waiting_t *w = arg;
    pool_user_t u;
    void *block;
    pool_user_open(&u, w->f, false);
    for (int i = 0; i < 30; i++)
        CHECK_OK(shmemi_pool_alloc(u.pool, (size_t)64 << i % 12, 0, SHMEM_POOL_NEAREST, 0, &block));
    atomic_store(&w->holds, 1);
    for (;;)
        pause();
}

/* A client dies while no server runs. */
static void deaths_meanwhile(void)
{
    fixture_server_t *f = takeover_start(NULL, 0, false);
    waiting_t *w = harness_shared(sizeof *w);
    pool_user_t u;
    pool_user_open(&u, f, true);
    w->f = f;
    pid_t client = harness_fork(hold_blocks, w);
    double end = harness_now() + 20;
    while (!atomic_load(&w->holds)) {
        CHECK(harness_now() < end);
        harness_sleep(0.001);
    }
    CHECK(used_bytes(&u) > 0);
    kill(f->pid, SIGSTOP);
    kill(client, SIGKILL);
    CHECK_EQ(harness_wait(client, 20), -SIGKILL);
    takeover_kill_server(f);
    FIXTURE_AWAIT(u.client, deaths, 1);
    takeover_await_used(&u, 0);
    CHECK_EQ(fixture_counts(u.client).clients, 1);
    pool_user_close(&u);
    takeover_all_gone();
}

static int raw_client(const fixture_server_t *f)
{
    shmemi_wire_message_t m;
    int fd = fixture_raw(f);
    fixture_hello(&m);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_welcome_t));
    return fd;
}

/* Begin to make a segment that takes long. */
static void ask_for_big(int fd, shmemi_client_t *witness)
{
    shmemi_wire_message_t m;
    shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_CREATE, fixture_next());
    m.create.bytes = 192 << 20;
    m.create.flags = SHMEMI_CREATE_RESERVE;
    m.create.huge = SHMEMI_HUGE_OFF;
    m.create.node = -1;
    m.create.name_bytes = 3;
    memcpy(m.create.name, "big", 3);
    CHECK(fixture_send(fd, &m, m.header.bytes, NULL, 0));
    FIXTURE_AWAIT(witness, segments, 1);
}

static uint64_t expect_segment(int fd, uint32_t created)
{
    shmemi_wire_message_t m;
    CHECK_EQ(fixture_receive(fd, &m), (int)sizeof(shmemi_wire_segment_t));
    CHECK_EQ(m.segment.created, created);
    return m.segment.id;
}

/* Who asked later has the lower slot. */
static void waits_for_one_that_is_made(void)
{
    fixture_server_t *f = takeover_start("node.state.awaited", 2, false);
    shmemi_wire_message_t m;
    int later = raw_client(f), creator = raw_client(f);
    shmemi_client_t *witness = fixture_attach(f);
    ask_for_big(creator, witness);
    shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_OPEN, fixture_next());
    m.open.name_bytes = 3;
    m.open.rights = SHMEMI_RIGHTS_READ;
    memcpy(m.open.name, "big", 3);
    CHECK(fixture_send(later, &m, m.header.bytes, NULL, 0));
    CHECK_EQ(expect_segment(later, 0), expect_segment(creator, 1));
    CHECK_EQ(fixture_counts(witness).segments, 1);
    close(later);
    close(creator);
    shmemi_client_detach(witness);
    CHECK(kill(atomic_load(&f->serves), SIGTERM) == 0); /* suspects would keep it */
    takeover_all_gone();
}

static void unlinked_while_it_is_made(void)
{
    fixture_server_t *f = takeover_start(NULL, 0, false);
    int creator = raw_client(f);
    shmemi_segment_t other;
    shmemi_client_t *witness = fixture_attach(f);
    ask_for_big(creator, witness);
    CHECK_OK(shmemi_client_segment_unlink(witness, "big", 0));
    takeover_kill_server(f);
    CHECK_STATUS(shmemi_client_segment_open(witness, "big", SHMEMI_RIGHTS_READ, &other),
                 SHMEM_ERR_NOT_FOUND);
    expect_segment(creator, 1);
    CHECK_STATUS(shmemi_client_segment_open(witness, "big", SHMEMI_RIGHTS_READ, &other),
                 SHMEM_ERR_NOT_FOUND);
    close(creator);
    shmemi_client_detach(witness);
    CHECK(kill(atomic_load(&f->serves), SIGTERM) == 0);
    takeover_all_gone();
}

/* A request that ends every server that does it ends with its own connection. */
static void deadly_request(void)
{
    fixture_server_t *f = fixture_new();
    f->takeover = f->exit_when_unused = f->fault_armed = f->fault_always = 1;
    snprintf(f->fault, sizeof f->fault, "node.close.dropped");
    f->action = SHMEMI_FAULT_KILL;
    f->nth = 1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fixture_start(f);
    int deadly = raw_client(f);
    shmemi_client_t *witness = fixture_attach(f);
    shmemi_wire_message_t m;
    shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_CREATE, fixture_next());
    m.create.bytes = 4096;
    m.create.node = -1;
    CHECK(fixture_send(deadly, &m, m.header.bytes, NULL, 0));
    uint64_t id = expect_segment(deadly, 1);
    shmemi_wire_begin(&m, SHMEMI_WIRE_SEGMENT_CLOSE, fixture_next());
    m.close.id = id;
    CHECK(fixture_send(deadly, &m, m.header.bytes, NULL, 0));
    fixture_expect_error(deadly, SHMEM_ERR_SYSTEM, "node servers ended");
    fixture_expect_closed(deadly);
    close(deadly);
    CHECK_EQ(fixture_counts(witness).suspects, 1);
    CHECK_EQ(atomic_load(&f->takeovers), 4);
    shmemi_client_detach(witness);
    CHECK(kill(atomic_load(&f->serves), SIGTERM) == 0);
    takeover_all_gone();
}

/* A client writes nonsense about others into the roster. */
static void the_roster_is_not_believed(void)
{
    fixture_server_t *f = takeover_start(NULL, 0, false);
    pool_user_t u;
    void *block;
    pool_user_open(&u, f, true);
    shmemi_client_t *second = fixture_attach(f);
    const shmemi_actor_t *actor = shmemi_client_actor(u.client);
    shmemi_roster_t *roster = actor->roster;
    CHECK_OK(shmemi_pool_alloc(u.pool, 5000, 0, SHMEM_POOL_NEAREST, 0, &block));
    uint64_t used = used_bytes(&u);
    atomic_fetch_add(&roster->clients[actor->slot].epoch, 1);
    atomic_store(&roster->clients[actor->slot].state, SHMEMI_CLIENT_FREE);
    atomic_store(&roster->thread_limit, UINT32_MAX);
    for (uint32_t s = 1; s < SHMEMI_CLIENTS; s++)
        if (s != actor->slot && s != shmemi_client_actor(second)->slot)
            atomic_store(&roster->clients[s].state, SHMEMI_CLIENT_LIVE);
    shmemi_client_t *third = fixture_attach(f);
    CHECK(shmemi_client_actor(third)->slot != actor->slot);
    takeover_kill_server(f);
    shmemi_server_counts_t counts = fixture_counts(u.client);
    CHECK_EQ(counts.clients, 3);
    CHECK_EQ(counts.reclaimed_blocks, 0);
    CHECK_EQ(atomic_load(&roster->thread_limit), counts.thread_limit);
    CHECK(shmemi_roster_client_alive(roster, actor->slot, actor->epoch));
    CHECK_EQ(atomic_load(&roster->clients[SHMEMI_CLIENTS - 1].state), SHMEMI_CLIENT_FREE);
    CHECK_EQ(used_bytes(&u), used);
    CHECK_OK(shmemi_pool_check(u.pool));
    CHECK_OK(shmemi_pool_free(u.pool, block));
    shmemi_client_detach(third);
    shmemi_client_detach(second);
    pool_user_close(&u);
    takeover_all_gone();
}

/* ---- rights and quotas ---- */

static void as_guest(void *arg)
{
    shmemi_segment_t segment;
    if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
        _exit(3);
    shmemi_client_t *client = fixture_attach(arg);
    CHECK_STATUS(shmemi_client_segment_open(client, "mine", SHMEMI_RIGHTS_READ, &segment),
                 SHMEM_ERR_ACCESS);
    CHECK_STATUS(shmemi_client_segment_open(client, "shown", SHMEMI_RIGHTS_WRITE, &segment),
                 SHMEM_ERR_ACCESS);
    CHECK_STATUS(shmemi_client_segment_unlink(client, "shown", 0), SHMEM_ERR_ACCESS);
    CHECK_OK(shmemi_client_segment_open(client, "shown", SHMEMI_RIGHTS_READ, &segment));
    CHECK_EQ(segment.access, SHMEM_ACCESS_OTHER_READ);
    CHECK_EQ(segment.uid, 0);
    shmemi_client_detach(client);
}

/* A server for all users: what may be opened how is as before. */
static void access_stays(void)
{
    if (geteuid() != 0)
        SKIP("only root can become another user");
    fixture_server_t *f = fixture_new();
    f->takeover = f->exit_when_unused = f->all_users = 1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fixture_start(f);
    shmemi_client_t *client = fixture_attach(f);
    shmemi_segment_request_t r = {
        .name = "shown", .bytes = 4096, .huge = SHMEMI_HUGE_OFF, .access = SHMEM_ACCESS_OTHER_READ};
    shmemi_segment_t mine = fixture_segment(client, "mine", 4096), shown;
    CHECK_OK(shmemi_client_segment_create(client, &r, &shown));
    for (int i = 0; i < 2; i++) {
        takeover_kill_server(f);
        CHECK_EQ(harness_wait(harness_fork(as_guest, f), 20), 0);
    }
    CHECK_EQ(fixture_counts(client).segments, 2);
    shmemi_client_segment_close(client, &shown);
    shmemi_client_segment_close(client, &mine);
    shmemi_client_detach(client);
    takeover_all_gone();
}

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
    fixture_server_t *f = takeover_start(NULL, 0, false);
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
    kill(f->pid, SIGSTOP); /* nobody needs a server for this */
    CHECK_STATUS(shmemi_pool_alloc(tenant, PART, 0, SHMEM_POOL_NEAREST, 0, &other),
                 SHMEM_ERR_QUOTA);
    takeover_kill_server(f);
    CHECK_EQ(harness_wait(harness_fork(tenant_dies, f), 20), -SIGKILL);
    takeover_kill_server(f);
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
    takeover_all_gone();
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
    fixture_server_t *f = takeover_start(NULL, 0, false);
    shmemi_client_t *client = fixture_attach(f);
    takeover_kill_server(f);
    CHECK_EQ(harness_wait(harness_fork(as_another_user, f), 10), 0);
    CHECK_EQ(fixture_counts(client).clients, 1);
    shmemi_client_detach(client);
    takeover_all_gone();
}

int main(void)
{
    RUN(nothing_is_noticed);
    RUN(keeper_is_replaced);
    RUN(both_killed);
    RUN(no_keeper_at_first);
    RUN(given_up_when_it_crashes_always);
    RUN(deaths_meanwhile);
    RUN(waits_for_one_that_is_made);
    RUN(unlinked_while_it_is_made);
    RUN(deadly_request);
    RUN(the_roster_is_not_believed);
    RUN(other_users_stay_out);
    RUN(access_stays);
    RUN(quotas_stay);
    return harness_end();
}
