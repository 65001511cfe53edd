/* SPDX-License-Identifier: Apache-2.0 */
/* Building a problem: units, sections, parts, lower bounds. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/util.h"
#include "plan/problem.h"

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* ---- space ---- */

static uint64_t alignment_of(const shmem_plan_buffer_t *buffer)
{
    return buffer->alignment ? buffer->alignment : 1;
}

static shmem_status_t too_large(size_t buffer)
{
    return shmemi_fail(SHMEM_ERR_OVERFLOW, "plan",
                       "what is live at the time of buffer %zu, aligned, exceeds 2^63 - 1 bytes",
                       buffer);
}

/* The unit, and each item's size, alignment and pad. All offsets are multiples of the smallest
 * alignment, hence a size may be rounded up to it. */
static shmem_status_t measure(shmemi_plan_problem_t *problem, const shmem_plan_buffer_t *buffers)
{
    uint64_t least = UINT64_MAX, most = 1, all = 0, alignments = 0;
    for (uint32_t i = 0; i < problem->count; i++) {
        uint64_t alignment = alignment_of(&buffers[problem->items[i].buffer]);
        least = alignment < least ? alignment : least;
        most = alignment > most ? alignment : most;
        alignments = gcd(alignments, alignment);
    }
    for (uint32_t i = 0; i < problem->count; i++) {
        shmemi_plan_item_t *item = &problem->items[i];
        const shmem_plan_buffer_t *b = &buffers[item->buffer];
        uint64_t bytes;
        if (!shmemi_round_up(b->bytes, least, &bytes) || bytes > INT64_MAX)
            return too_large(item->buffer);
        item->size = (int64_t)bytes;
        item->pad = (int64_t)(bytes - b->bytes);
        item->fixed = b->is_fixed ? (int64_t)b->offset : SHMEMI_PLAN_ANYWHERE;
        all = gcd(gcd(all, bytes), b->is_fixed ? b->offset : 0);
    }
    bool is_aligned = all % most == 0; /* by the sizes alone */
    uint64_t unit = is_aligned ? all : gcd(all, alignments);
    for (uint32_t i = 0; i < problem->count; i++) {
        shmemi_plan_item_t *item = &problem->items[i];
        uint64_t alignment = alignment_of(&buffers[item->buffer]);
        item->size /= (int64_t)unit;
        item->align = is_aligned || alignment < unit ? 1 : (int64_t)(alignment / unit);
        if (item->fixed != SHMEMI_PLAN_ANYWHERE)
            item->fixed /= (int64_t)unit;
    }
    problem->unit = (int64_t)unit;
    return SHMEM_OK;
}

/* ---- time ---- */

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t index_of(const int64_t *times, uint32_t count, int64_t time)
{
    const int64_t *found = bsearch(&time, times, count, sizeof *times, compare_times);
    return (uint32_t)(found - times);
}

/* Sorts and removes doubles; returns how many are left. */
static uint32_t sort_times(int64_t *times, uint32_t count)
{
    uint32_t n = 0;
    qsort(times, count, sizeof *times, compare_times);
    for (uint32_t i = 0; i < count; i++)
        if (!n || times[i] != times[n - 1])
            times[n++] = times[i];
    return n;
}

enum { BEGINS = 1, ENDS = 2 };

/* The live set is largest where, after a begin, something ends: there a section is complete.
 * before[t]: sections complete before time number t. A buffer is in the sections that are not
 * complete when it begins and are so after its end. */
static void number_sections(const uint8_t *what, uint32_t count, uint32_t *before)
{
    uint32_t sections = 0;
    bool grew = false;
    for (uint32_t t = 0; t < count; t++) {
        if ((what[t] & ENDS) && grew) {
            sections++;
            grew = false;
        }
        before[t] = sections;
        grew = grew || (what[t] & BEGINS);
    }
}

static shmem_status_t compress(shmemi_plan_problem_t *problem, const shmem_plan_buffer_t *buffers)
{
    uint32_t n = problem->count;
    int64_t *times = malloc((2 * (size_t)n + 1) * sizeof *times);
    uint32_t *before = malloc((2 * (size_t)n + 1) * sizeof *before);
    uint8_t *what = calloc(2 * (size_t)n + 1, 1);
    if (times && before && what) {
        for (uint32_t i = 0; i < n; i++) {
            times[2 * i] = buffers[problem->items[i].buffer].first;
            times[2 * i + 1] = buffers[problem->items[i].buffer].last;
        }
        uint32_t count = sort_times(times, 2 * n);
        for (uint32_t i = 0; i < n; i++) {
            shmemi_plan_item_t *item = &problem->items[i];
            const shmem_plan_buffer_t *b = &buffers[item->buffer];
            item->begin = index_of(times, count, b->first);
            item->end = index_of(times, count, b->last);
            item->duration = (double)b->last - (double)b->first;
            what[item->begin] |= BEGINS;
            what[item->end] |= ENDS;
        }
        number_sections(what, count, before);
        for (uint32_t i = 0; i < n; i++) {
            problem->items[i].begin = before[problem->items[i].begin];
            problem->items[i].end = before[problem->items[i].end] - 1;
        }
    }
    bool ok = times && before && what;
    free(what);
    free(before);
    free(times);
    return ok ? SHMEM_OK : SHMEM_ERR_NOMEM;
}

static int compare_items(const void *a, const void *b)
{
    const shmemi_plan_item_t *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* ---- parts ---- */

/* The largest sum of sizes in a section (less one pad, which may stick out at the top), and no less
 * than the end of a fixed item. come, go: room for a number for each section. Those that begin in a
 * section are live there together, and so are those that end: their sums overflow only with the
 * load. */
static shmem_status_t bound_part(shmemi_plan_part_t *part, int64_t unit, int64_t *come, int64_t *go)
{
    int64_t load = 0, most = 0, pad = 0;
    memset(come, 0, part->sections * sizeof *come);
    memset(go, 0, part->sections * sizeof *go);
    for (uint32_t i = 0; i < part->count; i++) {
        const shmemi_plan_item_t *item = &part->items[i];
        if (item->fixed != SHMEMI_PLAN_ANYWHERE) {
            int64_t end = shmemi_plan_end(item, item->fixed, unit);
            part->bound = end > part->bound ? end : part->bound;
        }
        if (__builtin_add_overflow(come[item->begin], item->size * unit, &come[item->begin]) ||
            __builtin_add_overflow(go[item->end], item->size * unit, &go[item->end]))
            return too_large(item->buffer);
        pad = item->pad > pad ? item->pad : pad;
    }
    for (uint32_t s = 0; s < part->sections; s++) {
        if (__builtin_add_overflow(load, come[s], &load))
            return too_large(part->items[0].buffer);
        most = load > most ? load : most;
        load -= go[s];
    }
    part->bound = most - pad > part->bound ? most - pad : part->bound;
    return SHMEM_OK;
}

/* Cuts where no item reaches from one section into the next. */
static void cut(shmemi_plan_problem_t *problem)
{
    uint32_t base = 0, reach = 0;
    shmemi_plan_part_t *part = NULL;
    for (uint32_t i = 0; i < problem->count; i++) {
        shmemi_plan_item_t *item = &problem->items[i];
        if (!part || item->begin > reach) {
            part = &problem->parts[problem->part_count++];
            *part = (shmemi_plan_part_t){.items = item};
            base = reach = item->begin;
        }
        reach = item->end > reach ? item->end : reach;
        part->count++;
        part->sections = reach - base + 1;
        item->begin -= base;
        item->end -= base;
    }
}

static shmem_status_t make_parts(shmemi_plan_problem_t *problem)
{
    shmem_status_t status = SHMEM_OK;
    problem->parts = calloc((size_t)problem->count + 1, sizeof *problem->parts);
    if (!problem->parts)
        return SHMEM_ERR_NOMEM;
    cut(problem);
    int64_t *come = malloc(((size_t)problem->count + 1) * sizeof *come);
    int64_t *go = malloc(((size_t)problem->count + 1) * sizeof *go);
    if (!come || !go)
        status = SHMEM_ERR_NOMEM;
    for (uint32_t p = 0; p < problem->part_count && status == SHMEM_OK; p++)
        status = bound_part(&problem->parts[p], problem->unit, come, go);
    free(go);
    free(come);
    return status;
}

shmem_status_t shmemi_plan_problem_init(shmemi_plan_problem_t *problem,
                                        const shmem_plan_buffer_t *buffers, size_t count)
{
    shmem_status_t status = SHMEM_ERR_NOMEM;
    *problem = (shmemi_plan_problem_t){.unit = 1};
    problem->items = calloc(count + 1, sizeof *problem->items);
    if (problem->items) {
        for (size_t i = 0; i < count; i++)
            if (shmemi_plan_is_live(&buffers[i]))
                problem->items[problem->count++].buffer = (uint32_t)i;
        status = problem->count ? measure(problem, buffers) : SHMEM_OK;
        if (status == SHMEM_OK)
            status = compress(problem, buffers);
        qsort(problem->items, problem->count, sizeof *problem->items, compare_items);
        if (status == SHMEM_OK)
            status = make_parts(problem);
    }
    if (status)
        shmemi_plan_problem_fini(problem);
    if (status == SHMEM_ERR_NOMEM)
        shmemi_fail(status, "plan", "no memory to plan %zu buffers", count);
    return status;
}

void shmemi_plan_problem_fini(shmemi_plan_problem_t *problem)
{
    free(problem->items);
    free(problem->parts);
    *problem = (shmemi_plan_problem_t){.unit = 1};
}
