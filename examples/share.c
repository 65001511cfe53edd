/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that know nothing of each other share a block: a board with a mutex, an event, a count.
 *
 *     ./share create             makes the pool and the board, prints its address, waits for the
 * end
 *     ./share join ADDRESS       counts itself
 *     ./share crash ADDRESS      dies while it holds the mutex
 *     ./share end ADDRESS        tells the creator to end
 */
#include <inttypes.h>
#include <shmem/shmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_NAME "share-example"
#define MAGIC     UINT64_C(0x5348415245000001)

typedef struct board {
    uint64_t magic; /* says that the block is what a joiner takes it for */
    shmem_mutex_t mutex;
    shmem_event_t end;
    uint64_t visits, half_of_it; /* visits == 2 * half_of_it or one more, under the mutex */
} board_t;

static void must(shmem_status_t status, const char *what)
{
    if (status == SHMEM_OK)
        return;
    fprintf(stderr, "share: %s: %s: %s\n", what, shmem_status_name(status),
            shmem_error_detail()->text);
    exit(1);
}

/* Lock; if the last holder died inside, put right what it may have left half done. */
static void lock(shmem_context_t ctx, board_t *board)
{
    shmem_status_t status = shmem_mutex_lock(ctx, &board->mutex);
    if (status != SHMEM_ERR_OWNER_DIED) {
        must(status, "lock");
        return;
    }
    board->half_of_it = board->visits / 2;
    must(shmem_mutex_consistent(ctx, &board->mutex), "consistent");
    printf("the last holder died; repaired at %" PRIu64 " visits\n", board->visits);
}

static int create(shmem_context_t ctx)
{
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    shmem_pool_t pool = NULL;
    void *block = NULL;
    params.bytes = 16 << 20;
    must(shmem_pool_create(ctx, POOL_NAME, &params, &pool), "create the pool");
    must(shmem_pool_alloc(pool, sizeof(board_t), &block), "allocate the board");

    board_t *board = block;
    memset(board, 0, sizeof *board);
    must(shmem_mutex_init(&board->mutex), "mutex");
    must(shmem_event_init(&board->end, SHMEM_EVENT_MANUAL, 0), "event");
    board->magic = MAGIC;
    printf("%p\n", block); /* valid in every process: who reads it reads a finished board */
    fflush(stdout);

    must(shmem_event_wait(ctx, &board->end, SHMEM_FOREVER), "wait");
    lock(ctx, board);
    printf("%" PRIu64 " visits\n", board->visits);
    must(shmem_mutex_unlock(ctx, &board->mutex), "unlock");
    must(shmem_pool_free(pool, block), "free");
    shmem_pool_close(pool); /* the pool goes when the last process closes it */
    return 0;
}

/* An address that came from outside is checked before it is used. */
static board_t *find(shmem_pool_t pool, const char *text)
{
    char *end;
    void *block = (void *)(uintptr_t)strtoull(text, &end, 0);
    size_t bytes = 0;
    must(shmem_pool_block_bytes(pool, block, &bytes), "look at the address");
    board_t *board = block;
    if (*end || bytes < sizeof *board || board->magic != MAGIC) {
        fprintf(stderr, "share: there is no board at %s\n", text);
        exit(1);
    }
    return board;
}

static int visit(shmem_context_t ctx, const char *what, const char *address)
{
    shmem_pool_t pool = NULL;
    must(shmem_pool_open(ctx, POOL_NAME, &pool), "open the pool");
    board_t *board = find(pool, address);
    if (strcmp(what, "end") == 0) {
        must(shmem_event_set(ctx, &board->end), "set");
    } else {
        lock(ctx, board);
        board->visits++;
        if (strcmp(what, "crash") == 0)
            raise(SIGKILL);
        board->half_of_it = board->visits / 2;
        printf("visit %" PRIu64 "\n", board->visits);
        must(shmem_mutex_unlock(ctx, &board->mutex), "unlock");
    }
    shmem_pool_close(pool);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int is_create = strcmp(what, "create") == 0 && argc == 2;
    int is_visit = (!strcmp(what, "join") || !strcmp(what, "crash") || !strcmp(what, "end"));
    if (!is_create && !(is_visit && argc == 3)) {
        fputs("usage: share create | join ADDRESS | crash ADDRESS | end ADDRESS\n", stderr);
        return 2;
    }
    shmem_context_params_t params = SHMEM_CONTEXT_PARAMS_INIT;
    shmem_context_t ctx = NULL;
    params.pes = 1; /* a member of no job */
    must(shmem_context_init_params(&ctx, &params), "init");
    int code = is_create ? create(ctx) : visit(ctx, what, argv[2]);
    must(shmem_finalize(ctx), "finalize");
    return code;
}
