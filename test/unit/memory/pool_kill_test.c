/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client is killed at every fault point of the layer. Afterwards the server's repair runs, the
 * walker finds nothing, and what is in use is what the living hold, to the byte.
 */
#include <pthread.h>

#include "pool_world.h"

enum {
    SMALL = 24, /* blocks of the parent that the victim may free */
    LARGE = 6,
    HELD = 40, /* blocks of the parent that stay */
    MOST = 8   /* passages of a point at which a victim is killed */
};

typedef struct shared {
    void *small[SMALL], *large[LARGE];
    unsigned passages;
} shared_t;

static shared_t *shared;
static shmemi_actor_t actor;
static shmemi_pool_t *pool;
static void *held[HELD];
static size_t held_bytes[HELD];

static const char *const points[] = {
    "memory.arena.unlock",      "memory.buddy.inserted",  "memory.buddy.merged",
    "memory.buddy.removed",     "memory.buddy.split",     "memory.buddy.trimmed",
    "memory.heap.leaving",      "memory.journal.changed", "memory.journal.commit",
    "memory.journal.committed", "memory.journal.noted",   "memory.large.claimed",
    "memory.large.flush",       "memory.large.reused",    "memory.large.resized",
    "memory.large.taken",       "memory.pool.moved",      "memory.recover.block",
    "memory.recover.claimed",   "memory.slab.adopted",    "memory.slab.freed",
    "memory.slab.orphaned",     "memory.slab.refilled",   "memory.slab.retire",
    "memory.slab.taken",        "memory.span.collecting", "memory.span.disowned",
    "memory.span.filled",       "memory.span.freed",      "memory.span.freeing",
    "memory.span.marked",       "memory.span.unmarked",
};

/* ---- the victim's work ---- */

static shmemi_pool_t *victims_pool;

static void *short_lived(void *arg)
{
    void *block[30];
    for (int i = 0; i < 30; i++)
        block[i] = world_alloc(victims_pool, (size_t)(i + 1) * 300);
    for (int i = 0; i < 30; i += 2)
        CHECK_OK(shmemi_pool_free(victims_pool, block[i]));
    world_alloc(victims_pool, 200000);
    CHECK_OK(shmemi_pool_free(victims_pool, world_alloc(victims_pool, 100000)));
    return arg;
}

static void work_small(shmemi_pool_t *p)
{
    void *block[200];
    for (int i = 0; i < 200; i++)
        block[i] = world_alloc(p, (size_t)(i % 20 + 1) * 900);
    for (int i = 0; i < 200; i++)
        if (i % 5)
            CHECK_OK(shmemi_pool_free(p, block[(i * 7) % 200]));
}

static void work_large(shmemi_pool_t *p)
{
    void *block[12];
    for (int i = 0; i < 12; i++)
        block[i] = world_alloc(p, 33000 + (size_t)i * i * 9000);
    CHECK_OK(shmemi_pool_resize(p, &block[11], 400000));
    CHECK_OK(shmemi_pool_resize(p, &block[10], 41000));
    CHECK_OK(shmemi_pool_resize(p, &block[9], 1000));
    CHECK_OK(shmemi_pool_resize(p, &block[8], 1500000));
    for (int i = 0; i < 12; i++)
        CHECK_OK(shmemi_pool_free(p, block[i]));
    for (int i = 0; i < 4; i++)
        CHECK_OK(shmemi_pool_free(p, world_alloc(p, 50000)));
    CHECK_OK(shmemi_pool_free(p, world_alloc(p, 3 << 20)));
}

static void *free_for_another(void *arg)
{
    void **block = arg;
    for (int i = 0; i < 100; i++)
        CHECK_OK(shmemi_pool_free(victims_pool, block[i]));
    return NULL;
}

static void work_with_a_thread(shmemi_pool_t *p)
{
    void *block[100];
    pthread_t thread;
    for (int i = 0; i < 100; i++)
        block[i] = world_alloc(p, 2000);
    CHECK(pthread_create(&thread, NULL, free_for_another, block) == 0);
    pthread_join(thread, NULL);
    for (int i = 0; i < 100; i++)
        world_alloc(p, 2000);
}

static void work_until_full(shmemi_pool_t *p)
{
    void *block;
    for (size_t n = 4 << 20; n >= 1 << 18; n /= 2)
        while (shmemi_pool_alloc_default(p, n, &block) == SHMEM_OK)
            ;
}

static void work(shmemi_actor_t *self)
{
    pthread_t thread;
    shmemi_pool_t *p = world_attach(self, NULL);
    victims_pool = p;
    work_small(p);
    work_large(p);
    for (int i = 0; i < SMALL; i++)
        CHECK_OK(shmemi_pool_free(p, shared->small[i]));
    for (int i = 0; i < LARGE; i++)
        CHECK_OK(shmemi_pool_free(p, shared->large[i]));
    CHECK(pthread_create(&thread, NULL, short_lived, NULL) == 0);
    pthread_join(thread, NULL);
    work_with_a_thread(p);
    work_small(p); /* adopts what the thread left */
    CHECK_OK(shmemi_pool_trim(p));
    work_until_full(p); /* and sweeps what other dead clients left */
    shared->passages = shmemi_fault_passages();
    shmemi_pool_detach(p);
}

typedef struct order {
    const char *point;
    unsigned n;
    int client;
} order_t;

static void victim(void *arg)
{
    const order_t *order = arg;
    shmemi_actor_t self;
    world_actor(&self, order->client);
    shmemi_fault_arm(order->point, SHMEMI_FAULT_KILL, order->n);
    work(&self);
}

/* Leaves blocks behind and ends without a word. */
static void leaver(void *arg)
{
    shmemi_actor_t self;
    world_actor(&self, *(int *)arg);
    shmemi_pool_t *p = world_attach(&self, NULL);
    for (int i = 0; i < 30; i++)
        world_alloc(p, (size_t)(i + 1) * 3000);
    _exit(0);
}

/* ---- the world around it ---- */

static void blocks_make(void)
{
    for (int i = 0; i < SMALL; i++)
        shared->small[i] = world_alloc(pool, (size_t)(i + 1) * 700);
    for (int i = 0; i < LARGE; i++)
        shared->large[i] = world_alloc(pool, 40000 + (size_t)i * 30000);
    for (int i = 0; i < HELD; i++) {
        held_bytes[i] = (size_t)(i * i + 1) * 100;
        held[i] = world_alloc(pool, held_bytes[i]);
        memset(held[i], i + 1, held_bytes[i]);
    }
}

/* The parent's own blocks are whole; those that the victim could free are free or not, once. */
static void blocks_end(void)
{
    for (int i = 0; i < HELD; i++) {
        const unsigned char *p = held[i];
        for (size_t k = 0; k < held_bytes[i]; k++)
            CHECK(p[k] == i + 1);
        CHECK_OK(shmemi_pool_free(pool, held[i]));
    }
    for (int i = 0; i < SMALL + LARGE; i++) {
        void *block = i < SMALL ? shared->small[i] : shared->large[i - SMALL];
        shmem_status_t status = shmemi_pool_free(pool, block);
        CHECK(status == SHMEM_OK || status == SHMEM_ERR_DOUBLE_FREE);
        CHECK_STATUS(shmemi_pool_free(pool, block), SHMEM_ERR_DOUBLE_FREE);
    }
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_OK(shmemi_pool_check(pool));
    CHECK_EQ(world_used(pool), 0);
}

/* A client that died while no server ran: gone from the roster, its blocks still there. */
static void leave_behind(int client)
{
    CHECK_EQ(harness_wait(harness_fork(leaver, &client), 20), 0);
    slots_remove(world.roster, world.client[client].slot, true);
    world_client_add(client);
}

/* One victim; true if it was killed, false if it passed the point less than n times. */
static bool kill_at(const char *point, unsigned n, bool sweep)
{
    order_t order = {point, n, 1};
    if (sweep)
        leave_behind(2);
    int end = harness_wait(harness_fork(victim, &order), 30);
    CHECK(end == 0 || end == -SIGKILL);
    world_bury(1);
    world_client_add(1);
    CHECK_OK(shmemi_pool_check(pool));
    return end != 0;
}

static void begin(void)
{
    world_make(4);
    world_pool(24 << 20, SHMEM_POOL_NEAREST, 0, NULL);
    world_actor(&actor, 0);
    pool = world_attach(&actor, NULL);
    shared = harness_shared(sizeof *shared);
}

static void end(void)
{
    shmemi_pool_detach(pool);
    shmemi_actor_fini(&actor);
}

/* Which passages of a point: the first ones, then with growing steps. */
static void every_point(void)
{
    world_needs_kills();
    begin();
    for (size_t i = 0; i < SHMEMI_COUNT(points); i++) {
        bool killed = true;
        unsigned kills = 0;
        for (unsigned n = 1; killed && kills < MOST; n += 1 + n / 3, kills += killed) {
            blocks_make();
            killed = kill_at(points[i], n, strncmp(points[i], "memory.recover", 14) == 0);
            blocks_end();
        }
        if (!kills)
            harness_fail(__FILE__, __LINE__, "nobody passed %s", points[i]);
    }
    end();
}

/* Any point of any layer below, at pseudo-random passages. */
static void any_passage(void)
{
    world_needs_kills();
    begin();
    uint64_t seed = 20240229;
    blocks_make();
    CHECK(!kill_at("*", 100000000, false));
    blocks_end();
    unsigned most = shared->passages;
    CHECK(most > 1000);
    for (int i = 0; i < 100 * POOL_SOAK; i++) {
        blocks_make();
        kill_at("*", 1 + (unsigned)(world_random(&seed) % most), i % 4 == 0);
        blocks_end();
    }
    end();
}

static void in_rescue(void *arg)
{
    shmemi_actor_t self;
    world_actor(&self, 3);
    shmemi_fault_arm("memory.journal.undone", SHMEMI_FAULT_KILL, *(unsigned *)arg);
    shmemi_pool_t *p = world_attach(&self, NULL);
    world_alloc(p, 5 << 20);
}

/* The rescuer is killed while it undoes what the first victim left. */
static void the_rescuer_dies_as_well(void)
{
    world_needs_kills();
    begin();
    for (unsigned n = 3; n < 40; n += 3) {
        order_t order = {"memory.journal.changed", n, 1};
        blocks_make();
        CHECK_EQ(harness_wait(harness_fork(victim, &order), 30), -SIGKILL);
        slots_remove(world.roster, world.client[1].slot, true);
        unsigned at = 1 + n % 3;
        int rescue = harness_wait(harness_fork(in_rescue, &at), 30);
        CHECK(rescue == 0 || rescue == -SIGKILL);
        world_bury(3);
        CHECK_OK(shmemi_pool_check(pool)); /* sweeps the first victim's blocks */
        world_client_add(1);
        world_client_add(3);
        blocks_end();
    }
    end();
}

/* A creator that dies half way leaves nothing that could be opened. */
static void creator(void *arg)
{
    shmemi_fault_arm(arg, SHMEMI_FAULT_KILL, 1);
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = 1 << 20;
    shmemi_pool_format(world.memory, world.segment_bytes, &params, NULL);
}

static void half_made_pools(void)
{
    world_needs_kills();
    static const char *const steps[] = {"memory.pool.header", "memory.journal.changed",
                                        "memory.pool.formatted"};
    for (size_t i = 0; i < SHMEMI_COUNT(steps); i++) {
        world_make(2);
        world_actor(&actor, 0);
        CHECK_OK(shmemi_pool_segment_bytes(1 << 20, 1, &world.segment_bytes));
        world.memory = world_memory(world.segment_bytes);
        CHECK_EQ(harness_wait(harness_fork(creator, (void *)(uintptr_t)steps[i]), 10), -SIGKILL);
        CHECK(!shmemi_pool_is_ready(world.memory));
        shmemi_pool_t *none;
        CHECK_STATUS(world_view(world.memory, world.segment_bytes, &actor, NULL, &none),
                     SHMEM_ERR_CORRUPT);
        shmemi_actor_fini(&actor);
    }
}

int main(void)
{
    RUN(every_point);
    RUN(any_passage);
    RUN(the_rescuer_dies_as_well);
    RUN(half_made_pools);
    return harness_end();
}
