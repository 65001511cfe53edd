/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placed items are kept in a list ordered by offset: one pass over it finds the lowest gap that an
 * item fits into. That is quadratic, with a small constant: 10,000 items take 50 million steps.
 */
#include "plan/greedy.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

enum { ORDERS = 4 };
#define ENOUGH_STEPS ((uint64_t)100 * 1000 * 1000)

typedef struct placed {
    int64_t begin, end; /* units */
    uint32_t from, to;  /* sections */
} placed_t;

typedef struct greedy {
    const shmemi_plan_part_t *part;
    int64_t unit;
    placed_t *list;
    uint32_t *order; /* item numbers */
    int64_t *offsets;
    uint64_t steps;
} greedy_t;

typedef struct greedy_key {
    double major, minor;
    uint32_t item;
} greedy_key_t;

/* The greater first; equal ones in time. */
static int compare_keys(const void *a, const void *b)
{
    const greedy_key_t *x = a, *y = b;
    if (x->major != y->major)
        return x->major > y->major ? -1 : 1;
    if (x->minor != y->minor)
        return x->minor > y->minor ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* Fixed items first, whatever the order. */
static greedy_key_t key_of(const shmemi_plan_item_t *item, uint32_t number, int order)
{
    double size = (double)item->size, area = size * item->duration;
    greedy_key_t key = {.item = number};
    if (item->fixed != SHMEMI_PLAN_ANYWHERE)
        key.major = __builtin_inf();
    else if (order == 0)
        key.major = size, key.minor = item->duration;
    else if (order == 1)
        key.major = area, key.minor = size;
    else if (order == 2)
        key.major = item->duration, key.minor = size;
    else
        key.major = -(double)item->begin, key.minor = area;
    return key;
}

static bool sort_items(greedy_t *g, int order)
{
    greedy_key_t *keys = malloc(g->part->count * sizeof *keys);
    if (!keys)
        return false;
    for (uint32_t i = 0; i < g->part->count; i++)
        keys[i] = key_of(&g->part->items[i], i, order);
    qsort(keys, g->part->count, sizeof *keys, compare_keys);
    for (uint32_t i = 0; i < g->part->count; i++)
        g->order[i] = keys[i].item;
    free(keys);
    return true;
}

/* The lowest aligned offset for the item between the `count` placed ones; false if it would end
 * beyond 2^63 bytes. */
static bool find_gap(greedy_t *g, const shmemi_plan_item_t *item, uint32_t count, int64_t *offset)
{
    const int64_t limit = INT64_MAX / g->unit;
    int64_t low = 0;
    for (uint32_t i = 0; i < count; i++) {
        const placed_t *p = &g->list[i];
        if (p->from > item->end || p->to < item->begin || p->end <= low)
            continue;
        if (p->begin >= low && p->begin - low >= item->size)
            break;
        if (p->end > limit - item->align + 1)
            return false;
        low = shmemi_plan_align(p->end, item->align);
    }
    g->steps += count;
    *offset = low;
    return item->size <= limit && low <= limit - item->size;
}

static void insert(greedy_t *g, uint32_t number, int64_t offset, uint32_t count)
{
    const shmemi_plan_item_t *item = &g->part->items[number];
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (g->list[middle].begin < offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(&g->list[low + 1], &g->list[low], (count - low) * sizeof *g->list);
    g->list[low] = (placed_t){offset, offset + item->size, item->begin, item->end};
    g->offsets[number] = offset;
}

/* Plans in g->order. False: it does not end below 2^63. */
static bool plan(greedy_t *g, int64_t *peak)
{
    *peak = 0;
    for (uint32_t i = 0; i < g->part->count; i++) {
        const shmemi_plan_item_t *item = &g->part->items[g->order[i]];
        int64_t offset = item->fixed, end;
        if (offset == SHMEMI_PLAN_ANYWHERE && !find_gap(g, item, i, &offset))
            return false;
        insert(g, g->order[i], offset, i);
        end = shmemi_plan_end(item, offset, g->unit);
        *peak = end > *peak ? end : *peak;
    }
    return true;
}

static shmem_status_t best_order(greedy_t *g, int64_t *offsets, int64_t *best)
{
    shmem_status_t status = SHMEM_ERR_OVERFLOW;
    *best = INT64_MAX;
    for (int order = 0; order < ORDERS && g->steps < ENOUGH_STEPS; order++) {
        int64_t peak;
        if (!sort_items(g, order))
            return SHMEM_ERR_NOMEM;
        if (!plan(g, &peak) || (status == SHMEM_OK && peak >= *best))
            continue;
        memcpy(offsets, g->offsets, g->part->count * sizeof *offsets);
        *best = peak;
        status = SHMEM_OK;
        if (peak <= g->part->bound)
            break;
    }
    return status;
}

shmem_status_t shmemi_plan_greedy(const shmemi_plan_part_t *part, int64_t unit, int64_t *offsets,
                                  int64_t *peak)
{
    greedy_t g = {.part = part, .unit = unit};
    int64_t best;
    shmem_status_t status = SHMEM_ERR_NOMEM;
    g.list = malloc(part->count * sizeof *g.list);
    g.order = malloc(part->count * sizeof *g.order);
    g.offsets = malloc(part->count * sizeof *g.offsets);
    if (g.list && g.order && g.offsets)
        status = best_order(&g, offsets, &best);
    free(g.list);
    free(g.order);
    free(g.offsets);
    if (status == SHMEM_OK)
        *peak = best;
    else if (status == SHMEM_ERR_OVERFLOW)
        shmemi_fail(status, "plan",
                    "no plan of the %u buffers live around buffer %u ends below 2^63", part->count,
                    part->items[0].buffer);
    return status;
}
