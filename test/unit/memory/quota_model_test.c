/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations of several clients and tasks against a model that knows whose block is charged
 * to whom: after every step each task holds exactly what the model says, and a request is refused
 * exactly when the limit or the bucket does not allow it. Clients die now and then.
 */
#include "memory/quota.h"
#include "pool_world.h"

#define PAGE 4096ull

enum {
    CLIENTS = 4, /* one per number, the server's is 0 */
    TASKS = 3,
    BLOCKS = 60,
    STEPS = 6000 * POOL_SOAK,
    PAGES = 16384 /* of the pool: never the bound */
};

typedef struct block {
    void *place; /* NULL: none */
    uint64_t pages;
    int task, owner; /* owner -1: the pool */
} block_t;

typedef struct task {
    char name[8];
    uint64_t held, limit, tokens, burst; /* pages */
    bool keep;
} task_t;

static shmemi_actor_t actors[CLIENTS];
static shmemi_pool_t *views[CLIENTS][TASKS];
static block_t blocks[BLOCKS];
static task_t tasks[TASKS];
static uint64_t seed;

static void open_views(int client)
{
    world_actor(&actors[client], client);
    for (int t = 0; t < TASKS; t++)
        views[client][t] = world_attach_as(&actors[client], NULL, tasks[t].name);
}

/* ---- the model ---- */

static bool allows(const task_t *t, uint64_t pages)
{
    return (t->limit == UINT64_MAX || t->held + pages <= t->limit) &&
           (t->burst == UINT64_MAX || pages <= t->tokens);
}

static void charge(task_t *t, uint64_t pages)
{
    t->held += pages;
    t->tokens = pages < t->tokens ? t->tokens - pages : 0;
}

static void refund(task_t *t, uint64_t pages)
{
    t->held -= pages;
    if (!t->keep)
        t->tokens = t->tokens + pages < t->burst ? t->tokens + pages : t->burst;
}

/* ---- steps ---- */

/* Blocks above the threads' caches, so that what is freed is given back. */
static uint64_t some_pages(void)
{
    return 129 + world_random(&seed) % 200;
}

static void step_alloc(shmemi_pool_t *p, task_t *t, block_t *b, int client)
{
    uint64_t pages = some_pages();
    void *place = NULL;
    shmem_status_t status =
        shmemi_pool_alloc_default(p, pages * PAGE - world_random(&seed) % 4096, &place);
    CHECK_EQ(status, allows(t, pages) ? SHMEM_OK : SHMEM_ERR_QUOTA);
    if (status)
        return;
    *b = (block_t){place, pages, (int)(t - tasks), client};
    charge(t, pages);
}

static void step_free(shmemi_pool_t *p, block_t *b)
{
    CHECK_OK(shmemi_pool_free(p, b->place));
    CHECK_STATUS(shmemi_pool_free(p, b->place), SHMEM_ERR_DOUBLE_FREE);
    refund(&tasks[b->task], b->pages);
    b->place = NULL;
}

static void step_hold(shmemi_pool_t *p, task_t *t, block_t *b, int client)
{
    bool moves = b->task != (int)(t - tasks), fits = !moves || allows(t, b->pages);
    CHECK_EQ(shmemi_pool_hold(p, b->place), fits ? SHMEM_OK : SHMEM_ERR_QUOTA);
    if (!fits)
        return;
    if (moves) {
        refund(&tasks[b->task], b->pages);
        charge(t, b->pages);
    }
    b->task = (int)(t - tasks);
    b->owner = client;
}

/* It becomes smaller in place, and the caller's, unless another task goes on paying for it. */
static void step_cut(shmemi_pool_t *p, const task_t *t, block_t *b, int client)
{
    uint64_t pages = b->pages - b->pages / 4;
    void *before = b->place;
    CHECK_OK(shmemi_pool_resize(p, &b->place, pages * PAGE));
    CHECK(b->place == before);
    refund(&tasks[b->task], b->pages - pages);
    b->pages = pages;
    size_t bytes;
    CHECK_OK(shmemi_pool_block_bytes(p, b->place, &bytes));
    CHECK_EQ(bytes, pages * PAGE);
    if (b->task == (int)(t - tasks))
        b->owner = client;
}

static void step_quota(shmemi_pool_t *p, task_t *t)
{
    uint64_t r = world_random(&seed);
    shmem_quota_t q = SHMEM_QUOTA_INIT;
    t->limit = r % 4 ? (r >> 8) % 3000 : UINT64_MAX;
    t->burst = t->tokens = r >> 3 & 1 ? (r >> 24) % 3000 : UINT64_MAX;
    t->keep = r >> 4 & 1;
    q.limit = t->limit == UINT64_MAX ? UINT64_MAX : t->limit * PAGE + r % 4096;
    q.burst = t->burst == UINT64_MAX ? UINT64_MAX : t->burst * PAGE;
    q.keep_tokens = t->keep;
    CHECK_OK(shmemi_pool_quota_set(p, t->name, &q));
}

static void step_die(int client)
{
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].place && blocks[i].owner == client) {
            refund(&tasks[blocks[i].task], blocks[i].pages);
            blocks[i].place = NULL;
        }
    world_bury(client);
    for (int t = 0; t < TASKS; t++)
        shmemi_pool_detach(views[client][t]); /* gives back nothing more */
    shmemi_actor_fini(&actors[client]);
    world_client_add(client);
    open_views(client);
}

static void compare(shmemi_pool_t *p)
{
    for (int t = 0; t < TASKS; t++) {
        shmem_quota_t q = SHMEM_QUOTA_INIT;
        CHECK_OK(shmemi_pool_quota_get(p, tasks[t].name, &q));
        CHECK_EQ(q.held, tasks[t].held * PAGE);
        if (tasks[t].burst != UINT64_MAX)
            CHECK_EQ(q.tokens, tasks[t].tokens * PAGE);
    }
}

static void step(void)
{
    uint64_t r = world_random(&seed);
    int client = (int)(r % CLIENTS), t = (int)((r >> 8) % TASKS);
    block_t *b = &blocks[(r >> 16) % BLOCKS];
    shmemi_pool_t *p = views[client][t];
    switch (b->place ? 1 + (r >> 32) % 5 : (r >> 32) % 32) {
    case 1:
    case 2:
        if (b->place)
            step_free(p, b);
        break;
    case 3:
        if (b->place)
            step_hold(p, &tasks[t], b, client);
        break;
    case 4:
        if (b->place && b->pages > 180)
            step_cut(p, &tasks[t], b, client);
        break;
    case 5:
        if (!b->place) {
            step_quota(p, &tasks[t]);
        } else {
            CHECK_OK(shmemi_pool_give(p, b->place));
            b->owner = -1;
        }
        break;
    case 6:
        if (r >> 40 & 1)
            step_die(1 + (int)((r >> 41) % (CLIENTS - 1)));
        break;
    default:
        step_alloc(p, &tasks[t], b, client);
    }
    compare(views[0][0]);
}

static void like_the_model(void)
{
    seed = 8151623;
    world_make(CLIENTS);
    world_pool(PAGES * PAGE, SHMEM_POOL_NEAREST, 0, NULL);
    for (int t = 0; t < TASKS; t++) {
        tasks[t] = (task_t){.limit = UINT64_MAX, .burst = UINT64_MAX, .tokens = UINT64_MAX};
        snprintf(tasks[t].name, sizeof tasks[t].name, "task%d", t);
    }
    for (int i = 0; i < CLIENTS; i++)
        open_views(i);
    for (int i = 0; i < STEPS; i++) {
        step();
        if (i % 100 == 0)
            CHECK_OK(shmemi_pool_check(views[0][0]));
    }
    uint64_t sum = 0;
    for (int t = 0; t < TASKS; t++)
        sum += tasks[t].held;
    CHECK_EQ(world_used(views[0][0]), sum * PAGE);
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].place)
            step_free(views[0][0], &blocks[i]);
    compare(views[0][0]);
    CHECK_EQ(world_used(views[0][0]), 0);
    for (int i = CLIENTS; i-- > 0;) {
        for (int t = 0; t < TASKS; t++)
            shmemi_pool_detach(views[i][t]);
        shmemi_actor_fini(&actors[i]);
    }
}

int main(void)
{
    RUN(like_the_model);
    return harness_end();
}
