/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks without memory: pages that the pool may grow into, or that it returned to the system.
 *
 *   FREE  --withdraw-->  ABSENT(thread)  --memory returned-->  ABSENT
 *   ABSENT  --claim-->  ABSENT(thread)  --memory reserved-->  FREE
 *
 * The slow step between lies outside of the lock. Who is at it is written in the block: the client
 * in the word, the thread's row in the link. If it dies, the block is plainly ABSENT again.
 *
 *   Invariants  an ABSENT block of n pages begins at a multiple of 2^ceil(log2(n)), as used ones do
 *               state[ABSENT] = sum of their pages; they count neither as used nor as free
 *               no block before state[ABSENT_FROM] is ABSENT
 *
 * All functions want the arena's lock. What it does not do: memory itself (grow.c).
 */
#ifndef SHMEMI_MEMORY_ABSENT_H
#define SHMEMI_MEMORY_ABSENT_H

#include "memory/buddy.h"

enum {
    SHMEMI_ABSENT_PIECE = 1 << 16, /* most pages that are reserved or returned at a time */
    SHMEMI_ABSENT_UNIT = 512       /* claims end on borders of so many pages: 2 MiB */
};

/* Who reserves or returns: the client, as in a word, and the thread's row. */
typedef struct shmemi_absent_owner {
    uint64_t client;
    uint32_t row;
} shmemi_absent_owner_t;

/*
 * Claim pages so that a block of `pages` pages on a border of 2^align pages can be had when they
 * are there, and what follows up to `step` pages in all, as pieces in [*begin, *end). Each piece is
 * an operation, committed. NOMEM without a detail: there are none, BUSY likewise: others are just
 * reserving or returning some. CORRUPT.
 */
shmem_status_t shmemi_absent_claim(shmemi_arena_t *arena, shmemi_absent_owner_t owner,
                                   uint32_t pages, unsigned align, uint32_t step, uint32_t *begin,
                                   uint32_t *end);

/* The first block of this owner in [begin, end); false: none. */
bool shmemi_absent_next(const shmemi_arena_t *arena, shmemi_absent_owner_t owner, uint32_t begin,
                        uint32_t end, uint32_t *page, uint32_t *pages);

/* The block has memory now: it is free. CORRUPT. */
shmem_status_t shmemi_absent_fill(shmemi_arena_t *arena, uint32_t page, uint32_t pages);

/* Nobody is at work at the block any more. CORRUPT. */
shmem_status_t shmemi_absent_disown(shmemi_arena_t *arena, uint32_t page, uint32_t pages);

/* Take a large free block (of 2^least pages, of which `most` at most) away, for its memory to be
 * returned. NOMEM without a detail: there is none; CORRUPT. */
shmem_status_t shmemi_absent_withdraw(shmemi_arena_t *arena, shmemi_absent_owner_t owner,
                                      unsigned least, uint32_t most, uint32_t *page,
                                      uint32_t *pages);

#endif
