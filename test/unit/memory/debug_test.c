/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of debug pools that were overwritten, by accident or on purpose: whatever they say,
 * nothing outside of the pool is touched, and no block is lost or handed out twice.
 */
#include <sched.h>
#include <string.h>

#include "memory/debug.h"
#include "memory/trace.h"
#include "pool_world.h"

enum { BLOCKS = 40, ROUNDS = 4000, RACES = 300 };

static shmemi_actor_t actor;

static shmemi_pool_t *debug_pool(uint64_t bytes)
{
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = bytes;
    params.debug = 1;
    world_make(1);
    CHECK_OK(shmemi_pool_segment_bytes(bytes, 1, &world.segment_bytes));
    world.memory = world_memory(world.segment_bytes);
    CHECK_OK(shmemi_pool_format(world.memory, world.segment_bytes, &params, NULL));
    world_actor(&actor, 0);
    shmemi_pool_t *pool = world_attach(&actor, NULL);
    CHECK(shmemi_pool_is_debug(pool));
    return pool;
}

static void *alloc(shmemi_pool_t *pool, size_t bytes)
{
    void *block;
    const shmemi_debug_request_t request = {.bytes = bytes};
    CHECK_OK(shmemi_debug_alloc(pool, &request, NULL, &block));
    return block;
}

static uint64_t used(shmemi_pool_t *pool)
{
    CHECK_OK(shmemi_pool_trim(pool));
    return shmemi_arena_used(&pool->arenas[0].arena);
}

static void close_pool(shmemi_pool_t *pool)
{
    CHECK_OK(shmemi_pool_check(pool));
    shmemi_pool_detach(pool);
    shmemi_actor_fini(&actor);
}

/* Every single word of trace and finder, with every kind of nonsense. */
static void one_word_wrong(void)
{
    static const uint64_t nonsense[] = {0, 1, 8, 4096, UINT64_MAX, 1ull << 63, 0x5d41, 0x5d44};
    shmemi_pool_t *pool = debug_pool(8 << 20);
    for (int i = -2; i < (int)(sizeof(shmemi_trace_t) / 8); i++)
        for (unsigned k = 0; k < sizeof nonsense / sizeof *nonsense; k++) {
            unsigned char *block = alloc(pool, 1000);
            shmemi_traced_t b;
            size_t bytes;
            CHECK(shmemi_trace_find(pool, block, &b));
            uint64_t *word = i < 0 ? (uint64_t *)(void *)block + i
                                   : (uint64_t *)(void *)shmemi_trace_word(&b) + i;
            *word = nonsense[k];
            shmemi_debug_block_bytes(pool, block, &bytes);
            shmem_status_t status = shmemi_debug_free(pool, block, NULL);
            CHECK(status == SHMEM_OK || status == SHMEM_ERR_CORRUPT ||
                  status == SHMEM_ERR_DOUBLE_FREE);
            if (status == SHMEM_ERR_DOUBLE_FREE) { /* it says that it is free */
                CHECK(i == 0);
                CHECK_OK(shmemi_pool_free(pool, b.start));
            }
        }
    CHECK_EQ(used(pool), 0);
    close_pool(pool);
}

/* A check holds the arena's lock: it waits for one trace that is nonsense, not for each. */
static void many_are_nonsense(void)
{
    void *blocks[BLOCKS];
    shmemi_pool_t *pool = debug_pool(8 << 20);
    for (int i = 0; i < BLOCKS; i++) {
        shmemi_traced_t b;
        blocks[i] = alloc(pool, 1000);
        CHECK(shmemi_trace_find(pool, blocks[i], &b));
        if (i < BLOCKS - 1)
            *(uint64_t *)(void *)shmemi_trace_word(&b) = UINT64_MAX;
        else
            ((unsigned char *)blocks[i])[1000] = 1;
    }
    double start = harness_now();
    CHECK_STATUS(shmemi_debug_check(pool), SHMEM_ERR_CORRUPT);
    CHECK(harness_now() - start < 4); /* 0.2 s for each would be twice that */
    CHECK(strstr(shmem_error_detail()->text, "who allocated it is not known"));
    CHECK_EQ(atomic_load(&pool->header->overruns), 1); /* others are looked at all the same */
    for (int i = 0; i < BLOCKS; i++)
        CHECK_STATUS(shmemi_debug_free(pool, blocks[i], NULL), SHMEM_ERR_CORRUPT);
    CHECK_EQ(used(pool), 0);
    close_pool(pool);
}

/* Random bytes over random places around blocks, for long. */
static void random_damage(void)
{
    shmemi_pool_t *pool = debug_pool(8 << 20);
    unsigned char *block[BLOCKS] = {NULL};
    size_t bytes[BLOCKS];
    uint64_t r = 20240607;
    for (int i = 0; i < ROUNDS; i++) {
        r = r * 6364136223846793005ull + 1442695040888963407ull;
        unsigned k = (r >> 33) % BLOCKS;
        if (!block[k]) {
            bytes[k] = 1 + (r >> 40) % (1u << (3 + (r >> 20) % 14));
            block[k] = alloc(pool, bytes[k]);
            shmemi_traced_t b;
            CHECK(shmemi_trace_find(pool, block[k], &b));
            if (r >> 62 == 1) /* somewhere in the block, but its trace's state */
                b.start[(r >> 7) % (b.bytes - sizeof b.trace)] ^= (unsigned char)(r >> 50);
            if (r >> 62 == 2)
                b.start[b.bytes - 1 - (r >> 7) % (sizeof b.trace - 8)] ^= (unsigned char)(r >> 50);
            continue;
        }
        shmem_status_t status = shmemi_debug_free(pool, block[k], NULL);
        CHECK(status == SHMEM_OK || status == SHMEM_ERR_CORRUPT);
        block[k] = NULL;
    }
    for (unsigned k = 0; k < BLOCKS; k++)
        shmemi_debug_free(pool, block[k], NULL);
    CHECK_EQ(used(pool), 0);
    close_pool(pool);
}

/* Two who free one block: exactly one succeeds. */
typedef struct race {
    shmemi_pool_t *pool;
    void *block;
    _Atomic int step, freed;
} race_t;

static void *racer(void *arg)
{
    race_t *race = arg;
    for (int i = 1; i <= RACES; i++) {
        while (atomic_load(&race->step) < i)
            sched_yield();
        shmem_status_t status = shmemi_debug_free(race->pool, race->block, NULL);
        CHECK(status == SHMEM_OK || status == SHMEM_ERR_DOUBLE_FREE);
        atomic_fetch_add(&race->freed, status == SHMEM_OK ? 1001 : 1000);
    }
    return NULL;
}

static void two_free_one(void)
{
    static race_t race;
    pthread_t thread;
    race.pool = debug_pool(8 << 20);
    CHECK(!pthread_create(&thread, NULL, racer, &race));
    for (int i = 1; i <= RACES; i++) {
        race.block = alloc(race.pool, 1000);
        atomic_store(&race.freed, 0);
        atomic_store(&race.step, i);
        shmem_status_t status = shmemi_debug_free(race.pool, race.block, NULL);
        CHECK(status == SHMEM_OK || status == SHMEM_ERR_DOUBLE_FREE);
        while (!atomic_load(&race.freed))
            sched_yield();
        CHECK_EQ(atomic_load(&race.freed) + (status == SHMEM_OK), 1001);
    }
    pthread_join(thread, NULL);
    CHECK_EQ(used(race.pool), 0);
    close_pool(race.pool);
}

int main(void)
{
    RUN(one_word_wrong);
    RUN(many_are_nonsense);
    RUN(random_damage);
    RUN(two_free_one);
    return harness_end();
}
