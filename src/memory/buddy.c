/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting, merging and trimming of free blocks; see buddy.h. */
#include "memory/buddy.h"

#include "base/status.h"
#include "memory/charge.h"

#define LAYER "memory"

enum { CANDIDATES = 128 }; /* blocks of a list that a request looks at */

#define SET(arena, word, value)                                                                    \
    do {                                                                                           \
        if (!shmemi_arena_set(arena, word, value))                                                 \
            return corrupt(arena, "the journal is full at page", 0);                               \
    } while (0)

static shmem_status_t corrupt(const shmemi_arena_t *arena, const char *what, uint32_t page)
{
    return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                       "arena %u: %s %u; shared memory was overwritten, make a new pool",
                       arena->index, what, page);
}

static _Atomic uint64_t *head_of(const shmemi_arena_t *arena, unsigned order)
{
    return &arena->control->state[SHMEMI_STATE_HEADS + order];
}

static _Atomic uint64_t *mask_of(const shmemi_arena_t *arena)
{
    return &arena->control->state[SHMEMI_STATE_MASK];
}

static bool is_free(const shmemi_arena_t *arena, uint32_t page, unsigned order)
{
    return shmemi_arena_get(&arena->page[page].word) == shmemi_word_free(order);
}

/* ---- free lists: doubly linked through the records, page + 1, 0 ends ---- */

static uint32_t next_of(const shmemi_arena_t *arena, uint32_t page)
{
    return (uint32_t)(shmemi_arena_get(&arena->page[page].link) >> 32);
}

static uint32_t prev_of(const shmemi_arena_t *arena, uint32_t page)
{
    return (uint32_t)shmemi_arena_get(&arena->page[page].link);
}

static uint64_t link_of(uint32_t next, uint32_t prev)
{
    return (uint64_t)next << 32 | prev;
}

/* Is `entry` (page + 1) a free block of this order, at a place where there can be one? */
static bool is_entry(const shmemi_arena_t *arena, uint64_t entry, unsigned order)
{
    return entry && entry <= arena->pages && !((entry - 1) & (((uint64_t)1 << order) - 1)) &&
           is_free(arena, (uint32_t)entry - 1, order);
}

static shmem_status_t list_insert(shmemi_arena_t *arena, uint32_t page, unsigned order)
{
    uint64_t head = shmemi_arena_get(head_of(arena, order));
    SET(arena, &arena->page[page].link, link_of((uint32_t)head, 0));
    SET(arena, &arena->page[page].word, shmemi_word_free(order));
    if (head) {
        if (!is_entry(arena, head, order))
            return corrupt(arena, "a free list begins at impossible page", (uint32_t)head - 1);
        uint32_t old = (uint32_t)head - 1;
        SET(arena, &arena->page[old].link, link_of(next_of(arena, old), page + 1));
    } else {
        uint64_t mask = shmemi_arena_get(mask_of(arena));
        SET(arena, mask_of(arena), mask | (uint64_t)1 << order);
    }
    SET(arena, head_of(arena, order), page + 1);
    SHMEMI_KILL_POINT("memory.buddy.inserted");
    return SHMEM_OK;
}

static shmem_status_t list_remove(shmemi_arena_t *arena, uint32_t page, unsigned order)
{
    uint32_t next = next_of(arena, page), prev = prev_of(arena, page);
    if ((next && (!is_entry(arena, next, order) || prev_of(arena, next - 1) != page + 1)) ||
        (prev && (!is_entry(arena, prev, order) || next_of(arena, prev - 1) != page + 1)) ||
        (!prev && shmemi_arena_get(head_of(arena, order)) != page + 1))
        return corrupt(arena, "the free list is broken at page", page);
    if (next)
        SET(arena, &arena->page[next - 1].link, link_of(next_of(arena, next - 1), prev));
    if (prev)
        SET(arena, &arena->page[prev - 1].link, link_of(next, prev_of(arena, prev - 1)));
    else
        SET(arena, head_of(arena, order), next);
    if (!next && !prev) {
        uint64_t mask = shmemi_arena_get(mask_of(arena));
        SET(arena, mask_of(arena), mask & ~((uint64_t)1 << order));
    }
    SET(arena, &arena->page[page].word, SHMEMI_PAGE_INTERIOR);
    SHMEMI_KILL_POINT("memory.buddy.removed");
    return SHMEM_OK;
}

/* ---- ranges ---- */

/* Order of the largest aligned piece that begins at `page` and ends at or before `end`; a piece
 * that reaches the arena's end may be cut off there. */
static unsigned piece_order(const shmemi_arena_t *arena, uint32_t page, uint32_t end)
{
    unsigned align = page ? (unsigned)__builtin_ctz(page) : arena->top;
    unsigned whole = shmemi_log2_floor(end - page);
    if (end == arena->pages && shmemi_log2_ceil(end - page) <= align)
        return shmemi_log2_ceil(end - page);
    return align < whole ? align : whole;
}

/* Merge the block with its buddies as far as they are free. */
static shmem_status_t merge(shmemi_arena_t *arena, uint32_t *page, unsigned *order)
{
    uint32_t p = *page;
    unsigned k = *order;
    for (; k < arena->top; k++) {
        uint64_t buddy = p ^ (uint64_t)1 << k;
        if (buddy >= arena->pages)
            continue; /* behind the end: nothing to merge at this order */
        uint32_t b = (uint32_t)buddy;
        unsigned buddy_order = shmemi_log2_ceil(shmemi_buddy_extent(arena, b, k));
        if (!is_free(arena, b, buddy_order))
            break;
        shmem_status_t status = list_remove(arena, b, buddy_order);
        if (status)
            return status;
        if (b < p)
            p = b;
        SHMEMI_KILL_POINT("memory.buddy.merged");
    }
    *page = p;
    *order = shmemi_log2_ceil(shmemi_buddy_extent(arena, p, k));
    return SHMEM_OK;
}

/* Insert the pages [page, end) as free blocks, merged with their buddies where `merging`. */
static shmem_status_t insert_range(shmemi_arena_t *arena, uint32_t page, uint32_t end, bool merging)
{
    while (page < end) {
        unsigned order = piece_order(arena, page, end);
        uint32_t p = page;
        page += shmemi_buddy_extent(arena, page, order);
        shmem_status_t status = merging ? merge(arena, &p, &order) : SHMEM_OK;
        if (!status)
            status = list_insert(arena, p, order);
        if (status)
            return status;
    }
    return SHMEM_OK;
}

shmem_status_t shmemi_buddy_insert(shmemi_arena_t *arena, uint32_t page, uint32_t end)
{
    return insert_range(arena, page, end, true);
}

/* The block at `page` has `pages` more pages, or fewer. */
static shmem_status_t account(shmemi_arena_t *arena, uint32_t task, int64_t pages)
{
    if (!shmemi_arena_count(arena, SHMEMI_STATE_USED, pages) ||
        (pages < 0 && !shmemi_arena_count(arena, SHMEMI_STATE_RETURNED, 1)))
        return corrupt(arena, "the journal is full at page", 0);
    return shmemi_charge_add(arena, task, pages);
}

shmem_status_t shmemi_buddy_format(shmemi_arena_t *arena, uint32_t present)
{
    shmem_status_t status = insert_range(arena, 0, present, false);
    for (uint32_t page = present; page < arena->pages && !status;) {
        uint32_t pages = shmemi_buddy_extent(arena, page, piece_order(arena, page, arena->pages));
        SET(arena, &arena->page[page].link, pages);
        SET(arena, &arena->page[page].word, SHMEMI_PAGE_ABSENT);
        page += pages;
    }
    SET(arena, &arena->control->state[SHMEMI_STATE_ABSENT], arena->pages - present);
    SET(arena, &arena->control->state[SHMEMI_STATE_ABSENT_FROM], present);
    return status;
}

/* ---- runs: free blocks one behind the other ---- */

bool shmemi_buddy_free_before(const shmemi_arena_t *arena, uint32_t page, uint32_t *head)
{
    for (unsigned k = 0; page && k <= arena->top; k++) {
        uint32_t p = k < 32 ? (page - 1) >> k << k : 0;
        uint64_t word = shmemi_arena_get(&arena->page[p].word);
        if (shmemi_word_kind(word) == SHMEMI_PAGE_INTERIOR)
            continue;
        *head = p;
        return shmemi_word_kind(word) == SHMEMI_PAGE_FREE &&
               p + shmemi_buddy_length(arena, p, word) == page;
    }
    return false;
}

/* The first page behind the free block at `page`; `page` if there is none. */
static uint32_t free_end_of(const shmemi_arena_t *arena, uint32_t page)
{
    uint64_t word = page < arena->pages ? shmemi_arena_get(&arena->page[page].word) : 0;
    return shmemi_word_kind(word) == SHMEMI_PAGE_FREE
               ? page + shmemi_buddy_length(arena, page, word)
               : page;
}

typedef struct place {
    uint32_t page;   /* of the block */
    uint32_t length; /* of the run, as far as it was looked at; 0: none was found */
} place_t;

/* Could the block lie in the run around the free block at `page`, and is that run shorter than the
 * best one so far, or as short and at a lower address? A much longer one is not followed to its
 * ends. */
static void try_run(const shmemi_arena_t *arena, uint32_t page, uint32_t pages, unsigned align,
                    place_t *best)
{
    uint32_t start = page, end = free_end_of(arena, page), next;
    uint64_t most = 64 * (uint64_t)pages;
    while (end - start <= most && shmemi_buddy_free_before(arena, start, &next))
        start = next;
    while (end - start <= most && (next = free_end_of(arena, end)) != end)
        end = next;
    uint64_t unit = (uint64_t)1 << align, from = (start + unit - 1) & ~(unit - 1);
    if (from + pages > end)
        return;
    uint32_t length = end - start;
    if (best->length && (best->length < length || (best->length == length && best->page <= from)))
        return;
    *best = (place_t){(uint32_t)from, end - start};
}

/* Look at the first blocks of a list. */
static shmem_status_t try_list(const shmemi_arena_t *arena, unsigned order, uint32_t pages,
                               unsigned align, place_t *best)
{
    uint64_t entry = shmemi_arena_get(head_of(arena, order));
    for (int i = 0; entry && i < CANDIDATES; i++) {
        if (!is_entry(arena, entry, order))
            return corrupt(arena, "a free list holds impossible page", (uint32_t)entry - 1);
        try_run(arena, (uint32_t)entry - 1, pages, align, best);
        entry = next_of(arena, (uint32_t)entry - 1);
    }
    return SHMEM_OK;
}

/* The shortest run among those looked at that holds the block. A run of n pages has a block of
 * order ceil(log2(n)) - 2 at least; one of order ceil(log2(n)), which is aligned well enough, is
 * found in any case. */
static shmem_status_t find(const shmemi_arena_t *arena, uint32_t pages, unsigned align,
                           place_t *best)
{
    unsigned want = shmemi_log2_ceil(pages), least = want > 2 ? want - 2 : 0;
    uint64_t mask = shmemi_arena_get(mask_of(arena)) >> least << least;
    shmem_status_t status = SHMEM_OK;
    if (want < align)
        want = align;
    *best = (place_t){0, 0};
    for (; mask && !status; mask &= mask - 1) {
        unsigned k = (unsigned)__builtin_ctzll(mask);
        if (k > arena->top)
            return corrupt(arena, "the mask of free lists says impossible order", k);
        if (k > want && best->length)
            break;
        status = try_list(arena, k, pages, align, best);
    }
    return status || best->length ? status : SHMEM_ERR_NOMEM;
}

/* ---- allocation ---- */

/* Take [page, page + pages), which lies in a run, out of the lists. */
static shmem_status_t cut_out(shmemi_arena_t *arena, uint32_t page, uint32_t pages)
{
    uint32_t first = page, at, end;
    uint64_t head;
    if (shmemi_word_kind(shmemi_arena_get(&arena->page[page].word)) != SHMEMI_PAGE_FREE &&
        !shmemi_buddy_locate(arena, page, &first, &head))
        return corrupt(arena, "a free block is missing at page", page);
    for (at = first; at < page + pages; at = end) {
        uint64_t word = shmemi_arena_get(&arena->page[at].word);
        uint32_t length = shmemi_buddy_length(arena, at, word);
        if (shmemi_word_kind(word) != SHMEMI_PAGE_FREE || !length)
            return corrupt(arena, "a free block is missing at page", at);
        end = at + length;
        shmem_status_t status = list_remove(arena, at, shmemi_word_order(word));
        if (status)
            return status;
        SHMEMI_KILL_POINT("memory.buddy.split");
    }
    shmem_status_t status = insert_range(arena, first, page, false);
    if (!status)
        status = insert_range(arena, page + pages, at, false);
    SHMEMI_KILL_POINT("memory.buddy.trimmed");
    return status;
}

shmem_status_t shmemi_buddy_alloc(shmemi_arena_t *arena, uint32_t pages, unsigned align,
                                  uint64_t word, uint32_t task, uint32_t *page)
{
    place_t place;
    if (align < shmemi_buddy_border(pages))
        align = shmemi_buddy_border(pages);
    shmem_status_t status = find(arena, pages, align, &place);
    if (!status)
        status = cut_out(arena, place.page, pages);
    if (!status)
        status = account(arena, task, pages);
    if (status)
        return status;
    SET(arena, &arena->page[place.page].link, link_of(task, pages));
    SET(arena, &arena->page[place.page].word, word);
    *page = place.page;
    return SHMEM_OK;
}

/* Free the last `pages` pages of a block that is charged to `task`. */
static shmem_status_t free_end(shmemi_arena_t *arena, uint32_t page, uint32_t pages, uint32_t task)
{
    if (!pages || !shmemi_range_inside(page, pages, arena->pages) ||
        shmemi_arena_used(arena) < pages)
        return corrupt(arena, "impossible length of the block at page", page);
    shmem_status_t status = account(arena, task, -(int64_t)pages);
    if (!status)
        status = insert_range(arena, page, page + pages, true);
    return status;
}

shmem_status_t shmemi_buddy_free(shmemi_arena_t *arena, uint32_t page, uint32_t pages)
{
    if (!shmemi_range_inside(page, pages, arena->pages))
        return corrupt(arena, "impossible block at page", page);
    uint32_t task = shmemi_charge_task(arena, page);
    SET(arena, &arena->page[page].word, SHMEMI_PAGE_INTERIOR);
    return free_end(arena, page, pages, task);
}

/* Take the free blocks behind the block of `pages` pages at `page`. */
static shmem_status_t extend(shmemi_arena_t *arena, uint32_t page, uint32_t pages, uint32_t more)
{
    uint32_t unit = 1u << shmemi_buddy_border(more);
    if (page & (unit - 1) || !shmemi_range_inside(page, more, arena->pages))
        return SHMEM_ERR_NOMEM;
    uint32_t end = page + pages, wanted = page + more;
    while (end < wanted) {
        uint64_t word = shmemi_arena_get(&arena->page[end].word);
        if (shmemi_word_kind(word) != SHMEMI_PAGE_FREE)
            return SHMEM_ERR_NOMEM;
        uint32_t length = shmemi_buddy_length(arena, end, word);
        if (!length)
            return corrupt(arena, "impossible free block at page", end);
        shmem_status_t status = list_remove(arena, end, shmemi_word_order(word));
        if (status)
            return status;
        end += length;
    }
    shmem_status_t status = insert_range(arena, wanted, end, false);
    return status ? status : account(arena, shmemi_charge_task(arena, page), (int64_t)more - pages);
}

shmem_status_t shmemi_buddy_resize(shmemi_arena_t *arena, uint32_t page, uint32_t pages,
                                   uint32_t wanted)
{
    if (!shmemi_range_inside(page, pages, arena->pages))
        return corrupt(arena, "impossible block at page", page);
    uint32_t task = shmemi_charge_task(arena, page);
    shmem_status_t status = SHMEM_OK;
    if (wanted < pages)
        status = free_end(arena, page + wanted, pages - wanted, task);
    else if (wanted > pages)
        status = extend(arena, page, pages, wanted);
    if (status)
        return status;
    SET(arena, &arena->page[page].link, link_of(task, wanted));
    return SHMEM_OK;
}

shmem_status_t shmemi_buddy_remove_largest(shmemi_arena_t *arena, unsigned least, uint32_t *page,
                                           uint32_t *pages)
{
    uint64_t mask = shmemi_arena_get(mask_of(arena)) >> least << least;
    if (!mask)
        return SHMEM_ERR_NOMEM;
    unsigned order = shmemi_log2_floor(mask);
    uint64_t entry = order <= arena->top ? shmemi_arena_get(head_of(arena, order)) : 0;
    if (!is_entry(arena, entry, order))
        return corrupt(arena, "a free list begins at impossible page", (uint32_t)entry - 1);
    *page = (uint32_t)entry - 1;
    *pages = shmemi_buddy_extent(arena, *page, order);
    return list_remove(arena, *page, order);
}

/* ---- looking ---- */

uint32_t shmemi_buddy_length(const shmemi_arena_t *arena, uint32_t page, uint64_t word)
{
    unsigned kind = shmemi_word_kind(word);
    if (kind == SHMEMI_PAGE_FREE) {
        unsigned order = shmemi_word_order(word);
        if (order > arena->top || word != shmemi_word_free(order))
            return 0;
        uint32_t extent = shmemi_buddy_extent(arena, page, order);
        bool aligned = !(page & (((uint64_t)1 << order) - 1));
        return aligned && shmemi_log2_ceil(extent) == order ? extent : 0;
    }
    if (kind < SHMEMI_PAGE_USED || kind > SHMEMI_PAGE_OWNERS)
        return 0;
    uint32_t pages = (uint32_t)shmemi_arena_get(&arena->page[page].link);
    return pages && pages <= arena->pages - page ? pages : 0;
}

uint32_t shmemi_buddy_locate(const shmemi_arena_t *arena, uint32_t page, uint32_t *head,
                             uint64_t *word)
{
    for (unsigned k = 0; k <= arena->top && k < 32; k++) {
        uint32_t p = page >> k << k, unit = 1u << k;
        for (int i = 0; i <= 1 << SHMEMI_BUDDY_BORDER; i++, p -= unit) {
            *word = shmemi_arena_get(&arena->page[p].word);
            if (shmemi_word_kind(*word) != SHMEMI_PAGE_INTERIOR) {
                uint32_t length = shmemi_buddy_length(arena, p, *word);
                *head = p;
                if (page - p < length)
                    return length;
                break; /* another block, before the one looked for */
            }
            if (p < unit)
                break;
        }
    }
    return 0;
}

uint32_t shmemi_buddy_largest(const shmemi_arena_t *arena)
{
    uint64_t mask = shmemi_arena_get(mask_of(arena));
    if (!mask || shmemi_log2_floor(mask) > arena->top)
        return 0;
    unsigned k = shmemi_log2_floor(mask);
    uint64_t first = shmemi_arena_get(head_of(arena, k));
    if (!first || first > arena->pages)
        return 0;
    uint64_t second = next_of(arena, (uint32_t)first - 1); /* the first may be the one cut off */
    uint32_t best = shmemi_buddy_extent(arena, (uint32_t)first - 1, k), other = 0;
    if (second && second <= arena->pages)
        other = shmemi_buddy_extent(arena, (uint32_t)second - 1, k);
    return best > other ? best : other;
}
