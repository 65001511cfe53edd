/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools as programs see them: arguments of every function, structs of older programs, quotas,
 * owners, roots, size.
 */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <shmem/shmem.h>

#include "harness.h"

#define MIB ((uint64_t)1 << 20)

static shmem_context_t context;

static void begin(void)
{
    CHECK_OK(shmem_context_init(&context));
}

static void end(void)
{
    CHECK_OK(shmem_context_finalize(context));
}

static const char *name_of(const char *what)
{
    static char name[64];
    snprintf(name, sizeof name, "front/%s-%d", what, (int)(harness_now() * 1e6) & 0xfffffff);
    return name;
}

static shmem_pool_t make(const char *name, uint64_t bytes, uint64_t limit)
{
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_t pool = NULL;
    params.bytes = bytes;
    params.limit = limit;
    CHECK_OK(shmem_pool_create(context, name, &params, &pool));
    return pool;
}

static shmem_pool_info_t info_of(shmem_pool_t pool)
{
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_pool_info(pool, &info));
    return info;
}

/* ---- arguments ---- */

/* Every operation on `pool` gives `status`. */
static void all_give(shmem_pool_t pool, shmem_status_t status)
{
    void *block = &block;
    uint64_t number;
    size_t count;
    char task[SHMEM_TASK_NAME];
    shmem_quota_t quota = SHMEM_QUOTA_INIT;
    shmem_pool_info_t info = {.size = sizeof info};
    shmem_pool_node_info_t node = {.size = sizeof node};
    shmem_pool_class_info_t class = {.size = sizeof class};
    shmem_pool_client_info_t client = {.size = sizeof client};
    shmem_pool_debug_info_t debug = {.size = sizeof debug};
    CHECK_STATUS(shmem_pool_alloc_timed(pool, 1, 0, 0, &block), status);
    CHECK_STATUS(shmem_pool_give(pool, block), status);
    CHECK_STATUS(shmem_pool_hold(pool, block), status);
    CHECK_STATUS(shmem_pool_root_set(pool, NULL), status);
    CHECK_STATUS(shmem_pool_root_get(pool, &block), status);
    CHECK_STATUS(shmem_pool_quota_set(pool, "t", &quota), status);
    CHECK_STATUS(shmem_pool_quota_get(pool, "t", &quota), status);
    CHECK_STATUS(shmem_pool_task(pool, 0, task), status);
    CHECK_STATUS(shmem_pool_info(pool, &info), status);
    CHECK_STATUS(shmem_pool_node_info(pool, 0, &node), status);
    CHECK_STATUS(shmem_pool_class_info(pool, 0, &class), status);
    CHECK_STATUS(shmem_pool_clients(pool, &client, 1, &count), status);
    CHECK_STATUS(shmem_pool_debug_info(pool, &debug), status);
    CHECK_STATUS(shmem_pool_fallback(pool, 0, 0, SHMEM_POOL_WHY_FULL, &number), status);
    CHECK_STATUS(shmem_pool_placement(pool, 0, &number, &number), status);
    CHECK_STATUS(shmem_pool_shrink(pool, 0, &number), status);
    CHECK(block == &block);
}

static void no_pool_and_closed_ones(void)
{
    begin();
    all_give(NULL, SHMEM_ERR_INVALID);
    shmem_pool_t pool = make(NULL, MIB, 0);
    shmem_pool_close(pool);
    all_give(pool, SHMEM_ERR_STATE);
    end();
}

static void missing_places(void)
{
    begin();
    shmem_pool_t pool = make(NULL, MIB, 0);
    size_t count;
    CHECK_STATUS(shmem_pool_info(pool, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_node_info(pool, 0, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_class_info(pool, 0, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_clients(pool, NULL, 1, &count), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_clients(pool, NULL, 0, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_quota_set(pool, "t", NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_quota_get(pool, "t", NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_task(pool, 0, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_root_get(pool, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_list(context, NULL, 0, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_list(NULL, NULL, 0, &count), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_destroy(context, NULL), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_destroy(NULL, "x"), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_destroy(context, "no such pool"), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_pool_destroy(context, "no-such-pool"), SHMEM_ERR_NOT_FOUND);
    end();
}

static void bad_parameters(void)
{
    begin();
    shmem_pool_t pool = NULL;
    shmem_pool_params_t good = SHMEM_POOL_PARAMS_INIT, p;
    good.bytes = MIB;
    p = good, p.limit = MIB - 1;
    CHECK_STATUS(shmem_pool_create(context, NULL, &p, &pool), SHMEM_ERR_INVALID);
    p = good, p.access = 01000;
    CHECK_STATUS(shmem_pool_create(context, NULL, &p, &pool), SHMEM_ERR_INVALID);
    p = good, p.access = SHMEM_ACCESS_GROUP_WRITE; /* wants GROUP_READ */
    CHECK_STATUS(shmem_pool_create(context, NULL, &p, &pool), SHMEM_ERR_INVALID);
    p = good, p.debug = 2;
    CHECK_STATUS(shmem_pool_create(context, NULL, &p, &pool), SHMEM_ERR_INVALID);
    p = good, p.task = "";
    CHECK_STATUS(shmem_pool_create(context, NULL, &p, &pool), SHMEM_ERR_INVALID);
    p = good, p.task = "0123456789012345678901234567890123456789012345678"; /* 49 bytes */
    CHECK_STATUS(shmem_pool_create(context, NULL, &p, &pool), SHMEM_ERR_INVALID);
    p = good, p.policy = (shmem_pool_policy_t)9;
    CHECK_STATUS(shmem_pool_create(context, NULL, &p, &pool), SHMEM_ERR_INVALID);
    CHECK(pool == NULL);
    end();
}

/* ---- structs of other programs ---- */

static void older_and_newer_structs(void)
{
    begin();
    struct {
        shmem_pool_params_t known;
        uint64_t more;
    } params = {SHMEM_POOL_PARAMS_INIT, 0};
    shmem_pool_t pool = NULL;
    params.known.bytes = 2 * MIB;
    params.known.size = offsetof(shmem_pool_params_t, limit); /* the first version */
    params.known.limit = 1;                                   /* is not looked at */
    CHECK_OK(shmem_pool_create(context, NULL, &params.known, &pool));
    shmem_pool_close(pool);
    params.known.size = 8;
    CHECK_STATUS(shmem_pool_create(context, NULL, &params.known, &pool), SHMEM_ERR_INVALID);
    params.known.size = sizeof params;
    params.known.limit = 0;
    params.more = 1; /* something that this library does not know */
    CHECK_STATUS(shmem_pool_create(context, NULL, &params.known, &pool), SHMEM_ERR_INVALID);
    params.more = 0;
    CHECK_OK(shmem_pool_create(context, NULL, &params.known, &pool));

    shmem_pool_info_t info = {.size = offsetof(shmem_pool_info_t, limit), .limit = 77};
    CHECK_OK(shmem_pool_info(pool, &info));
    CHECK(info.bytes >= 2 * MIB && info.limit == 77);
    struct {
        shmem_pool_info_t known;
        uint64_t more;
    } newer = {{.size = sizeof newer}, 99};
    CHECK_OK(shmem_pool_info(pool, &newer.known));
    CHECK(newer.known.bytes == info.bytes && newer.known.size == sizeof newer && newer.more == 0);
    end();
}

/* ---- what they do ---- */

static void numbers(void)
{
    begin();
    shmem_pool_t pool = make(NULL, 8 * MIB, 0);
    void *small, *large;
    CHECK_OK(shmem_pool_alloc(pool, 1000, &small));
    CHECK_OK(shmem_pool_alloc(pool, 100000, &large));
    shmem_pool_node_info_t node = {.size = sizeof node};
    CHECK_OK(shmem_pool_node_info(pool, 0, &node));
    CHECK(node.bytes && node.limit == node.bytes && node.largest_free < node.bytes);
    CHECK(node.used_bytes >= 101000 && node.span_bytes >= 1024);
    CHECK_STATUS(shmem_pool_node_info(pool, 999, &node), SHMEM_ERR_INVALID);
    shmem_pool_class_info_t class = {.size = sizeof class};
    uint64_t used = 0;
    size_t n = 0;
    while (shmem_pool_class_info(pool, n, &class) == SHMEM_OK) {
        CHECK(class.used <= class.blocks);
        used += class.used;
        n++;
    }
    CHECK_EQ(shmem_error_detail()->status, SHMEM_ERR_NOT_FOUND);
    CHECK(n > 20 && used >= 1);
    struct {
        shmem_pool_client_info_t known;
        uint64_t more;
    } clients[3] = {{.known = {.size = sizeof clients[0]}}};
    CHECK_OK(shmem_pool_clients(pool, &clients[0].known, 3, &n));
    CHECK_EQ(n, 1);
    CHECK(clients[0].known.alive && clients[0].known.pid == getpid() &&
          clients[0].known.blocks >= 1 && clients[0].known.spans >= 1);
    CHECK_OK(shmem_pool_give(pool, large));
    CHECK_OK(shmem_pool_clients(pool, &clients[0].known, 3, &n));
    CHECK_EQ(n, 2);
    CHECK(!strcmp(clients[0].known.name, "(pool)") || !strcmp(clients[1].known.name, "(pool)"));
    end();
}

static void quotas(void)
{
    begin();
    const char *name = name_of("quota");
    char task[SHMEM_TASK_NAME];
    void *block, *more;
    shmem_pool_t none = make(name, 16 * MIB, 0), t;
    shmem_quota_t quota = SHMEM_QUOTA_INIT;
    quota.limit = MIB;
    CHECK_OK(shmem_pool_quota_set(none, "t", &quota));
    CHECK_OK(shmem_pool_open_as(context, name, "t", &t));
    CHECK_OK(shmem_pool_alloc(t, 600000, &block));
    CHECK_STATUS(shmem_pool_alloc(t, 600000, &more), SHMEM_ERR_QUOTA);
    CHECK(strstr(shmem_error_detail()->text, "t") != NULL);
    CHECK_OK(shmem_pool_alloc(none, 600000, &more)); /* others are free */
    CHECK_STATUS(shmem_pool_alloc_timed(t, 2 * MIB, 0, SHMEM_FOREVER, &block), SHMEM_ERR_QUOTA);
    double start = harness_now();
    CHECK_STATUS(shmem_pool_alloc_timed(t, 600000, 0, 50000000, &block), SHMEM_ERR_TIMEOUT);
    CHECK(harness_now() - start >= 0.05);
    CHECK_OK(shmem_pool_free(none, block)); /* whoever frees, t gets it back */
    CHECK_OK(shmem_pool_trim(none));
    CHECK_OK(shmem_pool_quota_get(none, "t", &quota));
    CHECK(quota.held == 0 && quota.held_high >= 600000 && quota.refused >= 1);
    CHECK_OK(shmem_pool_task(none, 0, task));
    CHECK_STATUS(shmem_pool_quota_get(none, "unknown", &quota), SHMEM_ERR_NOT_FOUND);
    end();
}

static void heir(void *arg)
{
    shmem_pool_t pool;
    void *root = NULL;
    begin();
    CHECK_OK(shmem_pool_open(context, arg, &pool));
    CHECK_OK(shmem_pool_root_get(pool, &root));
    CHECK_STR((char *)root, "given");
    CHECK_OK(shmem_pool_hold(pool, root));
    raise(SIGKILL);
}

static void given_and_held(void)
{
    begin();
    const char *name = name_of("given");
    shmem_pool_t pool = make(name, 4 * MIB, 0);
    void *block, *root = &root;
    CHECK_OK(shmem_pool_root_get(pool, &root));
    CHECK(root == NULL);
    CHECK_OK(shmem_pool_alloc(pool, 100, &block));
    strcpy(block, "given");
    CHECK_OK(shmem_pool_give(pool, block));
    CHECK_OK(shmem_pool_give(pool, block)); /* harmless */
    CHECK_OK(shmem_pool_root_set(pool, block));
    CHECK_STATUS(shmem_pool_root_set(pool, &root), SHMEM_ERR_FOREIGN_POINTER);
    CHECK_EQ(harness_wait(harness_fork(heir, (void *)(uintptr_t)name), 20), -SIGKILL);
    shmem_status_t status = SHMEM_OK; /* it dies with who held it */
    size_t bytes;
    for (double limit = harness_now() + 20; !status && harness_now() < limit;) {
        status = shmem_pool_block_bytes(pool, block, &bytes);
        harness_sleep(0.002);
    }
    CHECK_EQ(status, SHMEM_ERR_DOUBLE_FREE);
    CHECK_OK(shmem_pool_check(pool));
    end();
}

static void growth_and_return(void)
{
    begin();
    shmem_pool_t pool = make(NULL, 4 * MIB, 64 * MIB);
    void *block[40];
    uint64_t returned = 0;
    uint64_t first = info_of(pool).bytes;
    CHECK(first >= 4 * MIB && first < 8 * MIB && info_of(pool).limit >= 64 * MIB);
    for (int i = 0; i < 40; i++) {
        CHECK_OK(shmem_pool_alloc(pool, MIB, &block[i]));
        memset(block[i], 1, MIB); /* it is there */
    }
    shmem_pool_info_t info = info_of(pool);
    CHECK(info.bytes >= 40 * MIB && info.grown > 0 && info.bytes_high == info.bytes);
    for (int i = 0; i < 40; i++)
        CHECK_OK(shmem_pool_free(pool, block[i]));
    CHECK_OK(shmem_pool_shrink(pool, 8 * MIB, &returned));
    CHECK(returned >= 24 * MIB && info_of(pool).bytes <= 16 * MIB);
    CHECK_EQ(info_of(pool).returned_bytes, returned);
    CHECK_OK(shmem_pool_alloc(pool, 20 * MIB, &block[0])); /* and grows again */
    memset(block[0], 1, 20 * MIB);
    CHECK_STATUS(shmem_pool_alloc(pool, 60 * MIB, &block[1]), SHMEM_ERR_NOMEM);
    CHECK_OK(shmem_pool_check(pool));
    end();
}

int main(void)
{
    RUN(no_pool_and_closed_ones);
    RUN(missing_places);
    RUN(bad_parameters);
    RUN(older_and_newer_structs);
    RUN(numbers);
    RUN(quotas);
    RUN(given_and_held);
    RUN(growth_and_return);
    return harness_end();
}
