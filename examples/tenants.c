/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service and its clients: one pool with a limit, two tasks with quotas, results that outlive who
 * made them.
 *
 *     ./tenants serve     makes the pool and the directory, waits for a job, shrinks, ends
 *     ./tenants fill      as task "batch": takes what its quota allows, and is refused the rest
 *     ./tenants publish   as task "online": leaves a result in the directory and ends
 *     ./tenants fetch     as task "online": takes the result over, prints and frees it
 *     ./tenants stop      tells the service to end
 */
#include <inttypes.h>
#include <shmem/shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_NAME "tenants-example"
#define MAGIC     UINT64_C(0x54454e414e545331)
#define MIB       (UINT64_C(1) << 20)

/* The root of the pool: what everybody finds. */
typedef struct directory {
    uint64_t magic;
    shmem_mutex_t mutex;
    shmem_event_t end;
    char *result; /* a block that belongs to the pool, or NULL; under the mutex */
} directory_t;

static void must(shmem_status_t status, const char *what)
{
    if (status == SHMEM_OK)
        return;
    fprintf(stderr, "tenants: %s: %s: %s\n", what, shmem_status_name(status),
            shmem_error_detail()->text);
    exit(1);
}

static void lock(shmem_context_t ctx, directory_t *dir)
{
    shmem_status_t status = shmem_mutex_lock(ctx, &dir->mutex);
    if (status == SHMEM_ERR_OWNER_DIED) /* `result` is one word: it is right in any case */
        status = shmem_mutex_consistent(ctx, &dir->mutex);
    must(status, "lock");
}

static void quota(shmem_pool_t pool, const char *task, uint64_t bytes)
{
    shmem_quota_t q = SHMEM_QUOTA_INIT;
    q.limit = bytes;
    must(shmem_pool_quota_set(pool, task, &q), "quota");
}

static uint64_t capacity(shmem_pool_t pool)
{
    shmem_pool_info_t info = {.size = sizeof info};
    must(shmem_pool_info(pool, &info), "info");
    return info.bytes;
}

static directory_t *directory_make(shmem_pool_t pool)
{
    void *block = NULL;
    must(shmem_pool_alloc(pool, sizeof(directory_t), &block), "allocate the directory");
    directory_t *dir = block;
    memset(dir, 0, sizeof *dir);
    must(shmem_mutex_init(&dir->mutex), "mutex");
    must(shmem_event_init(&dir->end, SHMEM_EVENT_MANUAL, 0), "event");
    dir->magic = MAGIC;
    must(shmem_pool_give(pool, dir), "give"); /* it stays when this process ends */
    must(shmem_pool_root_set(pool, dir), "root");
    return dir;
}

static void serve(shmem_context_t ctx)
{
    shmem_pool_t pool = NULL;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = 8 * MIB;  /* there from the beginning */
    params.limit = 64 * MIB; /* up to which it grows when it has to */
    must(shmem_pool_create(ctx, POOL_NAME, &params, &pool), "create the pool");
    quota(pool, "online", 4 * MIB);
    quota(pool, "batch", 16 * MIB);
    directory_t *dir = directory_make(pool);
    puts("ready");
    fflush(stdout);
    must(shmem_event_wait(ctx, &dir->end, SHMEM_FOREVER), "wait");
    uint64_t before = capacity(pool);
    must(shmem_pool_shrink(pool, 8 * MIB, NULL), "shrink");
    printf("grown: %s, shrunk: %s\n", before > 8 * MIB ? "yes" : "no",
           capacity(pool) < before ? "yes" : "no");
    must(shmem_pool_destroy(ctx, POOL_NAME), "destroy");
}

static directory_t *find(shmem_pool_t pool)
{
    void *root = NULL;
    size_t bytes = 0;
    must(shmem_pool_root_get(pool, &root), "root");
    if (root)
        must(shmem_pool_block_bytes(pool, root, &bytes), "look at the root");
    directory_t *dir = root;
    if (bytes < sizeof *dir || dir->magic != MAGIC) {
        fputs("tenants: this pool has no directory\n", stderr);
        exit(1);
    }
    return dir;
}

/* Everything goes back to the pool when this process ends, however it does. */
static void fill(shmem_pool_t pool)
{
    void *block;
    uint64_t taken = 0;
    shmem_status_t status;
    while ((status = shmem_pool_alloc(pool, MIB, &block)) == SHMEM_OK) {
        memset(block, 1, MIB);
        taken++;
    }
    if (status != SHMEM_ERR_QUOTA)
        must(status, "fill");
    printf("batch has %" PRIu64 " MiB and is refused more\n", taken);
}

static void publish(shmem_context_t ctx, shmem_pool_t pool, directory_t *dir)
{
    void *block;
    must(shmem_pool_alloc(pool, 100, &block), "allocate the result");
    strcpy(block, "forty-two");
    must(shmem_pool_give(pool, block), "give"); /* before others can see it */
    lock(ctx, dir);
    char *old = dir->result;
    dir->result = block;
    must(shmem_mutex_unlock(ctx, &dir->mutex), "unlock");
    must(shmem_pool_free(pool, old), "free what nobody fetched");
    puts("published");
}

static void fetch(shmem_context_t ctx, shmem_pool_t pool, directory_t *dir)
{
    lock(ctx, dir);
    char *result = dir->result;
    dir->result = NULL; /* who dies just here leaves a block that nobody knows */
    if (result)
        must(shmem_pool_hold(pool, result), "hold"); /* from here on it goes when we die */
    must(shmem_mutex_unlock(ctx, &dir->mutex), "unlock");
    if (!result) {
        puts("nothing there");
        return;
    }
    printf("fetched: %s\n", result);
    must(shmem_pool_free(pool, result), "free");
}

static void visit(shmem_context_t ctx, const char *what)
{
    shmem_pool_t pool = NULL;
    const char *task = strcmp(what, "fill") == 0 ? "batch" : "online";
    must(shmem_pool_open_as(ctx, POOL_NAME, task, &pool), "open the pool");
    directory_t *dir = find(pool);
    if (strcmp(what, "fill") == 0)
        fill(pool);
    else if (strcmp(what, "publish") == 0)
        publish(ctx, pool, dir);
    else if (strcmp(what, "fetch") == 0)
        fetch(ctx, pool, dir);
    else
        must(shmem_event_set(ctx, &dir->end), "stop");
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "", *found = "serve fill publish fetch stop";
    if (!*what || strchr(what, ' ') || !strstr(found, what)) {
        fputs("usage: tenants serve | fill | publish | fetch | stop\n", stderr);
        return 2;
    }
    shmem_context_params_t params = SHMEM_CONTEXT_PARAMS_INIT;
    shmem_context_t ctx = NULL;
    params.pes = 1; /* a member of no job */
    must(shmem_context_init_params(&ctx, &params), "init");
    if (strcmp(what, "serve") == 0)
        serve(ctx);
    else
        visit(ctx, what);
    must(shmem_finalize(ctx), "finalize"); /* closes the pool */
    return 0;
}
