/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search places items from below (see state.h). At each step it chooses, among the items that
 * nothing can lie below, one that lies lowest, and either
 *
 *     places it at its low,  or, if that leads nowhere,
 *     raises it to the least top of those that live together with it
 *
 * An item is placed without an alternative if that takes nothing from the others (all that live
 * together with it lie above its top anyway), or if raising it would waste more memory in some
 * section than there is to spare. When the items that are not placed
 * fall into groups that no item connects, the groups are solved one after the other: a group that
 * has no solution leads straight back to the last decision before it split off.
 *
 * Which item comes first among equally low ones is a score: a static one, times a weight that grows
 * whenever the item takes part in a contradiction. The search starts anew after a number of steps
 * that varies (1 1 2 1 1 2 4 ... times a base), with the weights learned so far and some noise, in
 * turn by two static scores. The noise comes from a fixed seed.
 */
#include "plan/search.h"

#include <stdlib.h>
#include <string.h>

#include "plan/state.h"

#define NO_DECISION UINT32_MAX
#define NO_GROUP    UINT32_MAX

/* Items [from, to) that are still to be placed; the decision that they depend on. */
typedef struct group {
    uint32_t from, to, decision;
    uint32_t next; /* the group that comes after it, or NO_GROUP */
} group_t;

typedef struct decision {
    uint32_t item;
    group_t group;   /* in which it was made */
    uint32_t groups; /* number of groups then */
    size_t trail_mark;
} decision_t;

struct shmemi_plan_search {
    shmemi_plan_state_t state;
    double *hardness[2]; /* static scores */
    double *weight, *score, *base;
    decision_t *decisions;
    group_t *groups; /* a list in an array: entries are never changed, only dropped at the end */
    uint32_t decision_count, group_count;
    group_t current; /* at work; its `next` are those that wait */
    uint64_t round, noise;
};

/* ---- scores ---- */

static void measure_hardness(shmemi_plan_search_t *search)
{
    const shmemi_plan_part_t *part = search->state.part;
    const uint32_t *at = search->state.members_at, *members = search->state.members;
    for (uint32_t i = 0; i < part->count; i++) {
        search->weight[i] = 1;
        search->hardness[0][i] = 0;
        search->hardness[1][i] = part->items[i].duration;
    }
    for (uint32_t s = 0; s < part->sections; s++) {
        double load = 0;
        for (uint32_t k = at[s]; k < at[s + 1]; k++)
            load += (double)part->items[members[k]].size;
        for (uint32_t k = at[s]; k < at[s + 1]; k++)
            if (load > search->hardness[0][members[k]])
                search->hardness[0][members[k]] = load;
    }
}

/* From 0 to 1. */
static double next_noise(shmemi_plan_search_t *search)
{
    search->noise = search->noise * 6364136223846793005u + 1442695040888963407u;
    return (double)(search->noise >> 40) / 16777216;
}

static void set_scores(shmemi_plan_search_t *search)
{
    const double *hardness = search->hardness[search->round % 2];
    for (uint32_t i = 0; i < search->state.part->count; i++) {
        double noise = search->round ? 1 + next_noise(search) / 5 : 1;
        search->base[i] = hardness[i] * noise;
        search->score[i] = search->base[i] * search->weight[i];
    }
}

static void blame(shmemi_plan_search_t *search, uint32_t item)
{
    if (shmemi_plan_is_placed(&search->state, item))
        return;
    search->weight[item] += 1;
    search->score[item] = search->base[item] * search->weight[item];
}

static void learn(shmemi_plan_search_t *search)
{
    shmemi_plan_state_t *state = &search->state;
    uint32_t section = state->failed_section;
    if (section != SHMEMI_PLAN_NOBODY) {
        for (uint32_t k = state->members_at[section]; k < state->members_at[section + 1]; k++)
            blame(search, state->members[k]);
    } else if (state->failed_item != SHMEMI_PLAN_NOBODY) {
        blame(search, state->failed_item);
    }
    state->failed_section = state->failed_item = SHMEMI_PLAN_NOBODY;
}

/* ---- choosing ---- */

/* Can nothing lie below the item? *is_free: everything lies above its top. */
static bool is_lowest(const shmemi_plan_state_t *state, uint32_t item, bool *is_free)
{
    const shmemi_plan_item_t *it = &state->part->items[item];
    int64_t low = state->low[item], top = low + it->size;
    *is_free = true;
    for (uint32_t s = it->begin; s <= it->end; s++) {
        if (state->least[s] < low)
            return false;
        if (state->second[s] < top)
            *is_free = false;
    }
    return true;
}

/* Would some section have too little room if the lowest item did not lie at its low but on top of
 * one that lives together with it? `second` of a section with one item is PLACED, above all. */
static bool is_forced(const shmemi_plan_state_t *state, uint32_t item)
{
    const shmemi_plan_item_t *it = &state->part->items[item];
    uint32_t s = it->begin;
    while (s <= it->end && state->second[s] - state->least[s] <= state->spare[s])
        s++;
    if (s > it->end)
        return false; /* whatever it lies on */
    int64_t top = shmemi_plan_least_top(state, item, 0, NULL);
    if (top > state->roof - it->size)
        return true;
    for (; s <= it->end; s++) {
        int64_t least = state->second[s] < top ? state->second[s] : top;
        if (least - state->least[s] > state->spare[s])
            return true;
    }
    return false;
}

/* The item to decide about; *is_certain: it is to be placed without an alternative. The group has
 * an item that is not placed. */
static uint32_t choose(const shmemi_plan_search_t *search, bool *is_certain)
{
    const shmemi_plan_state_t *state = &search->state;
    uint32_t best = SHMEMI_PLAN_NOBODY;
    for (uint32_t i = search->current.from; i < search->current.to; i++) {
        if (shmemi_plan_is_placed(state, i) || !is_lowest(state, i, is_certain))
            continue;
        *is_certain = *is_certain || is_forced(state, i);
        if (*is_certain)
            return i;
        if (best == SHMEMI_PLAN_NOBODY || state->low[i] < state->low[best] ||
            (state->low[i] == state->low[best] && search->score[i] > search->score[best]))
            best = i;
    }
    *is_certain = false;
    return best;
}

/* Cuts the current group where no item that is not placed crosses; the first piece becomes the
 * current one, the others wait. If nothing is left, the next one that waits becomes current. False:
 * none waits, all items are placed. */
static bool split(shmemi_plan_search_t *search)
{
    const shmemi_plan_item_t *items = search->state.part->items;
    group_t whole = search->current;
    uint32_t pieces = 0, reach = 0;
    for (uint32_t i = whole.from; i < whole.to; i++) {
        if (shmemi_plan_is_placed(&search->state, i))
            continue;
        if (pieces == 0) {
            search->current.from = i;
            pieces = 1;
        } else if (items[i].begin > reach) {
            if (pieces++ == 1)
                search->current.to = i;
            else
                search->groups[search->current.next].to = i;
            search->groups[search->group_count] =
                (group_t){i, whole.to, whole.decision, search->current.next};
            search->current.next = search->group_count++;
        }
        reach = items[i].end > reach ? items[i].end : reach;
    }
    if (pieces > 0)
        return true;
    if (whole.next == NO_GROUP)
        return false;
    search->current = search->groups[whole.next];
    return true;
}

/* ---- the search ---- */

static bool decide(shmemi_plan_search_t *search, uint32_t item)
{
    search->decisions[search->decision_count] =
        (decision_t){item, search->current, search->group_count, search->state.trail_length};
    search->current.decision = search->decision_count++;
    return shmemi_plan_place(&search->state, item);
}

/* Takes the last decision back that the current group depends on; its alternative holds from then
 * on. False: there is none. *ok: no contradiction so far. */
static bool take_back(shmemi_plan_search_t *search, bool *ok)
{
    uint32_t number = search->current.decision;
    if (number == NO_DECISION)
        return false;
    const decision_t *decision = &search->decisions[number];
    search->current = decision->group;
    search->decision_count = number;
    search->group_count = decision->groups;
    shmemi_plan_undo(&search->state, decision->trail_mark);
    int64_t top = shmemi_plan_least_top(&search->state, decision->item, 0, NULL);
    *ok = top != SHMEMI_PLAN_PLACED && shmemi_plan_raise(&search->state, decision->item, top);
    if (!*ok)
        search->state.failed_item = decision->item;
    return true;
}

/* One step: conclude, then place something or go back. STOPPED: go on. */
static shmemi_plan_outcome_t step(shmemi_plan_search_t *search, bool *ok)
{
    bool is_certain;
    shmemi_plan_state_t *state = &search->state;
    *ok = *ok && shmemi_plan_conclude(state, search->current.from, search->current.to);
    if (!*ok) {
        learn(search);
        return take_back(search, ok) ? SHMEMI_PLAN_STOPPED : SHMEMI_PLAN_NONE;
    }
    if (!split(search))
        return SHMEMI_PLAN_FOUND;
    uint32_t item = choose(search, &is_certain);
    *ok = is_certain ? shmemi_plan_place(state, item) : decide(search, item);
    return SHMEMI_PLAN_STOPPED;
}

/* From nothing placed to a result, or to the end of *steps, which it counts down. */
static shmemi_plan_outcome_t search_once(shmemi_plan_search_t *search, int64_t roof,
                                         uint64_t *steps, shmemi_deadline_t deadline)
{
    bool ok = shmemi_plan_state_reset(&search->state, roof);
    search->decision_count = search->group_count = 0;
    search->current = (group_t){0, search->state.part->count, NO_DECISION, NO_GROUP};
    for (; *steps > 0; --*steps) {
        if (*steps % 64 == 0 && shmemi_deadline_passed(deadline))
            break;
        shmemi_plan_outcome_t outcome = step(search, &ok);
        if (search->state.is_full)
            break;
        if (outcome != SHMEMI_PLAN_STOPPED)
            return outcome;
    }
    return SHMEMI_PLAN_STOPPED;
}

/* Number i, from 0, of the series 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ... */
static uint64_t series(uint64_t i)
{
    for (;;) {
        uint64_t length = 1; /* of the shortest beginning 2^k - 1 that has number i */
        while (length <= i)
            length = 2 * length + 1;
        if (i == length - 1)
            return (length + 1) / 2;
        i -= length / 2;
    }
}

shmemi_plan_outcome_t shmemi_plan_search_run(shmemi_plan_search_t *search, int64_t roof,
                                             uint64_t steps, shmemi_deadline_t deadline,
                                             int64_t *offsets)
{
    const uint32_t count = search->state.part->count;
    shmemi_plan_outcome_t outcome = SHMEMI_PLAN_STOPPED;
    while (steps > 0 && outcome == SHMEMI_PLAN_STOPPED && !shmemi_deadline_passed(deadline)) {
        uint64_t share = series(search->round) * (500 + 2 * (uint64_t)count);
        share = share < steps ? share : steps;
        steps -= share;
        set_scores(search);
        outcome = search_once(search, roof, &share, deadline);
        search->round++;
    }
    if (outcome == SHMEMI_PLAN_FOUND)
        memcpy(offsets, search->state.offset, count * sizeof *offsets);
    return outcome;
}

shmem_status_t shmemi_plan_search_create(shmemi_plan_search_t **search,
                                         const shmemi_plan_part_t *part, int64_t unit)
{
    size_t n = part->count;
    shmemi_plan_search_t *s = calloc(1, sizeof *s);
    if (!s)
        return SHMEM_ERR_NOMEM;
    shmem_status_t status = shmemi_plan_state_init(&s->state, part, unit);
    s->hardness[0] = malloc(n * sizeof(double));
    s->hardness[1] = malloc(n * sizeof(double));
    s->weight = malloc(n * sizeof(double));
    s->score = malloc(n * sizeof(double));
    s->base = malloc(n * sizeof(double));
    s->decisions = malloc(n * sizeof *s->decisions);
    s->groups = malloc(n * sizeof *s->groups);
    if (status == SHMEM_OK && !(s->hardness[0] && s->hardness[1] && s->weight && s->score &&
                                s->base && s->decisions && s->groups))
        status = SHMEM_ERR_NOMEM;
    if (status) {
        shmemi_plan_search_destroy(s);
        return status;
    }
    measure_hardness(s);
    *search = s;
    return SHMEM_OK;
}

void shmemi_plan_search_destroy(shmemi_plan_search_t *search)
{
    if (!search)
        return;
    shmemi_plan_state_fini(&search->state);
    free(search->hardness[0]);
    free(search->hardness[1]);
    free(search->weight);
    free(search->score);
    free(search->base);
    free(search->decisions);
    free(search->groups);
    free(search);
}
