/* SPDX-License-Identifier: Apache-2.0 */
/* The whole path of a job: join, symmetric memory, one-sided, collectives, leave. */
#include "job.h"

static void sequence(int rank, int n, void *arg)
{
    (void)arg;
    shmem_context_t c = job_init("sequence", rank, n);
    shmem_memory_t m;
    CHECK_OK(shmem_memory_create(c, &m, 1 << 20));
    CHECK_EQ(shmem_memory_bytes(m), 1 << 20);
    CHECK(shmem_memory_address(m, rank) == NULL);
    char *mine = shmem_memory_map(m);
    CHECK(mine != NULL && mine == shmem_memory_address(m, rank));
    for (int i = 0; i < 1 << 20; i += 4096)
        CHECK_EQ(mine[i], 0);
    int next = (rank + 1) % n;
    uint64_t value = 1000 + (uint64_t)rank;
    CHECK_OK(shmem_memory_put(m, next, 64, &value, sizeof value));
    CHECK_OK(shmem_context_barrier(c));
    CHECK_EQ(*(uint64_t *)(void *)(mine + 64), 1000 + (rank + n - 1) % n);
    float in[100], out[100];
    for (int i = 0; i < 100; i++)
        in[i] = (float)(rank + i);
    CHECK_OK(shmem_coll_allreduce(c, out, in, 100, SHMEM_TYPE_FLOAT, SHMEM_SUM));
    for (int i = 0; i < 100; i++)
        CHECK(out[i] == (float)(n * i + n * (n - 1) / 2));
    CHECK_OK(shmem_memory_unmap(mine));
    CHECK_STATUS(shmem_memory_unmap(mine), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_memory_destroy(m));
    CHECK_OK(shmem_context_finalize(c));
}

static void sequence_of_pes(void)
{
    for (int n = 1; n <= 4; n++)
        JOB_BOTH(n, 20, sequence, NULL);
}

static void many_pes(void)
{
    JOB_BOTH(16, 20, sequence, NULL);
}

static void again_and_again(int rank, int n, void *arg)
{
    (void)arg;
    for (int i = 0; i < 25; i++) {
        shmem_context_t c = job_init("again", rank, n);
        CHECK_OK(shmem_context_barrier(c));
        CHECK_OK(shmem_context_finalize(c));
    }
}

static void init_repeats(void)
{
    JOB_BOTH(3, 20, again_and_again, NULL);
}

JOB_MAIN({
    RUN(sequence_of_pes);
    RUN(many_pes);
    RUN(init_repeats);
})
