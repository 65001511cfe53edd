/* SPDX-License-Identifier: Apache-2.0 */
/* What a client leaves allocated when it closes a pool. Blocks that it gave away or that others
 * hold are not its own any more. */
#include <string.h>

#include "base/log.h"
#include "memory/debug.h"
#include "memory/trace.h"
#include "memory/walk.h"
#include "os/identity.h"

#define LAYER "memory"

enum { SITES = 64, LINES = 16 };

typedef struct leaks {
    const shmemi_pool_t *pool;
    uint64_t blocks, bytes;
    uint32_t sites;
    struct {
        char text[SHMEMI_SITE];
        uint64_t blocks, bytes;
    } site[SITES];
} leaks_t;

/* Sites beyond the table count in the sum only. */
static void add_site(leaks_t *l, const shmemi_traced_t *b)
{
    uint32_t i = 0;
    while (i < l->sites && strncmp(l->site[i].text, b->trace.allocated.site, SHMEMI_SITE - 1))
        i++;
    if (i == SITES)
        return;
    if (i == l->sites) {
        memcpy(l->site[i].text, b->trace.allocated.site, SHMEMI_SITE - 1);
        l->sites++;
    }
    l->site[i].blocks++;
    l->site[i].bytes += b->trace.asked;
}

static void add(void *arg, const shmemi_walked_t *walked)
{
    leaks_t *l = arg;
    shmemi_traced_t b = {.start = walked->start, .bytes = walked->bytes};
    if (walked->free || walked->owner != l->pool->owner || walked->task != l->pool->task)
        return;
    if (!l->pool->header->debug) {
        l->blocks++;
        l->bytes += walked->bytes;
    } else if (shmemi_trace_read(l->pool, &b) &&
               shmemi_trace_state(b.trace.state) < SHMEMI_TRACE_FREEING) {
        l->blocks++;
        l->bytes += b.trace.asked;
        add_site(l, &b);
    }
}

/* The largest first. */
static void log_sites(leaks_t *l, const char *name)
{
    for (uint32_t n = 0; n < l->sites && n < LINES; n++) {
        uint32_t most = 0;
        for (uint32_t i = 1; i < l->sites; i++)
            if (l->site[i].bytes > l->site[most].bytes)
                most = i;
        for (char *c = l->site[most].text; *c; c++) /* it comes from shared memory */
            if (*c < ' ' || *c > '~')
                *c = '?';
        shmemi_log(SHMEM_LOG_WARN, LAYER,
                   "pool '%s': not freed: %llu blocks, %llu bytes, allocated at %s", name,
                   (unsigned long long)l->site[most].blocks,
                   (unsigned long long)l->site[most].bytes, l->site[most].text);
        l->site[most].bytes = 0;
    }
    if (l->sites > LINES)
        shmemi_log(SHMEM_LOG_WARN, LAYER,
                   "pool '%s': not freed: and those of %s%u other call sites", name,
                   l->sites == SITES ? "at least " : "", l->sites - LINES);
}

void shmemi_pool_report_leaks(shmemi_pool_t *pool, const char *name)
{
    leaks_t l = {.pool = pool};
    if (pool->actor->fork_generation != shmemi_fork_generation())
        return;
    if (shmemi_pool_is_debug(pool))
        shmemi_debug_report_own(pool, name);
    if (shmemi_walk_blocks(pool, add, &l) || !l.blocks)
        return;
    shmemi_log(SHMEM_LOG_WARN, LAYER,
               "pool '%s' is closed with %llu blocks, %llu bytes, that this process neither freed "
               "nor gave away",
               name, (unsigned long long)l.blocks, (unsigned long long)l.bytes);
    log_sites(&l, name);
}
