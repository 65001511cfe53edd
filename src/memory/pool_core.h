/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool inside one mapped segment: header and bookkeeping first, data after. This layer knows
 * nothing of servers: it is given mapped memory and an actor.
 */
#ifndef SHMEMI_MEMORY_POOL_CORE_H
#define SHMEMI_MEMORY_POOL_CORE_H

#include "memory/layout.h"
#include "os/clock.h"
#include "shmem/pool.h"
#include "sync/roster.h"
#include "topo/topo.h"

typedef struct shmemi_pool shmemi_pool_t; /* a process's (context's) view of a pool */

/* Bytes of segment needed for a pool of `bytes` of data on `nodes` nodes. OVERFLOW. */
shmem_status_t shmemi_pool_segment_bytes(uint64_t bytes, int nodes, uint64_t *segment_bytes);

/* Where the data of arena `index` lies in the segment: to bind it to its node before its pages are
 * reserved. INVALID, OVERFLOW. */
shmem_status_t shmemi_pool_arena_range(uint64_t bytes, int nodes, int index, uint64_t *offset,
                                       uint64_t *length);

/* Where the bookkeeping of arena `index` lies, to bind it, too; the one of arena 0 begins with the
 * header. */
shmem_status_t shmemi_pool_bookkeeping_range(uint64_t bytes, int nodes, int index, uint64_t *offset,
                                             uint64_t *length);

/* Bytes that a pool with these parameters may grow to: what the functions above are asked with. */
uint64_t shmemi_pool_capacity(const shmem_pool_params_t *params);

/* Bytes of memory that each arena has at first, from the beginning of its data on: what its creator
 * reserves, besides all of the bookkeeping. The rest of the data stays a hole. */
uint64_t shmemi_pool_first_length(const shmem_pool_params_t *params, int nodes);

/* Lay out a new pool in `memory` (zeroed, segment_bytes long, 2 MiB-aligned). Publishes itself
 * last. */
shmem_status_t shmemi_pool_format(void *memory, uint64_t segment_bytes,
                                  const shmem_pool_params_t *params,
                                  const shmem_topology_t topology);

/* Has shmemi_pool_format() finished? `memory` has a page at least. */
bool shmemi_pool_is_ready(const void *memory);

/* Say in memory that is not formatted yet who is going to do it; and ask who waits for that: has
 * somebody said so; true if that client is gone. */
void shmemi_pool_claim(void *memory, const shmemi_actor_t *actor);
/* The same in a file that nobody has mapped yet (not one of hugetlb pages): then nobody ever finds
 * memory without a name. */
shmem_status_t shmemi_pool_claim_file(int fd, uint32_t slot, uint32_t epoch);
bool shmemi_pool_is_claimed(const void *memory);
bool shmemi_pool_is_abandoned(const void *memory, const shmemi_roster_t *roster);

/* What a view is made of. All of it, but the task's name, must outlive the view. */
typedef struct shmemi_pool_source {
    void *memory; /* the whole segment, mapped for writing */
    uint64_t segment_bytes;
    shmemi_actor_t *actor;
    shmem_topology_t topology; /* or NULL */
    const char *task;          /* whom its allocations are charged to; NULL or "": nobody's name */
    int fd;                    /* of the segment, to grow and to shrink with; -1: it cannot */
    int huge;                  /* SHMEMI_HUGE_*: pages to grow with */
    int lock_pages;            /* 1: mlock what it grows by */
} shmemi_pool_source_t;

/* Attach to a formatted pool; checks every header field against segment_bytes. VERSION, CORRUPT,
 * INVALID (name of the task), LIMIT (127 tasks). */
shmem_status_t shmemi_pool_attach(const shmemi_pool_source_t *source, shmemi_pool_t **pool);

/* The ranges of the segment that have memory, to bring them into this process: the first one that
 * ends behind `from`. False: there is none. Others may grow or shrink the pool meanwhile. */
bool shmemi_pool_present(shmemi_pool_t *pool, uint64_t from, uint64_t *offset, uint64_t *length);

/* The name is gone: nothing is allocated any more, through whatever view; or, `destroyed` false, it
 * is not. `memory` has a page at least. Returns what it was before. */
bool shmemi_pool_mark_destroyed(void *memory, bool destroyed);

/* Number of pieces that came so far, by all processes: it changes before anybody can allocate from
 * pages that became present. */
uint64_t shmemi_pool_growths(const shmemi_pool_t *pool);

/* What the actor holds that is charged to the view's task is given back; the view is gone. NULL is
 * accepted. */
void shmemi_pool_detach(shmemi_pool_t *pool);

/* Where the data begins in the pool's segment: header and bookkeeping lie before it. CORRUPT,
 * VERSION. */
shmem_status_t shmemi_pool_data_offset(const void *memory, uint64_t segment_bytes,
                                       uint64_t *offset);

/* How far the repair of a pool got for one client; zero: it has not begun. */
typedef struct shmemi_repair {
    uint64_t blocks;                  /* given back so far */
    uint32_t next[SHMEMI_POOL_NODES]; /* of each arena: the page at which it goes on */
} shmemi_repair_t;

/*
 * Server side: give back everything that client (slot, epoch) holds in the pool in `memory`, which
 * clients may have corrupted: every value is checked, CORRUPT is reported, never followed. `actor`
 * is the server's. Repairs an arena whose lock the dead client held. Works for a millisecond or two
 * at a time, and so long it holds an arena's lock. BUSY without a detail: there is more to do, call
 * it again. TIMEOUT: a living (perhaps stopped) client held an arena's lock until `deadline` (0:
 * its lock is tried once); call it again later (clients that run out of memory look for blocks of
 * the dead themselves). Other errors are told when nothing else is left to do.
 */
shmem_status_t shmemi_pool_reclaim(void *memory, uint64_t segment_bytes, shmemi_actor_t *actor,
                                   uint32_t slot, uint32_t epoch, shmemi_deadline_t deadline,
                                   shmemi_repair_t *repair);

/* The public operations on a view; contracts as in shmem/pool.h. */
shmem_status_t shmemi_pool_alloc(shmemi_pool_t *pool, size_t bytes, size_t alignment,
                                 shmem_pool_policy_t policy, int node, void **block);
/* The same with the pool's policy and default alignment. */
shmem_status_t shmemi_pool_alloc_default(shmemi_pool_t *pool, size_t bytes, void **block);
/* The same with the pool's policy. */
shmem_status_t shmemi_pool_alloc_aligned(shmemi_pool_t *pool, size_t bytes, size_t alignment,
                                         void **block);
shmem_status_t shmemi_pool_alloc_timed(shmemi_pool_t *pool, size_t bytes, size_t alignment,
                                       int64_t timeout, void **block);
shmem_status_t shmemi_pool_free(shmemi_pool_t *pool, void *block);
shmem_status_t shmemi_pool_resize(shmemi_pool_t *pool, void **block, size_t bytes);
shmem_status_t shmemi_pool_block_bytes(shmemi_pool_t *pool, const void *block, size_t *bytes);
shmem_status_t shmemi_pool_describe(shmemi_pool_t *pool, shmem_pool_info_t *info);
shmem_status_t shmemi_pool_check(shmemi_pool_t *pool);
shmem_status_t shmemi_pool_trim(shmemi_pool_t *pool);
shmem_status_t shmemi_pool_shrink(shmemi_pool_t *pool, uint64_t keep, uint64_t *returned);
shmem_status_t shmemi_pool_node_info(shmemi_pool_t *pool, int node, shmem_pool_node_info_t *info);
shmem_status_t shmemi_pool_root_set(shmemi_pool_t *pool, void *block);
shmem_status_t shmemi_pool_root_get(shmemi_pool_t *pool, void **block);
shmem_status_t shmemi_pool_quota_set(shmemi_pool_t *pool, const char *task,
                                     const shmem_quota_t *quota);
shmem_status_t shmemi_pool_quota_get(shmemi_pool_t *pool, const char *task, shmem_quota_t *quota);
shmem_status_t shmemi_pool_task(shmemi_pool_t *pool, size_t index, char name[SHMEM_TASK_NAME]);
shmem_status_t shmemi_pool_fallback(shmemi_pool_t *pool, int wanted, int got, shmem_pool_why_t why,
                                    uint64_t *count);
shmem_status_t shmemi_pool_placement(shmemi_pool_t *pool, int node, uint64_t *there,
                                     uint64_t *elsewhere);

/* Owners: give.c. */
shmem_status_t shmemi_pool_give(shmemi_pool_t *pool, void *block);
shmem_status_t shmemi_pool_hold(shmemi_pool_t *pool, void *block);
/* Who has what: stats.c. Both look without a lock; *count of clients may exceed `room`. */
shmem_status_t shmemi_pool_class_info(const shmemi_pool_t *pool, size_t index,
                                      shmem_pool_class_info_t *info);
shmem_status_t shmemi_pool_clients(const shmemi_pool_t *pool, shmem_pool_client_info_t *clients,
                                   size_t room, size_t *count);

#endif
