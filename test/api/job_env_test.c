/* SPDX-License-Identifier: Apache-2.0 */
/* A job as launchers start it: rank, size and name in the environment, everything else found.
 * Public interface and shared library only. */
#include <shmem/shmem.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"

static void pe(int rank, int n, void *arg)
{
    char text[16];
    shmem_context_t ctx;
    shmem_memory_t mem;
    (void)arg;
    snprintf(text, sizeof text, "%d", rank);
    setenv("SHMEM_RANK", text, 1);
    snprintf(text, sizeof text, "%d", n);
    setenv("SHMEM_SIZE", text, 1);
    CHECK_OK(shmem_init(&ctx));
    CHECK_EQ(shmem_context_rank(ctx), rank);
    CHECK_EQ(shmem_context_size(ctx), n);
    CHECK_OK(shmem_memory_create(ctx, &mem, 3 << 20));
    double *mine = (double *)shmem_memory_map(mem);
    CHECK(mine != NULL);
    for (int i = 0; i < 100000; i++)
        mine[i] = rank + 1;
    CHECK_OK(shmem_coll_allreduce(ctx, mine, mine, 100000, SHMEM_TYPE_DOUBLE, SHMEM_MAX));
    for (int i = 0; i < 100000; i++)
        CHECK(mine[i] == n);
    uint64_t all[16], one = (uint64_t)rank * 3;
    CHECK_OK(shmem_coll_allgather(ctx, all, &one, sizeof one));
    for (int r = 0; r < n; r++)
        CHECK_EQ(all[r], r * 3);
    CHECK_OK(shmem_memory_signal(mem, (rank + 1) % n, 2 << 20, 9, SHMEM_SIGNAL_OP_ADD));
    CHECK_OK(shmem_memory_wait(mem, 2 << 20, SHMEM_COMPARE_EQ, 9, 5000000000, NULL));
    CHECK_OK(shmem_barrier(ctx));
    CHECK_STATUS(shmem_context_barrier_timed(NULL, 0), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_finalize(ctx));
}

static void pes_by_environment(void)
{
    char name[32];
    snprintf(name, sizeof name, "env-%d", (int)getpid());
    setenv("SHMEM_JOB", name, 1);
    for (int n = 1; n <= 4; n++)
        harness_pes(n, HARNESS_PROC, 30, pe, NULL);
}

static void bad_settings_are_refused(void)
{
    shmem_context_t ctx;
    setenv("SHMEM_SIZE", "zwei", 1);
    CHECK_STATUS(shmem_init(&ctx), SHMEM_ERR_SETTING);
    CHECK(strstr(shmem_error_detail()->text, "SHMEM_SIZE") != NULL);
    setenv("SHMEM_SIZE", "2", 1);
    setenv("SHMEM_RANK", "0", 1);
    setenv("SHMEM_INIT_TIMEOUT", "50ms", 1);
    CHECK_STATUS(shmem_init(&ctx), SHMEM_ERR_TIMEOUT);
    unsetenv("SHMEM_JOB");
    CHECK_STATUS(shmem_init(&ctx), SHMEM_ERR_INVALID);
}

/* N jobs of one PE each must not pass for one job of N. */
static void foreign_launchers_are_noticed(void)
{
    shmem_context_t ctx;
    unsetenv("SHMEM_SIZE");
    unsetenv("SHMEM_RANK");
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    CHECK_STATUS(shmem_init(&ctx), SHMEM_ERR_UNSUPPORTED);
    CHECK(strstr(shmem_error_detail()->text, "shmem-run -n 4") != NULL);
    setenv("SHMEM_SIZE", "1", 1);
    CHECK_OK(shmem_init(&ctx));
    CHECK_OK(shmem_finalize(ctx));
    unsetenv("SHMEM_SIZE");
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    CHECK_OK(shmem_init(&ctx));
    CHECK_OK(shmem_finalize(ctx));
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

int main(void)
{
    RUN(pes_by_environment);
    RUN(bad_settings_are_refused);
    RUN(foreign_launchers_are_noticed);
    return harness_end();
}
