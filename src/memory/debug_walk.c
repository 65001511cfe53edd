/* SPDX-License-Identifier: Apache-2.0 */
/* Debug pools as a whole: the guards of all blocks, and what this process has in them. */
#include <time.h>

#include "base/status.h"
#include "memory/debug.h"
#include "memory/trace.h"
#include "memory/walk.h"

#define LAYER "memory"

enum {
    TRIES = 200, /* looks at a block without a valid trace, until the first one that stays so: */
    PAUSE_NS = 1000000 /* perhaps it is being allocated, which takes moments */
};

/* ---- guards ---- */

typedef struct check {
    shmemi_pool_t *pool;
    bool found;
    int64_t at; /* of the first one: */
    shmemi_traced_t block;
} check_t;

/* The walk holds the arena's lock: when one block was found, others without a trace are not waited
 * for, since they would change nothing in what is said. */
static bool is_spoiled(const check_t *c, shmemi_traced_t *b, int64_t *at)
{
    const struct timespec pause = {0, PAUSE_NS};
    for (int i = 0; i < TRIES && !(i && c->found); i++) {
        if (shmemi_trace_read(c->pool, b))
            return shmemi_trace_state(b->trace.state) < SHMEMI_TRACE_FREEING &&
                   shmemi_trace_is_damaged(b, at) && shmemi_trace_is_same(b);
        if (!shmemi_trace_state(b->trace.state))
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

static void check_block(void *arg, const shmemi_walked_t *walked)
{
    check_t *c = arg;
    shmemi_traced_t b = {.start = walked->start, .bytes = walked->bytes};
    int64_t at = 0;
    if (!is_spoiled(c, &b, &at))
        return;
    if (b.known && shmemi_trace_state(b.trace.state) == SHMEMI_TRACE_ALLOCATED) {
        uint64_t word = b.trace.state;
        /* SYNC trace-state: acq_rel, pairs with acquire in words_read() */
        if (atomic_compare_exchange_strong_explicit(shmemi_trace_word(&b), &word,
                                                    (word & ~(uint64_t)15) | SHMEMI_TRACE_REPORTED,
                                                    memory_order_acq_rel, memory_order_relaxed))
            atomic_fetch_add_explicit(&c->pool->header->overruns, 1, memory_order_relaxed);
    }
    if (!c->found) {
        c->block = b;
        c->at = at;
    }
    c->found = true;
}

shmem_status_t shmemi_debug_check(shmemi_pool_t *pool)
{
    char allocated[SHMEMI_EVENT_TEXT];
    check_t c = {.pool = pool};
    shmem_status_t status = shmemi_pool_check(pool);
    if (!status)
        status = shmemi_walk_blocks(pool, check_block, &c);
    if (status || !c.found)
        return status;
    if (!c.block.known)
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                           "the trace of the block of %llu bytes (with guards) at %p was "
                           "overwritten: who allocated it is not known",
                           (unsigned long long)c.block.bytes, (void *)c.block.start);
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "written outside of the block of %llu bytes at %p: byte %lld is the first "
                       "one that was changed; it was allocated at %s",
                       (unsigned long long)c.block.trace.asked, (void *)c.block.user,
                       (long long)c.at,
                       shmemi_trace_describe(pool, &c.block.trace.allocated, allocated));
}

/* ---- what this process has ---- */

typedef struct sum {
    const shmemi_pool_t *pool;
    uint64_t blocks, bytes;
} sum_t;

static void add_own(void *arg, const shmemi_walked_t *walked)
{
    sum_t *s = arg;
    shmemi_traced_t b = {.start = walked->start, .bytes = walked->bytes};
    if (!shmemi_trace_read(s->pool, &b) || b.trace.allocated.client != s->pool->owner ||
        shmemi_trace_state(b.trace.state) >= SHMEMI_TRACE_FREEING)
        return;
    s->blocks++;
    s->bytes += b.trace.asked;
}

shmem_status_t shmemi_pool_debug_info(shmemi_pool_t *pool, shmem_pool_debug_info_t *info)
{
    sum_t s = {.pool = pool};
    if (!pool->header->debug)
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "this is no debug pool: create it with params.debug = 1, or with "
                           "SHMEM_DEBUG=yes");
    shmem_status_t status = shmemi_walk_blocks(pool, add_own, &s);
    if (status)
        return status;
    *info = (shmem_pool_debug_info_t){
        .size = info->size,
        .blocks = s.blocks,
        .bytes = s.bytes,
        .overruns = shmemi_arena_get(&pool->header->overruns),
        .uses_after_free = shmemi_arena_get(&pool->header->uses_after_free),
    };
    return SHMEM_OK;
}
