/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of an exact search: which items of a part are placed, what is known of the others, and
 * the rules that draw conclusions. All offsets are in units; the memory is
 * [0, roof), of which only items with a pad of at least `excess` may use the last unit.
 *
 * Plans are sought in which no item can be moved down (any plan can be brought to this form). Items
 * are placed from below: an item is placed only when no item that is live together with it can lie
 * lower. Then, for every item that is not placed,
 *
 *     rest = the lowest place above all placed items that live together with it
 *     low >= rest, and the item lies at its rest or on top of another one that is not placed
 *     low + size <= roof
 *
 * Rules, applied until nothing changes (the top of an item is low + size):
 *
 * Sum: in each section and for each l that is the low of an item there, what lies at l or above has
 * room: l + sum of sizes <= roof.
 *
 * Before: if an item and the set of those with low >= l do not fit above l, it lies below all of
 * the set: their low >= its top.
 *
 * First: an item that leaves too little room above its low for the others of a section is not the
 * lowest there: low >= the least top of the others.
 *
 * Hole: if low > rest, then low >= the least top of the items that live together with it.
 *
 * Twins: of equal items the one with the smaller number lies lower.
 *
 * Every change is written to a trail and can be undone back to a mark.
 */
#ifndef SHMEMI_PLAN_STATE_H
#define SHMEMI_PLAN_STATE_H

#include "plan/problem.h"

#define SHMEMI_PLAN_PLACED INT64_MAX /* `low` of a placed item */
#define SHMEMI_PLAN_NOBODY UINT32_MAX

typedef enum shmemi_plan_change_kind {
    SHMEMI_PLAN_LOW,
    SHMEMI_PLAN_REST,
    SHMEMI_PLAN_LEAST,
    SHMEMI_PLAN_SECOND,
    SHMEMI_PLAN_SPARE
} shmemi_plan_change_kind_t;

typedef struct shmemi_plan_change {
    uint32_t index; /* of the item or the section */
    shmemi_plan_change_kind_t kind;
    int64_t old;
} shmemi_plan_change_t;

/* A member of the section at work; see rules.c. */
typedef struct shmemi_plan_row {
    int64_t low, size, spare;
} shmemi_plan_row_t;

typedef struct shmemi_plan_state {
    const shmemi_plan_part_t *part;
    int64_t unit;
    int64_t roof;   /* units */
    int64_t excess; /* bytes by which the roof is above what was asked for, < unit */

    /* of items */
    int64_t *low;     /* PLACED, or a lower bound of its offset */
    int64_t *rest;    /* see above */
    int64_t *offset;  /* of placed ones */
    uint32_t *twin;   /* the next equal item, or NOBODY */
    uint32_t *prop;   /* an item whose top was once seen not to be above low: a hint */
    uint32_t *nearby; /* those that live together with item i: nearby[nearby_at[i] ...] */
    uint32_t *nearby_at;

    /* of sections */
    uint32_t *members; /* items of section s: members[members_at[s] ...], nearly ordered by low */
    uint32_t *members_at;
    int64_t *least, *second; /* the two smallest values of low in it */
    int64_t *spare;          /* roof - least - sum of sizes of what is not placed */
    uint32_t *queue;         /* sections in which something changed */
    uint8_t *queued;
    uint32_t queue_length;
    shmemi_plan_row_t *row;

    shmemi_plan_change_t *trail;
    size_t trail_length, trail_room;
    bool is_full; /* the trail could not grow */

    /* where the last contradiction showed: a section, or an item, or neither (NOBODY) */
    uint32_t failed_section, failed_item;
} shmemi_plan_state_t;

/* Errors: NOMEM, LIMIT (too many pairs of items that are live together); not recorded. */
shmem_status_t shmemi_plan_state_init(shmemi_plan_state_t *state, const shmemi_plan_part_t *part,
                                      int64_t unit);
void shmemi_plan_state_fini(shmemi_plan_state_t *state);

/* Nothing is placed, nothing known, but that everything must end at `roof_bytes` or below. False: a
 * contradiction already. */
bool shmemi_plan_state_reset(shmemi_plan_state_t *state, int64_t roof_bytes);

/* The following return false on a contradiction; then the state must be undone. */
/* Place an item at its low. */
bool shmemi_plan_place(shmemi_plan_state_t *state, uint32_t item);
/* Learn that it lies at `low` or above. */
bool shmemi_plan_raise(shmemi_plan_state_t *state, uint32_t item, int64_t low);
/* Apply the rules to the items [from, to), which no others live together with. */
bool shmemi_plan_conclude(shmemi_plan_state_t *state, uint32_t from, uint32_t to);

/* Undo all changes after the trail had this length. */
void shmemi_plan_undo(shmemi_plan_state_t *state, size_t trail_length);

/* The least top of the items that are not placed and live together with `item`; stops early at one
 * that is not above `enough`. PLACED: there is none. *which (may be NULL): the item found. */
int64_t shmemi_plan_least_top(const shmemi_plan_state_t *state, uint32_t item, int64_t enough,
                              uint32_t *which);

/* Between state.c and rules.c: the rules of one section. */
bool shmemi_plan_section_rules(shmemi_plan_state_t *state, uint32_t section);
void shmemi_plan_note(shmemi_plan_state_t *state, uint32_t index, shmemi_plan_change_kind_t kind,
                      int64_t *value, int64_t now);

/* Where the item must end at the latest. */
static inline int64_t shmemi_plan_roof_of(const shmemi_plan_state_t *state,
                                          const shmemi_plan_item_t *item)
{
    return state->roof - (item->pad < state->excess);
}

static inline bool shmemi_plan_is_placed(const shmemi_plan_state_t *state, uint32_t item)
{
    return state->low[item] == SHMEMI_PLAN_PLACED;
}

#endif
