/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks and their quotas.
 *
 * What tasks hold is counted by charge.h in any case. A task with a quota goes a slower way when a
 * cache of one of its threads is filled from an arena: under the task's lock its holdings are
 * summed up, its bucket is brought up to date, and the pages are taken only if both allow it.
 * Giving back needs no lock of the task: it only makes the sums smaller.
 *
 *   Order       task's lock, then arena's lock
 *   Invariants  sum over the arenas of charge.held <= limit, at every instant, for pages taken
 *               since the quota was set
 *               tokens = those of the last look - pages charged since then + refill, <= burst:
 *               the bucket never counts what an allocation intends, only what the charges say, so
 *               an allocation that fails or is killed needs no refund
 *
 * What it does not do: it binds those who use it.
 */
#ifndef SHMEMI_MEMORY_QUOTA_H
#define SHMEMI_MEMORY_QUOTA_H

#include "memory/pool.h"

/* ---- the bucket alone: no shared memory, no clock ---- */

/* Bring it up to date: `pages` is the sum that `seen` stands for, now. Time that goes backwards
 * stands still. */
void shmemi_bucket_settle(shmemi_bucket_t *bucket, uint64_t pages, uint64_t now);

/* Would `pages` more be too many for a task that holds `held`, whatever its tokens? */
bool shmemi_bucket_at_limit(const shmemi_bucket_t *bucket, uint64_t held, uint64_t pages);

/* May a task that holds `held` pages take `pages` more, after settling? */
bool shmemi_bucket_allows(const shmemi_bucket_t *bucket, uint64_t held, uint64_t pages);

/* Could it ever, holding nothing? */
bool shmemi_bucket_ever_allows(const shmemi_bucket_t *bucket, uint64_t pages);

/* Nanoseconds until the tokens suffice, if nothing is given back; UINT64_MAX: never. */
uint64_t shmemi_bucket_delay(const shmemi_bucket_t *bucket, uint64_t pages);

/* ---- tasks of a pool ---- */

/* Find or make the task of this name. INVALID, LIMIT, CORRUPT. */
shmem_status_t shmemi_task_claim(shmemi_pool_header_t *header, shmemi_task_t *tasks,
                                 const shmemi_actor_t *actor, const char *name, uint32_t *index);

/* Somebody is about to charge `pages` pages to a task: QUOTA without a detail, or SHMEM_OK, then
 * leave must follow. *entered: whether the task is locked meanwhile. */
shmem_status_t shmemi_quota_enter_slow(shmemi_pool_t *pool, uint32_t task, uint64_t pages);
void shmemi_quota_leave_slow(shmemi_pool_t *pool, uint32_t task);

static inline shmem_status_t shmemi_quota_enter(shmemi_pool_t *pool, uint32_t task, uint64_t pages,
                                                bool *entered)
{
    /* SYNC task-limited: acquire, pairs with release in shmemi_pool_quota_set() */
    *entered =
        atomic_load_explicit(&pool->arenas[0].arena.tasks[task].limited, memory_order_acquire);
    return __builtin_expect(*entered, 0) ? shmemi_quota_enter_slow(pool, task, pages) : SHMEM_OK;
}

static inline void shmemi_quota_leave(shmemi_pool_t *pool, uint32_t task, bool entered)
{
    if (__builtin_expect(entered, 0))
        shmemi_quota_leave_slow(pool, task);
}

/* A request for so many pages was over a task's quota: count it, and say why. *delay: ns until it
 * could succeed by time alone, UINT64_MAX: never so; *ever: false if it is too large as such. */
shmem_status_t shmemi_quota_refuse(shmemi_pool_t *pool, uint32_t task, uint64_t pages,
                                   uint64_t *delay, bool *ever);

/* Pages that a task holds, without locks: a moment old. */
uint64_t shmemi_quota_held(const shmemi_pool_t *pool, uint32_t task);
/* Raise the task's high-water mark to that. */
void shmemi_quota_note_high(shmemi_pool_t *pool);

#endif
