/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners: blocks that were given or are held outlive who allocated them, others do not; every block
 * has one owner and goes with it, to the byte.
 */
#include <pthread.h>

#include "memory/charge.h"
#include "memory/owners.h"
#include "pool_world.h"

enum { CLIENTS = 4, BLOCKS = 300, LARGE = 100000 };

static shmemi_actor_t actor[CLIENTS];
static shmemi_pool_t *view[CLIENTS]; /* each acts as a client of its own */

static void begin(void)
{
    world_make(CLIENTS);
    world_pool(24 << 20, SHMEM_POOL_NEAREST, 0, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        world_actor(&actor[i], i);
        view[i] = world_attach(&actor[i], NULL);
    }
}

static void end(void)
{
    for (int i = 0; i < CLIENTS; i++) {
        shmemi_pool_detach(view[i]);
        shmemi_actor_fini(&actor[i]);
    }
}

/* Client i is dead as far as everybody else can tell; its view is not used any more. */
static void die(int i)
{
    world_bury(i);
    shmemi_heap_drop_all(view[i]);
    CHECK_OK(shmemi_pool_check(view[0]));
}

/* The view of a client that died is gone, too. */
static void forget(int i)
{
    world_client_add(i);
    shmemi_pool_detach(view[i]); /* nothing is its any more */
    shmemi_actor_fini(&actor[i]);
    world_actor(&actor[i], i);
    view[i] = world_attach(&actor[i], NULL);
}

static void check_free(shmemi_pool_t *pool, void *block)
{
    size_t bytes;
    CHECK_STATUS(shmemi_pool_block_bytes(pool, block, &bytes), SHMEM_ERR_DOUBLE_FREE);
}

static bool is_there(shmemi_pool_t *pool, void *block)
{
    size_t bytes;
    return shmemi_pool_block_bytes(pool, block, &bytes) == SHMEM_OK;
}

static void empty(void)
{
    for (int i = 0; i < CLIENTS; i++)
        CHECK_OK(shmemi_pool_trim(view[i]));
    CHECK_OK(shmemi_pool_check(view[0]));
    CHECK_EQ(world_used(view[0]), 0);
}

static const size_t sizes[] = {100, 128, 1000, 4096, 5000, LARGE};

/* For each size: three blocks of client 1, which dies. */
static void what_stays(void)
{
    begin();
    for (size_t k = 0; k < SHMEMI_COUNT(sizes); k++) {
        uint64_t before = world_used(view[0]);
        void *own = world_alloc(view[1], sizes[k]), *given = world_alloc(view[1], sizes[k]),
             *held = world_alloc(view[1], sizes[k]), *both = world_alloc(view[1], sizes[k]);
        CHECK_OK(shmemi_pool_give(view[1], given));
        CHECK_OK(shmemi_pool_give(view[1], given)); /* harmless */
        CHECK_OK(shmemi_pool_hold(view[2], held));
        CHECK_OK(shmemi_pool_give(view[1], both));
        CHECK_OK(shmemi_pool_hold(view[2], both));
        memset(given, 7, sizes[k]);
        die(1);
        CHECK(!is_there(view[0], own));
        CHECK(is_there(view[0], given) && is_there(view[0], held) && is_there(view[0], both));
        die(2);
        CHECK(is_there(view[0], given) && !is_there(view[0], held) && !is_there(view[0], both));
        for (size_t i = 0; i < sizes[k]; i++)
            CHECK(((unsigned char *)given)[i] == 7);
        forget(1);
        forget(2);
        CHECK(is_there(view[0], given));
        CHECK_OK(shmemi_pool_hold(view[0], given));
        CHECK_OK(shmemi_pool_free(view[0], given));
        CHECK_OK(shmemi_pool_trim(view[0]));
        CHECK_EQ(world_used(view[0]), before);
        CHECK_OK(shmemi_pool_check(view[0]));
    }
    empty();
    end();
}

/* Whoever frees the last object of a span of the pool takes the span with it. */
static void the_last_one_closes(void)
{
    begin();
    void *block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = world_alloc(view[1], 500);
        if (i % 3)
            CHECK_OK(shmemi_pool_give(view[1], block[i]));
    }
    die(1);
    CHECK(world_used(view[0]) > 0);
    for (int i = 0; i < BLOCKS; i++) {
        if (i % 3)
            CHECK_OK(shmemi_pool_free(view[2 + i % 2], block[i]));
        else
            check_free(view[2], block[i]);
    }
    CHECK_EQ(world_used(view[0]), 0);
    CHECK_OK(shmemi_pool_check(view[0]));
    forget(1);
    end();
}

/* The span's own thread frees and allocates again what had other owners; nothing sticks. */
static void owners_do_not_stick(void)
{
    begin();
    void *block[BLOCKS];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            block[i] = world_alloc(view[1], 300);
            if (round == 0 || round == 2)
                CHECK_OK(i % 2 ? shmemi_pool_hold(view[2], block[i])
                               : shmemi_pool_give(view[1], block[i]));
        }
        for (int i = 0; i < BLOCKS; i++)
            CHECK_OK(shmemi_pool_free(view[round ? 1 : 3], block[i]));
    }
    for (int i = 0; i < BLOCKS; i++)
        block[i] = world_alloc(view[1], 300);
    die(2);
    die(3);
    for (int i = 0; i < BLOCKS; i++)
        CHECK(is_there(view[1], block[i]));
    die(1);
    CHECK_EQ(world_used(view[0]), 0);
    for (int i = 1; i < CLIENTS; i++)
        forget(i);
    end();
}

static void what_is_refused(void)
{
    begin();
    void *block[2] = {world_alloc(view[1], 300), world_alloc(view[1], LARGE)};
    char outside;
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(shmemi_pool_give(view[1], (char *)block[i] + 128), SHMEM_ERR_INTERIOR_POINTER);
        CHECK_STATUS(shmemi_pool_hold(view[2], (char *)block[i] + 1), SHMEM_ERR_INTERIOR_POINTER);
        CHECK_OK(shmemi_pool_give(view[1], block[i]));
        CHECK_OK(shmemi_pool_free(view[2], block[i]));
        CHECK_STATUS(shmemi_pool_give(view[1], block[i]), SHMEM_ERR_DOUBLE_FREE);
        CHECK_STATUS(shmemi_pool_hold(view[1], block[i]), SHMEM_ERR_DOUBLE_FREE);
        CHECK_STATUS(shmemi_pool_free(view[1], block[i]), SHMEM_ERR_DOUBLE_FREE);
        CHECK_STATUS(shmemi_pool_free(view[2], block[i]), SHMEM_ERR_DOUBLE_FREE);
    }
    CHECK_STATUS(shmemi_pool_give(view[1], &outside), SHMEM_ERR_FOREIGN_POINTER);
    CHECK_STATUS(shmemi_pool_hold(view[1], NULL), SHMEM_ERR_INVALID);
    void *kept = world_alloc(view[1], 300);
    CHECK_OK(shmemi_pool_give(view[1], kept));
    const shmemi_span_t *span =
        view[1]->spans[((char *)kept - (char *)view[1]->data) >> view[1]->chunk_bits].span;
    void *words = view[1]->data + ((uint64_t)(atomic_load(&span->owners) - 1) << 12);
    CHECK(shmemi_pool_free(view[1], words) != SHMEM_OK); /* a page of owners is no block */
    CHECK(shmemi_pool_hold(view[1], words) != SHMEM_OK);
    CHECK_OK(shmemi_pool_check(view[1]));
    CHECK_OK(shmemi_pool_free(view[0], kept));
    empty();
    end();
}

/* Closing gives back what the client owns; what it gave stays. */
static void closing(void)
{
    begin();
    void *given = world_alloc(view[1], 700), *large = world_alloc(view[1], LARGE),
         *other = world_alloc(view[2], 700);
    world_alloc(view[1], 700);
    CHECK_OK(shmemi_pool_give(view[1], given));
    CHECK_OK(shmemi_pool_give(view[1], large));
    CHECK_OK(shmemi_pool_hold(view[1], other));
    shmemi_pool_detach(view[1]);
    CHECK_OK(shmemi_pool_check(view[0]));
    CHECK(is_there(view[0], given) && is_there(view[0], large));
    check_free(view[0], other);
    CHECK_OK(shmemi_pool_free(view[0], given));
    CHECK_OK(shmemi_pool_free(view[0], large));
    view[1] = world_attach(&actor[1], NULL);
    empty();
    end();
}

static shmemi_pool_t *view_of_task(int i, const char *task)
{
    shmemi_pool_t *pool;
    shmemi_pool_source_t source = {.memory = world.memory,
                                   .segment_bytes = world.segment_bytes,
                                   .actor = &actor[i],
                                   .task = task,
                                   .fd = -1};
    CHECK_OK(shmemi_pool_attach(&source, &pool));
    return pool;
}

static uint64_t held_by(const char *task)
{
    shmem_quota_t quota = SHMEM_QUOTA_INIT;
    CHECK_OK(shmemi_pool_quota_get(view[0], task, &quota));
    return quota.held;
}

/* A client with views for two tasks: closing one takes what is charged to that task, or held
 * through it; whole pages are charged to who holds them. */
static void two_tasks(void)
{
    begin();
    shmemi_pool_t *a = view_of_task(1, "a"), *b = view_of_task(1, "b");
    void *small = world_alloc(a, 600), *gone = world_alloc(a, 600), *large = world_alloc(a, LARGE);
    void *own = world_alloc(b, LARGE), *across = world_alloc(b, 600);
    CHECK_OK(shmemi_pool_hold(b, small));
    CHECK_OK(shmemi_pool_hold(a, across));
    uint64_t before = held_by("b");
    CHECK_OK(shmemi_pool_give(a, large));
    CHECK_EQ(held_by("b"), before);
    CHECK_OK(shmemi_pool_hold(b, large));
    uint64_t pages = (LARGE + SHMEMI_PAGE - 1) / SHMEMI_PAGE * SHMEMI_PAGE;
    CHECK_EQ(held_by("b"), before + pages);
    shmemi_pool_detach(a);
    CHECK_OK(shmemi_pool_check(view[0]));
    CHECK(is_there(b, small) && is_there(b, large) && is_there(b, own));
    CHECK(!is_there(b, gone) && !is_there(b, across));
    CHECK(held_by("a") > 0); /* the span of the small block, which is the pool's now */
    CHECK_OK(shmemi_pool_free(b, small));
    CHECK_EQ(held_by("a"), 0);
    CHECK_OK(shmemi_pool_free(view[2], own));
    CHECK_OK(shmemi_pool_trim(view[2]));
    shmemi_pool_detach(b);
    CHECK_EQ(held_by("b"), 0);
    empty();
    end();
}

/* A full pool has no page for owners: the block stays whose it was. */
static void no_room_for_owners(void)
{
    begin();
    void *first = world_alloc(view[1], 300), *last = NULL, *block;
    for (size_t bytes = 8 << 20; bytes >= 4096; bytes /= 2)
        while (shmemi_pool_alloc_default(view[2], bytes, &block) == SHMEM_OK)
            last = block;
    CHECK_STATUS(shmemi_pool_give(view[1], first), SHMEM_ERR_NOMEM);
    CHECK_STATUS(shmemi_pool_hold(view[2], first), SHMEM_ERR_NOMEM);
    CHECK_OK(shmemi_pool_check(view[0]));
    CHECK_OK(shmemi_pool_free(view[2], last));
    CHECK_OK(shmemi_pool_trim(view[2]));
    CHECK_OK(shmemi_pool_give(view[1], first));
    die(1);
    CHECK(is_there(view[0], first));
    CHECK_OK(shmemi_pool_free(view[0], first));
    die(2);
    CHECK_EQ(world_used(view[0]), 0);
    forget(1);
    forget(2);
    end();
}

/* ---- many at once ---- */

enum { TRADERS = 4, TRADES = 4000, BOXES = 16, CLOSES = 250 };

static _Atomic(void *) box[BOXES];

/* Allocate, give, put into a box; take from a box, hold, free; now and then close and open again:
 * spans become the pool's while others free and hold what is in them. */
static void *trader(void *arg)
{
    int self = (int)(intptr_t)arg;
    uint64_t seed = 77 + (uint64_t)self * 1000003;
    for (int i = 0; i < TRADES; i++) {
        if (i % CLOSES == CLOSES - 1) {
            shmemi_pool_detach(view[self]);
            view[self] = world_attach(&actor[self], NULL);
        }
        void *mine = world_alloc(view[self], 100 + world_random(&seed) % 600);
        *(uint64_t *)mine = (uint64_t)(uintptr_t)mine;
        CHECK_OK(shmemi_pool_give(view[self], mine));
        void *other = atomic_exchange(&box[world_random(&seed) % BOXES], mine);
        if (!other)
            continue;
        if (world_random(&seed) % 4)
            CHECK_OK(shmemi_pool_hold(view[self], other));
        CHECK(*(uint64_t *)other == (uint64_t)(uintptr_t)other);
        CHECK_OK(shmemi_pool_free(view[self], other));
    }
    return NULL;
}

static void traders(void)
{
    begin();
    pthread_t thread[TRADERS];
    for (int i = 0; i < TRADERS; i++)
        CHECK(pthread_create(&thread[i], NULL, trader, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < TRADERS; i++)
        pthread_join(thread[i], NULL);
    CHECK_OK(shmemi_pool_check(view[0]));
    for (int i = 1; i < CLIENTS; i++)
        shmemi_pool_detach(view[i]);
    CHECK_OK(shmemi_pool_check(view[0]));
    for (int i = 0; i < BOXES; i++) {
        void *left = atomic_exchange(&box[i], NULL);
        if (left)
            CHECK_OK(shmemi_pool_free(view[0], left));
    }
    for (int i = 1; i < CLIENTS; i++)
        view[i] = world_attach(&actor[i], NULL);
    empty();
    end();
}

/* ---- statistics ---- */

static void statistics(void)
{
    begin();
    shmem_pool_class_info_t info = {.size = sizeof info};
    shmem_pool_client_info_t clients[CLIENTS + 1] = {{.size = sizeof clients[0]}};
    size_t count, index = 0, n = 0;
    void *block[10];
    for (int i = 0; i < 10; i++)
        block[i] = world_alloc(view[1], 256);
    CHECK_OK(shmemi_pool_free(view[1], block[0]));
    CHECK_OK(shmemi_pool_free(view[2], block[1]));
    for (; shmemi_pool_class_info(view[0], index, &info) == SHMEM_OK; index++) {
        CHECK_EQ(info.used, info.block_bytes == 256 ? 8 : 0);
        CHECK(info.blocks >= info.used && info.spans == (info.block_bytes == 256));
        n += info.spans;
    }
    CHECK(index > 10 && n == 1);
    CHECK_STATUS(shmemi_pool_class_info(view[0], 1000, &info), SHMEM_ERR_NOT_FOUND);
    void *large = world_alloc(view[2], LARGE);
    CHECK_OK(shmemi_pool_give(view[2], large));
    CHECK_OK(shmemi_pool_hold(view[2], block[2]));
    CHECK_OK(shmemi_pool_clients(view[0], clients, CLIENTS + 1, &count));
    CHECK_EQ(count, 2); /* client 2 only holds an object of a span of client 1 */
    CHECK_STR(clients[0].name, "test");
    CHECK(clients[0].alive && clients[0].spans == 1 && clients[0].blocks == 0);
    CHECK_STR(clients[1].name, "(pool)");
    CHECK_EQ(clients[1].blocks, 1);
    CHECK_EQ(clients[0].held_bytes + clients[1].held_bytes, world_used(view[0]));
    CHECK_OK(shmemi_pool_clients(view[0], NULL, 0, &count));
    CHECK_EQ(count, 2);
    slots_remove(world.roster, world.client[1].slot, true);
    CHECK_OK(shmemi_pool_clients(view[0], clients, CLIENTS + 1, &count));
    CHECK(count == 2 && !clients[0].alive);
    shmemi_heap_drop_all(view[1]);
    CHECK_OK(shmemi_pool_check(view[0])); /* sweeps */
    CHECK(is_there(view[0], block[2]) && !is_there(view[0], block[3]));
    CHECK_OK(shmemi_pool_free(view[0], large));
    CHECK_OK(shmemi_pool_free(view[0], block[2]));
    forget(1);
    empty();
    end();
}

int main(void)
{
    RUN(what_stays);
    RUN(the_last_one_closes);
    RUN(owners_do_not_stick);
    RUN(what_is_refused);
    RUN(closing);
    RUN(two_tasks);
    RUN(no_room_for_owners);
    RUN(traders);
    RUN(statistics);
    return harness_end();
}
