/* SPDX-License-Identifier: Apache-2.0 */
/* Lifetimes from a list of operators and from a recorded trace. */
#include <stdbool.h>
#include <stdlib.h>

#include "base/status.h"
#include "shmem/plan.h"

/* ---- operators ---- */

static shmem_status_t check_uses(const size_t *used, size_t n, size_t step, size_t count)
{
    if (n && !used)
        return shmemi_fail(SHMEM_ERR_INVALID, "plan", "step %zu: no list of buffers given", step);
    for (size_t i = 0; i < n; i++)
        if (used[i] >= count)
            return shmemi_fail(SHMEM_ERR_INVALID, "plan",
                               "step %zu uses buffer %zu; there are %zu buffers", step, used[i],
                               count);
    return SHMEM_OK;
}

static void use(shmem_plan_buffer_t *buffers, const size_t *used, size_t n, int64_t step)
{
    for (size_t i = 0; i < n; i++) {
        shmem_plan_buffer_t *buffer = &buffers[used[i]];
        if (buffer->first == buffer->last)
            buffer->first = step;
        buffer->last = step + 1;
    }
}

shmem_status_t shmem_plan_from_steps(const shmem_plan_step_t *steps, size_t step_count,
                                     shmem_plan_buffer_t *buffers, size_t count)
{
    if ((step_count && !steps) || (count && !buffers))
        return shmemi_fail(SHMEM_ERR_INVALID, "plan", "no steps or no buffers given");
    for (size_t i = 0; i < step_count; i++) {
        shmem_status_t status = check_uses(steps[i].reads, steps[i].read_count, i, count);
        if (status == SHMEM_OK)
            status = check_uses(steps[i].writes, steps[i].write_count, i, count);
        if (status)
            return status;
    }
    for (size_t i = 0; i < count; i++)
        buffers[i].first = buffers[i].last = 0;
    for (size_t i = 0; i < step_count; i++) {
        use(buffers, steps[i].reads, steps[i].read_count, (int64_t)i);
        use(buffers, steps[i].writes, steps[i].write_count, (int64_t)i);
    }
    return SHMEM_OK;
}

/* ---- trace ---- */

/* An event and its position, to be ordered by id, then position: the events of one id must then
 * alternate between allocation and free. */
typedef struct entry {
    uint64_t id, bytes;
    size_t position;
    size_t buffer; /* number of the allocation */
} entry_t;

static int compare_entries(const void *a, const void *b)
{
    const entry_t *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

/* The first violation in the order of the trace. */
static shmem_status_t check_entries(const entry_t *entries, size_t count)
{
    const entry_t *bad = NULL;
    for (size_t i = 0; i < count; i++) {
        bool is_live = i > 0 && entries[i - 1].id == entries[i].id && entries[i - 1].bytes > 0;
        if (is_live == (entries[i].bytes > 0) && (!bad || entries[i].position < bad->position))
            bad = &entries[i];
    }
    if (!bad)
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_INVALID, "plan",
                       bad->bytes ? "event %zu allocates %llu, which is live already"
                                  : "event %zu frees %llu, which is not live",
                       bad->position, (unsigned long long)bad->id);
}

static void fill_buffers(const entry_t *entries, size_t count, shmem_plan_buffer_t *buffers)
{
    for (size_t i = 0; i < count; i++) {
        if (!entries[i].bytes)
            continue;
        bool is_freed = i + 1 < count && entries[i + 1].id == entries[i].id;
        buffers[entries[i].buffer] = (shmem_plan_buffer_t){
            .bytes = entries[i].bytes,
            .first = (int64_t)entries[i].position,
            .last = (int64_t)(is_freed ? entries[i + 1].position : count),
        };
    }
}

shmem_status_t shmem_plan_from_trace(const shmem_plan_event_t *events, size_t event_count,
                                     shmem_plan_buffer_t *buffers, size_t *buffer_count)
{
    if ((event_count && !events) || !buffer_count || (*buffer_count && !buffers))
        return shmemi_fail(SHMEM_ERR_INVALID, "plan", "no events, buffers or buffer_count given");
    size_t allocations = 0;
    entry_t *entries =
        event_count < SIZE_MAX / sizeof *entries ? malloc((event_count + 1) * sizeof *entries) : 0;
    if (!entries)
        return shmemi_fail(SHMEM_ERR_NOMEM, "plan", "no memory for %zu events", event_count);
    for (size_t i = 0; i < event_count; i++) {
        entries[i] = (entry_t){events[i].id, events[i].bytes, i, allocations};
        allocations += events[i].bytes > 0;
    }
    qsort(entries, event_count, sizeof *entries, compare_entries);
    shmem_status_t status = check_entries(entries, event_count);
    if (status == SHMEM_OK && allocations > *buffer_count)
        status = shmemi_fail(SHMEM_ERR_LIMIT, "plan",
                             "the trace has %zu allocations; there is room for %zu buffers",
                             allocations, *buffer_count);
    if (status == SHMEM_OK) {
        fill_buffers(entries, event_count, buffers);
        *buffer_count = allocations;
    }
    free(entries);
    return status;
}
