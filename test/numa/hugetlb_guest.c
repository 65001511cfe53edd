/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of huge pages that the administrator set aside, of which a client takes pages away: who
 * touches them then is killed, unless he asks before. */
#include <linux/falloc.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "../multi/job.h"
#include "guest.h"
#include "job/pool_handle.h"
#include "os/reserve.h"

static _Atomic int *stage;

static shmem_context_t join(void)
{
    shmem_context_t context;
    CHECK_OK(job_try_init(&context, NULL, 0, 1, 30));
    return context;
}

static void *allocated(shmem_pool_t pool)
{
    void *block;
    CHECK_OK(shmem_pool_alloc(pool, 100000, &block));
    return block;
}

/* Has blocks, and is killed. */
static void victim(void *arg)
{
    shmem_pool_t pool;
    (void)arg;
    shmem_context_t context = join();
    CHECK_OK(shmem_pool_open(context, "huge", &pool));
    allocated(pool);
    atomic_store(stage, 1);
    for (;;)
        pause();
}

/* Every huge page that is left to this process. */
static int take_all(void)
{
    off_t taken = 0;
    int fd = memfd_create("taken", MFD_CLOEXEC | MFD_HUGETLB);
    CHECK(fd >= 0);
    while (fallocate(fd, 0, taken, SHMEMI_HUGE_PAGE) == 0)
        taken += SHMEMI_HUGE_PAGE;
    CHECK(taken > 0);
    return fd;
}

static shmemi_server_counts_t counts_of(shmem_context_t context)
{
    shmemi_server_counts_t counts;
    CHECK_OK(shmemi_client_counts(context->client, &counts));
    return counts;
}

/* It has all the rights to map huge pages, and may not have any for itself. */
static job_server_t server_without_pages(void)
{
    char pid[16];
    CHECK(mkdir("/sys/fs/cgroup/server", 0755) == 0);
    job_server_t server = job_server_start();
    snprintf(pid, sizeof pid, "%d", (int)server.pid);
    write_file("/sys/fs/cgroup/server/hugetlb.2MB.max", "0");
    write_file("/sys/fs/cgroup/server/cgroup.procs", pid);
    return server;
}

static void holes_in_the_bookkeeping(void)
{
    shmem_pool_t pool;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    setenv("SHMEM_HUGE_PAGES", "required", 1);
    shmem_context_t context = join();
    unsetenv("SHMEM_HUGE_PAGES");
    stage = harness_shared(sizeof *stage);
    params.bytes = 2 * MIB;
    CHECK_OK(shmem_pool_create(context, "huge", &params, &pool));
    const shmemi_segment_t *segment = &pool->view->segment;
    CHECK_EQ(segment->page_bytes, SHMEMI_HUGE_PAGE);
    pid_t pid = harness_fork(victim, NULL);
    while (!atomic_load(stage))
        harness_sleep(0.01);
    CHECK(fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    (off_t)segment->bytes) == 0);
    int fd = take_all();
    uint64_t deaths = counts_of(context).deaths;
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK_EQ(harness_wait(pid, 10), -SIGKILL);
    while (counts_of(context).deaths == deaths)
        harness_sleep(0.01);
    for (int i = 0; i < 20; i++, harness_sleep(0.02)) /* it repairs afterwards */
        CHECK_EQ(counts_of(context).deaths, deaths + 1);
    CHECK(kill(job_server.pid, 0) == 0 && waitpid(job_server.pid, NULL, WNOHANG) == 0);
    close(fd);
    exit(0); /* the pool is gone, and this process would look into it when it closes it */
}

/* In a cpuset with one node, which is all that pools see then. */
static void on_one_node(void *arg)
{
    (void)arg;
    write_file("/sys/fs/cgroup/hiding/cgroup.procs", "0");
    job_server = server_without_pages();
    holes_in_the_bookkeeping();
}

static void server_survives(void)
{
    write_file("/sys/fs/cgroup/cgroup.subtree_control", "+hugetlb");
    CHECK_EQ(harness_wait(harness_fork(on_one_node, NULL), 60), 0);
}

void hugetlb_cases(void)
{
    RUN(server_survives);
}
