/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of shared objects that contexts of this process have open, so that opening one again asks
 * nobody.
 *
 * The node server counts the names that went away. An entry was true when the server last
 * confirmed it; `generation` is what the count was before that question was asked:
 *
 *   Invariant  entry->generation == shmemi_names_generation(entry->context)
 *                  =>  the name still means the object of the entry
 *
 * A name means another object only after it went away, and the count changes before the server
 * answers anybody who could tell.
 *
 * An entry is part of its owner's handle. The owner of a table guards it by a lock of his own.
 */
#ifndef SHMEMI_JOB_NAMES_H
#define SHMEMI_JOB_NAMES_H

#include "job/context.h"

enum { SHMEMI_NAME_BUCKETS = 256 };

typedef struct shmemi_name {
    struct shmemi_name *next; /* in its bucket */
    shmem_context_t context;
    uint64_t generation;
    uint64_t hash;
    char text[SHMEMI_NAME_MAX + 1]; /* "": in no table */
} shmemi_name_t;

typedef struct shmemi_names {
    shmemi_name_t *bucket[SHMEMI_NAME_BUCKETS];
} shmemi_names_t;

/* What users may call an object: 1 to room - 1 letters, digits, '.', '_', '-' or '/', and no '..'
 * between slashes. */
bool shmemi_name_is_good(const char *name, size_t room);

/* To be read before the server is asked. */
uint64_t shmemi_names_generation(shmem_context_t context);

/* `text` has 1 to SHMEMI_NAME_MAX bytes. Several entries may have the same name: objects that were
 * destroyed meanwhile, other views of the same object. */
void shmemi_names_add(shmemi_names_t *names, shmemi_name_t *entry, shmem_context_t context,
                      const char *text, uint64_t generation);
/* One that is in no table is accepted. */
void shmemi_names_remove(shmemi_names_t *names, shmemi_name_t *entry);

/* The first entry of that name in the context, and the one after it; NULL: none. */
shmemi_name_t *shmemi_names_find(const shmemi_names_t *names, shmem_context_t context,
                                 const char *text);
shmemi_name_t *shmemi_names_next(const shmemi_name_t *entry);

/* Does its name mean the same object for sure? Without a server it does: nobody gives the name to
 * another then. */
bool shmemi_name_is_current(const shmemi_name_t *entry);

#endif
