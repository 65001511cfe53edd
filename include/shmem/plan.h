/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lifetime planner: buffers that are never live at the same time share memory.
 *
 * A buffer has a size and a lifetime [first, last): live at first, no longer at last. Times are
 * numbers of any meaning and sign (steps, cycles, positions in a trace); only their order counts. A
 * plan gives each buffer an offset so that no two live buffers overlap; its peak is the end of the
 * highest buffer: the bytes that a pool block or a piece of symmetric memory must have to hold all.
 *
 * All functions work on arrays of the caller and keep nothing. Threads: callable from any thread
 * at any time. They touch no shared memory, need no context, and have no peers that could die.
 * The same input gives the same plan unless a time limit cut the search.
 */
#ifndef SHMEM_PLAN_H
#define SHMEM_PLAN_H

#include <shmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One buffer. Zeroed members mean: no alignment, anywhere, never live. */
typedef struct shmem_plan_buffer {
    uint64_t bytes;
    uint64_t alignment; /* of the offset: a power of two; 0 or 1: none */
    int64_t first;      /* live from here ... */
    int64_t last;       /* ... to here, exclusive; last == first: never live */
    int is_fixed;       /* not 0: it must lie at `offset`, a multiple of its alignment */
    uint64_t offset;    /* in bytes; ignored unless is_fixed */
} shmem_plan_buffer_t;

typedef struct shmem_plan_params {
    size_t size;        /* sizeof(shmem_plan_params_t) */
    int64_t time_limit; /* ns for the exact search; 0: none, the greedy plan at once;
                           negative (SHMEM_FOREVER): until it is done, which may be never */
    uint64_t capacity;  /* bytes: stop as soon as the plan fits; 0: find the smallest peak */
} shmem_plan_params_t;
#define SHMEM_PLAN_PARAMS_INIT                                                                     \
    {                                                                                              \
        sizeof(shmem_plan_params_t), 0, 0                                                          \
    }

typedef struct shmem_plan_result {
    size_t size;          /* sizeof(shmem_plan_result_t), set by the caller */
    uint64_t peak;        /* bytes that the plan needs */
    uint64_t lower_bound; /* no plan needs fewer bytes: proved */
    int is_optimal;       /* peak == lower_bound */
    int fits;             /* peak <= capacity; 1 without a capacity */
} shmem_plan_result_t;

/*
 * Plan `count` buffers: offsets[i] gets the offset of buffers[i], a multiple of its alignment. A
 * buffer without bytes or never live gets its fixed offset or 0 and counts for nothing.
 *
 * First some greedy plans are made (10,000 buffers: a fraction of a second; this part ignores the
 * time limit). If the best of them is above the lower bound, or above the capacity where one is
 * given, an exact search tries to do better until it succeeds, has proved that nothing better
 * exists, or the time is over. A plan that does not fit is no error: look at result->fits; whether
 * it is proved that none can fit is lower_bound > capacity.
 *   params   may be NULL: the greedy plan
 *   offsets  out, `count` entries
 *   result   out, may be NULL
 * Blocks the caller's thread for the time of the calculation. Memory: some hundred bytes a buffer,
 * for the search at most 64 MiB more for pairs of buffers that are live together, and 64 MiB to go
 * back; a part of the problem with more such pairs keeps its greedy plan.
 * Errors, outputs untouched: INVALID (a NULL; sizes of structs; a buffer whose last is before its
 * first, whose alignment is no power of two or whose fixed offset is not aligned; two fixed buffers
 * that overlap while live; the text names the buffers by index), OVERFLOW (a size, or what is live
 * at one time, both rounded up to the smallest alignment, or the peak exceeds 2^63 - 1 bytes; more
 * than 2^30 buffers), NOMEM.
 */
SHMEM_API shmem_status_t shmem_plan_solve(const shmem_plan_buffer_t *buffers, size_t count,
                                          const shmem_plan_params_t *params, uint64_t *offsets,
                                          shmem_plan_result_t *result);

/*
 * Check a plan, whoever made it: offsets aligned and as fixed, no two buffers overlap while live.
 * *peak (may be NULL) gets its peak. Takes n log n.
 * Errors: as shmem_plan_solve() for the buffers; MISMATCH (the plan breaks a rule: the text names
 * the buffers).
 */
SHMEM_API shmem_status_t shmem_plan_check(const shmem_plan_buffer_t *buffers, size_t count,
                                          const uint64_t *offsets, uint64_t *peak);

/* ---- lifetimes from a list of operators ---- */

/* An operator, one step of a program: the indices of the buffers that it reads and writes. */
typedef struct shmem_plan_step {
    const size_t *reads;
    size_t read_count;
    const size_t *writes;
    size_t write_count;
} shmem_plan_step_t;

/*
 * Set first and last of each buffer from the steps that use it: step i lasts from i to i + 1, a
 * buffer lives from the beginning of the first step that reads or writes it to the end of the last.
 * So what a step reads and what it writes never share memory. A buffer that no step uses becomes
 * [0, 0), never live. A buffer that must survive longer (an input given before the first step, a
 * result used after the last) is named by a step of its own or gets its times from the caller
 * afterwards. Other members are left as they are.
 * Errors: INVALID (NULL; a step names a buffer >= count: the text names both).
 */
SHMEM_API shmem_status_t shmem_plan_from_steps(const shmem_plan_step_t *steps, size_t step_count,
                                               shmem_plan_buffer_t *buffers, size_t count);

/* ---- lifetimes from a recorded trace ---- */

/* One event of an allocator, in the order in which they happened. */
typedef struct shmem_plan_event {
    uint64_t id;    /* what names the block while it lives: its address, say; may be used again */
    uint64_t bytes; /* > 0: allocated; 0: freed */
} shmem_plan_event_t;

/*
 * Make a buffer of each allocation of a trace, in their order: it lives from its position in the
 * trace to that of its free, or to the end of the trace (event_count). Positions, not clock times,
 * are the times: two events with the same clock reading still have an order.
 *   buffers       out, room for *buffer_count entries; alignment and is_fixed are set to 0
 *   buffer_count  in: entries there are; out: number of allocations
 * Errors: INVALID (NULL; an event frees what is not live or allocates what is: the text names
 * event and id), LIMIT (not enough room; the text says how much is needed), NOMEM.
 */
SHMEM_API shmem_status_t shmem_plan_from_trace(const shmem_plan_event_t *events, size_t event_count,
                                               shmem_plan_buffer_t *buffers, size_t *buffer_count);

#ifdef __cplusplus
}
#endif
#endif
