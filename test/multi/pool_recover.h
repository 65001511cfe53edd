/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that do everything with one pool at once, and the accounts after some of them were
 * killed anywhere.
 *
 * Workers allocate, resize, free, give blocks into boxes, take and hold those of others, open and
 * close, let it grow and shrink, run into their quotas. Each says in the box itself that it is busy
 * with it. At an audit the living free all they have; then the pool must hold exactly what lies in
 * the boxes, and nothing when these are emptied; no task may be charged for anything; the walker
 * must find nothing. The longest call of a worker that survived is kept.
 */
#ifndef SHMEM_TEST_POOL_RECOVER_H
#define SHMEM_TEST_POOL_RECOVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "job.h"
#include "job/pool_handle.h"
#include "memory/pool.h"

enum { WORKERS = 8, BOXES = 64, LIVE = 60, EMPTY = 0, FULL = 1, BUSY = 16 /* + worker */ };

#define POOL_BYTES  (4ull << 20)
#define POOL_LIMIT  (24ull << 20)
#define TASK_LIMIT  (5ull << 20)
#define TASK_BURST  (2ull << 20)
#define TASK_RATE   (64ull << 20)
#define CALL_LIMIT  3.0 /* seconds; 1 on a machine that does nothing else */
#define AUDIT_LIMIT 20.0

typedef struct worker {
    pid_t pid;
    _Atomic int attached;  /* the server knows it for sure */
    _Atomic unsigned done; /* number of the last order that it carried out */
    _Atomic uint64_t calls;
    _Atomic uint64_t longest; /* ns */
    char what[80];            /* took that long */
    char task[16];
    char point[64]; /* armed, "" for none */
    unsigned nth;
} worker_t;

typedef struct stage {
    _Atomic unsigned order; /* odd: rest, even: work */
    _Atomic int over;
    unsigned deaths; /* that the server must have seen */
    struct {
        _Atomic uint32_t state;
        void *_Atomic p;
    } box[BOXES];
    worker_t worker[WORKERS];
} stage_t;

static stage_t *stage;
static shmem_context_t stage_context;
static shmem_pool_t stage_pool;

/* ---- a worker; private to its process ---- */

typedef struct life {
    int index;
    worker_t *self;
    shmem_context_t context;
    shmem_pool_t pool;
    uint64_t seed;
    int live;
    void *block[LIVE];
} life_t;

static inline uint64_t draw(life_t *l, uint64_t below)
{
    l->seed ^= l->seed << 13;
    l->seed ^= l->seed >> 7;
    l->seed ^= l->seed << 17;
    return (l->seed * 2685821657736338717ull >> 20) % below;
}

/* Room for a pointer at least. */
static inline size_t draw_size(life_t *l)
{
    uint64_t kind = draw(l, 100);
    if (kind < 70)
        return 8 + draw(l, 3000);
    if (kind < 97)
        return 8 + draw(l, 200000);
    return 8 + draw(l, 3 << 20);
}

/* The call that began then is over; it had to succeed, or to be refused for want of memory. */
static inline bool over(life_t *l, double begin, const char *what, shmem_status_t status)
{
    uint64_t ns = (uint64_t)((harness_now() - begin) * 1e9);
    if (ns > atomic_load_explicit(&l->self->longest, memory_order_relaxed)) {
        atomic_store_explicit(&l->self->longest, ns, memory_order_relaxed);
        snprintf(l->self->what, sizeof l->self->what, "%s: %s", what, shmem_status_name(status));
    }
    atomic_fetch_add_explicit(&l->self->calls, 1, memory_order_relaxed);
    if (status && status != SHMEM_ERR_NOMEM && status != SHMEM_ERR_QUOTA)
        harness_fail(__FILE__, __LINE__, "%s: %s", shmem_status_name(status),
                     shmem_error_detail()->text);
    return status == SHMEM_OK;
}
#define CALL(l, call)                                                                              \
    __extension__({                                                                                \
        double begin_ = harness_now();                                                             \
        shmem_status_t status_ = call;                                                             \
        over(l, begin_, #call, status_);                                                           \
    })

static inline void life_alloc(life_t *l)
{
    void *p;
    if (l->live < LIVE && CALL(l, shmem_pool_alloc(l->pool, draw_size(l), &p))) {
        *(void **)p = p;
        l->block[l->live++] = p;
    }
}

static inline void *life_take(life_t *l)
{
    int i = (int)draw(l, (uint64_t)l->live);
    void *p = l->block[i];
    l->block[i] = l->block[--l->live];
    CHECK(*(void **)p == p);
    return p;
}

static inline void life_free(life_t *l, void *p)
{
    if (!CALL(l, shmem_pool_free(l->pool, p)))
        harness_fail(__FILE__, __LINE__, "free: %s", shmem_error_detail()->text);
}

static inline void life_resize(life_t *l)
{
    void *p = life_take(l);
    if (CALL(l, shmem_pool_resize(l->pool, &p, draw_size(l))))
        *(void **)p = p;
    l->block[l->live++] = p;
}

/* A block goes into an empty box, the pool's. */
static inline void life_put(life_t *l)
{
    unsigned i = (unsigned)draw(l, BOXES);
    uint32_t empty = EMPTY;
    if (!atomic_compare_exchange_strong(&stage->box[i].state, &empty, (uint32_t)(BUSY + l->index)))
        return;
    void *p = life_take(l);
    atomic_store(&stage->box[i].p, p);
    bool given = CALL(l, shmem_pool_give(l->pool, p));
    if (!given) { /* no page for its owner */
        atomic_store(&stage->box[i].p, NULL);
        l->block[l->live++] = p;
    }
    atomic_store(&stage->box[i].state, given ? FULL : EMPTY);
}

/* Out of a full box: hold it, sometimes give it back, sometimes keep it; or just free it. */
static inline void life_fetch(life_t *l)
{
    unsigned i = (unsigned)draw(l, BOXES);
    uint32_t full = FULL, after = EMPTY;
    if (!atomic_compare_exchange_strong(&stage->box[i].state, &full, (uint32_t)(BUSY + l->index)))
        return;
    void *p = atomic_load(&stage->box[i].p);
    CHECK(*(void **)p == p);
    if (draw(l, 3) && !CALL(l, shmem_pool_hold(l->pool, p)))
        after = FULL; /* no room in the quota */
    else if (draw(l, 4) == 0 && CALL(l, shmem_pool_give(l->pool, p)))
        after = FULL;
    else
        life_free(l, p);
    if (after == EMPTY)
        atomic_store(&stage->box[i].p, NULL);
    atomic_store(&stage->box[i].state, after);
}

static inline void *life_short_thread(void *arg)
{
    life_t *l = arg;
    void *p[20];
    int n = 0;
    while (n < 20 && shmem_pool_alloc(l->pool, 200 + (size_t)n * 70, &p[n]) == SHMEM_OK)
        n++;
    for (int i = 0; i < n; i++)
        if (i % 3 == 0 && l->live < LIVE) { /* outlives its thread */
            *(void **)p[i] = p[i];
            l->block[l->live++] = p[i];
        } else {
            CHECK_OK(shmem_pool_free(l->pool, p[i]));
        }
    return NULL;
}

static inline void life_thread(life_t *l)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, life_short_thread, l) == 0);
    pthread_join(thread, NULL);
}

static inline void life_flood(life_t *l)
{
    void *p[64];
    int n = 0;
    while (n < 64 && CALL(l, shmem_pool_alloc(l->pool, 256 << 10, &p[n])))
        n++;
    while (n)
        life_free(l, p[--n]);
}

static inline void life_open(life_t *l)
{
    CHECK_OK(shmem_pool_open_as(l->context, "recover", l->self->task, &l->pool));
}

/* What it has goes, what it gave stays. */
static inline void life_reopen(life_t *l)
{
    shmem_pool_close(l->pool);
    l->live = 0;
    life_open(l);
}

static inline void life_rare(life_t *l)
{
    void *p;
    uint64_t returned;
    switch (draw(l, 8)) {
    case 0:
        CHECK_OK(shmem_pool_trim(l->pool));
        break;
    case 1:
        CALL(l, shmem_pool_shrink(l->pool, 0, &returned));
        break;
    case 2:
    case 3:
        life_flood(l);
        break;
    case 4:
        if (shmem_pool_alloc_timed(l->pool, 300 << 10, 0, 2000000, &p) == SHMEM_OK)
            life_free(l, p);
        break;
    case 5:
        shmemi_recover_sweep(l->pool->core, true);
        break;
    case 6:
        life_thread(l);
        break;
    default:
        life_reopen(l);
    }
}

static inline void life_step(life_t *l)
{
    uint64_t r = draw(l, 100);
    if (r < 36 || !l->live)
        life_alloc(l);
    else if (r < 62)
        life_free(l, life_take(l));
    else if (r < 68)
        life_resize(l);
    else if (r < 80)
        life_put(l);
    else if (r < 96)
        life_fetch(l);
    else
        life_rare(l);
}

/* Free everything, now and as long as the order stands. */
static inline void life_rest(life_t *l, unsigned order)
{
    while (l->live)
        life_free(l, life_take(l));
    CHECK_OK(shmem_pool_trim(l->pool));
    atomic_store(&l->self->done, order);
    while (atomic_load(&stage->order) == order && !atomic_load(&stage->over))
        harness_sleep(0.0002);
}

static inline void life(void *arg)
{
    int index = (int)(intptr_t)arg;
    life_t l = {.index = index, .self = &stage->worker[index]};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    l.seed = (uint64_t)getpid() * 0x9e3779b97f4a7c15ull | 1;
    if (*l.self->point)
        shmemi_fault_arm(l.self->point, SHMEMI_FAULT_KILL, l.self->nth);
    CHECK_OK(job_try_init(&l.context, NULL, 0, 1, 30));
    atomic_store(&l.self->attached, 1);
    life_open(&l);
    while (!atomic_load(&stage->over)) {
        unsigned order = atomic_load(&stage->order);
        if (order % 2)
            life_rest(&l, order);
        else
            life_step(&l);
    }
    shmem_pool_close(l.pool);
    CHECK_OK(shmem_context_finalize(l.context));
}

/* ---- the stage ---- */

static inline void worker_start(int i, const char *point, unsigned nth)
{
    worker_t *w = &stage->worker[i];
    bool novice = strcmp(point, "memory.task.named") == 0;
    snprintf(w->task, sizeof w->task, "%s%d", novice ? "novice" : "w", i);
    snprintf(w->point, sizeof w->point, "%s", point);
    w->nth = nth;
    atomic_store(&w->done, 0);
    atomic_store(&w->attached, 0);
    w->pid = harness_fork(life, (void *)(intptr_t)i);
}

/* It is dead, by its fault point or by our hand. */
static inline void worker_died(int i, int end)
{
    CHECK_EQ(end, -SIGKILL);
    stage->worker[i].pid = 0;
    stage->deaths += (unsigned)atomic_load(&stage->worker[i].attached);
}

static inline void worker_kill(int i)
{
    kill(stage->worker[i].pid, SIGKILL);
    worker_died(i, harness_wait(stage->worker[i].pid, 20));
}

static inline void stage_quotas(void)
{
    for (int i = 0; i < WORKERS; i++) {
        char task[16];
        shmem_quota_t quota = SHMEM_QUOTA_INIT;
        snprintf(task, sizeof task, "w%d", i);
        quota.limit = TASK_LIMIT;
        if (i % 2) {
            quota.burst = TASK_BURST;
            quota.rate = TASK_RATE;
        }
        CHECK_OK(shmem_pool_quota_set(stage_pool, task, &quota));
    }
}

static inline void stage_begin(bool debug)
{
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    if (harness_has_tsan())
        SKIP("forks processes that are killed, and ThreadSanitizer sees threads only");
    stage = harness_shared(sizeof *stage);
    CHECK_OK(job_try_init(&stage_context, NULL, 0, 1, 30));
    stage->deaths = shmemi_roster_deaths(stage_context->actor->roster);
    params.bytes = POOL_BYTES;
    params.limit = POOL_LIMIT;
    params.debug = debug;
    CHECK_OK(shmem_pool_create(stage_context, "recover", &params, &stage_pool));
    stage_quotas();
}

static inline uint64_t stage_used(void)
{
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_pool_info(stage_pool, &info));
    return info.used_bytes;
}

static inline void stage_rest(void)
{
    unsigned order = (atomic_load(&stage->order) + 2) | 1;
    double end = harness_now() + AUDIT_LIMIT;
    atomic_store(&stage->order, order);
    for (int i = 0; i < WORKERS; i++)
        while (stage->worker[i].pid && atomic_load(&stage->worker[i].done) != order) {
            CHECK(harness_now() < end);
            harness_sleep(0.0002);
        }
}

/* The server has published the deaths and given back the blocks. */
static inline void stage_await_repair(void)
{
    double end = harness_now() + AUDIT_LIMIT;
    shmem_pool_client_info_t clients[2 * WORKERS] = {{.size = sizeof clients[0]}};
    for (size_t dead = 1; dead; harness_sleep(0.0002)) {
        CHECK(harness_now() < end);
        size_t count = 0;
        if (shmemi_roster_deaths(stage_context->actor->roster) < stage->deaths)
            continue;
        CHECK_OK(shmem_pool_clients(stage_pool, clients, 2 * WORKERS, &count));
        dead = 0;
        for (size_t i = 0; i < count && i < 2 * WORKERS; i++)
            dead += !clients[i].alive;
    }
}

static inline bool is_in_a_full_box(const void *p)
{
    for (int i = 0; i < BOXES; i++)
        if (stage->box[i].state == FULL && stage->box[i].p == p)
            return true;
    return false;
}

/* Empty the boxes. What lies in a full one is there; what a dead worker was busy with is there if
 * it was the pool's at that moment, or is nothing any more. */
static inline void stage_empty_boxes(void)
{
    for (int i = 0; i < BOXES; i++) {
        void *p = stage->box[i].p;
        if (stage->box[i].state >= BUSY && p && !is_in_a_full_box(p))
            shmem_pool_free(stage_pool, p);
    }
    for (int i = 0; i < BOXES; i++) {
        if (stage->box[i].state == FULL) {
            CHECK(*(void **)stage->box[i].p == stage->box[i].p);
            CHECK_OK(shmem_pool_free(stage_pool, stage->box[i].p));
        }
        stage->box[i].p = NULL;
        stage->box[i].state = EMPTY;
    }
}

static inline void stage_check_charges(void)
{
    char task[SHMEM_TASK_NAME];
    for (size_t i = 0; shmem_pool_task(stage_pool, i, task) == SHMEM_OK; i++) {
        shmem_quota_t quota = SHMEM_QUOTA_INIT;
        CHECK_OK(shmem_pool_quota_get(stage_pool, task, &quota));
        if (quota.held || (quota.limit != UINT64_MAX && quota.held_high > quota.limit))
            harness_fail(__FILE__, __LINE__, "task %s holds %llu, at most %llu", task,
                         (unsigned long long)quota.held, (unsigned long long)quota.held_high);
    }
}

/* The living have freed what they had: every byte is accounted for. They go on afterwards. */
static inline void stage_audit(void)
{
    stage_rest();
    stage_await_repair();
    CHECK_OK(shmemi_pool_check(stage_pool->core));
    stage_empty_boxes();
    double end = harness_now() + AUDIT_LIMIT;
    do { /* what was freed in the spans of the living comes back when they trim */
        stage_rest();
        CHECK_OK(shmem_pool_trim(stage_pool));
        if (harness_now() > end)
            CHECK_EQ(stage_used(), 0);
    } while (stage_used());
    CHECK_OK(shmemi_pool_check(stage_pool->core));
    stage_check_charges();
    atomic_fetch_add(&stage->order, 1);
}

/* Nobody who lived on waited long. */
static inline void stage_check_longest(void)
{
    const worker_t *w = &stage->worker[0];
    for (int i = 1; i < WORKERS; i++)
        if (stage->worker[i].longest > w->longest)
            w = &stage->worker[i];
    double seconds = (double)w->longest / 1e9;
    printf("   longest call %.1f ms (%s)\n", seconds * 1e3, w->what);
    CHECK(seconds < CALL_LIMIT);
}

static inline void stage_end(void)
{
    atomic_store(&stage->over, 1);
    for (int i = 0; i < WORKERS; i++)
        if (stage->worker[i].pid)
            CHECK_EQ(harness_wait(stage->worker[i].pid, 30), 0);
    stage_check_longest();
    shmem_pool_close(stage_pool);
    CHECK_OK(shmem_context_finalize(stage_context));
}

#endif
