/* SPDX-License-Identifier: Apache-2.0 */
/* Keepers: a small table in the header, one place for each view that keeps. */
#include "memory/keepers.h"

/* Place 0 says that there were more keepers than places: the pool keeps its memory for good. */
#define FOR_GOOD UINT64_MAX

static uint64_t name_of(const shmemi_actor_t *actor)
{
    return (uint64_t)actor->slot << 32 | actor->epoch;
}

static bool is_alive(const shmemi_actor_t *actor, uint64_t name)
{
    return shmemi_roster_client_alive(actor->roster, (uint32_t)(name >> 32), (uint32_t)name);
}

static bool claim(shmemi_pool_t *pool, uint32_t place)
{
    _Atomic uint64_t *word = &pool->header->keeper[place];
    uint64_t there = atomic_load_explicit(word, memory_order_relaxed);
    if (there && is_alive(pool->actor, there))
        return false;
    /* SYNC pool-keeper: acq_rel, pairs with acquire in shmemi_pool_is_kept() */
    return atomic_compare_exchange_strong_explicit(word, &there, name_of(pool->actor),
                                                   memory_order_acq_rel, memory_order_relaxed);
}

void shmemi_pool_keep(shmemi_pool_t *pool, bool keep)
{
    if (keep && !pool->keeper) {
        for (uint32_t i = 1; i < SHMEMI_KEEPERS && !pool->keeper; i++)
            if (claim(pool, i))
                pool->keeper = i;
        if (!pool->keeper)
            atomic_store_explicit(&pool->header->keeper[0], FOR_GOOD, memory_order_relaxed);
    } else if (!keep && pool->keeper) {
        atomic_store_explicit(&pool->header->keeper[pool->keeper], 0, memory_order_relaxed);
        pool->keeper = 0;
    }
}

bool shmemi_pool_is_kept(const shmemi_pool_t *pool)
{
    for (uint32_t i = 0; i < SHMEMI_KEEPERS; i++) {
        /* SYNC pool-keeper: acquire, pairs with acq_rel in claim() */
        uint64_t name = atomic_load_explicit(&pool->header->keeper[i], memory_order_acquire);
        if (name && (i == 0 || is_alive(pool->actor, name)))
            return true;
    }
    return false;
}
