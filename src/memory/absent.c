/* SPDX-License-Identifier: Apache-2.0 */
/* Claiming, splitting and ending of blocks without memory; see absent.h. */
#include "memory/absent.h"

#include "base/status.h"

#define LAYER "memory"

static shmem_status_t corrupt(const shmemi_arena_t *arena, uint32_t page)
{
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "arena %u: impossible block at page %u, or a full journal; shared memory "
                       "was overwritten, make a new pool",
                       arena->index, page);
}

static uint64_t word_at(const shmemi_arena_t *arena, uint32_t page)
{
    return shmemi_arena_get(&arena->page[page].word);
}

/* Make the record of the block at `page` say this. */
static bool record(shmemi_arena_t *arena, uint32_t page, uint32_t pages, uint64_t client,
                   uint32_t row)
{
    return shmemi_arena_set(arena, &arena->page[page].link, (uint64_t)row << 32 | pages) &&
           shmemi_arena_set(arena, &arena->page[page].word, client | SHMEMI_PAGE_ABSENT);
}

/* Blocks one behind the other that are free, or absent and nobody's. */
typedef struct run {
    uint64_t start, end;
    uint64_t absent, absent_end; /* from the first absent page to the last; equal: there is none */
} run_t;

/* Where a block of `pages` pages on a border of `unit` would lie in the run, first so that some of
 * its pages are absent; false: nowhere. */
static bool fits(const run_t *run, uint32_t pages, uint64_t unit, uint32_t *begin)
{
    uint64_t low = run->absent + 1 > pages ? run->absent + 1 - pages : 0;
    uint64_t from = ((low > run->start ? low : run->start) + unit - 1) & ~(unit - 1);
    if (run->absent == run->absent_end || from >= run->absent_end || from + pages > run->end)
        return false;
    *begin = (uint32_t)from;
    return true;
}

/* The run goes on with this block, or begins anew behind it. */
static void run_add(run_t *run, uint64_t page, uint32_t pages, uint64_t word)
{
    uint64_t end = page + pages;
    if (word == SHMEMI_PAGE_ABSENT) {
        run->absent = run->absent == run->absent_end ? page : run->absent;
        run->absent_end = end;
    } else if (shmemi_word_kind(word) != SHMEMI_PAGE_FREE) {
        *run = (run_t){.start = end};
    }
    run->end = end;
}

/* The block at `page`, and, if it is free, those before it. */
static bool run_begin(const shmemi_arena_t *arena, uint64_t page, run_t *run)
{
    uint32_t head = (uint32_t)page;
    uint64_t word;
    if (page < arena->pages && !shmemi_buddy_locate(arena, (uint32_t)page, &head, &word))
        return false;
    while (shmemi_buddy_free_before(arena, head, &head))
        ;
    *run = (run_t){.start = head, .end = head};
    return true;
}

/* The first place where a block of `pages` pages on a border of 2^align would lie on free and
 * absent pages only. */
static shmem_status_t find(shmemi_arena_t *arena, uint32_t pages, unsigned align, uint32_t *begin)
{
    _Atomic uint64_t *hint = &arena->control->state[SHMEMI_STATE_ABSENT_FROM];
    uint64_t from = shmemi_arena_get(hint), first = arena->pages;
    bool busy = false, found = false;
    run_t run;
    if (!run_begin(arena, from < arena->pages ? from : arena->pages, &run))
        return corrupt(arena, (uint32_t)from);
    while (run.end < arena->pages && !found) {
        uint32_t page = (uint32_t)run.end;
        uint64_t word = word_at(arena, page);
        uint32_t length = shmemi_buddy_length(arena, page, word);
        if (!length)
            return corrupt(arena, page);
        if (shmemi_word_kind(word) == SHMEMI_PAGE_ABSENT && page < first)
            first = page;
        busy |= shmemi_word_kind(word) == SHMEMI_PAGE_ABSENT && word != SHMEMI_PAGE_ABSENT;
        run_add(&run, page, length, word);
        found = fits(&run, pages, (uint64_t)1 << align, begin);
    }
    if (first > from && !shmemi_arena_set(arena, hint, first))
        return corrupt(arena, (uint32_t)first);
    shmemi_arena_commit(arena);
    if (!found)
        return busy ? SHMEM_ERR_BUSY : SHMEM_ERR_NOMEM;
    return SHMEM_OK;
}

/* Split the unclaimed block at *page, which contains `from`, until one of at most `most` pages
 * begins there. */
static shmem_status_t split(shmemi_arena_t *arena, uint32_t *page, uint32_t *pages, uint32_t from,
                            uint32_t most)
{
    while (*page < from || *pages > most) {
        uint32_t half = 1u << (shmemi_log2_ceil(*pages) - 1), upper = *page + half;
        if (!record(arena, upper, *pages - half, 0, 0) || !record(arena, *page, half, 0, 0))
            return corrupt(arena, *page);
        *pages = from >= upper ? *pages - half : half;
        *page = from >= upper ? upper : *page;
    }
    return SHMEM_OK;
}

static shmem_status_t claim_one(shmemi_arena_t *arena, shmemi_absent_owner_t owner, uint32_t *page,
                                uint32_t *pages, uint32_t begin, uint64_t end)
{
    uint32_t from = *page > begin ? *page : begin;
    uint64_t most = end - from;
    if (most > SHMEMI_ABSENT_PIECE)
        most = SHMEMI_ABSENT_PIECE;
    shmem_status_t status = split(arena, page, pages, from, (uint32_t)most);
    if (!status && !record(arena, *page, *pages, owner.client, owner.row))
        status = corrupt(arena, *page);
    SHMEMI_KILL_POINT("memory.absent.claimed");
    if (!status)
        shmemi_arena_commit(arena);
    return status;
}

shmem_status_t shmemi_absent_claim(shmemi_arena_t *arena, shmemi_absent_owner_t owner,
                                   uint32_t pages, unsigned align, uint32_t step, uint32_t *begin,
                                   uint32_t *end)
{
    unsigned border = shmemi_buddy_border(pages);
    uint32_t page = 0, length = 0;
    uint64_t word;
    shmem_status_t status = find(arena, pages, align > border ? align : border, begin);
    if (status)
        return status;
    uint64_t stop = (uint64_t)*begin + (pages > step ? pages : step);
    stop = (stop + SHMEMI_ABSENT_UNIT - 1) & ~(uint64_t)(SHMEMI_ABSENT_UNIT - 1);
    if (stop > arena->pages)
        stop = arena->pages;
    uint64_t next = *begin;
    for (; next < stop && !status; next = (uint64_t)page + length) {
        length = shmemi_buddy_locate(arena, (uint32_t)next, &page, &word);
        if (!length)
            return corrupt(arena, (uint32_t)next);
        if (word == SHMEMI_PAGE_ABSENT)
            status = claim_one(arena, owner, &page, &length, *begin, stop);
        else if (shmemi_word_kind(word) != SHMEMI_PAGE_FREE)
            break;
    }
    *end = (uint32_t)(next < stop ? next : stop);
    return status;
}

bool shmemi_absent_next(const shmemi_arena_t *arena, shmemi_absent_owner_t owner, uint32_t begin,
                        uint32_t end, uint32_t *page, uint32_t *pages)
{
    uint32_t head;
    for (uint64_t p = begin, word; p < end; p = (uint64_t)head + *pages) {
        *pages = shmemi_buddy_locate(arena, (uint32_t)p, &head, &word);
        if (!*pages)
            return false;
        uint64_t link = shmemi_arena_get(&arena->page[head].link);
        *page = head;
        if (word == (owner.client | SHMEMI_PAGE_ABSENT) && link >> 32 == owner.row)
            return head >= begin && *pages <= end - head;
    }
    return false;
}

shmem_status_t shmemi_absent_fill(shmemi_arena_t *arena, uint32_t page, uint32_t pages)
{
    uint64_t absent = shmemi_arena_get(&arena->control->state[SHMEMI_STATE_ABSENT]);
    if (pages > absent || !shmemi_arena_count(arena, SHMEMI_STATE_ABSENT, -(int64_t)pages) ||
        !shmemi_arena_set(arena, &arena->page[page].word, SHMEMI_PAGE_INTERIOR))
        return corrupt(arena, page);
    SHMEMI_KILL_POINT("memory.absent.filled");
    return shmemi_buddy_insert(arena, page, page + pages);
}

shmem_status_t shmemi_absent_disown(shmemi_arena_t *arena, uint32_t page, uint32_t pages)
{
    return record(arena, page, pages, 0, 0) ? SHMEM_OK : corrupt(arena, page);
}

shmem_status_t shmemi_absent_withdraw(shmemi_arena_t *arena, shmemi_absent_owner_t owner,
                                      unsigned least, uint32_t most, uint32_t *page,
                                      uint32_t *pages)
{
    uint32_t found;
    if (most >> least == 0)
        return SHMEM_ERR_NOMEM;
    shmem_status_t status = shmemi_buddy_remove_largest(arena, least, page, &found);
    if (status)
        return status;
    if (most > SHMEMI_ABSENT_PIECE)
        most = SHMEMI_ABSENT_PIECE;
    *pages = found <= most ? found : 1u << shmemi_log2_floor(most);
    if (*pages < found)
        status = shmemi_buddy_insert(arena, *page + *pages, *page + found);
    if (status)
        return status;
    _Atomic uint64_t *hint = &arena->control->state[SHMEMI_STATE_ABSENT_FROM];
    if (!record(arena, *page, *pages, owner.client, owner.row) ||
        !shmemi_arena_count(arena, SHMEMI_STATE_ABSENT, *pages) ||
        (*page < shmemi_arena_get(hint) && !shmemi_arena_set(arena, hint, *page)))
        return corrupt(arena, *page);
    SHMEMI_KILL_POINT("memory.absent.withdrawn");
    return SHMEM_OK;
}
