/* SPDX-License-Identifier: Apache-2.0 */
/* The call sequence of the native interface as a program would have it, in C++: alone, with a
 * private server that starts by itself, and as a PE when a launcher set the environment. */
#include <shmem/shmem.h>

#include "harness.h"

static void sequence(void)
{
    shmem_context_t ctx;
    shmem_memory_t mem;
    size_t size = 1 << 20;
    CHECK_OK(shmem_init(&ctx));
    CHECK_OK(shmem_memory_create(ctx, &mem, size));
    char *ptr = (char *)shmem_memory_map(mem);
    CHECK(ptr != NULL);
    memset(ptr, shmem_context_rank(ctx) + 1, size);
    CHECK_OK(shmem_barrier(ctx));
    for (int pe = 0; pe < shmem_context_size(ctx); pe++)
        CHECK_EQ(((char *)shmem_memory_address(mem, pe))[size - 1], pe + 1);
    CHECK_OK(shmem_barrier(ctx));
    CHECK_OK(shmem_memory_unmap(ptr));
    CHECK_OK(shmem_memory_destroy(mem));
    CHECK_OK(shmem_finalize(ctx));
}

static void and_again(void)
{
    for (int i = 0; i < 5; i++)
        sequence();
}

int main(void)
{
    RUN(sequence);
    RUN(and_again);
    return harness_end();
}
