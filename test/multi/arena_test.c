/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registration hooks: what an engine is told, when and in which order, and what pins keep. The
 * engine here only writes down what it is told and complains about whatever is told twice, in the
 * wrong order, or about memory that is not there.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "job.h"
#include "job/context.h"

enum { KNOWN = 256 };

/* An engine that keeps the arenas it knows; key: the address of the entry. */
typedef struct ledger {
    pthread_mutex_t lock;
    shmem_arena_info_t arena[KNOWN];
    bool known[KNOWN];
    int announced, withdrawn, refuse; /* refuse: the next n announcements */
    uint64_t last_announced, last_withdrawn;
    bool descending;        /* every withdrawal so far was of an older arena than the one before */
    shmem_context_t inside; /* call the library from within callbacks */
    shmem_status_t inside_said;
} ledger_t;

static void ledger_init(ledger_t *l)
{
    memset(l, 0, sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    l->descending = true;
}

static void withdraw(void *user, const shmem_arena_info_t *arena, void *key);

static shmem_status_t announce(void *user, const shmem_arena_info_t *arena, void **key)
{
    ledger_t *l = user;
    CHECK(*key == NULL && arena->size == sizeof *arena && arena->bytes > 0);
    if (l->inside) {
        const shmem_engine_ops_t ops = {sizeof ops, "inner", announce, withdraw};
        shmem_engine_t engine;
        l->inside_said = shmem_engine_register(l->inside, &ops, l, &engine);
    }
    pthread_mutex_lock(&l->lock);
    CHECK(arena->id > l->last_announced);
    l->last_announced = arena->id;
    if (l->refuse) {
        l->refuse--;
        pthread_mutex_unlock(&l->lock);
        return SHMEM_ERR_LIMIT;
    }
    int i = 0;
    while (i < KNOWN && l->known[i])
        i++;
    CHECK(i < KNOWN);
    for (int j = 0; j < KNOWN; j++)
        CHECK(!l->known[j] || l->arena[j].id != arena->id);
    l->arena[i] = *arena;
    l->known[i] = true;
    l->announced++;
    *(volatile char *)arena->base; /* it is there */
    *key = &l->arena[i];
    pthread_mutex_unlock(&l->lock);
    return SHMEM_OK;
}

static void withdraw(void *user, const shmem_arena_info_t *arena, void *key)
{
    ledger_t *l = user;
    pthread_mutex_lock(&l->lock);
    long i = (shmem_arena_info_t *)key - l->arena;
    CHECK(i >= 0 && i < KNOWN && l->known[i] && l->arena[i].id == arena->id);
    CHECK(l->arena[i].base == arena->base && l->arena[i].bytes == arena->bytes);
    *(volatile char *)arena->base; /* it is still there */
    l->known[i] = false;
    l->descending = l->descending && (!l->withdrawn || arena->id < l->last_withdrawn);
    l->last_withdrawn = arena->id;
    l->withdrawn++;
    pthread_mutex_unlock(&l->lock);
}

static shmem_engine_t engine_of(shmem_context_t context, ledger_t *ledger)
{
    const shmem_engine_ops_t ops = {sizeof ops, "ledger", announce, withdraw};
    shmem_engine_t engine;
    CHECK_OK(shmem_engine_register(context, &ops, ledger, &engine));
    return engine;
}

static shmem_context_t alone(void)
{
    return job_init(NULL, 0, 1);
}

static shmem_arena_info_t arena_of(shmem_context_t context, const void *pointer)
{
    shmem_arena_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_arena_lookup(context, NULL, pointer, &info, NULL));
    CHECK((char *)info.base <= (const char *)pointer);
    CHECK((const char *)pointer < (char *)info.base + info.bytes);
    return info;
}

static uint64_t segments(shmem_context_t context)
{
    shmemi_server_counts_t counts;
    CHECK_OK(shmemi_client_counts(context->client, &counts));
    return counts.segments;
}

/* ---- symmetric memory ---- */

static void parts(int rank, int n, void *arg)
{
    ledger_t before, after;
    shmem_memory_t first, second;
    void *key;
    (void)arg;
    ledger_init(&before);
    ledger_init(&after);
    shmem_context_t context = job_init("arenas", rank, n);
    shmem_engine_t engine = engine_of(context, &before);
    CHECK_OK(shmem_memory_create(context, &first, 100000));
    CHECK_OK(shmem_memory_create(context, &second, 3 << 20));
    CHECK_EQ(before.announced, 0);
    char *mine = shmem_memory_map(first);
    CHECK(mine && shmem_memory_map(first) == mine);
    CHECK_EQ(before.announced, n);
    CHECK(shmem_memory_map(second));
    CHECK_EQ(before.announced, 2 * n);
    shmem_engine_t late = engine_of(context, &after);
    CHECK_EQ(after.announced, 2 * n);
    for (int r = 0; r < n; r++) {
        char *part = shmem_memory_address(first, r);
        shmem_arena_info_t info = {.size = sizeof info};
        CHECK_OK(shmem_arena_lookup(context, engine, part + 4711, &info, &key));
        CHECK(key == &before.arena[r] && info.base == part && info.rank == r);
        CHECK_EQ(info.kind, SHMEM_ARENA_SYMMETRIC);
        CHECK_OK(shmem_arena_lookup(context, late, part + 4711, NULL, &key));
        CHECK(((shmem_arena_info_t *)key)->id == info.id);
    }
    CHECK_STATUS(shmem_arena_lookup(context, engine, &key, NULL, NULL), SHMEM_ERR_NOT_FOUND);
    CHECK_OK(shmem_memory_unmap(mine));
    CHECK_EQ(before.withdrawn, 0);
    CHECK_OK(shmem_memory_unmap(mine));
    CHECK_EQ(before.withdrawn, n);
    CHECK(before.descending && after.descending);
    CHECK_STATUS(shmem_arena_lookup(context, NULL, mine, NULL, NULL), SHMEM_ERR_NOT_FOUND);
    CHECK_OK(shmem_engine_unregister(late));
    CHECK_EQ(after.withdrawn, 2 * n);
    CHECK_STATUS(shmem_engine_unregister(late), SHMEM_ERR_STATE);
    CHECK_OK(shmem_memory_destroy(second));
    CHECK_EQ(before.withdrawn, 2 * n);
    CHECK(shmem_memory_map(first) == mine);
    CHECK_EQ(before.announced, 3 * n);
    CHECK_OK(shmem_context_finalize(context));
    CHECK_EQ(before.withdrawn, 3 * n);
    CHECK_EQ(after.announced, after.withdrawn);
    CHECK_STATUS(shmem_engine_unregister(engine), SHMEM_ERR_STATE);
}

static void symmetric_parts(void)
{
    harness_pes(3, HARNESS_THREAD, 60, parts, NULL);
    if (!harness_has_tsan())
        harness_pes(3, HARNESS_PROC, 60, parts, NULL);
}

/* ---- pins ---- */

static void pins_keep(void)
{
    ledger_t ledger;
    shmem_memory_t memory;
    uint64_t pin[3];
    void *key = NULL;
    ledger_init(&ledger);
    shmem_context_t context = alone();
    shmem_engine_t engine = engine_of(context, &ledger);
    CHECK_OK(shmem_memory_create(context, &memory, 1 << 20));
    char *block = shmem_memory_map(memory);
    shmem_arena_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_arena_pin(context, engine, block + 1, &info, &key, &pin[0]));
    CHECK(info.base == block && key == &ledger.arena[0]);
    CHECK_OK(shmem_arena_pin(context, NULL, block + 2, NULL, NULL, &pin[1]));
    CHECK_STATUS(shmem_context_finalize(context), SHMEM_ERR_BUSY);
    CHECK(strstr(shmem_error_detail()->text, "2 pins, 1 of engine 'ledger'"));
    CHECK_STATUS(shmem_engine_unregister(engine), SHMEM_ERR_BUSY);
    CHECK_OK(shmem_arena_pin(context, engine, block + 3, NULL, NULL, &pin[2])); /* still possible */
    CHECK_OK(shmem_arena_unpin(context, pin[2]));
    CHECK_OK(shmem_memory_unmap(block));
    CHECK_STATUS(shmem_arena_lookup(context, engine, block, NULL, NULL), SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmem_arena_pin(context, engine, block, NULL, NULL, &pin[2]), SHMEM_ERR_NOT_FOUND);
    CHECK_EQ(ledger.withdrawn, 0);
    memset(block, 7, 1 << 20); /* the operation goes on */
    CHECK(shmem_memory_map(memory) == block);
    CHECK_EQ(ledger.announced, 2);
    CHECK_OK(shmem_memory_destroy(memory));
    CHECK_EQ(ledger.withdrawn, 1);
    block[5] = 1;
    CHECK_OK(shmem_arena_unpin(context, pin[0]));
    CHECK_STATUS(shmem_context_finalize(context), SHMEM_ERR_BUSY);
    CHECK_EQ(ledger.withdrawn, 1);
    CHECK_OK(shmem_arena_unpin(context, pin[1]));
    CHECK_EQ(ledger.withdrawn, 2);
    CHECK_STATUS(shmem_arena_unpin(context, pin[1]), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_arena_unpin(context, ~0ull), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_arena_unpin(context, 0), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_context_finalize(context));
    CHECK_STATUS(shmem_arena_unpin(context, pin[1]), SHMEM_ERR_STATE);
    CHECK_EQ(ledger.withdrawn, 2);
}

/* Memory that was destroyed while pinned is unmapped and closed by the last unpin. */
static void destroyed_while_pinned(void)
{
    ledger_t ledger;
    shmem_memory_t memory;
    uint64_t pin;
    ledger_init(&ledger);
    shmem_context_t context = alone();
    engine_of(context, &ledger);
    uint64_t before = segments(context);
    CHECK_OK(shmem_memory_create(context, &memory, 1 << 20));
    char *block = shmem_memory_map(memory);
    CHECK_OK(shmem_arena_pin(context, NULL, block, NULL, NULL, &pin));
    CHECK_OK(shmem_memory_destroy(memory));
    CHECK_STATUS(shmem_memory_destroy(memory), SHMEM_ERR_STATE);
    CHECK_EQ(ledger.withdrawn, 0);
    block[12345] = 1;
    CHECK_EQ(segments(context), before + 1);
    CHECK_OK(shmem_arena_unpin(context, pin));
    CHECK_EQ(ledger.withdrawn, 1);
    CHECK_EQ(segments(context), before);
    CHECK_OK(shmem_context_finalize(context));
}

/* ---- pools ---- */

static shmem_pool_t pool_of(shmem_context_t context, const char *name, uint64_t bytes,
                            uint64_t limit)
{
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = bytes;
    params.limit = limit;
    CHECK_OK(shmem_pool_create(context, name, &params, &pool));
    return pool;
}

/* Two views of a pool share its arenas; the last one to close ends them, after the last pin. */
static void pools(void)
{
    ledger_t ledger;
    shmem_pool_t second;
    char name[32], *block, *other;
    uint64_t pin;
    ledger_init(&ledger);
    shmem_context_t context = alone();
    uint64_t before = segments(context);
    snprintf(name, sizeof name, "arenas-%d", (int)getpid());
    shmem_pool_t pool = pool_of(context, name, 8 << 20, 0);
    CHECK_OK(shmem_pool_alloc(pool, 1000, (void **)&block));
    shmem_arena_info_t info = arena_of(context, block);
    CHECK_EQ(info.kind, SHMEM_ARENA_POOL);
    CHECK_STR(info.name, name);
    CHECK(info.writable && info.node >= 0 && info.rank == -1);
    engine_of(context, &ledger);
    int arenas = ledger.announced;
    CHECK(arenas >= 1);
    CHECK_OK(shmem_pool_open_as(context, name, "other", &second));
    CHECK_OK(shmem_pool_alloc(second, 100000, (void **)&other));
    CHECK_EQ(arena_of(context, other).segment, info.segment);
    CHECK_EQ(ledger.announced, arenas);
    shmem_pool_close(pool);
    CHECK_EQ(ledger.withdrawn, 0);
    CHECK_OK(shmem_arena_pin(context, NULL, other, NULL, NULL, &pin));
    shmem_pool_close(second);
    CHECK_EQ(ledger.withdrawn, 0);
    CHECK_STATUS(shmem_pool_free(second, other), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_arena_lookup(context, NULL, other, NULL, NULL), SHMEM_ERR_NOT_FOUND);
    memset(other, 1, 100000);
    CHECK_EQ(segments(context), before + 1);
    CHECK_OK(shmem_arena_unpin(context, pin));
    CHECK_EQ(ledger.withdrawn, arenas);
    CHECK_EQ(segments(context), before);
    CHECK_OK(shmem_context_finalize(context));
    CHECK_EQ(ledger.withdrawn, arenas);
}

/* ---- growth ---- */

static void other_grows(void *arg)
{
    shmem_pool_t pool;
    void **out = arg, *block = NULL;
    shmem_context_t context = alone();
    CHECK_OK(shmem_pool_open(context, out[1], &pool));
    CHECK_OK(shmem_pool_alloc(pool, 12 << 20, &block));
    CHECK_OK(shmem_pool_give(pool, block));
    out[0] = block;
    shmem_pool_close(pool);
    CHECK_OK(shmem_context_finalize(context));
}

/* What a pool gains is announced when a block of it is handed out, or, if another process made it
 * grow, when it is looked up; it does not go away while an engine knows it. */
static void growth(void)
{
    ledger_t ledger;
    char name[32], *block;
    uint64_t pin, returned;
    void **shared = harness_shared(2 * sizeof *shared);
    ledger_init(&ledger);
    shmem_context_t context = alone();
    snprintf(name, sizeof name, "growing-%d", (int)getpid());
    shmem_pool_t pool = pool_of(context, name, 4 << 20, 64 << 20);
    shmem_engine_t engine = engine_of(context, &ledger);
    int first = ledger.announced;
    CHECK_OK(shmem_pool_alloc(pool, 16 << 20, (void **)&block));
    CHECK(ledger.announced > first);
    int second = ledger.announced;
    for (uint64_t at = 0; at < 16 << 20; at += 1 << 20)
        CHECK(arena_of(context, block + at).bytes > 0);
    CHECK_EQ(ledger.announced, second);
    CHECK(arena_of(context, block + (16 << 20) - 1).generation > 0);
    shared[1] = name;
    if (!harness_has_tsan()) {
        CHECK_EQ(harness_wait(harness_fork(other_grows, shared), 30), 0);
        CHECK_EQ(ledger.announced, second);
        void *key;
        CHECK_OK(shmem_arena_pin(context, engine, shared[0], NULL, &key, &pin));
        CHECK(ledger.announced > second);
        CHECK_OK(shmem_arena_unpin(context, pin));
        CHECK_OK(shmem_pool_free(pool, shared[0]));
    }
    CHECK_OK(shmem_pool_free(pool, block));
    CHECK_OK(shmem_pool_shrink(pool, 0, &returned));
    CHECK_EQ(returned, 0);
    CHECK_OK(shmem_engine_unregister(engine));
    CHECK_EQ(ledger.withdrawn, ledger.announced);
    CHECK(ledger.descending);
    CHECK_OK(shmem_pool_shrink(pool, 0, &returned));
    CHECK(returned >= 16 << 20);
    CHECK_OK(shmem_pool_check(pool));
    CHECK_OK(shmem_context_finalize(context));
}

static void regions(void)
{
    ledger_t ledger;
    shmem_region_t region;
    uint64_t pin;
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    ledger_init(&ledger);
    shmem_context_t context = alone();
    uint64_t before = segments(context);
    params.bytes = 10000;
    params.limit = 1 << 20;
    engine_of(context, &ledger);
    CHECK_OK(shmem_region_create(context, NULL, &params, &region));
    CHECK_EQ(ledger.announced, 0);
    char *at = shmem_region_map(region, SHMEM_MAP_READ_WRITE);
    CHECK_EQ(ledger.announced, 1);
    CHECK_EQ(arena_of(context, at + 12287).bytes, 12288);
    CHECK_EQ(arena_of(context, at).kind, SHMEM_ARENA_REGION);
    CHECK_STATUS(shmem_arena_lookup(context, NULL, at + 12288, NULL, NULL), SHMEM_ERR_NOT_FOUND);
    CHECK_OK(shmem_region_resize(region, 100000));
    CHECK_EQ(ledger.announced, 2);
    CHECK(arena_of(context, at + 12288).base == at + 12288);
    CHECK_EQ(arena_of(context, at + 99999).generation, 1);
    CHECK_OK(shmem_arena_pin(context, NULL, at, NULL, NULL, &pin));
    CHECK_OK(shmem_region_unmap(region));
    shmem_region_close(region);
    CHECK_EQ(ledger.withdrawn, 0);
    at[99999] = 1;
    CHECK_EQ(segments(context), before + 1); /* nobody else gets its place */
    CHECK_OK(shmem_arena_unpin(context, pin));
    CHECK_EQ(ledger.withdrawn, 2);
    CHECK(ledger.descending);
    CHECK_EQ(segments(context), before);
    CHECK_OK(shmem_context_finalize(context));
}

/* ---- engines that refuse, too many, recursive ---- */

static void refusals(void)
{
    ledger_t ledger;
    shmem_memory_t memory, other;
    void *key = &ledger;
    ledger_init(&ledger);
    shmem_context_t context = alone();
    shmem_engine_t engine = engine_of(context, &ledger);
    CHECK_OK(shmem_memory_create(context, &memory, 4096));
    CHECK_OK(shmem_memory_create(context, &other, 4096));
    ledger.refuse = 1;
    char *block = shmem_memory_map(memory), *good = shmem_memory_map(other);
    CHECK_STATUS(shmem_arena_lookup(context, engine, block, NULL, &key), SHMEM_ERR_LIMIT);
    CHECK(key == &ledger && strstr(shmem_error_detail()->text, "'ledger' refused"));
    CHECK_OK(shmem_arena_lookup(context, NULL, block, NULL, &key));
    CHECK(key == NULL);
    CHECK_OK(shmem_arena_lookup(context, engine, good, NULL, &key));
    CHECK_OK(shmem_context_finalize(context));
    CHECK_EQ(ledger.announced, 1);
    CHECK_EQ(ledger.withdrawn, 1);
}

static void misuse(void)
{
    ledger_t ledger;
    shmem_engine_t engine[9], more;
    shmem_engine_ops_t ops = {sizeof ops, NULL, announce, withdraw};
    shmem_arena_info_t info = {0};
    shmem_memory_t memory;
    uint64_t pin;
    ledger_init(&ledger);
    shmem_context_t context = alone(), second = alone();
    for (int i = 0; i < 8; i++)
        CHECK_OK(shmem_engine_register(context, &ops, &ledger, &engine[i]));
    CHECK_STATUS(shmem_engine_register(context, &ops, &ledger, &engine[8]), SHMEM_ERR_LIMIT);
    for (int i = 1; i < 8; i++)
        CHECK_OK(shmem_engine_unregister(engine[i]));
    CHECK_STATUS(shmem_engine_register(NULL, &ops, NULL, &more), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_engine_register(context, NULL, NULL, &more), SHMEM_ERR_INVALID);
    ops.withdraw = NULL;
    CHECK_STATUS(shmem_engine_register(context, &ops, NULL, &more), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_engine_unregister(NULL), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_memory_create(context, &memory, 4096));
    ledger.inside = context;
    char *block = shmem_memory_map(memory);
    CHECK_EQ(ledger.inside_said, SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_arena_lookup(context, NULL, block, &info, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_arena_lookup(second, engine[0], block, NULL, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_arena_lookup(context, engine[1], block, NULL, NULL), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_arena_lookup(second, NULL, block, NULL, NULL), SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmem_arena_pin(context, NULL, block, NULL, NULL, NULL), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_context_finalize(context));
    CHECK_STATUS(shmem_arena_pin(context, NULL, block, NULL, NULL, &pin), SHMEM_ERR_STATE);
    CHECK_OK(shmem_context_finalize(second));
    CHECK_EQ(ledger.announced, ledger.withdrawn);
}

static void child_has_no_engines(void *arg)
{
    shmem_context_t context = arg;
    shmem_engine_t engine;
    const shmem_engine_ops_t ops = {sizeof ops, NULL, announce, withdraw};
    CHECK_STATUS(shmem_arena_lookup(context, NULL, context, NULL, NULL), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_engine_register(context, &ops, NULL, &engine), SHMEM_ERR_STATE);
    shmem_context_finalize(context);
}

static void forked_child(void)
{
    ledger_t *ledger = harness_shared(sizeof *ledger);
    shmem_memory_t memory;
    uint64_t pin;
    ledger_init(ledger);
    shmem_context_t context = alone();
    engine_of(context, ledger);
    CHECK_OK(shmem_memory_create(context, &memory, 4096));
    char *block = shmem_memory_map(memory);
    CHECK_OK(shmem_arena_pin(context, NULL, block, NULL, NULL, &pin));
    CHECK_EQ(harness_wait(harness_fork(child_has_no_engines, context), 20), 0);
    CHECK_EQ(ledger->withdrawn, 0);
    CHECK_OK(shmem_arena_unpin(context, pin));
    CHECK_OK(shmem_context_finalize(context));
    CHECK_EQ(ledger->withdrawn, 1);
}

/* No memory for what the registry keeps: mapping fails as a whole. */
static void no_memory(void)
{
    ledger_t ledger;
    shmem_memory_t memory;
    ledger_init(&ledger);
    shmem_context_t context = alone();
    engine_of(context, &ledger);
    CHECK_OK(shmem_memory_create(context, &memory, 4096));
    shmemi_fault_arm("job.arenas.known", SHMEMI_FAULT_FAIL, 1);
    CHECK(!shmem_memory_map(memory));
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_NOMEM);
    CHECK_EQ(shmemi_fault_passages(), 1);
    shmemi_fault_disarm();
    CHECK_EQ(ledger.announced, ledger.withdrawn);
    char *block = shmem_memory_map(memory);
    CHECK(block);
    arena_of(context, block);
    CHECK_OK(shmem_context_finalize(context));
    CHECK_EQ(ledger.announced, 1);
    CHECK_EQ(ledger.withdrawn, 1);
}

/* ---- threads ---- */

typedef struct crowd {
    shmem_context_t context;
    shmem_engine_t engine;
    ledger_t ledger;
    char *steady, *moving;
    _Atomic bool stop;
    _Atomic long found, missed;
} crowd_t;

static void look(crowd_t *c, char *at, bool steady)
{
    shmem_arena_info_t info = {.size = sizeof info};
    void *key = NULL;
    uint64_t pin;
    shmem_status_t status = shmem_arena_pin(c->context, c->engine, at, &info, &key, &pin);
    if (status == SHMEM_ERR_NOT_FOUND && !steady) {
        atomic_fetch_add(&c->missed, 1);
        return;
    }
    CHECK_OK(status);
    CHECK(at >= (char *)info.base && at < (char *)info.base + info.bytes);
    long i = (shmem_arena_info_t *)key - c->ledger.arena;
    CHECK(i >= 0 && i < KNOWN);
    pthread_mutex_lock(&c->ledger.lock); /* as long as it is pinned it is announced, and there */
    CHECK(c->ledger.known[i] && c->ledger.arena[i].id == info.id);
    pthread_mutex_unlock(&c->ledger.lock);
    ((_Atomic char *)at)[0] = 1;
    CHECK_OK(shmem_arena_unpin(c->context, pin));
    atomic_fetch_add(&c->found, 1);
}

static void *looker(void *arg)
{
    crowd_t *c = arg;
    while (!atomic_load(&c->stop)) {
        look(c, c->steady + 100, true);
        look(c, c->moving + 100, false);
    }
    return NULL;
}

static void *comer(void *arg)
{
    crowd_t *c = arg;
    while (!atomic_load(&c->stop)) {
        ledger_t ledger;
        ledger_init(&ledger);
        CHECK_OK(shmem_engine_unregister(engine_of(c->context, &ledger)));
        CHECK_EQ(ledger.announced, ledger.withdrawn);
    }
    return NULL;
}

static void threads(void)
{
    static crowd_t c;
    shmem_memory_t steady, moving;
    pthread_t thread[4];
    ledger_init(&c.ledger);
    c.context = alone();
    c.engine = engine_of(c.context, &c.ledger);
    CHECK_OK(shmem_memory_create(c.context, &moving, 4096));
    CHECK_OK(shmem_memory_create(c.context, &steady, 4096));
    c.moving = shmem_memory_map(moving);
    c.steady = shmem_memory_map(steady);
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&thread[i], NULL, i < 3 ? looker : comer, &c));
    double end = harness_now() + 0.7;
    for (int i = 0; i < 50 || harness_now() < end; i++) {
        CHECK_OK(shmem_memory_unmap(c.moving));
        CHECK(shmem_memory_map(moving) == c.moving);
    }
    atomic_store(&c.stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK(c.found > 0);
    CHECK_OK(shmem_context_finalize(c.context));
    CHECK_EQ(c.ledger.announced, c.ledger.withdrawn);
}

/* ---- places ---- */

typedef struct meeting {
    shmem_arena_place_t place;
    void *pointer;
} meeting_t;

static void places(int rank, int n, void *arg)
{
    meeting_t *m = arg;
    shmem_memory_t memory;
    void *pointer = NULL;
    shmem_context_t context = job_init("places", rank, n);
    CHECK_OK(shmem_memory_create(context, &memory, 1 << 20));
    char *mine = shmem_memory_map(memory);
    if (rank == 0) {
        m->pointer = mine + 777;
        CHECK_OK(shmem_arena_export(context, m->pointer, &m->place));
        CHECK_STATUS(shmem_arena_export(context, m, &m->place), SHMEM_ERR_NOT_FOUND);
    }
    CHECK_OK(shmem_context_barrier(context));
    CHECK_OK(shmem_arena_import(context, &m->place, &pointer));
    CHECK(pointer == m->pointer);
    shmem_arena_place_t wrong = m->place;
    wrong.file[1]++;
    CHECK_STATUS(shmem_arena_import(context, &wrong, &pointer), SHMEM_ERR_NOT_FOUND);
    wrong = m->place;
    wrong.offset = UINT64_MAX - 5;
    CHECK_STATUS(shmem_arena_import(context, &wrong, &pointer), SHMEM_ERR_NOT_FOUND);
    CHECK_OK(shmem_memory_unmap(mine));
    CHECK_STATUS(shmem_arena_import(context, &m->place, &pointer), SHMEM_ERR_NOT_FOUND);
    CHECK_OK(shmem_context_finalize(context));
}

static void places_travel(void)
{
    meeting_t *m = harness_shared(sizeof *m);
    harness_pes(2, HARNESS_THREAD, 60, places, m);
    if (!harness_has_tsan())
        harness_pes(2, HARNESS_PROC, 60, places, m);
}

static void cases(void)
{
    RUN(symmetric_parts);
    RUN(pins_keep);
    RUN(destroyed_while_pinned);
    RUN(pools);
    RUN(growth);
    RUN(regions);
    RUN(refusals);
    RUN(misuse);
    RUN(forked_child);
    RUN(no_memory);
    RUN(threads);
    RUN(places_travel);
}

JOB_MAIN(cases())
