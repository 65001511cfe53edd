/* SPDX-License-Identifier: Apache-2.0 */
/* Debug pools as a whole: the guards of all blocks, the poison of small free ones, and what this
 * process has in them. */
#include <time.h>

#include "base/log.h"
#include "base/status.h"
#include "memory/debug.h"
#include "memory/trace.h"
#include "memory/walk.h"

#define LAYER "memory"

enum {
    TRIES = 200, /* looks at a block without a valid trace, until the first one that stays so: */
    PAUSE_NS = 1000000, /* perhaps it is being allocated, which takes moments */
    LINES = 16          /* blocks that are told of */
};

/* ---- guards and poison ---- */

typedef struct check {
    shmemi_pool_t *pool;
    bool own;       /* only what this client owns for the view's task */
    uint32_t found; /* the first of them: */
    struct {
        shmemi_traced_t block;
        int64_t at;
    } first[LINES];
} check_t;

/* Was a free block written to? One that is handed out meanwhile is forgotten. */
static bool is_touched(const check_t *c, shmemi_traced_t *b, int64_t *at)
{
    return shmemi_trace_read(c->pool, b) &&
           shmemi_trace_state(b->trace.state) >= SHMEMI_TRACE_FREED &&
           shmemi_trace_is_touched(b, at) && shmemi_trace_is_same(b);
}

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
    if (c->own &&
        (walked->free || walked->owner != c->pool->owner || walked->task != c->pool->task))
        return;
    if (walked->free ? !is_touched(c, &b, &at) : !is_spoiled(c, &b, &at))
        return;
    if (b.known)
        shmemi_trace_report(c->pool, &b);
    if (c->found < LINES) {
        c->first[c->found].block = b;
        c->first[c->found].at = at;
    }
    c->found++;
}

shmem_status_t shmemi_debug_check(shmemi_pool_t *pool)
{
    char text[SHMEMI_DAMAGE_TEXT];
    check_t c = {.pool = pool};
    shmem_status_t status = shmemi_pool_check(pool);
    if (!status)
        status = shmemi_walk_blocks(pool, check_block, &c);
    if (status || !c.found)
        return status;
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER, "%s",
                       shmemi_trace_damage(pool, &c.first[0].block, c.first[0].at, text));
}

void shmemi_debug_report_own(shmemi_pool_t *pool, const char *name)
{
    char text[SHMEMI_DAMAGE_TEXT];
    check_t c = {.pool = pool, .own = true};
    if (shmemi_walk_blocks(pool, check_block, &c))
        return;
    for (uint32_t i = 0; i < c.found && i < LINES; i++)
        shmemi_log(SHMEM_LOG_ERROR, LAYER, "pool '%s': %s", name,
                   shmemi_trace_damage(pool, &c.first[i].block, c.first[i].at, text));
    if (c.found > LINES)
        shmemi_log(SHMEM_LOG_ERROR, LAYER,
                   "pool '%s': and %u other blocks were written to outside of their bytes", name,
                   c.found - LINES);
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
    if (walked->free || !shmemi_trace_read(s->pool, &b) ||
        b.trace.allocated.client != s->pool->owner ||
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
