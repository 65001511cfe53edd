/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks: their names, locks, sums, and what the bucket says; see quota.h. */
#include "memory/quota.h"

#include <stdio.h>
#include <string.h>

#include "base/params.h"
#include "base/status.h"

#define LAYER "memory"

static shmemi_task_t *task_at(const shmemi_pool_t *pool, uint32_t task)
{
    return &pool->arenas[0].arena.tasks[task];
}

/* A robust lock whose holder leaves nothing half done. */
static shmem_status_t lock(shmemi_mutex_t *mutex, const shmemi_actor_t *actor)
{
    shmem_status_t status = shmemi_mutex_lock(actor, mutex, SHMEMI_FOREVER);
    if (status == SHMEM_ERR_OWNER_DIED) {
        shmemi_mutex_consistent(actor, mutex);
        return SHMEM_OK;
    }
    if (status == SHMEM_ERR_POISONED || status == SHMEM_ERR_INVALID)
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                           "the lock of a task is no lock; shared memory was overwritten, make a "
                           "new pool");
    return status;
}

/* ---- names ---- */

static bool name_is_good(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-/";
    size_t n = strnlen(name, SHMEM_TASK_NAME);
    return n && n < SHMEM_TASK_NAME && strspn(name, allowed) == n && !strstr(name, "..");
}

static bool is_named(const shmemi_task_t *task)
{
    /* SYNC task-state: acquire, pairs with release in name_first_locked() */
    return atomic_load_explicit(&task->state, memory_order_acquire) == 1;
}

/* Task 0 is nobody's; SHMEMI_TASKS: there is none of that name. */
static uint32_t find(const shmemi_task_t *tasks, const char *name)
{
    if (!name || !*name)
        return 0;
    for (uint32_t i = 1; i < SHMEMI_TASKS && is_named(&tasks[i]); i++)
        if (!strncmp(tasks[i].name, name, SHMEM_TASK_NAME))
            return i;
    return SHMEMI_TASKS;
}

/* Names are given in order and stay. */
static shmem_status_t name_first_locked(shmemi_task_t *tasks, const char *name, uint32_t *index)
{
    *index = find(tasks, name);
    if (*index < SHMEMI_TASKS)
        return SHMEM_OK;
    for (uint32_t i = 1; i < SHMEMI_TASKS; i++) {
        if (is_named(&tasks[i]))
            continue;
        memset(tasks[i].name, 0, SHMEM_TASK_NAME);
        memcpy(tasks[i].name, name, strlen(name));
        SHMEMI_KILL_POINT("memory.task.named");
        /* SYNC task-state: release, the name is complete; pairs with acquire in is_named() */
        atomic_store_explicit(&tasks[i].state, 1, memory_order_release);
        *index = i;
        return SHMEM_OK;
    }
    return shmemi_fail(SHMEM_ERR_LIMIT, LAYER,
                       "task '%s': the pool has %d tasks already; use one of their names", name,
                       SHMEMI_TASKS - 1);
}

shmem_status_t shmemi_task_claim(shmemi_pool_header_t *header, shmemi_task_t *tasks,
                                 const shmemi_actor_t *actor, const char *name, uint32_t *index)
{
    uint32_t found = find(tasks, name);
    if (found == SHMEMI_TASKS) {
        if (!name_is_good(name))
            return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                               "task '%.60s': want 1 to %d letters, digits, '.', '_', '-' or '/', "
                               "and no '..'",
                               name, SHMEM_TASK_NAME - 1);
        shmem_status_t status = lock(&header->tasks_lock, actor);
        if (status)
            return status;
        status = name_first_locked(tasks, name, &found);
        shmemi_mutex_unlock(actor, &header->tasks_lock);
        if (status)
            return status;
    }
    *index = found;
    return SHMEM_OK;
}

shmem_status_t shmemi_pool_task(shmemi_pool_t *pool, size_t index, char name[SHMEM_TASK_NAME])
{
    if (!name)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "name of a task into NULL");
    if (index >= SHMEMI_TASKS - 1 || !is_named(task_at(pool, (uint32_t)index + 1)))
        return shmemi_quiet(SHMEM_ERR_NOT_FOUND, LAYER, "the pool has no task %zu", index);
    memcpy(name, task_at(pool, (uint32_t)index + 1)->name, SHMEM_TASK_NAME);
    name[SHMEM_TASK_NAME - 1] = 0;
    return SHMEM_OK;
}

/* ---- sums ---- */

uint64_t shmemi_quota_held(const shmemi_pool_t *pool, uint32_t task)
{
    uint64_t held = 0;
    for (uint32_t i = 0; i < pool->nodes; i++)
        held += shmemi_arena_get(&pool->arenas[i].arena.charge[task].held);
    return held;
}

void shmemi_quota_note_high(shmemi_pool_t *pool)
{
    _Atomic uint64_t *mark = &task_at(pool, pool->task)->held_high;
    uint64_t held = shmemi_quota_held(pool, pool->task), high = shmemi_arena_get(mark);
    while (held > high && !atomic_compare_exchange_weak_explicit(
                              mark, &high, held, memory_order_relaxed, memory_order_relaxed))
        ;
}

typedef struct sums {
    uint64_t held, taken;
} sums_t;

/* Committed values only: a holder that was killed in the middle of a free has freed nothing. While
 * the task is locked they can only become smaller until they are used. */
static shmem_status_t sum_up(shmemi_pool_t *pool, uint32_t task, sums_t *sums)
{
    *sums = (sums_t){0, 0};
    for (uint32_t i = 0; i < pool->nodes; i++) {
        shmemi_arena_t *arena = &pool->arenas[i].arena;
        shmem_status_t status = shmemi_arena_lock(arena, pool->actor, SHMEMI_FOREVER);
        if (status)
            return status;
        sums->held += shmemi_arena_get(&arena->charge[task].held);
        sums->taken += shmemi_arena_get(&arena->charge[task].taken);
        shmemi_arena_unlock(arena, pool->actor, SHMEM_OK);
    }
    return SHMEM_OK;
}

/* ---- the bucket in shared memory; all under the task's lock ---- */

static uint32_t current_of(const shmemi_task_t *task)
{
    /* SYNC task-current: acquire, pairs with release in put_in_force() */
    return atomic_load_explicit(&task->current, memory_order_acquire) & 1;
}

/* A kill leaves the old one in force, or this. */
static void put_in_force(shmemi_task_t *task, const shmemi_bucket_t *bucket)
{
    uint32_t other = !current_of(task);
    task->bucket[other] = *bucket;
    SHMEMI_KILL_POINT("memory.quota.written");
    /* SYNC task-current: release, the bucket is complete; pairs with acquire in current_of() */
    atomic_store_explicit(&task->current, other, memory_order_release);
    SHMEMI_KILL_POINT("memory.quota.settled");
}

static shmem_status_t settle(shmemi_pool_t *pool, uint32_t task, sums_t *sums,
                             shmemi_bucket_t *bucket)
{
    shmem_status_t status = sum_up(pool, task, sums);
    if (status)
        return status;
    *bucket = task_at(pool, task)->bucket[current_of(task_at(pool, task))];
    shmemi_bucket_settle(bucket, bucket->keep_tokens ? sums->taken : sums->held,
                         (uint64_t)shmemi_clock_now());
    put_in_force(task_at(pool, task), bucket);
    return SHMEM_OK;
}

shmem_status_t shmemi_quota_enter_slow(shmemi_pool_t *pool, uint32_t task, uint64_t pages)
{
    sums_t sums;
    shmemi_bucket_t bucket;
    shmem_status_t status = lock(&task_at(pool, task)->lock, pool->actor);
    if (status)
        return status;
    status = settle(pool, task, &sums, &bucket);
    if (!status && !shmemi_bucket_allows(&bucket, sums.held, pages))
        status = SHMEM_ERR_QUOTA;
    SHMEMI_KILL_POINT("memory.quota.entered");
    if (status)
        shmemi_quota_leave_slow(pool, task);
    return status;
}

void shmemi_quota_leave_slow(shmemi_pool_t *pool, uint32_t task)
{
    SHMEMI_KILL_POINT("memory.quota.leaving");
    shmemi_mutex_unlock(pool->actor, &task_at(pool, task)->lock);
}

/* ---- refusing ---- */

static const char *label(const shmemi_task_t *task)
{
    return task->name[0] ? task->name : "(no task)";
}

/* What was in the way; it may be gone by now. */
static shmem_status_t say(const shmemi_task_t *task, const shmemi_bucket_t *b, uint64_t held,
                          uint64_t pages, uint64_t delay)
{
    unsigned long long asked = pages << SHMEMI_PAGE_SHIFT, has = held << SHMEMI_PAGE_SHIFT;
    if (asked > b->limit)
        return shmemi_quiet(SHMEM_ERR_QUOTA, LAYER,
                            "task '%.47s' asked for %llu bytes in whole pages; its limit is %llu: "
                            "that can never succeed",
                            label(task), asked, (unsigned long long)b->limit);
    if (asked > b->burst)
        return shmemi_quiet(SHMEM_ERR_QUOTA, LAYER,
                            "task '%.47s' asked for %llu bytes in whole pages; the burst of its "
                            "bucket is %llu: that can never succeed",
                            label(task), asked, (unsigned long long)b->burst);
    if (shmemi_bucket_at_limit(b, held, pages))
        return shmemi_quiet(SHMEM_ERR_QUOTA, LAYER,
                            "task '%.47s' holds %llu bytes of its limit of %llu and asked for "
                            "%llu more in whole pages: that can succeed when it gives some back",
                            label(task), has, (unsigned long long)b->limit, asked);
    char when[64];
    snprintf(when, sizeof when, "%s",
             b->keep_tokens ? "it does not refill" : "only when some is given back");
    if (delay != UINT64_MAX)
        snprintf(when, sizeof when, "in %llu ms%s", (unsigned long long)(delay / 1000000 + 1),
                 b->keep_tokens ? "" : ", or when some is given back");
    return shmemi_quiet(SHMEM_ERR_QUOTA, LAYER,
                        "task '%.47s' asked for %llu bytes in whole pages; its bucket has %llu of "
                        "%llu, %llu more every second: %s",
                        label(task), asked, (unsigned long long)b->tokens,
                        (unsigned long long)b->burst, (unsigned long long)b->rate, when);
}

shmem_status_t shmemi_quota_refuse(shmemi_pool_t *pool, uint32_t index, uint64_t pages,
                                   uint64_t *delay, bool *ever)
{
    sums_t sums;
    shmemi_bucket_t bucket;
    shmemi_task_t *task = task_at(pool, index);
    shmem_status_t status = lock(&task->lock, pool->actor);
    if (status)
        return status;
    status = settle(pool, index, &sums, &bucket);
    shmemi_mutex_unlock(pool->actor, &task->lock);
    if (status)
        return status;
    atomic_fetch_add_explicit(&task->refused, 1, memory_order_relaxed);
    /* at the limit no time helps, only what is given back */
    *delay = shmemi_bucket_at_limit(&bucket, sums.held, pages)
                 ? UINT64_MAX
                 : shmemi_bucket_delay(&bucket, pages);
    *ever = shmemi_bucket_ever_allows(&bucket, pages);
    return say(task, &bucket, sums.held, pages, *delay);
}

/* ---- setting and reading ---- */

static shmem_status_t set_locked(shmemi_pool_t *pool, uint32_t index, const shmem_quota_t *quota)
{
    sums_t sums;
    shmemi_task_t *task = task_at(pool, index);
    bool limited = quota->limit != UINT64_MAX || quota->burst != UINT64_MAX;
    shmem_status_t status = sum_up(pool, index, &sums);
    if (status)
        return status;
    const shmemi_bucket_t bucket = {
        .limit = quota->limit,
        .burst = quota->burst,
        .rate = quota->rate,
        .keep_tokens = quota->keep_tokens != 0,
        .tokens = quota->burst,
        .stamp = (uint64_t)shmemi_clock_now(),
        .seen = quota->keep_tokens ? sums.taken : sums.held,
    };
    put_in_force(task, &bucket);
    /* SYNC task-limited: release, pairs with acquire in shmemi_quota_enter(): whoever looks at the
     * bucket of a task that had none finds this one */
    atomic_store_explicit(&task->limited, limited, memory_order_release);
    return SHMEM_OK;
}

shmem_status_t shmemi_pool_quota_set(shmemi_pool_t *pool, const char *task,
                                     const shmem_quota_t *quota)
{
    uint32_t index;
    shmem_quota_t q;
    shmemi_task_t *tasks = task_at(pool, 0);
    shmem_status_t status = shmemi_params_take(&q, sizeof q, sizeof q, quota, "shmem_quota_t");
    if (!status)
        status = shmemi_task_claim(pool->header, tasks, pool->actor, task, &index);
    if (!status)
        status = lock(&tasks[index].lock, pool->actor);
    if (status)
        return status;
    status = set_locked(pool, index, &q);
    shmemi_mutex_unlock(pool->actor, &tasks[index].lock);
    shmemi_bell_ring(pool->actor->roster, &tasks[index].bell, NULL);
    return status;
}

/* A task that never had a quota has no bucket in force. */
static void describe(const shmemi_task_t *task, const shmemi_bucket_t *b, uint64_t held,
                     shmem_quota_t *q)
{
    bool limited = atomic_load_explicit(&task->limited, memory_order_relaxed);
    *q = (shmem_quota_t)SHMEM_QUOTA_INIT;
    q->held = held << SHMEMI_PAGE_SHIFT;
    q->held_high = atomic_load_explicit(&task->held_high, memory_order_relaxed)
                   << SHMEMI_PAGE_SHIFT;
    q->refused = atomic_load_explicit(&task->refused, memory_order_relaxed);
    q->tokens = limited ? b->tokens : UINT64_MAX;
    if (!limited)
        return;
    q->limit = b->limit;
    q->burst = b->burst;
    q->rate = b->rate;
    q->keep_tokens = b->keep_tokens != 0;
}

shmem_status_t shmemi_pool_quota_get(shmemi_pool_t *pool, const char *task, shmem_quota_t *quota)
{
    sums_t sums;
    shmem_quota_t q;
    shmemi_bucket_t bucket;
    shmem_status_t status = shmemi_params_check(quota, sizeof q, "shmem_quota_t");
    if (status)
        return status;
    uint32_t index = find(task_at(pool, 0), task);
    if (index == SHMEMI_TASKS)
        return shmemi_quiet(SHMEM_ERR_NOT_FOUND, LAYER, "the pool has no task '%.47s'", task);
    status = lock(&task_at(pool, index)->lock, pool->actor);
    if (status)
        return status;
    status = settle(pool, index, &sums, &bucket);
    shmemi_mutex_unlock(pool->actor, &task_at(pool, index)->lock);
    if (status)
        return status;
    describe(task_at(pool, index), &bucket, sums.held, &q);
    shmemi_params_give(quota, &q, sizeof q);
    return SHMEM_OK;
}
