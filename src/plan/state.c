/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a search: memory, trail, placing and raising, the rules that go beyond a section. */
#include "plan/state.h"

#include <stdlib.h>
#include <string.h>

#define PAIRS_MOST ((uint64_t)16 << 20) /* 64 MiB of neighbours, and as much of members */
#define TRAIL_MOST ((size_t)4 << 20)    /* 64 MiB */

/* ---- memory ---- */

/* Can the tables of neighbours and members have that many entries? Items are ordered by begin: the
 * later neighbours of an item follow it until one begins after its end. */
static bool count_pairs(const shmemi_plan_part_t *part, uint64_t *pairs, uint64_t *members)
{
    *pairs = *members = 0;
    for (uint32_t i = 0; i < part->count && *pairs <= PAIRS_MOST; i++) {
        *members += part->items[i].end - part->items[i].begin + 1;
        for (uint32_t j = i + 1; j < part->count && part->items[j].begin <= part->items[i].end; j++)
            *pairs += 2;
    }
    return *pairs <= PAIRS_MOST && *members <= PAIRS_MOST;
}

/* at[i + 1] runs from the begin to the end of item i's neighbours while they are filled; these come
 * out ordered. */
static void list_nearby(shmemi_plan_state_t *state)
{
    const shmemi_plan_item_t *items = state->part->items;
    uint32_t n = state->part->count, *at = state->nearby_at;
    memset(at, 0, ((size_t)n + 2) * sizeof *at);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n && items[j].begin <= items[i].end; j++) {
            at[i + 2]++;
            at[j + 2]++;
        }
    for (uint32_t i = 0; i < n; i++)
        at[i + 2] += at[i + 1];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n && items[j].begin <= items[i].end; j++) {
            state->nearby[at[i + 1]++] = j;
            state->nearby[at[j + 1]++] = i;
        }
}

/* members_at[s + 1] runs from the begin to the end of section s while it is filled. */
static void list_members(shmemi_plan_state_t *state)
{
    const shmemi_plan_part_t *part = state->part;
    uint32_t *at = state->members_at;
    memset(at, 0, ((size_t)part->sections + 2) * sizeof *at);
    for (uint32_t i = 0; i < part->count; i++)
        for (uint32_t s = part->items[i].begin; s <= part->items[i].end; s++)
            at[s + 2]++;
    for (uint32_t s = 0; s < part->sections; s++)
        at[s + 2] += at[s + 1];
    for (uint32_t i = 0; i < part->count; i++)
        for (uint32_t s = part->items[i].begin; s <= part->items[i].end; s++)
            state->members[at[s + 1]++] = i;
}

/* Equal items follow each other in the part's order, as far as only size, alignment and fixing
 * differ between neighbours. */
static void find_twins(shmemi_plan_state_t *state)
{
    const shmemi_plan_item_t *items = state->part->items;
    for (uint32_t i = 0; i < state->part->count; i++) {
        state->twin[i] = SHMEMI_PLAN_NOBODY;
        for (uint32_t j = i + 1; j < state->part->count && items[j].begin == items[i].begin &&
                                 items[j].end == items[i].end;
             j++)
            if (items[j].size == items[i].size && items[j].align == items[i].align &&
                items[j].pad == items[i].pad && items[i].fixed == SHMEMI_PLAN_ANYWHERE &&
                items[j].fixed == SHMEMI_PLAN_ANYWHERE) {
                state->twin[i] = j;
                break;
            }
    }
}

static bool allocate(shmemi_plan_state_t *state, uint64_t pairs, uint64_t members)
{
    size_t n = state->part->count, sections = state->part->sections;
    state->low = malloc(n * sizeof *state->low);
    state->rest = malloc(n * sizeof *state->rest);
    state->offset = malloc(n * sizeof *state->offset);
    state->twin = malloc(n * sizeof *state->twin);
    state->prop = malloc(n * sizeof *state->prop);
    state->nearby = malloc((pairs + 1) * sizeof *state->nearby);
    state->nearby_at = malloc((n + 2) * sizeof *state->nearby_at);
    state->members = malloc(members * sizeof *state->members);
    state->members_at = malloc((sections + 2) * sizeof *state->members_at);
    state->least = malloc(sections * sizeof *state->least);
    state->second = malloc(sections * sizeof *state->second);
    state->spare = malloc(sections * sizeof *state->spare);
    state->queue = malloc(sections * sizeof *state->queue);
    state->queued = calloc(sections, 1);
    state->row = malloc(n * sizeof *state->row);
    state->trail_room = 4096;
    state->trail = malloc(state->trail_room * sizeof *state->trail);
    return state->low && state->rest && state->offset && state->twin && state->prop &&
           state->nearby && state->nearby_at && state->members && state->members_at &&
           state->least && state->second && state->spare && state->queue && state->queued &&
           state->row && state->trail;
}

shmem_status_t shmemi_plan_state_init(shmemi_plan_state_t *state, const shmemi_plan_part_t *part,
                                      int64_t unit)
{
    uint64_t pairs, members;
    *state = (shmemi_plan_state_t){.part = part, .unit = unit};
    if (!count_pairs(part, &pairs, &members))
        return SHMEM_ERR_LIMIT;
    if (!allocate(state, pairs, members)) {
        shmemi_plan_state_fini(state);
        return SHMEM_ERR_NOMEM;
    }
    list_nearby(state);
    list_members(state);
    find_twins(state);
    return SHMEM_OK;
}

void shmemi_plan_state_fini(shmemi_plan_state_t *state)
{
    free(state->low);
    free(state->rest);
    free(state->offset);
    free(state->twin);
    free(state->prop);
    free(state->nearby);
    free(state->nearby_at);
    free(state->members);
    free(state->members_at);
    free(state->least);
    free(state->second);
    free(state->spare);
    free(state->queue);
    free(state->queued);
    free(state->row);
    free(state->trail);
    *state = (shmemi_plan_state_t){0};
}

/* ---- changes ---- */

/* Sets *value, one of the state's, to `now` and remembers what it was. */
void shmemi_plan_note(shmemi_plan_state_t *state, uint32_t index, shmemi_plan_change_kind_t kind,
                      int64_t *value, int64_t now)
{
    if (*value == now)
        return;
    if (state->trail_length == state->trail_room) {
        size_t room = 2 * state->trail_room;
        shmemi_plan_change_t *grown =
            room <= TRAIL_MOST ? realloc(state->trail, room * sizeof *grown) : NULL;
        if (!grown) {
            state->is_full = true; /* the search ends at its next step */
            return;
        }
        state->trail = grown;
        state->trail_room = room;
    }
    state->trail[state->trail_length++] = (shmemi_plan_change_t){index, kind, *value};
    *value = now;
}

void shmemi_plan_undo(shmemi_plan_state_t *state, size_t trail_length)
{
    int64_t *const values[] = {state->low, state->rest, state->least, state->second, state->spare};
    while (state->trail_length > trail_length) {
        const shmemi_plan_change_t *change = &state->trail[--state->trail_length];
        values[change->kind][change->index] = change->old;
    }
    while (state->queue_length > 0)
        state->queued[state->queue[--state->queue_length]] = 0;
}

static void enqueue(shmemi_plan_state_t *state, uint32_t item)
{
    const shmemi_plan_item_t *it = &state->part->items[item];
    for (uint32_t s = it->begin; s <= it->end; s++)
        if (!state->queued[s]) {
            state->queued[s] = 1;
            state->queue[state->queue_length++] = s;
        }
}

bool shmemi_plan_raise(shmemi_plan_state_t *state, uint32_t item, int64_t low)
{
    for (;;) {
        const shmemi_plan_item_t *it = &state->part->items[item];
        if (low <= state->low[item])
            return true;
        low = shmemi_plan_align(low, it->align);
        if (low > shmemi_plan_roof_of(state, it) - it->size ||
            (it->fixed != SHMEMI_PLAN_ANYWHERE && low > it->fixed))
            return false;
        shmemi_plan_note(state, item, SHMEMI_PLAN_LOW, &state->low[item], low);
        enqueue(state, item);
        item = state->twin[item];
        if (item == SHMEMI_PLAN_NOBODY || state->is_full)
            return true;
        low += it->size;
    }
}

bool shmemi_plan_place(shmemi_plan_state_t *state, uint32_t item)
{
    const shmemi_plan_item_t *items = state->part->items;
    int64_t offset = state->low[item], top = offset + items[item].size;
    state->offset[item] = offset;
    shmemi_plan_note(state, item, SHMEMI_PLAN_LOW, &state->low[item], SHMEMI_PLAN_PLACED);
    enqueue(state, item);
    for (uint32_t k = state->nearby_at[item]; k < state->nearby_at[item + 1]; k++) {
        uint32_t other = state->nearby[k];
        if (shmemi_plan_is_placed(state, other))
            continue;
        int64_t rest = shmemi_plan_align(top, items[other].align);
        if (rest > state->rest[other])
            shmemi_plan_note(state, other, SHMEMI_PLAN_REST, &state->rest[other], rest);
        if (!shmemi_plan_raise(state, other, rest)) {
            state->failed_item = other;
            return false;
        }
    }
    return true;
}

/* ---- rules beyond a section ---- */

int64_t shmemi_plan_least_top(const shmemi_plan_state_t *state, uint32_t item, int64_t enough,
                              uint32_t *which)
{
    int64_t least = SHMEMI_PLAN_PLACED;
    for (uint32_t k = state->nearby_at[item]; k < state->nearby_at[item + 1]; k++) {
        uint32_t other = state->nearby[k];
        if (shmemi_plan_is_placed(state, other))
            continue;
        int64_t top = state->low[other] + state->part->items[other].size;
        if (top < least) {
            least = top;
            if (which)
                *which = other;
            if (top <= enough)
                break;
        }
    }
    return least;
}

/* Rule "hole" for one item. A fixed item rests where it is told. */
static bool rule_hole(shmemi_plan_state_t *state, uint32_t item)
{
    int64_t low = state->low[item];
    uint32_t prop = state->prop[item];
    if (low <= state->rest[item] || state->part->items[item].fixed != SHMEMI_PLAN_ANYWHERE)
        return true;
    if (!shmemi_plan_is_placed(state, prop) && prop != item &&
        state->low[prop] + state->part->items[prop].size <= low)
        return true;
    int64_t top = shmemi_plan_least_top(state, item, low, &state->prop[item]);
    if (top != SHMEMI_PLAN_PLACED && shmemi_plan_raise(state, item, top))
        return true;
    state->failed_item = item;
    return false;
}

bool shmemi_plan_conclude(shmemi_plan_state_t *state, uint32_t from, uint32_t to)
{
    do {
        while (state->queue_length > 0 && !state->is_full) {
            uint32_t section = state->queue[--state->queue_length];
            state->queued[section] = 0;
            if (!shmemi_plan_section_rules(state, section))
                return false;
        }
        for (uint32_t i = from; i < to; i++)
            if (!shmemi_plan_is_placed(state, i) && !rule_hole(state, i))
                return false;
    } while (state->queue_length > 0 && !state->is_full);
    return true;
}

bool shmemi_plan_state_reset(shmemi_plan_state_t *state, int64_t roof_bytes)
{
    const shmemi_plan_part_t *part = state->part;
    shmemi_plan_undo(state, 0);
    state->is_full = false;
    state->failed_section = state->failed_item = SHMEMI_PLAN_NOBODY;
    for (uint32_t i = 0; i < part->count; i++) {
        state->low[i] = state->rest[i] = 0;
        state->prop[i] = i;
    }
    state->roof = roof_bytes / state->unit + (roof_bytes % state->unit ? 1 : 0);
    state->excess = state->roof * state->unit - roof_bytes;
    for (uint32_t s = 0; s < part->sections; s++)
        state->least[s] = state->second[s] = state->spare[s] = 0;
    for (uint32_t i = 0; i < part->count; i++) {
        const shmemi_plan_item_t *item = &part->items[i];
        if (item->size > shmemi_plan_roof_of(state, item))
            return false;
        enqueue(state, i);
        if (item->fixed != SHMEMI_PLAN_ANYWHERE && !shmemi_plan_raise(state, i, item->fixed))
            return false;
    }
    return true;
}
