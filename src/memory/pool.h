/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process keeps about a pool: arenas, policy, and a heap for each of its threads.
 *
 * Everything here is private memory. The thread finds its heap in a one-entry cache in thread-local
 * storage, keyed by the view's number, which is never reused.
 *
 *   Invariants  a span of this client is known in exactly one place: as the current one of a class
 *               of one heap, in its list `available` (has free objects), in its list `full` (had
 *               none when last looked at), or in the view's list of orphans (its thread ended)
 *               used + bits set in `free` = objects of the span, between two calls of its thread
 *               a span in `full` has used == its objects; one in `available` has fewer
 *               heaps and their lists are used by their thread only; orphans under `lock`
 */
#ifndef SHMEMI_MEMORY_POOL_H
#define SHMEMI_MEMORY_POOL_H

#include <pthread.h>

#include "base/stats.h"
#include "memory/pool_core.h"
#include "memory/span.h"

enum {
    SHMEMI_CACHE_BLOCKS = 64, /* large blocks that a thread keeps */
    SHMEMI_CACHE_BYTES = 4 << 20,
    SHMEMI_CACHE_SHARE = 64, /* of an arena, at most this part */
    SHMEMI_PATIENCE = 32,
    SHMEMI_TRIM_SHARE = 16 /* spans that a trim looks at for each request that may wait for it */
};

typedef struct shmemi_span_list {
    uint32_t head, tail; /* chunk + 1, 0: empty */
} shmemi_span_list_t;

/* What the process knows of its spans; one for each chunk of the data. It is private, so that
 * nothing in shared memory decides which thread may write a bitmap or which list a span is in. All
 * chunks of a span have `heap`, `home`, `span`, `offset` and `first`; the rest is in its first
 * chunk. */
typedef struct shmemi_span_node {
    struct shmemi_heap *_Atomic heap; /* that allocates from it; NULL: none. Others may look */
    struct shmemi_heap_class *home;   /* the class there */
    shmemi_span_t *span;
    uint64_t offset;          /* of the span in the data */
    uint32_t first;           /* its first chunk, of the arena */
    uint32_t used;            /* objects handed out and not yet seen free */
    shmemi_span_list_t *list; /* the list that it is in, or NULL */
    uint32_t next, previous;  /* there: chunk + 1, 0 ends */
    uint64_t reserved;
} shmemi_span_node_t;
SHMEMI_PIN_SIZE(shmemi_span_node_t, 64);

/* A size class of a thread on one arena. `bits`, `base` and `limit` belong to one word of the
 * current span's bitmap: its address, the first of its objects, and the number of these. `hot` is
 * the object of the current span that the thread freed last, which is in its cache: a hint, the
 * bitmap decides. */
typedef struct shmemi_heap_class {
    void *hot; /* or NULL */
    _Atomic uint64_t *hot_bits;
    uint64_t hot_mask;
    _Atomic uint64_t *bits; /* a word without bits when there is no current span */
    unsigned char *base;
    uint32_t limit;
    uint32_t size, count, magic; /* as in shmemi_class_t */
    uint32_t *used;              /* of the current span's node */
    shmemi_span_t *span;         /* the current one, or NULL */
    uint32_t current;            /* its chunk + 1, or 0 */
    uint32_t spare;              /* chunk + 1 of the one empty span kept in `available`, or 0 */
    uint32_t arena, class;       /* which class of which arena this is */
    shmemi_span_list_t available, full;
    uint64_t reserved[3];
} shmemi_heap_class_t;
SHMEMI_PIN_SIZE(shmemi_heap_class_t, 128);

typedef struct shmemi_heap_arena {
    shmemi_heap_class_t class[SHMEMI_CLASSES];
    uint64_t frees; /* of the thread, when it last gave back what it caches here */
    uint64_t reserved[15];
} shmemi_heap_arena_t;

typedef struct shmemi_cached_block {
    uint32_t arena, page, pages;
} shmemi_cached_block_t;

typedef struct shmemi_heap {
    shmemi_heap_arena_t *here; /* where an allocation by the pool's policy begins; one that is
                                  always exhausted where that changes from call to call */
    shmemi_stats_t *stats;
    uint64_t thread;   /* row << 32 | epoch, as in shmemi_span_t.owner */
    uint32_t turn;     /* for interleaving */
    uint32_t pressure; /* of the pool, when the heap last gave back what it did not need */
    uint32_t patience; /* occasions since then on which it saw that others need memory */
    shmemi_pool_t *pool;
    uint32_t cached;
    uint64_t cached_bytes;
    shmemi_cached_block_t cache[SHMEMI_CACHE_BLOCKS];
    uint64_t looked; /* spans that trims looked at, in all */
    uint64_t wait;   /* requests that found no span before the next one trims */
    shmemi_heap_arena_t *arena[SHMEMI_POOL_NODES]; /* shmemi_heap_none until first used */
    struct shmemi_heap *next_of_thread, **link_of_thread;
    struct shmemi_heap *next_of_pool, **link_of_pool;
} shmemi_heap_t;

/* What a process knows of where the memory of an arena lies. */
typedef struct shmemi_arena_place {
    int node;               /* in the view's topology; -1: not seen from here */
    uint32_t backing;       /* arena whose node the memory really lies on: another
                               one where the node has no memory */
    _Atomic uint64_t moved; /* pages found elsewhere by the last look */
    _Atomic bool moved_logged;
    _Atomic int64_t *quiet; /* [got][why]: until when a fallback from here is not logged */
} shmemi_arena_place_t;

typedef struct shmemi_arena_view {
    shmemi_arena_t arena;
    shmemi_span_node_t *nodes;                  /* for each chunk of the arena */
    shmemi_span_list_t orphans[SHMEMI_CLASSES]; /* under the view's lock */
    _Atomic int64_t grow_after; /* its node had no memory: not to be asked before this time */
} shmemi_arena_view_t;

struct shmemi_pool {
    uint64_t id;
    unsigned char *data; /* of arena 0 */
    uint64_t data_bytes; /* up to the end of the last arena */
    uint64_t data_stride;
    uint64_t arena_bytes;
    unsigned chunk_bits;       /* of the bytes of a chunk, as power of two */
    shmemi_span_node_t *spans; /* for each chunk of the data */
    uint32_t nodes;
    shmem_pool_policy_t policy;
    int node;
    uint64_t owner; /* this client, as in a page's word */
    shmemi_classes_t classes;
    uint64_t cache_limit; /* bytes of large blocks that a thread keeps */
    shmemi_actor_t *actor;
    shmemi_pool_header_t *header;
    shmemi_layout_t layout;
    uint32_t task; /* whom this view's allocations are charged to */
    int fd;        /* of the segment, -1: cannot grow */
    int huge, lock_pages;
    shmem_topology_t topology;
    double *latency;              /* [from * nodes + to] */
    shmemi_arena_place_t *places; /* of the arenas */
    pthread_mutex_t lock;
    shmemi_heap_t *heaps;          /* of all threads; changed under the lock of heap.c */
    uint32_t leaving;              /* threads that are giving their heap back */
    _Atomic uint32_t deaths_swept; /* value of the roster's `deaths` at the last sweep */
    uint32_t keeper;               /* its place among the header's, or 0 (memory/keepers.h) */
    void (*grown)(void *arg);      /* told of growths by who allocates, if not NULL */
    void *grown_arg;
    _Atomic uint64_t growths_told;
    shmemi_arena_view_t arenas[];
};

/* ---- heap.c: finding the thread's heap ---- */

typedef struct shmemi_heap_cache {
    uint64_t pool_id;
    shmemi_heap_t *heap;
} shmemi_heap_cache_t;
extern _Thread_local shmemi_heap_cache_t shmemi_heap_cache;

/* Look up or make. NULL: the detail is set (STATE, LIMIT, NOMEM). */
shmemi_heap_t *shmemi_heap_lookup(shmemi_pool_t *pool);

static inline shmemi_heap_t *shmemi_heap_get(shmemi_pool_t *pool)
{
    if (__builtin_expect(shmemi_heap_cache.pool_id == pool->id, 1))
        return shmemi_heap_cache.heap;
    return shmemi_heap_lookup(pool);
}

/* The heap's part for arena `index`, made at first use. NULL: NOMEM with detail. */
shmemi_heap_arena_t *shmemi_heap_arena(shmemi_heap_t *heap, uint32_t index);

/* Give all heaps of the view up: only private memory, no block is given back. */
void shmemi_heap_drop_all(shmemi_pool_t *pool);

/* What an unused class of a heap points to, and a part that consists of such classes: no object is
 * ever free in them. Never written. */
extern _Atomic uint64_t shmemi_bits_none;
extern shmemi_heap_arena_t shmemi_heap_none;

/* ---- slab.c: small objects ---- */

/* Hand out the hot object; false: there is none, or it was handed out already. */
static inline bool shmemi_slab_take_hot(shmemi_heap_class_t *c, void **block)
{
    void *hot = c->hot;
    if (!hot)
        return false;
    c->hot = NULL;
    uint64_t bits = atomic_load_explicit(c->hot_bits, memory_order_relaxed);
    if (!(bits & c->hot_mask))
        return false;
    atomic_store_explicit(c->hot_bits, bits & ~c->hot_mask, memory_order_relaxed);
    SHMEMI_KILL_POINT("memory.slab.taken");
    ++*c->used;
    *block = hot;
    return true;
}

/* Hand out an object of the current word; false: it is exhausted (or corrupted). */
static inline bool shmemi_slab_take(shmemi_heap_class_t *c, void **block)
{
    uint64_t bits = atomic_load_explicit(c->bits, memory_order_relaxed);
    if (__builtin_expect(!bits, 0))
        return false;
    uint32_t index = (uint32_t)__builtin_ctzll(bits);
    if (__builtin_expect(index >= c->limit, 0))
        return false;
    atomic_store_explicit(c->bits, bits & (bits - 1), memory_order_relaxed);
    SHMEMI_KILL_POINT("memory.slab.taken");
    ++*c->used;
    *block = c->base + (uint64_t)index * c->size;
    return true;
}

/* Take an object of class `class` on arena `index`. NOMEM without a detail. */
shmem_status_t shmemi_slab_alloc(shmemi_heap_t *heap, uint32_t index, unsigned class, void **block);
/* A span of the thread, not the current one, was full before an object was put back, or is empty
 * now. SHMEM_OK. */
shmem_status_t shmemi_slab_settle(shmemi_heap_t *heap, shmemi_heap_class_t *c, uint32_t chunk);
/* Collect everywhere, give empty spans back. Returns how many. */
uint32_t shmemi_slab_trim(shmemi_heap_t *heap);
/* Give back the spans on an arena that the thread's own frees emptied: at most one a class is kept.
 * Returns how many. */
uint32_t shmemi_slab_flush(shmemi_heap_t *heap, uint32_t index);
/* The thread ends: spans that still hold objects become orphans. */
void shmemi_slab_abandon(shmemi_heap_t *heap);

/* ---- place.c: which block a pointer names ---- */

typedef struct shmemi_place {
    uint32_t arena;
    bool in_span;
    unsigned class;
    uint32_t chunk;  /* first of the span */
    uint64_t offset; /* in the arena; in the span if in_span */
} shmemi_place_t;

/* FOREIGN_POINTER, CORRUPT. */
shmem_status_t shmemi_place_of(const shmemi_pool_t *pool, const void *block, shmemi_place_t *place);
/* Number of the object at a place in a span. INTERIOR_POINTER. */
shmem_status_t shmemi_place_object(const shmemi_pool_t *pool, const shmemi_place_t *place,
                                   const void *block, uint32_t *index);
/* Usable bytes of the block at a place, with the checks of free. */
shmem_status_t shmemi_place_bytes(shmemi_pool_t *pool, const shmemi_place_t *place,
                                  const void *block, uint64_t *bytes);
shmem_status_t shmemi_place_double_free(const void *block);

/* ---- large.c: whole pages ---- */

/* NOMEM without a detail; not `sure`: perhaps only because others are just at work there. */
shmem_status_t shmemi_large_alloc(shmemi_heap_t *heap, uint32_t index, uint32_t pages,
                                  uint64_t alignment, bool sure, void **block);
shmem_status_t shmemi_large_free(shmemi_heap_t *heap, uint32_t index, uint64_t offset);
/* Usable bytes, with the checks of free. */
shmem_status_t shmemi_large_bytes(shmemi_pool_t *pool, uint32_t index, uint64_t offset,
                                  uint64_t *bytes);
/* Shrink or grow in place to `pages`; the caller becomes the owner. NOMEM without a detail: the
 * pages behind the block are taken. */
shmem_status_t shmemi_large_resize(shmemi_heap_t *heap, uint32_t index, uint64_t offset,
                                   uint32_t pages);
/* Make `to` (the pool, or the caller, whose task is charged then) the owner. QUOTA. */
shmem_status_t shmemi_large_change(shmemi_heap_t *heap, uint32_t index, uint64_t offset,
                                   uint64_t to);
/* Give the thread's cached blocks back, those of one arena or all. Returns how many. */
uint32_t shmemi_large_flush(shmemi_heap_t *heap, uint32_t index);
uint32_t shmemi_large_flush_all(shmemi_heap_t *heap);

/* ---- pressure: others found no memory ---- */

/* Give back everything that is cached. Returns the number of blocks and spans. Looks at all spans
 * of the thread for objects that others freed; `heap->wait` says how many requests should do
 * without that afterwards. */
uint32_t shmemi_heap_relieve(shmemi_heap_t *heap);
/* Give back what the thread's own frees left cached on an arena. Does nothing if it freed nothing
 * since the last time, and looks at no more than a span of each class. */
uint32_t shmemi_heap_flush(shmemi_heap_t *heap, uint32_t index);

/* Counts who found no memory, in the pool or for the task. */
static inline uint32_t shmemi_heap_pressure(const shmemi_pool_t *pool)
{
    const shmemi_task_t *task = &pool->arenas[0].arena.tasks[pool->task];
    return atomic_load_explicit(&pool->header->pressure, memory_order_relaxed) +
           atomic_load_explicit(&task->pressure, memory_order_relaxed);
}

/* Called now and then: relieve if somebody found no memory since the last time, but not on every
 * occasion, for that costs as much as there are spans. */
static inline void shmemi_heap_listen(shmemi_heap_t *heap)
{
    uint32_t pressure = shmemi_heap_pressure(heap->pool);
    if (__builtin_expect(pressure != heap->pressure, 0) && ++heap->patience >= SHMEMI_PATIENCE) {
        heap->pressure = pressure;
        heap->patience = 0;
        shmemi_heap_relieve(heap);
    }
}

/* ---- policy.c ---- */

/* The arena where a request with this policy begins. INVALID: no such node or policy, or bound to
 * a node without memory. */
shmem_status_t shmemi_policy_wanted(shmemi_heap_t *heap, shmem_pool_policy_t policy, int node,
                                    uint32_t *wanted);
/* Arenas to try in turn; returns their number. order[0] == wanted. */
uint32_t shmemi_policy_order(const shmemi_pool_t *pool, shmem_pool_policy_t policy, uint32_t wanted,
                             uint32_t *order);
/* Arena `arena` served a request that wanted `wanted`: count it (and log it, at most once a second)
 * if its memory lies on another node. `why` is why the wanted arena did not serve. */
void shmemi_policy_served(shmemi_heap_t *heap, uint32_t wanted, uint32_t arena,
                          shmem_pool_why_t why);
/* May a thread go on allocating from this arena without asking the policy? Not if each allocation
 * counts as a fallback. */
static inline bool shmemi_policy_is_home(const shmemi_pool_t *pool, uint32_t arena)
{
    return pool->places[arena].backing == arena;
}
/* Find the arenas' nodes in the view's topology, and copy the latencies. fini undoes it, also after
 * a failed init. */
shmem_status_t shmemi_policy_init(shmemi_pool_t *pool);
void shmemi_policy_fini(shmemi_pool_t *pool);

/* ---- recover.c ---- */

/* Which blocks to give back: those of one client, or those of clients that are gone. */
typedef struct shmemi_reclaim {
    const shmemi_actor_t *actor;
    uint64_t owner; /* 0: all clients that are not in the roster */
    uint32_t task;  /* only what is charged to it; SHMEMI_TASKS: all */
    shmemi_deadline_t deadline;
    uint64_t blocks; /* out: number given back */
} shmemi_reclaim_t;

/* From page *next on, which is set to where the walk ended. BUSY without a detail: there is more;
 * the arena is not locked for longer at a time. Others may change it meanwhile, for nothing becomes
 * the client's any more. CORRUPT, errors of the lock. */
shmem_status_t shmemi_recover_turn(shmemi_arena_t *arena, shmemi_reclaim_t *reclaim,
                                   uint32_t *next);
/* The whole arena. */
shmem_status_t shmemi_recover_arena(shmemi_arena_t *arena, shmemi_reclaim_t *reclaim);
/* Give back what dead clients left in any arena of the view, if somebody died since the last time
 * or `always`. Returns the number of blocks. */
uint64_t shmemi_recover_sweep(shmemi_pool_t *pool, bool always);

/* ---- pool.c ---- */

/* Raise the high-water mark to what is used now. */
void shmemi_pool_note_high(shmemi_pool_t *pool);

#endif
