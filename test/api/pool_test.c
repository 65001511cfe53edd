/* SPDX-License-Identifier: Apache-2.0 */
/* Pools as a program uses them: one process, several processes, and processes that die. */
#include <shmem/shmem.h>

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"

static shmem_context_t context;

static void begin(void)
{
    CHECK_OK(shmem_context_init(&context));
}

static void end(void)
{
    CHECK_OK(shmem_context_finalize(context));
}

static shmem_pool_t make(const char *name, uint64_t bytes)
{
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_t pool = NULL;
    params.bytes = bytes;
    CHECK_OK(shmem_pool_create(context, name, &params, &pool));
    return pool;
}

static const char *name_of(const char *what)
{
    static char name[64];
    snprintf(name, sizeof name, "test/%s-%d", what, (int)getppid() ^ (int)(harness_now() * 1e3));
    return name;
}

static uint64_t used(shmem_pool_t pool)
{
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_pool_info(pool, &info));
    return info.used_bytes;
}

static void life_of_a_block(void)
{
    begin();
    shmem_pool_t pool = make(NULL, 64 << 20);
    char *a, *b;
    size_t bytes;
    CHECK_OK(shmem_pool_alloc(pool, 1000, (void **)&a));
    CHECK_OK(shmem_pool_alloc_aligned(pool, 100000, 1 << 16, (void **)&b));
    CHECK((uintptr_t)a % 128 == 0 && (uintptr_t)b % (1 << 16) == 0);
    memset(a, 1, 1000);
    memset(b, 2, 100000);
    CHECK_OK(shmem_pool_block_bytes(pool, a, &bytes));
    CHECK_EQ(bytes, 1024);
    CHECK_OK(shmem_pool_resize(pool, (void **)&a, 500000));
    CHECK(a[0] == 1 && a[999] == 1);
    CHECK_STATUS(shmem_pool_free(pool, b + 4096), SHMEM_ERR_INTERIOR_POINTER);
    CHECK_STATUS(shmem_pool_free(pool, &bytes), SHMEM_ERR_FOREIGN_POINTER);
    CHECK_OK(shmem_pool_free(pool, a));
    CHECK_STATUS(shmem_pool_free(pool, a), SHMEM_ERR_DOUBLE_FREE);
    CHECK_OK(shmem_pool_free(pool, b));
    CHECK_OK(shmem_pool_free(pool, NULL));
    CHECK_OK(shmem_pool_check(pool));
    CHECK_OK(shmem_pool_trim(pool));
    CHECK_EQ(used(pool), 0);
    CHECK_OK(shmem_pool_alloc_on(pool, 100, 0, SHMEM_POOL_BIND, 0, (void **)&a));
    CHECK_STATUS(shmem_pool_alloc_on(pool, 100, 0, SHMEM_POOL_BIND, 99, (void **)&a),
                 SHMEM_ERR_INVALID);
    shmem_pool_close(pool);
    shmem_pool_close(NULL);
    end();
}

static void null_arguments(void)
{
    begin();
    void *block = NULL;
    size_t bytes;
    shmem_pool_t pool = NULL;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_STATUS(shmem_pool_create(NULL, NULL, &params, &pool), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_create(context, NULL, NULL, &pool), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_create(context, NULL, &params, &pool), SHMEM_ERR_INVALID); /* 0 bytes */
    params.bytes = 4096;
    CHECK_STATUS(shmem_pool_create(context, NULL, &params, NULL), SHMEM_ERR_INVALID);
    params.size = 4;
    CHECK_STATUS(shmem_pool_create(context, NULL, &params, &pool), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_open(NULL, "x", &pool), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_open(context, NULL, &pool), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_open(context, "x", NULL), SHMEM_ERR_INVALID);
    CHECK(pool == NULL);
    CHECK_STATUS(shmem_pool_alloc(NULL, 8, &block), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_alloc_aligned(NULL, 8, 64, &block), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_alloc_on(NULL, 8, 64, SHMEM_POOL_NEAREST, 0, &block),
                 SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_free(NULL, &bytes), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_resize(NULL, &block, 8), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_block_bytes(NULL, &bytes, &bytes), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_info(NULL, &info), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_check(NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_trim(NULL), SHMEM_ERR_INVALID);
    end();
}

static void names(void)
{
    begin();
    static const char *const bad[] = {
        "",    " ",           "a b",
        "x\n", "k\xc3\xa4se", "0123456789012345678901234567890123456789012345678901234567890123"};
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_t pool = NULL, same = NULL;
    params.bytes = 1 << 20;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_STATUS(shmem_pool_create(context, bad[i], &params, &pool), SHMEM_ERR_INVALID);
        CHECK_STATUS(shmem_pool_open(context, bad[i], &pool), SHMEM_ERR_INVALID);
    }
    const char *name = name_of("names");
    CHECK_STATUS(shmem_pool_open(context, name, &pool), SHMEM_ERR_NOT_FOUND);
    CHECK(pool == NULL);
    pool = make(name, 1 << 20);
    CHECK_STATUS(shmem_pool_create(context, name, &params, &same), SHMEM_ERR_EXISTS);
    CHECK(same == NULL);
    CHECK_OK(shmem_pool_open(context, name, &same)); /* one view for each client */
    void *block;
    CHECK_OK(shmem_pool_alloc(pool, 100, &block));
    shmem_pool_close(same);
    CHECK_OK(shmem_pool_free(pool, block)); /* still open, nothing was given back */
    shmem_pool_close(pool);
    CHECK_STATUS(shmem_pool_open(context, name, &same), SHMEM_ERR_NOT_FOUND);
    pool = make(name, 2 << 20);
    shmem_pool_close(pool);
    end();
}

static void sizes(void)
{
    begin();
    static const uint64_t good[] = {1, 4096, 5 * 4096, (2 << 20) + 4096, 100 << 20};
    shmem_pool_info_t info = {.size = sizeof info};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        shmem_pool_t pool = make(NULL, good[i]);
        CHECK_OK(shmem_pool_info(pool, &info));
        CHECK(info.bytes >= good[i] && info.bytes < good[i] + 4096 * (uint64_t)(info.nodes + 1));
        void *all;
        CHECK_OK(shmem_pool_alloc(pool, info.bytes / (uint64_t)info.nodes, &all));
        memset(all, 1, info.bytes / (uint64_t)info.nodes);
        shmem_pool_close(pool);
    }
    static const uint64_t bad[] = {UINT64_MAX, 1ull << 63, 1ull << 46};
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_t none = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        params.bytes = bad[i];
        CHECK(shmem_pool_create(context, NULL, &params, &none) != SHMEM_OK);
        CHECK(none == NULL && *shmem_error_detail()->text);
    }
    end();
}

/* ---- several processes ---- */

typedef struct message {
    char name[64];
    void *block; /* the same address in all processes */
    _Atomic int stage;
} message_t;

static message_t *message;

static void await(int stage)
{
    for (double limit = harness_now() + 20; message->stage != stage; harness_sleep(0.0005))
        CHECK(harness_now() < limit);
}

static void reader(void *arg)
{
    (void)arg;
    shmem_pool_t pool;
    begin();
    CHECK_OK(shmem_pool_open(context, message->name, &pool));
    void **list = message->block;
    CHECK(strcmp(list[0], "first") == 0 && strcmp(list[1], "second") == 0);
    CHECK_OK(shmem_pool_free(pool, list[1])); /* another process's block */
    CHECK_OK(shmem_pool_alloc(pool, 3000, &list[1]));
    strcpy(list[1], "third");
    message->stage = 1;
    await(2);
    shmem_pool_close(pool);
    end();
}

static void pointers_in_shared_memory(void)
{
    message = harness_shared(sizeof *message);
    strcpy(message->name, name_of("pointers"));
    pid_t child;
    begin();
    shmem_pool_t pool = make(message->name, 16 << 20);
    void **list;
    CHECK_OK(shmem_pool_alloc(pool, 64, (void **)&list));
    CHECK_OK(shmem_pool_alloc(pool, 100, &list[0]));
    CHECK_OK(shmem_pool_alloc(pool, 100, &list[1]));
    strcpy(list[0], "first");
    strcpy(list[1], "second");
    message->block = list;
    child = harness_fork(reader, NULL);
    await(1);
    CHECK(strcmp(list[1], "third") == 0);
    CHECK_OK(shmem_pool_check(pool));
    message->stage = 2;
    CHECK_EQ(harness_wait(child, 20), 0);
    CHECK_STATUS(shmem_pool_free(pool, list[1]), SHMEM_ERR_DOUBLE_FREE); /* went with its process */
    CHECK_OK(shmem_pool_free(pool, list[0]));
    CHECK_OK(shmem_pool_free(pool, list));
    CHECK_OK(shmem_pool_trim(pool));
    CHECK_EQ(used(pool), 0);
    shmem_pool_close(pool);
    end();
}

static void holder(void *arg)
{
    (void)arg;
    shmem_pool_t pool;
    void *block;
    begin();
    CHECK_OK(shmem_pool_open(context, message->name, &pool));
    for (int i = 1; i < 100; i++)
        CHECK_OK(shmem_pool_alloc(pool, (size_t)i * 1000, &block));
    message->stage = 1;
    pause();
}

/* The blocks of a killed process are back within a second. */
static void blocks_of_the_killed_come_back(void)
{
    message = harness_shared(sizeof *message);
    strcpy(message->name, name_of("killed"));
    begin();
    shmem_pool_t pool = make(message->name, 64 << 20);
    pid_t child = harness_fork(holder, NULL);
    await(1);
    CHECK(used(pool) > 4000000);
    double killed = harness_now();
    kill(child, SIGKILL);
    CHECK_EQ(harness_wait(child, 10), -SIGKILL);
    while (used(pool) && harness_now() < killed + 10)
        harness_sleep(0.002);
    CHECK_EQ(used(pool), 0);
    CHECK(harness_now() - killed < 1);
    CHECK_OK(shmem_pool_check(pool));
    shmem_pool_close(pool);
    end();
}

static void child_of_a_user(void *arg)
{
    void *block;
    CHECK_STATUS(shmem_pool_alloc(arg, 8, &block), SHMEM_ERR_STATE);
    shmem_pool_close(arg);
    shmem_context_finalize(context); /* the private parts of the copy */
    begin(); /* a context of its own works */
    shmem_pool_t pool = make(NULL, 1 << 20);
    CHECK_OK(shmem_pool_alloc(pool, 8, &block));
    end();
}

static void a_forked_child_makes_its_own(void)
{
    begin();
    shmem_pool_t pool = make(NULL, 1 << 20);
    void *block;
    CHECK_OK(shmem_pool_alloc(pool, 100, &block));
    strcpy(block, "mine");
    CHECK_EQ(harness_wait(harness_fork(child_of_a_user, pool), 20), 0);
    CHECK(strcmp(block, "mine") == 0);
    CHECK_OK(shmem_pool_free(pool, block));
    end(); /* closes the pool */
}

static void two_contexts_in_one_process(void)
{
    shmem_context_t first, second;
    shmem_pool_t pool, same;
    void *a, *b;
    const char *name = name_of("two");
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = 8 << 20;
    CHECK_OK(shmem_context_init(&first));
    CHECK_OK(shmem_context_init(&second));
    CHECK_OK(shmem_pool_create(first, name, &params, &pool));
    CHECK_OK(shmem_pool_open(second, name, &same));
    CHECK(pool != same);
    CHECK_OK(shmem_pool_alloc(pool, 1000, &a));
    CHECK_OK(shmem_pool_alloc(same, 1000, &b));
    CHECK(a != b);
    CHECK_OK(shmem_context_finalize(first)); /* a goes, b stays */
    CHECK_OK(shmem_pool_check(same));
    CHECK_OK(shmem_pool_free(same, b));
    CHECK_OK(shmem_pool_trim(same));
    CHECK_EQ(used(same), 0);
    CHECK_OK(shmem_context_finalize(second));
}

int main(void)
{
    RUN(life_of_a_block);
    RUN(null_arguments);
    RUN(names);
    RUN(sizes);
    RUN(pointers_in_shared_memory);
    RUN(blocks_of_the_killed_come_back);
    RUN(a_forked_child_makes_its_own);
    RUN(two_contexts_in_one_process);
    return harness_end();
}
