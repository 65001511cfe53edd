/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that writes anything anywhere into a pool's bookkeeping: the server's repair, the
 * walker, and the calls of other clients return (an error or not); they never crash, hang, or touch
 * memory outside of the segment, which has guard pages on both sides here.
 */
#include <pthread.h>

#include "pool_world.h"

enum { ROUNDS = 300 * POOL_SOAK };

static shmemi_actor_t actor;
static unsigned char *segment;
static uint64_t segment_bytes;

static void guarded_pool(uint64_t bytes)
{
    world_make(8);
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = bytes - bytes / 32; /* growing costs time */
    params.limit = bytes;
    CHECK_OK(shmemi_pool_segment_bytes(bytes, 1, &segment_bytes));
    shmemi_segment_params_t file = {"hostile", segment_bytes, SHMEMI_HUGE_OFF, 0};
    uint64_t size, page;
    CHECK_OK(shmemi_segment_create(&file, &world.fd, &size, &page));
    uint64_t unit = SHMEMI_DATA_ALIGN;
    unsigned char *range = mmap(NULL, segment_bytes + 4 * unit, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(range != MAP_FAILED);
    segment = range + unit + (unit - (uintptr_t)range % unit) % unit;
    CHECK(mmap(segment, segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, world.fd,
               0) == segment);
    world.memory = segment;
    world.segment_bytes = segment_bytes;
    CHECK_OK(shmemi_pool_format(segment, segment_bytes, &params, NULL));
}

static uint64_t strange_value(uint64_t *seed, uint64_t old)
{
    uint64_t r = world_random(seed);
    switch (r % 9) {
    case 0:
        return 0;
    case 1:
        return ~0ull;
    case 2:
        return old ^ 1ull << (r >> 8) % 64;
    case 3:
        return old + 1;
    case 4:
        return (r >> 8) % 5000;
    case 5:
        return ((r >> 8) % 5000) << 32 | (r >> 40) % 5000;
    case 6:
        return (old & ~15ull) | (r >> 8) % 8;
    case 7:
        return shmemi_word_free((unsigned)(r >> 8) % 64);
    default:
        return world_random(seed);
    }
}

/* Where the first page of owners lies in the segment, if there is one. */
static uint64_t owners_page(const shmemi_pool_t *p)
{
    const shmemi_arena_t *a = &p->arenas[0].arena;
    for (uint32_t page = 0; page < a->pages; page++)
        if (shmemi_word_kind(shmemi_arena_get(&a->page[page].word)) == SHMEMI_PAGE_OWNERS)
            return p->layout.data + ((uint64_t)page << SHMEMI_PAGE_SHIFT);
    return p->layout.data;
}

/* Where a round writes: the bookkeeping that is in use. The lock's word is left alone: who writes a
 * living holder there has locked the pool. */
static uint64_t strange_place(const shmemi_pool_t *p, uint64_t *seed)
{
    const shmemi_layout_t *l = &p->layout;
    uint64_t r = world_random(seed), base = l->arenas;
    switch (r % 10) {
    case 8:
    case 9: /* a task, but not its lock */
        return l->tasks + (r >> 8 & 1) * sizeof(shmemi_task_t) + 64 +
               (r >> 9) % (sizeof(shmemi_task_t) / 8 - 8) * 8;
    case 0:
        return (r >> 8) % 8 * 8; /* header */
    case 5:
        return base + l->charges + (r >> 8) % 8 * 8;
    case 6:
        return owners_page(p) + (r >> 8) % 512 * 8;
    case 1:
        return base + 64 + (r >> 8) % 72 * 8; /* journal counters, state */
    case 2:
        return base + 640 + (r >> 8) % 60 * 8; /* journal */
    case 3:
        return base + l->map + (r >> 8) % ((l->chunks + 7) / 8) * 8;
    case 4:
        return base + l->spans + (r >> 8) % (16ull * (l->chunks < 64 ? l->chunks : 64)) * 8;
    default:
        return base + l->pages +
               (r >> 8) % (2ull * (l->arena_pages < 600 ? l->arena_pages : 600)) * 8;
    }
}

/* Quotas, tasks, growth and what is told of them. */
static void more_calls(shmemi_pool_t *p, uint64_t r)
{
    shmem_quota_t quota = SHMEM_QUOTA_INIT;
    char name[SHMEM_TASK_NAME];
    void *block;
    uint64_t offset = 0, length = 0;
    for (size_t i = 0; i < 4 && !shmemi_pool_task(p, i, name); i++)
        shmemi_pool_quota_get(p, name, &quota);
    quota.limit = r & 1 ? segment_bytes / 2 : UINT64_MAX;
    shmemi_pool_quota_set(p, r & 2 ? "one" : NULL, &quota);
    if (!shmemi_pool_alloc_timed(p, 100000, 0, 1000, &block))
        shmemi_pool_root_set(p, block);
    shmemi_pool_root_get(p, &block);
    shmemi_pool_free(p, block);
    for (int i = 0; i < 100 && shmemi_pool_present(p, offset + length, &offset, &length); i++)
        CHECK(offset + length <= segment_bytes);
    if (r & 4)
        shmemi_pool_shrink(p, p->arena_bytes - p->arena_bytes / 32, NULL);
}

static void some_calls(shmemi_pool_t *p, uint64_t *seed)
{
    static const size_t some[] = {64, 500, 4096, 20000, 50000, 300000, 1 << 20, 4 << 20};
    void *block[24] = {NULL};
    size_t bytes;
    for (int i = 0; i < 60; i++) {
        uint64_t r = world_random(seed);
        void **b = &block[r % SHMEMI_COUNT(block)];
        if (!*b) {
            if (shmemi_pool_alloc_default(p, some[(r >> 8) % SHMEMI_COUNT(some)], b))
                *b = NULL;
            else
                CHECK((unsigned char *)*b >= segment &&
                      (unsigned char *)*b < segment + segment_bytes);
        } else if (r >> 17 & 1) {
            if (r >> 18 & 1)
                shmemi_pool_give(p, *b);
            else
                shmemi_pool_hold(p, *b);
        } else if (r >> 16 & 1) {
            shmemi_pool_block_bytes(p, *b, &bytes);
            shmemi_pool_free(p, *b);
            *b = NULL;
        } else {
            shmemi_pool_resize(p, b, some[(r >> 8) % SHMEMI_COUNT(some)]);
        }
        if (i % 20 == 0)
            shmemi_pool_trim(p);
        if (i % 25 == 0)
            more_calls(p, r);
        shmemi_pool_free(p, segment + (r >> 9) % segment_bytes);
    }
}

/* One hostile client, one that works on, and the server; in a process of its own. */
static void round_of(void *arg)
{
    uint64_t seed = *(uint64_t *)arg;
    shmemi_actor_t hostile;
    alarm(60); /* a hang is a failure */
    world_actor(&actor, 0);
    world_actor(&hostile, 1);
    shmemi_pool_t *p = world_attach(&actor, NULL), *q = world_attach(&hostile, NULL), *third;
    some_calls(p, &seed);
    void *block;
    for (int i = 0; i < 40; i++)
        if (shmemi_pool_alloc_default(q, (size_t)(world_random(&seed) % 100000) + 1, &block) ==
                SHMEM_OK &&
            i % 2)
            shmemi_pool_give(q, block);
    int writes = 1 + (int)(world_random(&seed) % 6);
    for (int i = 0; i < writes; i++) {
        uint64_t place = strange_place(q, &seed), value;
        memcpy(&value, segment + place, 8);
        value = strange_value(&seed, value);
        memcpy(segment + place, &value, 8);
    }
    shmemi_pool_check(p);
    some_calls(p, &seed);
    shmemi_repair_t repair = {0};
    shmemi_actor_t server;
    shmemi_actor_init(&server, world.roster, 0, atomic_load(&world.roster->clients[0].epoch),
                      50000);
    slots_remove(world.roster, world.client[1].slot, true);
    shmemi_pool_reclaim(segment, segment_bytes, &server, world.client[1].slot,
                        world.client[1].epoch, 0, &repair);
    some_calls(p, &seed);
    shmemi_pool_check(p);
    if (world_view(segment, segment_bytes, &actor, NULL, &third) == SHMEM_OK)
        shmemi_pool_detach(third);
    shmemi_pool_detach(p);
    _exit(0);
}

static void anything_anywhere(uint64_t bytes, uint64_t seed)
{
    int rounds = harness_has_asan() ? ROUNDS / 8 : ROUNDS;
    for (int i = 0; i < rounds; i++) {
        guarded_pool(bytes);
        uint64_t start = seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        int end = harness_wait(harness_fork(round_of, &start), 90);
        if (end)
            harness_fail(__FILE__, __LINE__, "seed %#llx ended with %d", (unsigned long long)start,
                         end);
        munmap(segment, segment_bytes);
        close(world.fd);
        munmap(world.roster, sizeof *world.roster);
    }
}

static void in_a_small_pool(void)
{
    world_needs_kills();
    anything_anywhere(2 << 20, 1);
}

static void in_a_large_pool(void)
{
    world_needs_kills();
    anything_anywhere(80 << 20, 2);
}

/* ---- one that goes on writing while others read ---- */

static _Atomic uint64_t *flipped;
static uint64_t flipped_good, flipped_wild;
static atomic_bool flip_end;
static atomic_uint flips;

static void *flip(void *arg)
{
    while (!atomic_load(&flip_end)) {
        atomic_store_explicit(flipped, flipped_wild, memory_order_relaxed);
        for (int i = 0; i < 3; i++)
            atomic_store_explicit(flipped, flipped_good, memory_order_relaxed);
        atomic_fetch_add(&flips, 1);
    }
    return arg;
}

enum { OWNERS, LENGTH, LIST, FLIPS };

/* A word that the repair of client 1 reads; `small` lies in a span that has owners. */
static void flip_choose(const shmemi_pool_t *p, int kind, const void *small, const void *large,
                        uint64_t r)
{
    const shmemi_arena_t *a = &p->arenas[0].arena;
    uint64_t at = (uint64_t)((const unsigned char *)small - a->data) >> SHMEMI_PAGE_SHIFT;
    uint64_t page = (uint64_t)((const unsigned char *)large - a->data) >> SHMEMI_PAGE_SHIFT;
    static const uint64_t wild[] = {0, 1, 2, 0xfffffff0u, UINT64_MAX, 0x7f00000001};
    if (kind == OWNERS) /* with the class one word */
        flipped = (_Atomic uint64_t *)(void *)&a->span[at >> a->chunk_shift].class;
    else if (kind == LENGTH)
        flipped = &a->page[page].link;
    else /* of the free block behind it */
        flipped = &a->page[page + 64].link;
    flipped_good = atomic_load(flipped);
    flipped_wild = kind == OWNERS ? (uint32_t)flipped_good | 0xfffffff0ull << 32
                                  : wild[r % SHMEMI_COUNT(wild)];
}

/* Client 1 dies, one of its threads lives on for a while. */
static void flip_once(shmemi_pool_t *p, int kind, uint64_t *seed)
{
    shmemi_actor_t hostile, server;
    shmemi_repair_t repair = {0};
    pthread_t thread;
    world_actor(&hostile, 1);
    shmemi_pool_t *q = world_attach(&hostile, NULL);
    void *small, *given, *large;
    if (shmemi_pool_alloc_default(q, 128, &small) || shmemi_pool_alloc_default(q, 128, &given) ||
        shmemi_pool_alloc_default(q, 64 << SHMEMI_PAGE_SHIFT, &large) ||
        shmemi_pool_give(q, given) || shmemi_pool_free(p, given))
        _exit(0); /* by now the pool is too broken for that */
    flip_choose(p, kind, small, large, world_random(seed));
    atomic_store(&flip_end, false);
    atomic_store(&flips, 0);
    CHECK(pthread_create(&thread, NULL, flip, NULL) == 0);
    shmemi_actor_init(&server, world.roster, 0, atomic_load(&world.roster->clients[0].epoch),
                      50000);
    slots_remove(world.roster, world.client[1].slot, true);
    while (atomic_load(&flips) < 10)
        ;
    for (int i = 0; i < 40; i++)
        if (!shmemi_pool_reclaim(segment, segment_bytes, &server, world.client[1].slot,
                                 world.client[1].epoch, 0, &repair))
            break;
    void *block;
    if (kind != OWNERS && !shmemi_pool_alloc_default(p, 1 << 20, &block)) /* grows */
        shmemi_pool_free(p, block);
    if (kind != OWNERS)
        shmemi_pool_check(p);
    atomic_store(&flip_end, true);
    CHECK(pthread_join(thread, NULL) == 0);
    atomic_store(flipped, flipped_good);
    shmemi_pool_reclaim(segment, segment_bytes, &server, world.client[1].slot,
                        world.client[1].epoch, 0, &repair);
    shmemi_actor_fini(&server);
    world_client_add(1);
}

static void flip_round(void *arg)
{
    uint64_t seed = *(uint64_t *)arg;
    int kind = seed % FLIPS;
    alarm(60); /* a hang is a failure */
    world_actor(&actor, 0);
    shmemi_pool_t *p = world_attach(&actor, NULL);
    for (int i = 0; i < (kind == OWNERS ? 250 : 20); i++)
        flip_once(p, kind, &seed);
    _exit(0);
}

static void while_others_read(void)
{
    world_needs_kills();
    uint64_t seed = 3;
    int rounds = harness_has_asan() ? 3 * POOL_SOAK : 9 * POOL_SOAK;
    for (int i = 0; i < rounds; i++) {
        guarded_pool(4 << 20);
        uint64_t start = world_random(&seed) / FLIPS * FLIPS + (uint64_t)i % FLIPS;
        CHECK_EQ(harness_wait(harness_fork(flip_round, &start), 90), 0);
        munmap(segment, segment_bytes);
        close(world.fd);
        munmap(world.roster, sizeof *world.roster);
    }
}

static void a_zeroed_or_filled_segment(void)
{
    shmemi_pool_t *none;
    shmemi_repair_t repair = {.blocks = 7};
    guarded_pool(4 << 20);
    world_actor(&actor, 0);
    static const int fill[] = {0, 0xff, 0x55};
    for (size_t i = 0; i < SHMEMI_COUNT(fill); i++) {
        memset(segment, fill[i], segment_bytes);
        CHECK_STATUS(world_view(segment, segment_bytes, &actor, NULL, &none), SHMEM_ERR_CORRUPT);
        CHECK_STATUS(shmemi_pool_reclaim(segment, segment_bytes, &actor, 1, 1, 0, &repair),
                     SHMEM_ERR_CORRUPT);
        CHECK_EQ(repair.blocks, 7);
    }
    shmemi_actor_fini(&actor);
}

/* With arguments (megabytes, seed): that round only, in this process. */
int main(int argc, char **argv)
{
    if (argc > 2) {
        uint64_t seed = strtoull(argv[2], NULL, 0);
        guarded_pool(strtoull(argv[1], NULL, 0) << 20);
        round_of(&seed);
    }
    RUN(in_a_small_pool);
    RUN(in_a_large_pool);
    RUN(while_others_read);
    RUN(a_zeroed_or_filled_segment);
    return harness_end();
}
