/* SPDX-License-Identifier: Apache-2.0 */
/* Names that contexts have open; see names.h. */
#include "job/names.h"

#include <string.h>

#include "node/wire.h"

bool shmemi_name_is_good(const char *name, size_t room)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-/";
    size_t n = strnlen(name, room);
    return n && n < room && strspn(name, allowed) == n && shmemi_wire_name_is_valid(name);
}

uint64_t shmemi_names_generation(shmem_context_t context)
{
    return shmemi_client_names_gone(context->client);
}

static uint64_t hash_of(shmem_context_t context, const char *text)
{
    uint64_t hash = (uintptr_t)context;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return hash >> 32 ^ hash;
}

void shmemi_names_add(shmemi_names_t *names, shmemi_name_t *entry, shmem_context_t context,
                      const char *text, uint64_t generation)
{
    entry->context = context;
    entry->generation = generation;
    entry->hash = hash_of(context, text);
    strcpy(entry->text, text);
    shmemi_name_t **bucket = &names->bucket[entry->hash % SHMEMI_NAME_BUCKETS];
    entry->next = *bucket;
    *bucket = entry;
}

void shmemi_names_remove(shmemi_names_t *names, shmemi_name_t *entry)
{
    if (!entry->text[0])
        return;
    shmemi_name_t **link = &names->bucket[entry->hash % SHMEMI_NAME_BUCKETS];
    while (*link && *link != entry)
        link = &(*link)->next;
    if (*link)
        *link = entry->next;
    entry->text[0] = 0;
}

static shmemi_name_t *match(shmemi_name_t *entry, shmem_context_t context, uint64_t hash,
                            const char *text)
{
    while (entry && (entry->hash != hash || entry->context != context || strcmp(entry->text, text)))
        entry = entry->next;
    return entry;
}

shmemi_name_t *shmemi_names_find(const shmemi_names_t *names, shmem_context_t context,
                                 const char *text)
{
    uint64_t hash = hash_of(context, text);
    return match(names->bucket[hash % SHMEMI_NAME_BUCKETS], context, hash, text);
}

shmemi_name_t *shmemi_names_next(const shmemi_name_t *entry)
{
    return match(entry->next, entry->context, entry->hash, entry->text);
}

bool shmemi_name_is_current(const shmemi_name_t *entry)
{
    return entry->generation == shmemi_names_generation(entry->context) ||
           shmemi_client_server_lost(entry->context->client);
}
