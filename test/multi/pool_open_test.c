/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools by name: one view for a context and task, names that go away, creators, openers and
 * destroyers that die, a server that does not answer.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "job.h"
#include "job/context.h"
#include "memory/pool_core.h"
#include "os/space.h"

enum { MIB = 1 << 20 };

static shmem_context_t join_alone(void)
{
    shmem_context_t context;
    CHECK_OK(job_try_init(&context, NULL, 0, 1, 20));
    return context;
}

static shmem_pool_t make(shmem_context_t context, const char *name, uint64_t bytes)
{
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = bytes;
    CHECK_OK(shmem_pool_create(context, name, &params, &pool));
    return pool;
}

static uint64_t used(shmem_pool_t pool)
{
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_pool_trim(pool));
    CHECK_OK(shmem_pool_info(pool, &info));
    return info.used_bytes;
}

static uint64_t segments(shmem_context_t context)
{
    shmemi_server_counts_t counts;
    CHECK_OK(shmemi_client_counts(context->client, &counts));
    return counts.segments;
}

/* ---- one view ---- */

static void what_is_open_asks_nobody(void)
{
    shmem_context_t context = join_alone();
    shmem_pool_t pool = make(context, "cached", MIB), again;
    kill(job_server.pid, SIGSTOP);
    double begin = harness_now();
    for (int i = 0; i < 10000; i++) {
        CHECK_OK(shmem_pool_open(context, "cached", &again));
        CHECK(again == pool);
    }
    double each = (harness_now() - begin) / 10000;
    kill(job_server.pid, SIGCONT);
    CHECK(each < 0.0001);
    for (int i = 0; i < 10000; i++)
        shmem_pool_close(again);
    void *block;
    CHECK_OK(shmem_pool_alloc(pool, 100, &block)); /* it is still open once */
    shmem_pool_close(pool);
    CHECK_STATUS(shmem_pool_alloc(pool, 100, &block), SHMEM_ERR_STATE);
    CHECK_STATUS(shmem_pool_open(context, "cached", &again), SHMEM_ERR_NOT_FOUND);
    CHECK_OK(shmem_context_finalize(context));
}

static void views_by_task(void)
{
    shmem_context_t context = join_alone();
    shmem_pool_t none = make(context, "tasks", 4 * MIB), a, b, same;
    void *of_none, *of_a, *of_b;
    CHECK_OK(shmem_pool_open_as(context, "tasks", "a", &a));
    CHECK_OK(shmem_pool_open_as(context, "tasks", "b", &b));
    CHECK_OK(shmem_pool_open_as(context, "tasks", "a", &same));
    CHECK(a != none && b != none && a != b && a == same);
    CHECK_OK(shmem_pool_open(context, "tasks", &same));
    CHECK(same == none);
    CHECK_OK(shmem_pool_alloc(none, 1000, &of_none));
    CHECK_OK(shmem_pool_alloc(a, 100000, &of_a));
    CHECK_OK(shmem_pool_alloc(b, 1000, &of_b));
    CHECK_OK(shmem_pool_free(b, of_a)); /* whoever frees */
    CHECK_OK(shmem_pool_alloc(a, 2000, &of_a));
    shmem_pool_close(a);
    shmem_pool_close(b); /* its block goes, those of the others stay */
    CHECK_OK(shmem_pool_check(none));
    CHECK_OK(shmem_pool_free(none, of_a));
    CHECK_OK(shmem_pool_free(none, of_none));
    CHECK_STATUS(shmem_pool_free(none, of_b), SHMEM_ERR_DOUBLE_FREE);
    shmem_pool_close(a);
    CHECK_EQ(used(none), 0);
    CHECK_STATUS(shmem_pool_open_as(context, "tasks", "", &a), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_open_as(context, "tasks", "a b", &a), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_context_finalize(context));
}

static void task_of_the_process(void)
{
    setenv("SHMEM_TASK", "from-outside", 1);
    shmem_context_t context = join_alone();
    unsetenv("SHMEM_TASK");
    shmem_pool_t pool = make(context, NULL, MIB);
    void *block;
    shmem_quota_t quota = SHMEM_QUOTA_INIT;
    CHECK_OK(shmem_pool_alloc(pool, 100000, &block));
    CHECK_OK(shmem_pool_quota_get(pool, "from-outside", &quota));
    CHECK(quota.held >= 100000);
    CHECK_OK(shmem_pool_quota_get(pool, NULL, &quota));
    CHECK_EQ(quota.held, 0);
    CHECK_OK(shmem_context_finalize(context));
}

/* Threads open, use and close one pool at the same time: a view never takes another's blocks. */
enum { OPENERS = 4, OPENINGS = 150 };

static void *open_and_close(void *arg)
{
    shmem_context_t context = arg;
    for (int i = 0; i < OPENINGS; i++) {
        shmem_pool_t pool;
        unsigned char *block;
        CHECK_OK(shmem_pool_open(context, "crowd", &pool));
        CHECK_OK(shmem_pool_alloc(pool, 64 + (size_t)i * 50, (void **)&block));
        memset(block, i, 64 + (size_t)i * 50);
        if (i % 16 == 0)
            sched_yield();
        CHECK_EQ(block[63], i & 255);
        CHECK_OK(shmem_pool_free(pool, block));
        shmem_pool_close(pool);
    }
    return NULL;
}

static void threads_open_at_once(void)
{
    shmem_context_t keeper = join_alone(), context = join_alone();
    shmem_pool_t pool = make(keeper, "crowd", 8 * MIB);
    pthread_t threads[OPENERS];
    for (int i = 0; i < OPENERS; i++)
        CHECK(pthread_create(&threads[i], NULL, open_and_close, context) == 0);
    for (int i = 0; i < OPENERS; i++)
        pthread_join(threads[i], NULL);
    CHECK_OK(shmem_context_finalize(context));
    CHECK_OK(shmem_pool_check(pool));
    CHECK_EQ(used(pool), 0);
    CHECK_OK(shmem_context_finalize(keeper));
}

/* One thread creates, another opens by name as soon as it can: the same handle. */
static void *open_when_there(void *arg)
{
    shmem_context_t context = arg;
    shmem_pool_t pool;
    shmem_status_t status = SHMEM_ERR_NOT_FOUND;
    for (double end = harness_now() + 20; status == SHMEM_ERR_NOT_FOUND && harness_now() < end;)
        status = shmem_pool_open(context, "born", &pool);
    CHECK_OK(status);
    return pool;
}

static void opened_while_created(void)
{
    shmem_context_t context = join_alone();
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        void *other;
        CHECK(pthread_create(&thread, NULL, open_when_there, context) == 0);
        shmem_pool_t pool = make(context, "born", 8 * MIB);
        pthread_join(thread, &other);
        CHECK(other == pool);
        shmem_pool_close(pool);
        shmem_pool_close(pool);
    }
    CHECK_OK(shmem_context_finalize(context));
}

/* ---- names that go away ---- */

static void a_destroyed_name_means_nothing(void)
{
    shmem_context_t first = join_alone(), second = join_alone();
    shmem_pool_t a = make(first, "gone", MIB), b, c;
    void *block, *more;
    CHECK_OK(shmem_pool_open(second, "gone", &b));
    CHECK_OK(shmem_pool_alloc(b, 1000, &block));
    CHECK_OK(shmem_pool_destroy(second, "gone"));
    CHECK_STATUS(shmem_pool_open(first, "gone", &c), SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmem_pool_open(second, "gone", &c), SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmem_pool_destroy(second, "gone"), SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmem_pool_alloc(a, 100000, &more), SHMEM_ERR_STATE);
    memset(block, 1, 1000); /* who has it open goes on */
    CHECK_OK(shmem_pool_free(b, block));
    shmem_pool_t heir = make(first, "gone", 2 * MIB);
    CHECK(heir != a);
    CHECK_OK(shmem_pool_open(second, "gone", &c));
    CHECK(c != b);
    CHECK_OK(shmem_pool_alloc(c, 1000, &block));
    CHECK_STATUS(shmem_pool_free(b, block), SHMEM_ERR_FOREIGN_POINTER);
    CHECK_OK(shmem_pool_free(heir, block));
    CHECK_OK(shmem_context_finalize(first));
    CHECK_OK(shmem_context_finalize(second));
}

static void other_names_do_not_matter(void)
{
    shmem_context_t context = join_alone();
    shmem_pool_t pool = make(context, "stays", MIB), again;
    for (int i = 0; i < 5; i++) {
        shmem_pool_close(make(context, "passes", MIB)); /* a name went away */
        CHECK_OK(shmem_pool_open(context, "stays", &again));
        CHECK(again == pool);
    }
    uint64_t before = segments(context);
    CHECK_OK(shmem_pool_open(context, "stays", &again));
    CHECK_EQ(segments(context), before);
    CHECK_OK(shmem_context_finalize(context));
}

static void lists(void)
{
    shmem_context_t context = join_alone(), other = join_alone();
    shmem_pool_entry_t entries[8];
    size_t count = 99;
    CHECK_OK(shmem_pool_list(context, NULL, 0, &count));
    CHECK_EQ(count, 0);
    shmem_pool_t pool;
    make(context, NULL, MIB); /* nobody else's business */
    make(context, "list/one", MIB);
    make(context, "list/two", 3 * MIB);
    CHECK_OK(shmem_pool_open(other, "list/two", &pool));
    CHECK_OK(shmem_pool_list(context, entries, 8, &count));
    CHECK_EQ(count, 2);
    const shmem_pool_entry_t *two = &entries[strcmp(entries[0].name, "list/two") != 0];
    CHECK_STR(two->name, "list/two");
    CHECK(two->bytes >= 3 * MIB && two->uid == getuid() && two->users == 2 && !two->access);
    CHECK_OK(shmem_pool_list(context, entries, 1, &count));
    CHECK_EQ(count, 2);
    CHECK_OK(shmem_pool_destroy(context, "list/two"));
    CHECK_OK(shmem_pool_list(context, entries, 8, &count));
    CHECK_EQ(count, 1);
    CHECK_STR(entries[0].name, "list/one");
    CHECK_STATUS(shmem_pool_list(context, NULL, 1, &count), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_context_finalize(context));
    CHECK_OK(shmem_context_finalize(other));
}

/* ---- deaths ---- */

static void doomed_creator(void *arg)
{
    shmem_context_t context = join_alone();
    shmemi_fault_arm(arg, SHMEMI_FAULT_KILL, 1);
    make(context, "doomed", 4 * MIB);
    _exit(1); /* the point was not passed */
}

static void doomed_opener(void *arg)
{
    shmem_context_t context = join_alone();
    shmem_pool_t pool;
    shmemi_fault_arm(arg, SHMEMI_FAULT_KILL, 1);
    CHECK_OK(shmem_pool_open_as(context, "doomed", "mine", &pool));
    _exit(1);
}

static void doomed_destroyer(void *arg)
{
    shmem_context_t context = join_alone();
    shmemi_fault_arm(arg, SHMEMI_FAULT_KILL, 1);
    CHECK_OK(shmem_pool_destroy(context, "doomed"));
    _exit(1);
}

static void await_segments(shmem_context_t context, uint64_t n)
{
    double end = harness_now() + 10;
    while (segments(context) != n && harness_now() < end)
        harness_sleep(0.002);
    CHECK_EQ(segments(context), n);
}

static void creators_die(void)
{
    static const char *const points[] = {"job.pool.created", "job.pool.claimed",
                                         "job.pool.reserving", "job.pool.formatted"};
    if (harness_has_tsan())
        SKIP("forks processes that are killed");
    shmem_context_t context = join_alone();
    uint64_t before = segments(context);
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        pid_t pid = harness_fork(doomed_creator, (void *)(uintptr_t)points[i]);
        CHECK_EQ(harness_wait(pid, 20), -SIGKILL);
        await_segments(context, before);
    }
    CHECK_OK(shmem_context_finalize(context));
}

static void openers_and_destroyers_die(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed");
    shmem_context_t context = join_alone();
    uint64_t before = segments(context);
    shmem_pool_t pool = make(context, "doomed", 4 * MIB), again;
    void *block;
    CHECK_EQ(harness_wait(harness_fork(doomed_opener, "memory.task.named"), 20), -SIGKILL);
    CHECK_OK(shmem_pool_check(pool));
    CHECK_EQ(harness_wait(harness_fork(doomed_destroyer, "job.pool.marked"), 20), -SIGKILL);
    CHECK_STATUS(shmem_pool_alloc(pool, 1000, &block), SHMEM_ERR_STATE);
    CHECK_OK(shmem_pool_destroy(context, "doomed")); /* completes it */
    CHECK_STATUS(shmem_pool_open(context, "doomed", &again), SHMEM_ERR_NOT_FOUND);
    shmem_pool_close(pool);
    pool = make(context, "doomed", 4 * MIB);
    CHECK_EQ(harness_wait(harness_fork(doomed_destroyer, "job.pool.unlinked"), 20), -SIGKILL);
    CHECK_STATUS(shmem_pool_open(context, "doomed", &again), SHMEM_ERR_NOT_FOUND);
    CHECK_STATUS(shmem_pool_alloc(pool, 1000, &block), SHMEM_ERR_STATE);
    shmem_pool_close(pool);
    await_segments(context, before);
    CHECK_OK(shmem_context_finalize(context));
}

static shmem_context_t other_context;
static shmem_pool_t other_pool;

static void replace(void)
{
    CHECK_OK(shmem_pool_destroy(other_context, "doomed"));
    other_pool = make(other_context, "doomed", 4 * MIB);
}

/* Who destroys a pool leaves the one alone that has got its name meanwhile. */
static void another_of_that_name(void)
{
    shmem_context_t context = join_alone();
    void *block;
    other_context = join_alone();
    shmem_pool_t pool = make(context, "doomed", 4 * MIB), again;
    shmemi_fault_arm_call("job.pool.marked", replace, 1);
    CHECK_STATUS(shmem_pool_destroy(context, "doomed"), SHMEM_ERR_NOT_FOUND);
    shmemi_fault_disarm();
    CHECK_STATUS(shmem_pool_alloc(pool, 1000, &block), SHMEM_ERR_STATE);
    CHECK_OK(shmem_pool_alloc(other_pool, 1000, &block));
    CHECK_OK(shmem_pool_open(other_context, "doomed", &again));
    CHECK(again == other_pool);
    CHECK_OK(shmem_pool_destroy(context, "doomed"));
    CHECK_STATUS(shmem_pool_alloc(other_pool, 100000, &block), SHMEM_ERR_STATE);
    CHECK_OK(shmem_context_finalize(other_context));
    CHECK_OK(shmem_context_finalize(context));
}

/* ---- waiting for a creator ---- */

static void endless_creator(void *arg)
{
    shmem_context_t c = join_alone();
    shmemi_segment_t segment;
    void *memory;
    shmemi_segment_request_t request = {
        .name = "pool/endless", .bytes = 4 * MIB, .kind = SHMEMI_SEGMENT_POOL, .reserve = 1};
    CHECK_OK(shmemi_client_segment_create(c->client, &request, &segment));
    CHECK_OK(shmemi_space_map(segment.offset, segment.bytes, segment.fd, 1, &memory));
    shmemi_pool_claim(memory, c->actor);
    atomic_store((atomic_int *)arg, 1);
    pause();
}

static void hasty_creator(void *arg)
{
    shmem_context_t c = join_alone();
    shmemi_segment_t segment;
    shmemi_segment_request_t request = {
        .name = "pool/hasty", .bytes = 4 * MIB, .kind = SHMEMI_SEGMENT_POOL, .reserve = 1};
    CHECK_OK(shmemi_client_segment_create(c->client, &request, &segment));
    atomic_store((atomic_int *)arg, 1);
    pause();
}

/* A creator is killed before it did anything, and somebody has what it left open: the name is free
 * all the same. */
static void the_name_of_the_dead_is_free(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed");
    atomic_int *stage = harness_shared(sizeof *stage);
    pid_t creator = harness_fork(hasty_creator, stage);
    while (!atomic_load(stage))
        harness_sleep(0.001);
    shmem_context_t context = join_alone(), other = join_alone();
    shmemi_segment_t left;
    shmem_pool_t pool;
    CHECK_OK(shmemi_client_segment_open(other->client, "pool/hasty", SHMEMI_RIGHTS_WRITE, &left));
    kill(creator, SIGKILL);
    CHECK_EQ(harness_wait(creator, 10), -SIGKILL);
    CHECK_STATUS(shmem_pool_open(context, "hasty", &pool), SHMEM_ERR_NOT_FOUND);
    shmem_pool_close(make(context, "hasty", MIB));
    CHECK_OK(shmem_context_finalize(other));
    CHECK_OK(shmem_context_finalize(context));
}

static void *await_endless(void *context)
{
    shmem_pool_t pool;
    CHECK_STATUS(shmem_pool_open(context, "endless", &pool), SHMEM_ERR_NOT_FOUND);
    return NULL;
}

/* Who waits for a creator keeps nobody else of its process, and not its connection. */
static void waiting_holds_up_nobody(void)
{
    if (harness_has_tsan())
        SKIP("forks processes that are killed");
    atomic_int *stage = harness_shared(sizeof *stage);
    pid_t creator = harness_fork(endless_creator, stage);
    while (!atomic_load(stage))
        harness_sleep(0.001);
    shmem_context_t context = join_alone();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, await_endless, context) == 0);
    harness_sleep(0.05);
    double begin = harness_now();
    shmem_pool_t pool = make(context, "quick", MIB), again;
    CHECK_OK(shmem_pool_open(context, "quick", &again));
    shmem_pool_close(again);
    shmem_pool_close(pool);
    CHECK(harness_now() - begin < 1);
    kill(creator, SIGKILL);
    CHECK_EQ(harness_wait(creator, 10), -SIGKILL);
    pthread_join(thread, NULL);
    CHECK_OK(shmem_context_finalize(context));
}

JOB_MAIN({
    RUN(what_is_open_asks_nobody);
    RUN(views_by_task);
    RUN(task_of_the_process);
    RUN(threads_open_at_once);
    RUN(opened_while_created);
    RUN(a_destroyed_name_means_nothing);
    RUN(other_names_do_not_matter);
    RUN(lists);
    RUN(creators_die);
    RUN(openers_and_destroyers_die);
    RUN(another_of_that_name);
    RUN(waiting_holds_up_nobody);
    RUN(the_name_of_the_dead_is_free);
})
