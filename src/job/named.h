/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects by name: the name that users give, the name of the segment at the node server, which has
 * the kind before it, and what the server says of segments in words of the kind.
 *
 * What it does not do: remember who has which open (names.h).
 */
#ifndef SHMEMI_JOB_NAMED_H
#define SHMEMI_JOB_NAMED_H

#include "job/context.h"

typedef struct shmemi_named {
    const char *what;   /* "pool": as in texts and in the names of functions */
    const char *prefix; /* of its segments' names */
    size_t room;        /* bytes of a user's name with its NUL */
} shmemi_named_t;

/* The name of an object's segment into full[SHMEMI_NAME_MAX + 1]. INVALID. */
shmem_status_t shmemi_named_make(const shmemi_named_t *kind, const char *name, char *full);

/* "%s name '...': want ...": INVALID, recorded. For names that have no segment, too. */
shmem_status_t shmemi_named_refuse(const char *what, const char *name, size_t room);

/* What the server said of a segment, in words of the kind. Passes `status` on. */
shmem_status_t shmemi_named_translate(const shmemi_named_t *kind, shmem_context_t context,
                                      const char *name, shmem_status_t status);

/* What users call the object of this segment, into text[room]. */
void shmemi_named_user_name(const shmemi_named_t *kind, const shmemi_segment_entry_t *entry,
                            char *text);

/* The objects of a kind that the server has: *found of them, of which the first *listed are in
 * *all, to be freed by the caller. `entries` is the user's place for `room` of them. INVALID,
 * STATE, NOMEM, errors of the server. */
shmem_status_t shmemi_named_list(const shmemi_named_t *kind, shmem_context_t context,
                                 const void *entries, size_t room, const size_t *count,
                                 shmemi_segment_entry_t **all, size_t *listed, size_t *found);

#endif
