/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans: runs of pages cut into objects of one size class.
 *
 * A span begins on a chunk border; the map has a byte for each chunk: 0, or 1 + the number of
 * chunks back to the first one of the span that covers it. A page behind the span's end in its last
 * chunk may belong to another block: offsets are checked against the span's length.
 *
 *   Invariants  an object is free  <=>  its bit is set in `free` or in `remote`, never in both
 *               `free` is written by the thread named in `owner` only, with plain stores: handing
 *               out an object and taking one back is one store, so a kill leaves no half state
 *               `remote` gains bits from anybody, loses them to the owner (exchange)
 *               the page record of its first page has kind SPAN and names the owning client: when
 *               that client ends, the span goes as a whole
 *
 * What it does not do: decide which span serves a request (slab.c).
 */
#ifndef SHMEMI_MEMORY_SPAN_H
#define SHMEMI_MEMORY_SPAN_H

#include "memory/buddy.h"
#include "memory/classes.h"

/* What a span is owned by: the client (as in a page's word) and the thread; and charged to. */
typedef struct shmemi_span_owner {
    uint64_t client;
    uint64_t thread;
    uint32_t task;
} shmemi_span_owner_t;

/* Make a span of class `class`, all objects free. NOMEM without a detail, CORRUPT, errors of the
 * lock. */
shmem_status_t shmemi_span_create(shmemi_arena_t *arena, const shmemi_actor_t *actor,
                                  const shmemi_classes_t *classes, unsigned class,
                                  const shmemi_span_owner_t *owner, uint32_t *chunk);

/* Give the span's pages back. CORRUPT, errors of the lock. */
shmem_status_t shmemi_span_destroy(shmemi_arena_t *arena, const shmemi_actor_t *actor,
                                   uint32_t chunk);

/* The same for who holds the lock. `page` begins a block of kind SPAN. CORRUPT. */
shmem_status_t shmemi_span_dissolve_locked(shmemi_arena_t *arena, uint32_t page);

/* Move the bits of `remote` to `free`. The span's thread only. Returns how many. */
uint32_t shmemi_span_collect(const shmemi_arena_t *arena, shmemi_span_t *span,
                             const shmemi_class_t *class);

/* Free object `index` of a span that another thread owns; in one with owners, by who claimed it.
 * DOUBLE_FREE without a detail. */
shmem_status_t shmemi_span_free_remote(shmemi_span_t *span, uint32_t index);

/* An object of a span with owners was freed by another than the span's thread: if the span is the
 * pool's and this was its last object, it goes. CORRUPT, errors of the lock. */
shmem_status_t shmemi_span_leave(shmemi_arena_t *arena, const shmemi_actor_t *actor,
                                 const shmemi_classes_t *classes, unsigned class, uint32_t chunk);

/* Is no object of the span allocated? A moment old, unless nobody allocates from it. */
bool shmemi_span_is_empty(const shmemi_span_t *span, const shmemi_class_t *class);

/* Is the bit of object `index` set in `free` or in `remote`? */
static inline bool shmemi_span_is_free(const shmemi_span_t *span, uint32_t index)
{
    uint64_t bits = atomic_load_explicit(&span->free[index / 64], memory_order_relaxed) |
                    atomic_load_explicit(&span->remote[index / 64], memory_order_relaxed);
    return bits >> index % 64 & 1;
}

/*
 * The byte of a chunk in the map: 0, or 1 + 4 * class + chunks back to the span's first one. The
 * map changes as 64-bit words under the lock and is read as bytes without it.
 */
static inline uint32_t shmemi_span_mark(const shmemi_arena_t *arena, uint32_t chunk)
{
    const _Atomic uint8_t *bytes = (const _Atomic uint8_t *)(const void *)arena->map;
    return atomic_load_explicit(&bytes[SHMEMI_MAP_BYTE(chunk)], memory_order_relaxed);
}

static inline uint32_t shmemi_span_mark_of(unsigned class, uint32_t back)
{
    return 1 + 4 * class + back;
}

/* First chunk and class of the span that covers `chunk`, as the map says; false: none. */
static inline bool shmemi_span_find(const shmemi_arena_t *arena, uint32_t chunk, uint32_t *first,
                                    unsigned *class)
{
    uint32_t mark = shmemi_span_mark(arena, chunk) - 1;
    *first = chunk - (mark & 3);
    *class = mark >> 2;
    return mark < 4 * SHMEMI_CLASSES && (mark & 3) <= chunk;
}

static inline uint64_t shmemi_span_offset(const shmemi_arena_t *arena, uint32_t chunk)
{
    return (uint64_t)chunk << (arena->chunk_shift + SHMEMI_PAGE_SHIFT);
}

#endif
