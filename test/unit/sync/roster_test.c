/* SPDX-License-Identifier: Apache-2.0 */
/* The roster: who is alive, and whose rows are whose, through deaths at every step. */
#include "sync_world.h"

static void versions(void)
{
    shmemi_roster_t *roster = harness_shared(sizeof *roster);
    CHECK_STATUS(shmemi_roster_check(roster), SHMEM_ERR_VERSION);
    shmemi_roster_init(roster, 100);
    CHECK_OK(shmemi_roster_check(roster));
    CHECK(shmemi_roster_client_alive(roster, 0, 1));
    roster->layout ^= 1;
    CHECK_STATUS(shmemi_roster_check(roster), SHMEM_ERR_VERSION);
    char mine[16];
    snprintf(mine, sizeof mine, "%08x", shmemi_roster_layout());
    CHECK(strstr(shmem_error_detail()->text, mine) != NULL);
    roster->layout ^= 1;
    roster->version++;
    CHECK_STATUS(shmemi_roster_check(roster), SHMEM_ERR_VERSION);
    roster->version--;
    roster->client_capacity = 1;
    CHECK_STATUS(shmemi_roster_check(roster), SHMEM_ERR_VERSION);
    roster->client_capacity = SHMEMI_CLIENTS;
    atomic_store(&roster->ready, 0);
    CHECK_STATUS(shmemi_roster_check(roster), SHMEM_ERR_VERSION);
}

static void clients(void)
{
    world_make(2);
    shmemi_roster_t *r = world.roster;
    uint32_t slot = world.client[0].slot, epoch = world.client[0].epoch;
    CHECK(slot != 0 && epoch != 0 && slot != world.client[1].slot);
    CHECK(shmemi_roster_client_alive(r, slot, epoch));
    CHECK(!shmemi_roster_client_alive(r, slot, epoch + 1));
    CHECK(!shmemi_roster_client_alive(r, slot, 0));
    CHECK(!shmemi_roster_client_alive(r, SHMEMI_CLIENTS, epoch));
    CHECK(!shmemi_roster_client_alive(r, UINT32_MAX, epoch));
    CHECK(!shmemi_roster_client_alive(r, 77, 1)); /* free */
    uint32_t deaths = shmemi_roster_deaths(r);
    slots_remove(r, slot, false);
    CHECK(!shmemi_roster_client_alive(r, slot, epoch));
    CHECK_EQ(shmemi_roster_deaths(r), deaths);
    uint32_t slot2, epoch2;
    CHECK_OK(
        slots_add(r, "a name that is longer than its place in the roster", 1, 2, &slot2, &epoch2));
    CHECK_EQ(slot2, slot);
    CHECK(epoch2 != epoch);
    CHECK_EQ(strlen(r->clients[slot2].name), SHMEMI_CLIENT_NAME - 1);
    slots_remove(r, slot2, true);
    CHECK_EQ(shmemi_roster_deaths(r), deaths + 1);
    slots_remove(r, 0, true); /* the server's slot and nonsense: nothing happens */
    slots_remove(r, UINT32_MAX, true);
    CHECK(shmemi_roster_client_alive(r, 0, 1));
}

static void client_limit_and_epoch_wrap(void)
{
    world_make(0);
    uint32_t slot = 0, epoch = 0;
    for (int i = 1; i < SHMEMI_CLIENTS; i++)
        CHECK_OK(slots_add(world.roster, "x", 0, 0, &slot, &epoch));
    CHECK_EQ(slot, SHMEMI_CLIENTS - 1);
    atomic_store(&world.roster->clients[9].epoch, UINT32_MAX);
    CHECK(shmemi_roster_client_alive(world.roster, 9, UINT32_MAX));
    slots_remove(world.roster, 9, true);
    CHECK_OK(slots_add(world.roster, "x", 0, 0, &slot, &epoch));
    CHECK_EQ(slot, 9);
    CHECK_EQ(epoch, 1);
}

/* ---- rows ---- */

static void *use_and_end(void *actor)
{
    const shmemi_self_t *self = shmemi_self(actor);
    CHECK(self);
    CHECK(shmemi_roster_thread_alive(world.roster, self->row, self->epoch));
    static _Thread_local shmemi_self_t copy;
    copy = *self;
    shmemi_self_t *out = malloc(sizeof *out);
    *out = copy;
    return out;
}

static shmemi_self_t in_thread(shmemi_actor_t *actor)
{
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, use_and_end, actor) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    shmemi_self_t self = *(shmemi_self_t *)result;
    free(result);
    return self;
}

static void rows_of_threads(void)
{
    world_make(1);
    shmemi_actor_t actor;
    world_actor(&actor, 0, 0);
    const shmemi_self_t *self = shmemi_self(&actor);
    CHECK(self && self->row && self->thread == &world.roster->threads[self->row]);
    CHECK(shmemi_self(&actor) == self);
    CHECK_EQ(world_rows(), 1);
    shmemi_self_t other = in_thread(&actor);
    CHECK(other.row != self->row);
    CHECK_EQ(world_rows(), 1); /* its row came back with its end, */
    CHECK(!shmemi_roster_thread_alive(world.roster, other.row, other.epoch));
    shmemi_self_t again = in_thread(&actor);
    CHECK_EQ(again.row, other.row); /* and is used again under another epoch */
    CHECK(again.epoch != other.epoch);
    shmemi_self_t mine = *self;
    shmemi_actor_fini(&actor);
    CHECK_EQ(world_rows(), 0);
    CHECK(!shmemi_roster_thread_alive(world.roster, mine.row, mine.epoch));
    CHECK(shmemi_self(&actor) == NULL);
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_STATE);
    shmemi_actor_fini(&actor);
}

typedef struct many {
    shmemi_actor_t actor[3];
    pthread_barrier_t used, closed;
} many_t;

static void *use_three(void *arg)
{
    many_t *many = arg;
    uint32_t row[3];
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 3; i++) {
            const shmemi_self_t *self = shmemi_self(&many->actor[i]);
            CHECK(self);
            CHECK(round == 0 || row[i] == self->row);
            row[i] = self->row;
        }
    pthread_barrier_wait(&many->used);
    pthread_barrier_wait(&many->closed);
    CHECK(shmemi_self(&many->actor[0]) && shmemi_self(&many->actor[2]));
    return NULL;
}

/* Threads with several actors, one of which is closed before the threads end. */
static void several_actors(void)
{
    world_make(3);
    many_t many;
    pthread_t thread[4];
    for (int i = 0; i < 3; i++)
        world_actor(&many.actor[i], i, 0);
    pthread_barrier_init(&many.used, NULL, 5);
    pthread_barrier_init(&many.closed, NULL, 5);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, use_three, &many) == 0);
    pthread_barrier_wait(&many.used);
    CHECK_EQ(world_rows(), 12);
    shmemi_actor_fini(&many.actor[1]);
    CHECK_EQ(world_rows(), 8);
    pthread_barrier_wait(&many.closed);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK_EQ(world_rows(), 0);
    shmemi_actor_fini(&many.actor[0]);
    shmemi_actor_fini(&many.actor[2]);
    pthread_barrier_destroy(&many.used);
    pthread_barrier_destroy(&many.closed);
}

static void limits(void)
{
    world_make(2);
    atomic_store(&world.roster->thread_limit, 3); /* rows 1 and 2 */
    shmemi_actor_t a, b;
    world_actor(&a, 0, 0);
    world_actor(&b, 1, 0);
    CHECK(shmemi_self(&a) && shmemi_self(&b));
    shmemi_actor_t third = a;
    third.id = UINT64_MAX - 1; /* another actor of the same client */
    CHECK(shmemi_self(&third) == NULL);
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_LIMIT);
    atomic_store(&world.roster->thread_limit, 4);
    CHECK(shmemi_self(&third));
    CHECK_EQ(shmemi_self(&third)->row, 3);
    shmemi_actor_fini(&third);
    /* what lies beyond the limit is not touched, whatever a hostile limit says */
    atomic_store(&world.roster->thread_limit, UINT32_MAX);
    CHECK(!shmemi_roster_thread_alive(world.roster, SHMEMI_THREADS, 1));
    CHECK(!shmemi_roster_thread_alive(world.roster, UINT32_MAX, 1));
    CHECK(!shmemi_roster_thread_alive(world.roster, 0, 1));
    CHECK(!shmemi_roster_thread_alive(world.roster, 5, 0));
    CHECK_EQ(shmemi_row_limit(world.roster), SHMEMI_THREADS);
    shmemi_fault_arm("sync.actor.row", SHMEMI_FAULT_FAIL, 1);
    third = a;
    third.id = UINT64_MAX - 2;
    CHECK(shmemi_self(&third) == NULL);
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_INJECTED);
    shmemi_fault_disarm();
    shmemi_actor_fini(&a);
    shmemi_actor_fini(&b);
}

static void removed_client_gets_no_row(void)
{
    world_make(1);
    shmemi_actor_t actor;
    world_actor(&actor, 0, 0);
    world_bury(0);
    CHECK(shmemi_self(&actor) == NULL);
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_STATE);
    shmemi_actor_fini(&actor);
}

static shmemi_actor_t inherited;

static void child_of_fork(void *arg)
{
    (void)arg;
    CHECK(shmemi_self(&inherited) == NULL);
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_STATE);
    shmemi_actor_fini(&inherited);
    CHECK_EQ(world_rows(), 1); /* the parent's row stays */
    shmemi_actor_t own;
    world_actor(&own, 1, 0);
    CHECK(shmemi_self(&own));
    CHECK_EQ(world_rows(), 2);
    shmemi_actor_fini(&own);
    pthread_exit(NULL); /* the child's thread end must not free the parent's row either */
}

static void forked_child(void)
{
    world_needs_kills();
    world_make(2);
    world_actor(&inherited, 0, 0);
    shmemi_self_t before = *shmemi_self(&inherited);
    CHECK_EQ(harness_wait(harness_fork(child_of_fork, NULL), 10), 0);
    CHECK(shmemi_roster_thread_alive(world.roster, before.row, before.epoch));
    CHECK_EQ(world_rows(), 1);
    shmemi_actor_fini(&inherited);
}

static void claim_and_free(void *arg)
{
    shmemi_fault_arm(arg, SHMEMI_FAULT_KILL, 1);
    shmemi_actor_t actor;
    world_actor(&actor, 0, 0);
    CHECK(shmemi_self(&actor));
    shmemi_actor_fini(&actor);
}

static void killed_at_every_step(void)
{
    static char *const points[] = {"sync.row.claim.owned", "sync.row.free.marked",
                                   "sync.row.free.bumped"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        world_make(1);
        CHECK_EQ(harness_wait(harness_fork(claim_and_free, points[i]), 10), -SIGKILL);
        CHECK_EQ(world_rows(), 1);
        world_bury(0);
        CHECK_EQ(world_rows(), 0);
    }
}

static void server_killed_while_removing(void *point)
{
    shmemi_fault_arm(point, SHMEMI_FAULT_KILL, 1);
    world_bury(0);
}

/* A successor that removes the client once more ends what the first one began. */
static void server_killed(void)
{
    static char *const points[] = {"sync.roster.client_remove.bumped", "sync.row.free.marked",
                                   "sync.row.free.bumped", "sync.roster.client_remove.rows"};
    world_needs_kills();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        world_make(1);
        shmemi_actor_t actor;
        world_actor(&actor, 0, 0);
        shmemi_self_t self = *shmemi_self(&actor);
        CHECK_EQ(harness_wait(harness_fork(server_killed_while_removing, points[i]), 10), -SIGKILL);
        CHECK(!shmemi_roster_client_alive(world.roster, actor.slot, actor.epoch));
        world_bury(0);
        CHECK_EQ(world_rows(), 0);
        CHECK(!shmemi_roster_thread_alive(world.roster, self.row, self.epoch));
        shmemi_actor_fini(&actor);
    }
}

/* ---- many at once ---- */

enum { CHURNERS = 6, CHURNS = 400 };
static _Atomic int *users; /* of each row */

static void *churn_once(void *arg)
{
    const shmemi_self_t *self = shmemi_self(arg);
    CHECK(self);
    CHECK_EQ(atomic_fetch_add(&users[self->row], 1), 0);
    CHECK(shmemi_roster_thread_alive(world.roster, self->row, self->epoch));
    CHECK_EQ(atomic_fetch_sub(&users[self->row], 1), 1);
    return NULL;
}

static void churn(int rank, int n, void *arg)
{
    (void)n;
    (void)arg;
    shmemi_actor_t actor;
    world_actor(&actor, rank, 0);
    for (int i = 0; i < CHURNS; i++) {
        pthread_t thread[2];
        for (int t = 0; t < 2; t++)
            CHECK(pthread_create(&thread[t], NULL, churn_once, &actor) == 0);
        churn_once(&actor);
        for (int t = 0; t < 2; t++)
            CHECK(pthread_join(thread[t], NULL) == 0);
    }
    shmemi_actor_fini(&actor);
}

static void churn_in(harness_mode_t mode)
{
    world_make(CHURNERS);
    atomic_store(&world.roster->thread_limit, 1 + 3 * CHURNERS); /* all rows are in use */
    users = harness_shared(WORLD_ROWS * sizeof *users);
    harness_pes(CHURNERS, mode, 60, churn, NULL);
    CHECK_EQ(world_rows(), 0);
}

static void churn_threads(void)
{
    churn_in(HARNESS_THREAD);
}

static void churn_processes(void)
{
    world_needs_kills();
    churn_in(HARNESS_PROC);
}

int main(void)
{
    RUN(versions);
    RUN(clients);
    RUN(client_limit_and_epoch_wrap);
    RUN(rows_of_threads);
    RUN(several_actors);
    RUN(limits);
    RUN(removed_client_gets_no_row);
    RUN(forked_child);
    RUN(killed_at_every_step);
    RUN(server_killed);
    RUN(churn_threads);
    RUN(churn_processes);
    return harness_end();
}
