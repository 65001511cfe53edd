/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What others do at the very instant at which a client changes the owner of a block. Who owns a
 * span dies while another client holds, gives or frees one of its objects: the span is gone, its
 * page of owners is somebody else's data by now, and stays what it is.
 */
#include "memory/owners.h"
#include "memory/quota.h"
#include "pool_world.h"

enum { CALLER = 0, VICTIM = 1, THIRD = 2, CLIENTS = 3 };

static shmemi_actor_t actor[CLIENTS];
static shmemi_pool_t *view[CLIENTS];
static uint64_t *words; /* of the victim's span */
static uint64_t pattern;
static bool reused;

static void begin(void)
{
    world_make(CLIENTS);
    world_pool((8 << 20) - 4096, SHMEM_POOL_NEAREST, 0, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        world_actor(&actor[i], i);
        view[i] = world_attach(&actor[i], NULL);
    }
}

static void end(void)
{
    shmemi_fault_disarm();
    CHECK_OK(shmemi_pool_check(view[CALLER]));
    world_client_add(VICTIM);
    for (int i = 0; i < CLIENTS; i++)
        shmemi_pool_detach(view[i]);
    for (int i = 0; i < CLIENTS; i++)
        shmemi_actor_fini(&actor[i]);
}

/* The third client fills everything with its pattern. */
static void die(void)
{
    void *block;
    world_bury(VICTIM);
    while (!shmemi_pool_alloc_default(view[THIRD], 256, &block))
        for (int i = 0; i < 256 / 8; i++)
            ((uint64_t *)block)[i] = pattern;
    reused = words[0] == pattern;
}

/* An object in a span that has words. */
static void *object_of_the_victim(void)
{
    shmemi_place_t place;
    _Atomic uint64_t *found;
    void *object = world_alloc(view[VICTIM], 128), *other = world_alloc(view[VICTIM], 128);
    CHECK_OK(shmemi_pool_give(view[VICTIM], other));
    CHECK_OK(shmemi_pool_free(view[CALLER], other));
    CHECK_OK(shmemi_place_of(view[CALLER], object, &place));
    const shmemi_arena_t *arena = &view[CALLER]->arenas[0].arena;
    CHECK_OK(shmemi_owners_find(arena, &arena->span[place.chunk], &found));
    words = (uint64_t *)(void *)found;
    return object;
}

static void third_party(shmem_status_t (*call)(shmemi_pool_t *pool, void *block))
{
    static const uint64_t patterns[] = {0, 0x1111111111111111, SHMEMI_OWNER_POOL};
    for (size_t i = 0; i < SHMEMI_COUNT(patterns) + 1; i++) {
        begin();
        void *object = object_of_the_victim();
        pattern = i < SHMEMI_COUNT(patterns) ? patterns[i] : view[CALLER]->owner;
        shmemi_fault_arm_call("memory.owners.found", die, 1);
        CHECK_STATUS(call(view[CALLER], object), SHMEM_ERR_DOUBLE_FREE);
        CHECK_EQ(shmemi_fault_passages(), 1);
        CHECK(reused);
        for (int k = 0; k < 4096 / 8; k++)
            CHECK_EQ(words[k], pattern);
        end();
    }
}

static void holding(void)
{
    third_party(shmemi_pool_hold);
}

static void giving(void)
{
    third_party(shmemi_pool_give);
}

static void freeing(void)
{
    third_party(shmemi_pool_free);
}

/* What was given stays, whenever its maker dies. */
static void what_was_given(void)
{
    begin();
    void *object = object_of_the_victim();
    CHECK_OK(shmemi_pool_give(view[VICTIM], object));
    memset(object, 0x5a, 128);
    pattern = 7;
    shmemi_fault_arm_call("memory.owners.found", die, 1);
    CHECK_OK(shmemi_pool_hold(view[CALLER], object));
    CHECK(!reused && words[0] == (view[CALLER]->owner | view[CALLER]->task));
    for (int i = 0; i < 128; i++)
        CHECK_EQ(((unsigned char *)object)[i], 0x5a);
    CHECK_OK(shmemi_pool_free(view[CALLER], object));
    end();
}

/* ---- whole pages ---- */

enum { MIB = 1 << 20 };

/* The server's first attempt finds the arena locked. */
static void die_while_locked(void)
{
    shmemi_actor_t server;
    shmemi_repair_t repair = {0};
    world_remove(VICTIM);
    shmemi_actor_init(&server, world.roster, 0, atomic_load(&world.roster->clients[0].epoch),
                      50000);
    CHECK_STATUS(shmemi_pool_reclaim(world.memory, world.segment_bytes, &server,
                                     world.client[VICTIM].slot, world.client[VICTIM].epoch, 0,
                                     &repair),
                 SHMEM_ERR_TIMEOUT);
    shmemi_actor_fini(&server);
    CHECK_EQ(repair.blocks, 0);
}

static void die_and_be_buried(void)
{
    CHECK_EQ(world_bury(VICTIM), 0);
}

/* A block that one client resizes while its owner dies belongs to the one, or goes with the other.
 * It is charged to the owner's task: so the owner keeps it. */
static void resizing(void)
{
    for (int late = 0; late < 2; late++) {
        begin();
        shmemi_pool_t *p = world_attach_as(&actor[VICTIM], NULL, "x");
        void *block = world_alloc(p, 2 * MIB), *resized = block;
        if (late)
            shmemi_fault_arm_call("memory.large.settling", die_while_locked, 1);
        else
            shmemi_fault_arm_call("memory.large.claimed", die_and_be_buried, 1);
        CHECK_OK(shmemi_pool_resize(view[CALLER], &resized, MIB));
        CHECK_EQ(shmemi_fault_passages(), 1);
        CHECK(resized == block);
        CHECK_EQ(world_used(view[CALLER]), MIB);
        if (late)
            CHECK_EQ(world_bury(VICTIM), 1);
        else
            CHECK_OK(shmemi_pool_free(view[CALLER], block));
        CHECK_EQ(world_used(view[CALLER]), 0);
        shmemi_pool_detach(p); /* nothing is the dead one's any more */
        end();
    }
}

static void *large;

static void resize(void)
{
    void *block = large;
    CHECK_OK(shmemi_pool_resize(view[VICTIM], &block, 4 * MIB));
    CHECK(block == large);
}

/* Its owner makes it larger while somebody with a quota is going to hold it. */
static void holding_what_grows(void)
{
    begin();
    shmem_quota_t quota = SHMEM_QUOTA_INIT;
    quota.limit = 3 * MIB;
    shmemi_pool_t *p = world_attach_as(&actor[CALLER], NULL, "t");
    CHECK_OK(shmemi_pool_quota_set(p, "t", &quota));
    large = world_alloc(view[VICTIM], 2 * MIB);
    shmemi_fault_arm_call("memory.large.holding", resize, 1);
    CHECK_STATUS(shmemi_pool_hold(p, large), SHMEM_ERR_QUOTA);
    CHECK_EQ(shmemi_fault_passages(), 2);
    CHECK_OK(shmemi_pool_quota_get(p, "t", &quota));
    CHECK_EQ(quota.held, 0);
    CHECK_OK(shmemi_pool_check(p));
    CHECK_EQ(world_bury(VICTIM), 1);
    shmemi_pool_detach(p);
    end();
}

int main(void)
{
    RUN(holding);
    RUN(giving);
    RUN(freeing);
    RUN(what_was_given);
    RUN(resizing);
    RUN(holding_what_grows);
    return harness_end();
}
