/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of several users at one node server: who may open, use, destroy; and pools when the server
 * is gone for good.
 */
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdatomic.h>

#include "job.h"

enum { MIB = 1 << 20, OWNER = 65531, FRIEND = 65532, STRANGER = 65533, GROUP = 65530 };

static _Atomic int *stage;

static void await(int n)
{
    for (double end = harness_now() + 20; atomic_load(stage) < n; harness_sleep(0.001))
        CHECK(harness_now() < end);
}

static shmem_context_t join_as(unsigned user, unsigned group)
{
    shmem_context_t context;
    CHECK(setgroups(0, NULL) == 0 && setresgid(group, group, group) == 0);
    CHECK(setresuid(user, user, user) == 0);
    CHECK_OK(job_try_init(&context, NULL, 0, 1, 20));
    return context;
}

static void make(shmem_context_t context, const char *name, uint32_t access)
{
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = MIB;
    params.access = access;
    CHECK_OK(shmem_pool_create(context, name, &params, &pool));
}

static void use(shmem_context_t context, const char *name)
{
    shmem_pool_t pool;
    void *block;
    CHECK_OK(shmem_pool_open(context, name, &pool));
    CHECK_OK(shmem_pool_alloc(pool, 10000, &block));
    memset(block, 1, 10000);
    CHECK_OK(shmem_pool_free(pool, block));
    shmem_pool_close(pool);
}

static void owner(void *arg)
{
    (void)arg;
    shmem_context_t context = join_as(OWNER, GROUP);
    make(context, "private", 0);
    make(context, "group", SHMEM_ACCESS_GROUP_READ | SHMEM_ACCESS_GROUP_WRITE);
    make(context, "readable", SHMEM_ACCESS_OTHER_READ);
    make(context, "public", SHMEM_ACCESS_OTHER_READ | SHMEM_ACCESS_OTHER_WRITE);
    atomic_store(stage, 1);
    await(2);
    use(context, "public"); /* whatever others did */
    CHECK_OK(shmem_pool_destroy(context, "public"));
    CHECK_OK(shmem_context_finalize(context));
}

static void refused(shmem_context_t context, const char *name)
{
    shmem_pool_t pool = NULL;
    CHECK_STATUS(shmem_pool_open(context, name, &pool), SHMEM_ERR_ACCESS);
    CHECK(pool == NULL && *shmem_error_detail()->text);
    CHECK_STATUS(shmem_pool_destroy(context, name), SHMEM_ERR_ACCESS);
}

/* Be root of a user namespace; the server goes on to see who it is. */
static bool become_root_inside(unsigned user)
{
    char line[32];
    int n = snprintf(line, sizeof line, "0 %u 1", user);
    if (prctl(PR_SET_DUMPABLE, 1) || unshare(CLONE_NEWUSER))
        return false;
    int map = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    bool is = map >= 0 && write(map, line, (size_t)n) == n;
    close(map);
    return is && geteuid() == 0;
}

static void companion(void *arg)
{
    (void)arg;
    shmem_context_t context = join_as(FRIEND, GROUP);
    refused(context, "private");
    use(context, "group");
    CHECK_STATUS(shmem_pool_destroy(context, "group"), SHMEM_ERR_ACCESS);
    use(context, "group"); /* it was not marked either */
    if (become_root_inside(FRIEND)) {
        CHECK_STATUS(shmem_pool_destroy(context, "group"), SHMEM_ERR_ACCESS);
        use(context, "group"); /* nor is it after the server refused */
    } else {
        printf("   no user namespaces here: not tested what their root may do\n");
    }
    CHECK_OK(shmem_context_finalize(context));
}

static void stranger(void *arg)
{
    (void)arg;
    shmem_context_t context = join_as(STRANGER, STRANGER);
    shmem_pool_entry_t entries[8];
    size_t count = 0;
    refused(context, "private");
    refused(context, "group");
    refused(context, "readable"); /* who may only read has no use for it */
    use(context, "public");
    CHECK_STATUS(shmem_pool_destroy(context, "public"), SHMEM_ERR_ACCESS);
    CHECK_OK(shmem_pool_list(context, entries, 8, &count));
    CHECK_EQ(count, 4);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(entries[i].uid, OWNER);
    make(context, "mine", 0);
    CHECK_OK(shmem_context_finalize(context));
}

static void rights(void)
{
    if (geteuid() != 0)
        SKIP("becoming other users wants root");
    if (harness_has_tsan())
        SKIP("forks processes");
    job_server_t own = job_server;
    job_server = job_server_start_for(1);
    stage = harness_shared(sizeof *stage);
    pid_t first = harness_fork(owner, NULL);
    await(1);
    CHECK_EQ(harness_wait(harness_fork(companion, NULL), 20), 0);
    CHECK_EQ(harness_wait(harness_fork(stranger, NULL), 20), 0);
    shmem_context_t root;
    CHECK_OK(job_try_init(&root, NULL, 0, 1, 20));
    use(root, "private"); /* root may */
    CHECK_OK(shmem_pool_destroy(root, "private"));
    atomic_store(stage, 2);
    CHECK_EQ(harness_wait(first, 20), 0);
    CHECK_OK(shmem_context_finalize(root));
    job_server_stop(&job_server);
    job_server = own;
}

/* ---- no server any more ---- */

static void without_a_server(void)
{
    job_server_t own = job_server;
    job_server = job_server_start_for(0);
    shmem_context_t first, second;
    CHECK_OK(job_try_init(&first, NULL, 0, 1, 20));
    CHECK_OK(job_try_init(&second, NULL, 0, 1, 20));
    shmem_pool_t pool, same, again, none = NULL;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = 4 * MIB;
    params.limit = 32 * MIB;
    CHECK_OK(shmem_pool_create(first, "orphan", &params, &pool));
    CHECK_OK(shmem_pool_open(second, "orphan", &same));
    CHECK_OK(shmem_pool_create(first, "gone", &params, &again)); /* a name goes away */
    shmem_pool_close(again);
    job_server_stop(&job_server);
    job_server = own;
    CHECK_OK(shmem_pool_open(first, "orphan", &again)); /* open already: nobody to ask */
    CHECK(again == pool);
    shmem_pool_close(again);
    void *block, *large, *root;
    shmem_quota_t quota = SHMEM_QUOTA_INIT;
    quota.limit = 24 * MIB;
    CHECK_OK(shmem_pool_quota_set(pool, NULL, &quota));
    CHECK_OK(shmem_pool_alloc(pool, 1000, &block));
    CHECK_OK(shmem_pool_give(pool, block));
    CHECK_OK(shmem_pool_root_set(pool, block));
    CHECK_OK(shmem_pool_root_get(same, &root));
    CHECK(root == block);
    CHECK_OK(shmem_pool_hold(same, root));
    CHECK_OK(shmem_pool_alloc(same, 20 * MIB, &large)); /* it grows, too */
    CHECK_STATUS(shmem_pool_alloc(pool, 6 * MIB, &root), SHMEM_ERR_QUOTA);
    CHECK_OK(shmem_pool_free(pool, large));
    CHECK_OK(shmem_pool_free(pool, block));
    CHECK_OK(shmem_pool_open(first, "orphan", &again)); /* it is open: nobody is asked */
    CHECK(again == pool);
    CHECK_STATUS(shmem_pool_open_as(first, "orphan", "t", &none), SHMEM_ERR_SERVER_LOST);
    CHECK_STATUS(shmem_pool_create(first, "another", &params, &none), SHMEM_ERR_SERVER_LOST);
    CHECK_STATUS(shmem_pool_destroy(first, "orphan"), SHMEM_ERR_SERVER_LOST);
    CHECK(none == NULL);
    CHECK_OK(shmem_pool_alloc(pool, 1000, &block)); /* not destroyed by halves */
    CHECK_OK(shmem_pool_check(pool));
    shmem_context_finalize(first);
    CHECK_OK(shmem_pool_trim(same));
    shmem_pool_info_t info = {.size = sizeof info};
    CHECK_OK(shmem_pool_info(same, &info));
    CHECK_EQ(info.used_bytes, 0);
    shmem_context_finalize(second);
}

JOB_MAIN({
    RUN(rights);
    RUN(without_a_server);
})
