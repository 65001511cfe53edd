/* SPDX-License-Identifier: Apache-2.0 */
/* Segments by name (hash with chains) and in a list of all. One thread. */
#include "node/table.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "node/state.h"
#include "os/space.h"

#define LAYER "node"

void shmemi_table_init(shmemi_table_t *table, uint64_t start, struct shmemi_state *state)
{
    memset(table, 0, sizeof *table);
    table->state = state;
    shmemi_ranges_init(&table->ranges, start, SHMEMI_SPACE_BYTES);
}

static shmemi_entry_t **bucket_of(shmemi_table_t *table, const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return &table->buckets[hash % SHMEMI_TABLE_BUCKETS];
}

void shmemi_table_publish(shmemi_table_t *table, _Atomic uint64_t *word)
{
    table->published = word;
    table->names_gone = 1 + atomic_load_explicit(word, memory_order_relaxed);
    /* SYNC names-gone: release, pairs with acquire in shmemi_client_names_gone() */
    atomic_store_explicit(word, table->names_gone, memory_order_release);
}

void shmemi_table_unlink(shmemi_table_t *table, shmemi_entry_t *entry)
{
    if (!entry->spec.name[0])
        return;
    shmemi_entry_t **link = bucket_of(table, entry->spec.name);
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    entry->spec.name[0] = 0;
    if (entry->record)
        shmemi_state_segment_save(table->state, entry);
    table->names_gone++;
    /* SYNC names-gone: release, pairs with acquire in shmemi_client_names_gone() */
    if (table->published)
        atomic_store_explicit(table->published, table->names_gone, memory_order_release);
}

static void entry_remove(shmemi_table_t *table, shmemi_entry_t *entry)
{
    shmemi_table_unlink(table, entry);
    shmemi_state_segment_drop(table->state, entry);
    *entry->newer_link = entry->newer;
    if (entry->newer)
        entry->newer->newer_link = entry->newer_link;
    shmemi_ranges_give(&table->ranges, entry->offset);
    table->count--;
    table->bytes -= entry->bytes;
    if (entry->fd >= 0)
        close(entry->fd);
    free(entry);
}

void shmemi_table_fini(shmemi_table_t *table)
{
    while (table->all)
        entry_remove(table, table->all);
    shmemi_ranges_fini(&table->ranges);
}

shmemi_entry_t *shmemi_table_find(shmemi_table_t *table, const char *name)
{
    shmemi_entry_t *entry = *bucket_of(table, name);
    while (entry && strcmp(entry->spec.name, name) != 0)
        entry = entry->next;
    return entry;
}

static void entry_link(shmemi_table_t *table, shmemi_entry_t *entry)
{
    if (entry->spec.name[0]) {
        shmemi_entry_t **bucket = bucket_of(table, entry->spec.name);
        entry->next = *bucket;
        *bucket = entry;
    }
    entry->newer = table->all;
    entry->newer_link = &table->all;
    if (table->all)
        table->all->newer_link = &entry->newer;
    table->all = entry;
    table->count++;
}

shmem_status_t shmemi_table_add(shmemi_table_t *table, const shmemi_spec_t *spec,
                                shmemi_entry_t **out)
{
    if (table->count >= SHMEMI_TABLE_SEGMENTS)
        return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER,
                            "this node server holds %d segments already; close some",
                            SHMEMI_TABLE_SEGMENTS);
    shmemi_entry_t *entry = SHMEMI_FAULT("node.table.add") ? NULL : calloc(1, sizeof *entry);
    if (!entry)
        return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER, "the node server has no memory for an entry");
    shmem_status_t status = shmemi_ranges_take(&table->ranges, spec->limit, &entry->offset);
    if (status) {
        free(entry);
        return status;
    }
    entry->id = table->state->next_id++;
    entry->spec = *spec;
    entry->fd = -1;
    entry_link(table, entry);
    *out = entry;
    return SHMEM_OK;
}

void shmemi_table_ready(shmemi_table_t *table, shmemi_entry_t *entry, int fd, uint64_t bytes,
                        uint64_t page_bytes)
{
    entry->fd = fd;
    entry->bytes = bytes;
    entry->page_bytes = page_bytes;
    table->bytes += bytes;
    shmemi_state_segment_save(table->state, entry);
}

shmem_status_t shmemi_table_restore(shmemi_table_t *table, const shmemi_entry_t *noted,
                                    uint32_t record, shmemi_entry_t **out)
{
    shmemi_entry_t *entry = malloc(sizeof *entry);
    if (!entry)
        return shmemi_quiet(SHMEM_ERR_NOMEM, LAYER, "the node server has no memory for an entry");
    shmem_status_t status = shmemi_ranges_put(&table->ranges, noted->offset, noted->spec.limit);
    if (status) {
        free(entry);
        return status;
    }
    *entry = *noted;
    entry->opens = entry->users = entry->waiting = 0;
    entry->growing = false;
    entry->record = record;
    entry_link(table, entry);
    table->bytes += entry->bytes;
    *out = entry;
    return SHMEM_OK;
}

void shmemi_table_grown(shmemi_table_t *table, shmemi_entry_t *entry, uint64_t bytes)
{
    entry->spec.bytes = bytes;
    shmemi_state_segment_save(table->state, entry);
}

bool shmemi_table_drop_unused(shmemi_table_t *table, shmemi_entry_t *entry)
{
    if (entry->opens || entry->waiting)
        return false;
    entry_remove(table, entry);
    return true;
}
