/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest job: every PE writes a greeting into the memory of its right neighbour.
 *
 *     shmem-run -n 4 ./hello
 */
#include <shmem/shmem.h>
#include <stdio.h>

enum { GREETING_BYTES = 64 };

static int complain(const char *what)
{
    fprintf(stderr, "hello: %s: %s\n", what, shmem_error_detail()->text);
    return 1;
}

static int greet(shmem_context_t ctx, shmem_memory_t mem)
{
    int rank = shmem_context_rank(ctx), size = shmem_context_size(ctx);
    char greeting[GREETING_BYTES];
    snprintf(greeting, sizeof greeting, "hello from PE %d of %d", rank, size);

    const char *mine = shmem_memory_map(mem);
    if (!mine)
        return complain("map");
    if (shmem_memory_put(mem, (rank + 1) % size, 0, greeting, sizeof greeting))
        return complain("put");
    if (shmem_barrier(ctx)) /* all puts are done */
        return complain("barrier");
    printf("PE %d got: %s\n", rank, mine);
    return 0;
}

int main(void)
{
    shmem_context_t ctx;
    shmem_memory_t mem;
    if (shmem_init(&ctx))
        return complain("init");
    if (shmem_memory_create(ctx, &mem, GREETING_BYTES))
        return complain("create");
    int result = greet(ctx, mem);
    /* also unmaps and destroys the memory */
    return shmem_finalize(ctx) ? complain("finalize") : result;
}
