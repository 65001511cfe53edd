/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared layout of a pool: what lies where in its segment.
 *
 *   header | tasks | fallback counters | arena 0 | arena 1 ... | data
 *   arena: control, charges of the tasks, span map, page records, spans
 *
 *   Invariants  data offset and data stride are multiples of the data alignment, which is the
 *               arena's size rounded up to a power of two, at most 2 MiB.
 *               Every position follows from (capacity, nodes, chunk size): an attaching process
 *               computes it and never reads a position from shared memory.
 *               Each page has a record; the records of the first pages of blocks ("heads") tile
 *               the arena: head + length = next head, up to the last page. Records of other pages
 *               have kind INTERIOR.
 *   Words of a record
 *       word    kind | order (FREE) | client slot | client epoch (the owner; not FREE)
 *       link    FREE: next and previous of the free list as page + 1; else the length in pages
 *               (low half) and the tag: the task that it is charged to; of an ABSENT block, the
 *               thread row of its owner
 *   A word of kind USED or CACHED may be changed by compare-and-swap without the arena's lock;
 *   every other word of the bookkeeping only under it, through the journal (see arena.h).
 *
 * What it does not do: it holds no code that changes anything.
 */
#ifndef SHMEMI_MEMORY_LAYOUT_H
#define SHMEMI_MEMORY_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/util.h"
#include "shmem/pool.h"
#include "sync/mutex.h"

#define SHMEMI_POOL_MAGIC 0x314c4f4f50ull /* "POOL1" */
enum {
    SHMEMI_POOL_VERSION = 2,
    SHMEMI_POOL_NODES = 64,       /* most arenas of a pool */
    SHMEMI_KEEPERS = 64,          /* views that keep it from shrinking */
    SHMEMI_PAGE_SHIFT = 12,       /* of the allocation granule, 4 KiB */
    SHMEMI_ORDERS = 33,           /* orders of free blocks: 2^0 to 2^32 pages */
    SHMEMI_JOURNAL_ENTRIES = 984, /* an operation changes fewer words, see docs/design/pools.md */
    SHMEMI_SPAN_WORDS = 7,        /* a span holds at most 448 objects */
    SHMEMI_SPAN_CHUNKS = 4,       /* a span covers at most 4 chunks */
    SHMEMI_TASKS = 128            /* whom memory is charged to; task 0: whoever has no name */
};
/* Index of a chunk's byte in the map: the byte with the value 2^(8 * (chunk % 8)) of its word. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define SHMEMI_MAP_BYTE(chunk) (chunk)
#else
#error "big-endian machines are not supported"
#endif
#define SHMEMI_DATA_ALIGN 0x200000ull /* 2 MiB */

typedef enum shmemi_page_kind {
    SHMEMI_PAGE_INTERIOR = 0,
    SHMEMI_PAGE_FREE = 1,
    SHMEMI_PAGE_USED = 2,   /* a block of whole pages in the hands of a user */
    SHMEMI_PAGE_CACHED = 3, /* the same, claimed by a client that keeps it or is freeing it */
    SHMEMI_PAGE_SPAN = 4,   /* a span of small objects */
    SHMEMI_PAGE_ABSENT = 5, /* no memory: not yet grown into, or returned to the system. Owner: who
                               is just reserving or returning it, or nobody (0) */
    SHMEMI_PAGE_OWNERS = 6  /* one page: names the owner of each object of a span (owners.h) */
} shmemi_page_kind_t;

typedef struct shmemi_page {
    _Atomic uint64_t word;
    _Atomic uint64_t link;
} shmemi_page_t;
SHMEMI_PIN_SIZE(shmemi_page_t, 16);

static inline unsigned shmemi_word_kind(uint64_t word)
{
    return (unsigned)(word & 15);
}
static inline unsigned shmemi_word_order(uint64_t word)
{
    return (unsigned)(word >> 4) & 63;
}
static inline uint64_t shmemi_word_owner(uint64_t word)
{
    return word & ~(uint64_t)0xffff;
}
static inline uint32_t shmemi_word_slot(uint64_t word)
{
    return (uint32_t)(word >> 16) & 0xffff;
}
static inline uint32_t shmemi_word_epoch(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

/* Owner of blocks that were given to the pool: no client has this slot. */
#define SHMEMI_OWNER_POOL ((uint64_t)0xffff << 16)

/* The owner (client slot, epoch) as it stands in a word. */
static inline uint64_t shmemi_owner(uint32_t slot, uint32_t epoch)
{
    return (uint64_t)epoch << 32 | (uint64_t)(slot & 0xffff) << 16;
}

static inline uint64_t shmemi_word_free(unsigned order)
{
    return SHMEMI_PAGE_FREE | (uint64_t)order << 4;
}

/* One span of small objects; the record at index `head page / pages per chunk`. The first line
 * belongs to the owner, the second to everybody: who frees a stranger's object touches the second
 * only. */
typedef struct shmemi_span {
    _Atomic uint64_t free[SHMEMI_SPAN_WORDS]; /* bit: free; written by the owner only */
    _Atomic uint32_t class;                   /* with `owners` one word that the journal knows */
    _Atomic uint32_t owners; /* page + 1 of the words that name the owner of each object, 0: all
                                belong to the span's */
    _Atomic uint64_t owner;  /* thread row << 32 | its epoch; 0: nobody allocates from it */
    _Atomic uint64_t remote[SHMEMI_SPAN_WORDS]; /* bit: freed by another, not yet collected */
} shmemi_span_t;
SHMEMI_PIN(shmemi_span_t, class, 56);
SHMEMI_PIN(shmemi_span_t, owner, 64);
SHMEMI_PIN_SIZE(shmemi_span_t, 128);

typedef struct shmemi_journal_entry {
    _Atomic uint64_t index; /* of a 64-bit word, counted from the arena's control block */
    _Atomic uint64_t old;
} shmemi_journal_entry_t;

/* Places in control.state[]. */
enum {
    SHMEMI_STATE_MASK = 0,   /* bit k: the list of order k is not empty */
    SHMEMI_STATE_USED = 1,   /* pages in blocks that are neither FREE nor ABSENT */
    SHMEMI_STATE_SPANS = 2,  /* number of spans */
    SHMEMI_STATE_ABSENT = 3, /* pages in blocks that are ABSENT */
    SHMEMI_STATE_AFTER = 4,  /* place of the store that follows the commit, 0: none */
    SHMEMI_STATE_AFTER_VALUE = 5,
    SHMEMI_STATE_ABSENT_FROM = 6, /* no page before this one is ABSENT */
    SHMEMI_STATE_SPAN_PAGES = 7,  /* pages in spans */
    SHMEMI_STATE_HEADS = 8,       /* first page + 1 of each order's free list, 0: empty */
    SHMEMI_STATE_RETURNED = 48,   /* times that pages were given back, modulo 2^64 */
    SHMEMI_STATE_WORDS = 64
};

typedef struct shmemi_arena_control {
    shmemi_mutex_t lock;
    _Atomic uint64_t journal_count; /* entries in force; 0: nothing to undo */
    _Atomic uint64_t journal_high;  /* most entries that an operation ever used */
    uint64_t reserved[6];
    _Atomic uint64_t state[SHMEMI_STATE_WORDS];
    shmemi_journal_entry_t journal[SHMEMI_JOURNAL_ENTRIES];
} shmemi_arena_control_t;
SHMEMI_PIN(shmemi_arena_control_t, state, 128);
SHMEMI_PIN(shmemi_arena_control_t, journal, 640);
SHMEMI_PIN_SIZE(shmemi_arena_control_t, 16384);

/* What a task holds in an arena. Part of the arena's bookkeeping: changed under its lock through
 * its journal, in the same operation as the blocks, so that
 *     held = sum of the pages of the blocks that are charged to the task
 * at whatever instruction somebody is killed. */
typedef struct shmemi_charge {
    _Atomic uint64_t held;  /* pages */
    _Atomic uint64_t taken; /* pages ever taken, modulo 2^64; taken - held: ever given back */
    uint64_t reserved[2];
} shmemi_charge_t;
SHMEMI_PIN_SIZE(shmemi_charge_t, 32);

/* A quota, and the state of its token bucket after `seen` pages. */
typedef struct shmemi_bucket {
    uint64_t limit, burst, rate; /* bytes, bytes, bytes in a second */
    uint64_t keep_tokens;        /* 1: what is given back does not refill the bucket */
    uint64_t tokens;             /* bytes */
    uint64_t stamp;              /* monotonic ns up to which it was refilled */
    uint64_t rest;               /* of that refill: billionths of a byte not yet in tokens */
    uint64_t seen;               /* pages accounted for in tokens: the sum over the arenas of
                                    held, or of taken if keep_tokens */
} shmemi_bucket_t;
SHMEMI_PIN_SIZE(shmemi_bucket_t, 64);

/* A task and its quota. `lock` guards limited, current and the buckets. */
typedef struct shmemi_task {
    shmemi_mutex_t lock;
    char name[SHMEM_TASK_NAME]; /* written before `state` becomes 1 */
    _Atomic uint32_t state;     /* 0: unused; 1: has a name */
    _Atomic uint32_t limited;   /* 1: it has a quota, look further */
    _Atomic uint32_t current;   /* which bucket is in force: 0 or 1 */
    _Atomic uint32_t pressure;  /* bumped by who was over quota */
    shmemi_bucket_t bucket[2];  /* the other one is written, then `current` is changed */
    _Atomic uint64_t held_high; /* pages */
    _Atomic uint64_t refused;
    shmemi_bell_t bell; /* of those who wait until something is given back */
    uint64_t reserved[13];
} shmemi_task_t;
SHMEMI_PIN_SIZE(shmemi_task_t, 384);

typedef struct shmemi_pool_header {
    uint64_t magic;
    uint32_t version;
    uint32_t layout; /* hash of the layouts compiled in */
    uint64_t segment_bytes;
    uint64_t bytes; /* capacity as asked for */
    uint32_t nodes;
    uint32_t policy;
    uint32_t node;
    uint32_t chunk_shift;      /* pages of a chunk, as power of two */
    _Atomic uint32_t ready;    /* 1: formatted; stored last */
    _Atomic uint32_t pressure; /* bumped by who found no memory */
    _Atomic uint64_t high_pages;
    _Atomic uint64_t fallbacks;
    _Atomic uint64_t creator;        /* client slot << 32 | epoch; 0 until it begins to format */
    uint64_t first_bytes;            /* capacity at first; `bytes` is the one it may grow to */
    uint32_t debug;                  /* 1: blocks have guards and traces */
    _Atomic uint32_t destroyed;      /* 1: its name is gone, nothing is allocated any more */
    _Atomic uint64_t root;           /* offset in the data + 1, 0: none */
    _Atomic uint64_t capacity_high;  /* most pages that ever had memory */
    _Atomic uint64_t growths;        /* pieces of memory that came (memory/grow.c) */
    _Atomic uint64_t returned_pages; /* returned to the system, in all */
    _Atomic uint64_t overruns, uses_after_free; /* found in a debug pool */
    shmemi_mutex_t tasks_lock;                  /* who gives a task its name */
    shmemi_bell_t bell;                      /* of those who wait until something is given back */
    uint32_t system_node[SHMEMI_POOL_NODES]; /* number + 1 of each arena's node; 0: unknown */
    _Atomic uint64_t keeper[SHMEMI_KEEPERS]; /* slot << 32 | epoch, 0: none (memory/keepers.h) */
    uint64_t reserved[389];
} shmemi_pool_header_t;
SHMEMI_PIN(shmemi_pool_header_t, ready, 48);
SHMEMI_PIN_SIZE(shmemi_pool_header_t, 4096);

/* Positions, all computed. */
typedef struct shmemi_layout {
    uint64_t segment_bytes;
    uint32_t nodes;
    uint32_t arena_pages;
    unsigned chunk_shift; /* pages of a chunk, as power of two: where spans begin */
    uint32_t chunks;      /* of one arena, the last one perhaps cut off */
    uint64_t tasks;       /* offset of the tasks */
    uint64_t fallbacks;   /* offset of the counters [wanted][got][why] */
    uint64_t arenas;      /* offset of arena 0's control block */
    uint64_t arena_stride;
    uint64_t charges, map, pages, spans; /* inside an arena's bookkeeping */
    uint64_t data, data_stride;
} shmemi_layout_t;

enum { SHMEMI_CHUNK_BY_SIZE = 255 }; /* let shmemi_layout_compute() choose the size of chunks */

/* Positions for a pool of `bytes` on `nodes` nodes. INVALID, OVERFLOW. */
shmem_status_t shmemi_layout_compute(uint64_t bytes, uint32_t nodes, uint32_t chunk_shift,
                                     shmemi_layout_t *layout);

/* Hash over the sizes and versions of the pool's shared structures. */
uint32_t shmemi_layout_hash(void);

#endif
