/* SPDX-License-Identifier: Apache-2.0 */
/* Registration hooks and debug pools as programs see them: through the installed interface only. */
#include <string.h>

#include "harness.h"
#include "shmem/shmem.h"

static int announced, withdrawn;

static shmem_status_t announce(void *user, const shmem_arena_info_t *arena, void **key)
{
    CHECK(user == &announced && arena->bytes > 0);
    *key = arena->base;
    announced++;
    return SHMEM_OK;
}

static void withdraw(void *user, const shmem_arena_info_t *arena, void *key)
{
    CHECK(user == &announced && key == arena->base);
    withdrawn++;
}

static void an_engine(void)
{
    shmem_context_t context;
    shmem_pool_t pool;
    shmem_engine_t engine;
    shmem_engine_ops_t ops = {sizeof ops, "test", announce, withdraw};
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_arena_info_t info = {.size = sizeof info};
    shmem_arena_place_t place;
    void *block, *key, *same;
    uint64_t pin;
    params.bytes = 4 << 20;
    CHECK_OK(shmem_init(&context));
    CHECK_OK(shmem_engine_register(context, &ops, &announced, &engine));
    CHECK_OK(shmem_pool_create(context, NULL, &params, &pool));
    CHECK(announced > 0);
    CHECK_OK(shmem_pool_alloc(pool, 1000, &block));
    CHECK_OK(shmem_arena_lookup(context, engine, block, &info, &key));
    CHECK(key == info.base && info.kind == SHMEM_ARENA_POOL);
    CHECK_OK(shmem_arena_export(context, block, &place));
    CHECK_OK(shmem_arena_import(context, &place, &same));
    CHECK(same == block);
    CHECK_OK(shmem_arena_pin(context, engine, block, NULL, NULL, &pin));
    CHECK_STATUS(shmem_finalize(context), SHMEM_ERR_BUSY);
    CHECK_OK(shmem_arena_unpin(context, pin));
    CHECK_OK(shmem_engine_unregister(engine));
    CHECK_EQ(announced, withdrawn);
    CHECK_OK(shmem_finalize(context));
}

static void a_debug_pool(void)
{
    shmem_context_t context;
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_debug_info_t info = {.size = sizeof info};
    char *block;
    params.bytes = 4 << 20;
    params.debug = 1;
    CHECK_OK(shmem_init(&context));
    CHECK_OK(shmem_pool_create(context, NULL, &params, &pool));
    CHECK_OK(shmem_pool_alloc(pool, 100, (void **)&block));
    block[100] = 1;
    CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_CORRUPT);
    CHECK(
        strstr(shmem_error_detail()->text, "api.arena_test+0x")); /* the caller, not the library */
    CHECK_STATUS(shmem_pool_free(pool, block), SHMEM_ERR_DOUBLE_FREE);
    CHECK_OK(shmem_pool_debug_info(pool, &info));
    CHECK_EQ(info.overruns, 1);
    CHECK_EQ(info.blocks, 0);
    CHECK_OK(shmem_finalize(context));
}

int main(void)
{
    RUN(an_engine);
    RUN(a_debug_pool);
    return harness_end();
}
