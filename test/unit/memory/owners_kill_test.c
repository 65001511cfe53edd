/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client is killed at every fault point while it gives, holds and frees. It writes down what it
 * is about to do and what it did: afterwards what it gave is there, what it held or allocated is
 * gone, and of the one block that it was busy with either may be true; the walker finds nothing,
 * and in the end nothing is in use.
 */
#include "memory/charge.h"
#include "memory/owners.h"
#include "pool_world.h"

enum { MAKER = 0, VICTIM = 1, LEAVER = 2, KEEPER = 3, CLIENTS = 4, BLOCKS = 96, MOST = 6 };

/* Whose a block is; UNSURE: the victim is just changing that. */
enum { NOBODY, POOLS, MAKERS, KEEPERS, VICTIMS, UNSURE };

typedef struct shared {
    struct {
        void *p;
        _Atomic int whose;
    } block[BLOCKS];
    unsigned passages;
} shared_t;

static shared_t *shared;
static shmemi_actor_t actor[CLIENTS];
static shmemi_pool_t *maker, *keeper;

static const char *const points[] = {
    "memory.owners.filled",    "memory.owners.changed",  "memory.owners.dropped",
    "memory.owners.cleared",   "memory.owners.going",    "memory.journal.after",
    "memory.journal.stored",   "memory.give.words",      "memory.large.changed",
    "memory.span.left",        "memory.span.freeing",    "memory.span.freed",
    "memory.span.collecting",  "memory.span.unmarked",   "memory.recover.object",
    "memory.recover.kept",     "memory.recover.claimed", "memory.recover.block",
    "memory.journal.noted",    "memory.journal.changed", "memory.journal.commit",
    "memory.journal.committed"};

static size_t size_of(int i)
{
    return i % 8 == 7 ? 40000 : (size_t)(i % 3 + 1) * 400;
}

static void settle(int i, int whose)
{
    atomic_store(&shared->block[i].whose, whose);
}

/* The first blocks are the maker's, then those of a client that died after it gave every second
 * one. The keeper holds some of both. */
static void leaver(void *arg)
{
    (void)arg;
    shmemi_actor_t self;
    world_actor(&self, LEAVER);
    shmemi_pool_t *p = world_attach(&self, NULL);
    for (int i = BLOCKS / 3; i < 2 * BLOCKS / 3; i++) {
        shared->block[i].p = world_alloc(p, size_of(i));
        if (i % 2)
            CHECK_OK(shmemi_pool_give(p, shared->block[i].p));
        settle(i, i % 2 ? POOLS : NOBODY);
    }
    _exit(0);
}

static void prepare(bool bury)
{
    memset(shared, 0, sizeof *shared);
    for (int i = 0; i < BLOCKS / 3; i++) {
        shared->block[i].p = world_alloc(maker, size_of(i));
        settle(i, MAKERS);
    }
    CHECK_EQ(harness_wait(harness_fork(leaver, NULL), 20), 0);
    for (int i = 0; i < 2 * BLOCKS / 3; i++)
        if (i % 5 == 1 && shared->block[i].whose != NOBODY) {
            CHECK_OK(shmemi_pool_hold(keeper, shared->block[i].p));
            settle(i, KEEPERS);
        }
    if (bury)
        world_bury(LEAVER);
    else /* the victim looks for what the dead left */
        slots_remove(world.roster, world.client[LEAVER].slot, true);
    world_client_add(LEAVER);
}

/* ---- the victim ---- */

/* Two views of one client: what one frees in the spans of the other goes the strangers' way. */
static shmemi_pool_t *victims[2];

static void change(int i, int to)
{
    shmemi_pool_t *p = victims[i % 5 < 2];
    settle(i, UNSURE);
    if (to == POOLS)
        CHECK_OK(shmemi_pool_give(p, shared->block[i].p));
    else if (to == VICTIMS)
        CHECK_OK(shmemi_pool_hold(p, shared->block[i].p));
    else
        CHECK_OK(shmemi_pool_free(p, shared->block[i].p));
    settle(i, to);
}

static void victim(void *arg)
{
    const char *point = ((const char **)arg)[0];
    unsigned n = (unsigned)(uintptr_t)((const char **)arg)[1];
    shmemi_actor_t self;
    world_actor(&self, VICTIM);
    shmemi_pool_t *p = victims[0] = world_attach(&self, NULL);
    victims[1] = world_attach(&self, NULL);
    shmemi_fault_arm(point, SHMEMI_FAULT_KILL, n);
    shmemi_recover_sweep(p, true);
    for (int i = 2 * BLOCKS / 3; i < BLOCKS; i++) {
        shared->block[i].p = world_alloc(p, size_of(i));
        settle(i, VICTIMS);
    }
    for (int i = 0; i < BLOCKS; i++) {
        int whose = shared->block[i].whose;
        if (whose == NOBODY)
            continue;
        if (i % 4 < 2)
            change(i, POOLS);
        if (i % 7 < 3)
            change(i, VICTIMS);
        if (i % 6 < 4)
            change(i, NOBODY);
    }
    CHECK_OK(shmemi_pool_trim(p));
    for (int i = BLOCKS - 1; i >= BLOCKS / 3; i--)
        if (shared->block[i].whose != NOBODY && i % 3)
            change(i, NOBODY);
    CHECK_OK(shmemi_pool_trim(p));
    shared->passages = shmemi_fault_passages();
    shmemi_pool_detach(victims[1]);
    shmemi_pool_detach(p);
}

/* ---- afterwards ---- */

static void verify(void)
{
    size_t bytes;
    for (int i = 0; i < BLOCKS; i++) {
        void *p = shared->block[i].p;
        int whose = shared->block[i].whose;
        if (!p)
            continue;
        shmem_status_t status = shmemi_pool_block_bytes(maker, p, &bytes);
        bool there = status == SHMEM_OK;
        if (whose == NOBODY || whose == VICTIMS ? there : whose != UNSURE && !there)
            harness_fail(__FILE__, __LINE__, "block %d, owner %d: %s", i, whose,
                         there ? "there" : "gone");
        if (there)
            CHECK_OK(shmemi_pool_free(i % 2 ? maker : keeper, p));
    }
    CHECK_OK(shmemi_pool_trim(maker));
    CHECK_OK(shmemi_pool_trim(keeper));
    CHECK_OK(shmemi_pool_check(maker));
    CHECK_EQ(world_used(maker), 0);
}

static bool kill_at(const char *point, unsigned n, bool bury)
{
    const void *order[2] = {point, (void *)(uintptr_t)n};
    prepare(bury);
    int end = harness_wait(harness_fork(victim, order), 30);
    CHECK(end == 0 || end == -SIGKILL);
    world_bury(VICTIM);
    world_client_add(VICTIM);
    CHECK_OK(shmemi_pool_check(maker));
    verify();
    return end != 0;
}

static void begin(void)
{
    world_needs_kills();
    world_make(CLIENTS);
    world_pool(8 << 20, SHMEM_POOL_NEAREST, 0, NULL);
    shared = harness_shared(sizeof *shared);
    world_actor(&actor[MAKER], MAKER);
    world_actor(&actor[KEEPER], KEEPER);
    maker = world_attach(&actor[MAKER], NULL);
    keeper = world_attach(&actor[KEEPER], NULL);
}

static void end(void)
{
    shmemi_pool_detach(maker);
    shmemi_pool_detach(keeper);
    shmemi_actor_fini(&actor[MAKER]);
    shmemi_actor_fini(&actor[KEEPER]);
}

static void every_point(void)
{
    begin();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        bool killed = true;
        unsigned kills = 0;
        for (unsigned n = 1; killed && kills < MOST; n += 1 + n / 3, kills += killed)
            killed = kill_at(points[i], n, kills % 2);
        if (!kills)
            harness_fail(__FILE__, __LINE__, "nobody passed %s", points[i]);
    }
    end();
}

static void any_passage(void)
{
    begin();
    uint64_t seed = 4711;
    CHECK(!kill_at("memory.*", 100000000, false));
    unsigned most = shared->passages;
    CHECK(most > 500);
    for (int i = 0; i < 150 * POOL_SOAK; i++)
        kill_at("memory.*", 1 + (unsigned)(world_random(&seed) % most), i % 2);
    end();
}

/* A client that has one span and is killed while this gets its page of owners. */
static void first_gift(void *arg)
{
    shmemi_actor_t self;
    world_actor(&self, VICTIM);
    shmemi_pool_t *p = world_attach(&self, NULL);
    shared->block[0].p = world_alloc(p, 500);
    shmemi_fault_arm(arg, SHMEMI_FAULT_KILL, 1);
    shmemi_pool_give(p, shared->block[0].p);
}

static void the_first_gift(void)
{
    static const char *const steps[] = {"memory.owners.filled",     "memory.journal.commit",
                                        "memory.journal.committed", "memory.journal.after",
                                        "memory.journal.stored",    "memory.arena.unlock",
                                        "memory.give.words",        "memory.owners.changed"};
    begin();
    for (size_t i = 0; i < SHMEMI_COUNT(steps); i++) {
        size_t bytes;
        int end = harness_wait(harness_fork(first_gift, (void *)(uintptr_t)steps[i]), 20);
        CHECK_EQ(end, -SIGKILL);
        world_bury(VICTIM);
        world_client_add(VICTIM);
        CHECK_OK(shmemi_pool_check(maker));
        bool there = shmemi_pool_block_bytes(maker, shared->block[0].p, &bytes) == SHMEM_OK;
        CHECK_EQ(there, i == SHMEMI_COUNT(steps) - 1);
        if (there)
            CHECK_OK(shmemi_pool_free(maker, shared->block[0].p));
        CHECK_EQ(world_used(maker), 0);
    }
    end();
}

int main(void)
{
    RUN(the_first_gift);
    RUN(every_point);
    RUN(any_passage);
    return harness_end();
}
