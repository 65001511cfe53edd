/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buddy allocator of an arena: blocks of whole pages.
 *
 * A free block of order k begins at a multiple of 2^k pages (from the arena's first page) and has
 * 2^k pages, except that a block which touches the end of an arena of another size is cut off
 * there:
 *
 *   extent(p, k)  = min(2^k, pages - p)
 *   Invariants      k = ceil(log2(extent)) for every free block: the order says the true size
 *                   the block at p XOR 2^k is not free with the order that would complete the pair
 *                   (pairs are merged; pages behind the end count as free)
 *                   at most one block of each order is cut off
 *                   a used block of n pages begins at a multiple of 2^max(ceil(log2(n)) - 6, 0)
 *
 * Free blocks that lie one behind the other are a run. A request takes exactly the pages it asks
 * for, from the shortest run that it sees: it looks at a bounded number of blocks of each order. So
 * blocks of any size lie close together, and one of the next power of two is found in any case.
 * Every operation takes a number of steps bounded by the number of orders.
 *
 * All functions want the arena's lock; on error the caller rolls back (shmemi_arena_unlock()).
 * Each block is charged to a task, in the same operation (charge.h).
 *
 * What it does not do: owners, caches, policies; ABSENT blocks (absent.h).
 */
#ifndef SHMEMI_MEMORY_BUDDY_H
#define SHMEMI_MEMORY_BUDDY_H

#include "memory/arena.h"

/* The first `present` pages of a new arena are free, the others ABSENT. */
shmem_status_t shmemi_buddy_format(shmemi_arena_t *arena, uint32_t present);

enum { SHMEMI_BUDDY_BORDER = 6 }; /* blocks begin on borders of 2^-6 of their size */

/* Borders on which a block of `pages` pages begins, as order. */
static inline unsigned shmemi_buddy_border(uint32_t pages)
{
    unsigned order = shmemi_log2_ceil(pages);
    return order > SHMEMI_BUDDY_BORDER ? order - SHMEMI_BUDDY_BORDER : 0;
}

/* Allocate `pages` at a multiple of 2^align pages. The record of the first page becomes `word`; the
 * block is charged to `task`. NOMEM without a detail, CORRUPT. */
shmem_status_t shmemi_buddy_alloc(shmemi_arena_t *arena, uint32_t pages, unsigned align,
                                  uint64_t word, uint32_t task, uint32_t *page);

/* Free the block of `pages` pages at `page`. CORRUPT. */
shmem_status_t shmemi_buddy_free(shmemi_arena_t *arena, uint32_t page, uint32_t pages);

/* Let the block of `pages` pages at `page` have `wanted` ones in place. NOMEM without a detail: the
 * pages behind it are not free, or a block of that size could not begin there; CORRUPT. */
shmem_status_t shmemi_buddy_resize(shmemi_arena_t *arena, uint32_t page, uint32_t pages,
                                   uint32_t wanted);

/* For absent.h: pages [page, end) that are in no block become free blocks, merged with their
 * buddies; a block of the largest order that there is, `least` at least, leaves its list; the free
 * block that ends before `page`, false: none does. */
shmem_status_t shmemi_buddy_insert(shmemi_arena_t *arena, uint32_t page, uint32_t end);
shmem_status_t shmemi_buddy_remove_largest(shmemi_arena_t *arena, unsigned least, uint32_t *page,
                                           uint32_t *pages);
bool shmemi_buddy_free_before(const shmemi_arena_t *arena, uint32_t page, uint32_t *head);

/* Length of the block that begins at `page`, from its record; 0: impossible values. */
uint32_t shmemi_buddy_length(const shmemi_arena_t *arena, uint32_t page, uint64_t word);

/* The block that contains `page`: its first page, the word of that, and, returned, its length; 0:
 * there is none (corrupted). The block ends behind `page` and inside the arena, whatever others
 * write into its record afterwards: use these values, do not read them again. */
uint32_t shmemi_buddy_locate(const shmemi_arena_t *arena, uint32_t page, uint32_t *head,
                             uint64_t *word);

/* Pages of the largest free block: so many can be allocated now, perhaps more. */
uint32_t shmemi_buddy_largest(const shmemi_arena_t *arena);

static inline uint32_t shmemi_buddy_extent(const shmemi_arena_t *arena, uint32_t page,
                                           unsigned order)
{
    uint64_t whole = (uint64_t)1 << order, rest = arena->pages - page;
    return (uint32_t)(whole < rest ? whole : rest);
}

#endif
