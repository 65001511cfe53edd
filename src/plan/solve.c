/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planning: a greedy plan of each part, then better ones of the part with the highest peak, which
 * is the peak of the whole. For the proof, and the plan,
 *
 *     bound == max over parts of bound(part) <= optimum <= peak == max over parts of peak(part)
 */
#include <stdlib.h>

#include "base/params.h"
#include "base/status.h"
#include "plan/greedy.h"
#include "plan/problem.h"
#include "plan/search.h"

/* Steps of the first searches, as a multiple of what places all items some times. */
#define STEPS_FIRST(items) (32 * (500 + 2 * (uint64_t)(items)))

typedef struct solver {
    shmemi_plan_problem_t problem;
    int64_t *offsets; /* units, of the problem's items */
    int64_t *peaks;   /* bytes, of the parts */
    int64_t capacity; /* bytes; 0: none */
    shmemi_deadline_t deadline;
} solver_t;

static int64_t *offsets_of(const solver_t *solver, const shmemi_plan_part_t *part)
{
    return solver->offsets + (part->items - solver->problem.items);
}

static uint32_t highest_part(const solver_t *solver)
{
    uint32_t best = 0;
    for (uint32_t p = 1; p < solver->problem.part_count; p++)
        if (solver->peaks[p] > solver->peaks[best])
            best = p;
    return best;
}

static int64_t peak_of(const solver_t *solver)
{
    return solver->problem.part_count ? solver->peaks[highest_part(solver)] : 0;
}

static int64_t bound_of(const solver_t *solver)
{
    int64_t bound = 0;
    for (uint32_t p = 0; p < solver->problem.part_count; p++)
        if (solver->problem.parts[p].bound > bound)
            bound = solver->problem.parts[p].bound;
    return bound;
}

/* Nothing left to do: the best plan is found, or it fits, or none can fit. */
static bool is_done(const solver_t *solver)
{
    int64_t peak = peak_of(solver), bound = bound_of(solver);
    if (solver->capacity)
        return peak <= solver->capacity || bound > solver->capacity;
    return peak <= bound;
}

static void take_over(solver_t *solver, uint32_t number, const int64_t *offsets)
{
    const shmemi_plan_part_t *part = &solver->problem.parts[number];
    int64_t *kept = offsets_of(solver, part), peak = 0;
    for (uint32_t i = 0; i < part->count; i++) {
        int64_t end = shmemi_plan_end(&part->items[i], offsets[i], solver->problem.unit);
        peak = end > peak ? end : peak;
        kept[i] = offsets[i];
    }
    solver->peaks[number] = peak;
}

/* A peak is the end of some item: a multiple of the unit less its pad. The least such value above
 * `bytes`. */
static int64_t next_peak(const solver_t *solver, const shmemi_plan_part_t *part, int64_t bytes)
{
    const int64_t unit = solver->problem.unit;
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < part->count; i++) {
        int64_t pad = part->items[i].pad;
        int64_t peak = ((bytes + pad) / unit + 1) * unit - pad;
        next = peak < next ? peak : next;
    }
    return next;
}

/* Half way from `roof` to the part's peak, but below it by a unit if that is possible. */
static int64_t next_roof(const solver_t *solver, uint32_t number, int64_t roof)
{
    int64_t left = solver->peaks[number] - roof;
    int64_t step = left / 2, most = left - solver->problem.unit;
    return roof + (step > most ? most : step);
}

/*
 * Searches below roofs from the bound upwards, in halves of what is left below the peak, with more
 * steps each time around, until this part is no longer the highest or all is done or time is over.
 */
static void improve_part(solver_t *solver, shmemi_plan_search_t *search, uint32_t number,
                         int64_t *offsets)
{
    shmemi_plan_part_t *part = &solver->problem.parts[number];
    uint64_t steps = STEPS_FIRST(part->count);
    int64_t roof = 0;
    while (!is_done(solver) && highest_part(solver) == number &&
           !shmemi_deadline_passed(solver->deadline)) {
        int64_t lowest = solver->capacity ? solver->capacity : bound_of(solver), next;
        roof = roof < lowest ? lowest : roof;
        switch (shmemi_plan_search_run(search, roof, steps, solver->deadline, offsets)) {
        case SHMEMI_PLAN_FOUND:
            take_over(solver, number, offsets);
            roof = 0;
            break;
        case SHMEMI_PLAN_NONE:
            part->bound = next_peak(solver, part, roof);
            break;
        case SHMEMI_PLAN_STOPPED:
            next = next_roof(solver, number, roof);
            if (solver->capacity || next <= roof) {
                next = 0;
                steps *= 2;
            }
            roof = next;
        }
    }
}

static shmem_status_t improve(solver_t *solver)
{
    while (!is_done(solver) && !shmemi_deadline_passed(solver->deadline)) {
        uint32_t number = highest_part(solver);
        const shmemi_plan_part_t *part = &solver->problem.parts[number];
        shmemi_plan_search_t *search = NULL;
        int64_t *offsets = malloc(part->count * sizeof *offsets);
        shmem_status_t status = offsets
                                    ? shmemi_plan_search_create(&search, part, solver->problem.unit)
                                    : SHMEM_ERR_NOMEM;
        if (status == SHMEM_OK)
            improve_part(solver, search, number, offsets);
        shmemi_plan_search_destroy(search);
        free(offsets);
        if (status == SHMEM_ERR_LIMIT) /* too large to be searched: the greedy plan stays */
            return SHMEM_OK;
        if (status)
            return shmemi_fail(status, "plan", "no memory to search a plan of %u buffers",
                               part->count);
    }
    return SHMEM_OK;
}

static shmem_status_t plan_parts(solver_t *solver, const shmem_plan_params_t *params)
{
    const shmemi_plan_problem_t *problem = &solver->problem;
    shmem_status_t status = SHMEM_OK;
    solver->offsets = malloc(((size_t)problem->count + 1) * sizeof *solver->offsets);
    solver->peaks = calloc((size_t)problem->part_count + 1, sizeof *solver->peaks);
    if (!solver->offsets || !solver->peaks)
        status = SHMEM_ERR_NOMEM;
    for (uint32_t p = 0; p < problem->part_count && status == SHMEM_OK; p++)
        status = shmemi_plan_greedy(&problem->parts[p], problem->unit,
                                    offsets_of(solver, &problem->parts[p]), &solver->peaks[p]);
    if (status == SHMEM_ERR_NOMEM)
        return shmemi_fail(status, "plan", "no memory to plan %u buffers", problem->count);
    if (status == SHMEM_OK && params->time_limit && peak_of(solver) <= INT64_MAX / 4)
        status = improve(solver);
    return status;
}

static void report(const solver_t *solver, const shmem_plan_buffer_t *buffers, size_t count,
                   uint64_t *offsets, shmem_plan_result_t *result)
{
    for (size_t i = 0; i < count; i++)
        offsets[i] = buffers[i].is_fixed ? buffers[i].offset : 0;
    for (uint32_t i = 0; i < solver->problem.count; i++)
        offsets[solver->problem.items[i].buffer] =
            (uint64_t)(solver->offsets[i] * solver->problem.unit);
    if (!result)
        return;
    int64_t peak = peak_of(solver), bound = bound_of(solver);
    result->peak = (uint64_t)peak;
    result->lower_bound = (uint64_t)bound;
    result->is_optimal = peak == bound;
    result->fits = !solver->capacity || peak <= solver->capacity;
}

static shmem_status_t check_arguments(const shmem_plan_buffer_t *buffers, size_t count,
                                      const uint64_t *offsets, const shmem_plan_result_t *result)
{
    if (count && (!buffers || !offsets))
        return shmemi_fail(SHMEM_ERR_INVALID, "plan", "no buffers or no room for offsets given");
    shmem_status_t status =
        result ? shmemi_params_check(result, sizeof *result, "shmem_plan_result_t") : SHMEM_OK;
    if (!status)
        status = shmemi_plan_check_buffers(buffers, count);
    return status ? status : shmemi_plan_check_fixed(buffers, count);
}

shmem_status_t shmem_plan_solve(const shmem_plan_buffer_t *buffers, size_t count,
                                const shmem_plan_params_t *given, uint64_t *offsets,
                                shmem_plan_result_t *result)
{
    shmem_plan_params_t own = SHMEM_PLAN_PARAMS_INIT;
    const shmem_plan_params_t *params = &own;
    shmem_status_t status =
        given ? shmemi_params_take(&own, sizeof own, sizeof own, given, "shmem_plan_params_t")
              : SHMEM_OK;
    if (!status)
        status = check_arguments(buffers, count, offsets, result);
    if (status)
        return status;

    solver_t solver = {.deadline = shmemi_deadline_in(params->time_limit)};
    solver.capacity = params->capacity > INT64_MAX ? INT64_MAX : (int64_t)params->capacity;
    status = shmemi_plan_problem_init(&solver.problem, buffers, count);
    if (status)
        return status;
    status = plan_parts(&solver, params);
    if (status == SHMEM_OK)
        report(&solver, buffers, count, offsets, result);
    free(solver.offsets);
    free(solver.peaks);
    shmemi_plan_problem_fini(&solver.problem);
    return status;
}
