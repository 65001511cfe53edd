/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules for single buffers, and the check of a whole plan. A plan is swept in time: the live
 * buffers lie in a tree ordered by offset, in which a new one must not meet its neighbours. While
 * no two live buffers overlap, order by offset is order by end, too.
 */
#include <search.h>
#include <stdlib.h>

#include "base/status.h"
#include "base/util.h"
#include "plan/problem.h"

shmem_status_t shmemi_plan_check_buffers(const shmem_plan_buffer_t *buffers, size_t count)
{
    if (count > (size_t)1 << 30)
        return shmemi_fail(SHMEM_ERR_OVERFLOW, "plan", "%zu buffers; at most 2^30 can be planned",
                           count);
    for (size_t i = 0; i < count; i++) {
        const shmem_plan_buffer_t *b = &buffers[i];
        if (b->last < b->first)
            return shmemi_fail(SHMEM_ERR_INVALID, "plan",
                               "buffer %zu ends at %lld, before it begins at %lld", i,
                               (long long)b->last, (long long)b->first);
        if (b->alignment && !shmemi_is_power_of_two(b->alignment))
            return shmemi_fail(SHMEM_ERR_INVALID, "plan",
                               "buffer %zu wants an alignment of %llu; give a power of two", i,
                               (unsigned long long)b->alignment);
        if (b->is_fixed && b->alignment && b->offset % b->alignment)
            return shmemi_fail(SHMEM_ERR_INVALID, "plan",
                               "buffer %zu is fixed at %llu, no multiple of its alignment %llu", i,
                               (unsigned long long)b->offset, (unsigned long long)b->alignment);
        if (b->bytes > INT64_MAX || (b->is_fixed && b->offset > INT64_MAX - b->bytes))
            return shmemi_fail(SHMEM_ERR_OVERFLOW, "plan",
                               "buffer %zu of %llu bytes would end beyond 2^63", i,
                               (unsigned long long)b->bytes);
    }
    return SHMEM_OK;
}

/* ---- checking a plan ---- */

/* A begin or an end of a buffer; ends come first at the same time. */
typedef struct edge {
    int64_t time;
    int is_begin;
    size_t buffer;
} edge_t;

/* What the tree holds: the place of a live buffer. */
typedef struct place {
    uint64_t begin, end;
    size_t buffer;
} place_t;

static int compare_edges(const void *a, const void *b)
{
    const edge_t *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->is_begin != y->is_begin)
        return x->is_begin - y->is_begin;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* Overlapping places compare equal: the tree then yields the one that is in the way. */
static int compare_places(const void *a, const void *b)
{
    const place_t *x = a, *y = b;
    return x->end <= y->begin ? -1 : x->begin >= y->end;
}

static shmem_status_t check_offset(const shmem_plan_buffer_t *b, size_t i, uint64_t offset)
{
    if (b->is_fixed && offset != b->offset)
        return shmemi_fail(SHMEM_ERR_MISMATCH, "plan",
                           "buffer %zu lies at %llu but is fixed at %llu", i,
                           (unsigned long long)offset, (unsigned long long)b->offset);
    if (b->alignment && offset % b->alignment)
        return shmemi_fail(SHMEM_ERR_MISMATCH, "plan",
                           "buffer %zu lies at %llu, no multiple of its alignment %llu", i,
                           (unsigned long long)offset, (unsigned long long)b->alignment);
    if (offset > INT64_MAX - b->bytes)
        return shmemi_fail(SHMEM_ERR_MISMATCH, "plan", "buffer %zu at %llu ends beyond 2^63", i,
                           (unsigned long long)offset);
    return SHMEM_OK;
}

static shmem_status_t enter(void **tree, const place_t *place, shmem_status_t code)
{
    const place_t *const *found = tsearch(place, tree, compare_places);
    if (!found)
        return shmemi_fail(SHMEM_ERR_NOMEM, "plan", "no memory to check the plan");
    if (*found == place)
        return SHMEM_OK;
    return shmemi_fail(
        code, "plan", "buffers %zu [%llu, %llu) and %zu [%llu, %llu) overlap while both are live",
        (*found)->buffer, (unsigned long long)(*found)->begin, (unsigned long long)(*found)->end,
        place->buffer, (unsigned long long)place->begin, (unsigned long long)place->end);
}

static shmem_status_t sweep(const edge_t *edges, size_t count, const place_t *places,
                            shmem_status_t code)
{
    void *tree = NULL;
    shmem_status_t status = SHMEM_OK;
    for (size_t i = 0; i < count && status == SHMEM_OK; i++) {
        const place_t *place = &places[edges[i].buffer];
        if (edges[i].is_begin)
            status = enter(&tree, place, code);
        else
            tdelete(place, &tree, compare_places);
    }
    while (tree)
        tdelete(*(place_t *const *)tree, &tree, compare_places);
    return status;
}

/* Fills edges and places of the live buffers; without offsets, of the fixed ones. Returns the
 * number of edges. */
static size_t list_edges(const shmem_plan_buffer_t *buffers, size_t count, const uint64_t *offsets,
                         edge_t *edges, place_t *places)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (!shmemi_plan_is_live(&buffers[i]) || (!offsets && !buffers[i].is_fixed))
            continue;
        uint64_t offset = offsets ? offsets[i] : buffers[i].offset;
        places[i] = (place_t){offset, offset + buffers[i].bytes, i};
        edges[n++] = (edge_t){buffers[i].first, 1, i};
        edges[n++] = (edge_t){buffers[i].last, 0, i};
    }
    qsort(edges, n, sizeof *edges, compare_edges);
    return n;
}

static shmem_status_t check_overlaps(const shmem_plan_buffer_t *buffers, size_t count,
                                     const uint64_t *offsets, shmem_status_t code)
{
    shmem_status_t status;
    edge_t *edges = calloc(2 * count + 1, sizeof *edges);
    place_t *places = calloc(count + 1, sizeof *places);
    if (edges && places)
        status = sweep(edges, list_edges(buffers, count, offsets, edges, places), places, code);
    else
        status = shmemi_fail(SHMEM_ERR_NOMEM, "plan", "no memory to check %zu buffers", count);
    free(edges);
    free(places);
    return status;
}

shmem_status_t shmemi_plan_check_fixed(const shmem_plan_buffer_t *buffers, size_t count)
{
    return check_overlaps(buffers, count, NULL, SHMEM_ERR_INVALID);
}

shmem_status_t shmem_plan_check(const shmem_plan_buffer_t *buffers, size_t count,
                                const uint64_t *offsets, uint64_t *peak)
{
    if (count && (!buffers || !offsets))
        return shmemi_fail(SHMEM_ERR_INVALID, "plan", "no buffers or no offsets given");
    shmem_status_t status = shmemi_plan_check_buffers(buffers, count);
    uint64_t highest = 0;
    for (size_t i = 0; i < count && status == SHMEM_OK; i++) {
        status = check_offset(&buffers[i], i, offsets[i]);
        if (shmemi_plan_is_live(&buffers[i]) && offsets[i] + buffers[i].bytes > highest)
            highest = offsets[i] + buffers[i].bytes;
    }
    if (status)
        return status;

    status = check_overlaps(buffers, count, offsets, SHMEM_ERR_MISMATCH);
    if (status == SHMEM_OK && peak)
        *peak = highest;
    return status;
}
