/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules for the items of one section: they share no byte, whatever lies beside the section.
 *
 * The section's items that are not placed are copied to a row, ordered by low:
 *
 *     spare[i] = roof - low[i] - (size[i] + size[i + 1] + ...)
 *
 * is what the items from i on leave free above low[i].
 */
#include "plan/state.h"

/* Orders the members by low, placed ones last; they are nearly in order. Returns how many are not
 * placed. */
static uint32_t sort_members(const shmemi_plan_state_t *state, uint32_t *members, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t item = members[i], j = i;
        int64_t low = state->low[item];
        for (; j > 0 && state->low[members[j - 1]] > low; j--)
            members[j] = members[j - 1];
        members[j] = item;
    }
    while (count > 0 && shmemi_plan_is_placed(state, members[count - 1]))
        count--;
    return count;
}

/* Rule "sum": the highest of some items may use the last unit below the roof if one of them may.
 * What the first leaves, all of them, is known to the unit. *largest: the largest size. */
static bool fill_row(const shmemi_plan_state_t *state, const uint32_t *members, uint32_t count,
                     shmemi_plan_row_t *row, int64_t *largest)
{
    int64_t sum = 0, most = 0, lack = 1;
    for (uint32_t i = count; i-- > 0;) {
        const shmemi_plan_item_t *item = &state->part->items[members[i]];
        int64_t low = state->low[members[i]], size = item->size;
        if (shmemi_plan_roof_of(state, item) == state->roof)
            lack = 0;
        sum += size;
        most = size > most ? size : most;
        row[i] = (shmemi_plan_row_t){low, size, state->roof - low - sum};
        if (row[i].spare < lack)
            return false;
    }
    if (count > 0)
        row[0].spare -= lack;
    *largest = most;
    return true;
}

/* Rule "before" (of equal lows only the first i can tell anything): those of the first i that do
 * not fit in with the items from i on. Where they all end at the earliest is a bound for these and,
 * as the sets shrink, for all later ones. */
static bool rule_before(shmemi_plan_state_t *state, const uint32_t *members, uint32_t count,
                        const shmemi_plan_row_t *row, int64_t largest)
{
    int64_t bound = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (row[i].low > row[i - 1].low && row[i].spare < largest) {
            int64_t end = 0;
            for (uint32_t j = 0; j < i; j++)
                if (row[j].size > row[i].spare)
                    end = (end > row[j].low ? end : row[j].low) + row[j].size;
            bound = end > bound ? end : bound;
        }
        if (bound > row[i].low && !shmemi_plan_raise(state, members[i], bound))
            return false;
    }
    return true;
}

/* Rule "first". */
static bool rule_first(shmemi_plan_state_t *state, const uint32_t *members, uint32_t count,
                       const shmemi_plan_row_t *row)
{
    int64_t least = INT64_MAX, second = INT64_MAX;
    uint32_t owner = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t top = row[i].low + row[i].size;
        if (top < least) {
            second = least;
            least = top;
            owner = i;
        } else if (top < second) {
            second = top;
        }
    }
    for (uint32_t i = count; i-- > 1 && row[i].low - row[0].low > row[0].spare;)
        if (!shmemi_plan_raise(state, members[i], i == owner ? second : least))
            return false;
    return true;
}

/* What choosing an item needs to know of the section. */
static void summarize(shmemi_plan_state_t *state, uint32_t section, uint32_t count,
                      const shmemi_plan_row_t *row)
{
    const int64_t none = SHMEMI_PLAN_PLACED;
    shmemi_plan_note(state, section, SHMEMI_PLAN_LEAST, &state->least[section],
                     count > 0 ? row[0].low : none);
    shmemi_plan_note(state, section, SHMEMI_PLAN_SECOND, &state->second[section],
                     count > 1 ? row[1].low : none);
    shmemi_plan_note(state, section, SHMEMI_PLAN_SPARE, &state->spare[section],
                     count > 0 ? row[0].spare : 0);
}

bool shmemi_plan_section_rules(shmemi_plan_state_t *state, uint32_t section)
{
    uint32_t *members = state->members + state->members_at[section];
    shmemi_plan_row_t *row = state->row;
    int64_t largest = 0;
    uint32_t count =
        sort_members(state, members, state->members_at[section + 1] - state->members_at[section]);
    bool fits = fill_row(state, members, count, row, &largest);
    summarize(state, section, count, row);
    fits = fits && rule_before(state, members, count, row, largest) &&
           rule_first(state, members, count, row);
    if (!fits)
        state->failed_section = section;
    return fits;
}
