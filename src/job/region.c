/* SPDX-License-Identifier: Apache-2.0 */
/* Regions: making, opening, closing, destroying, listing them. Handles are in region_handle.h. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/params.h"
#include "base/status.h"
#include "job/arenas.h"
#include "job/graves.h"
#include "job/named.h"
#include "job/region_api.h"
#include "job/region_handle.h"
#include "os/space.h"

#define LAYER "job"

static const shmemi_named_t named = {"region", SHMEMI_REGION_PREFIX,
                                     sizeof((shmem_region_entry_t *)0)->name};

static shmemi_cemetery_t closed_regions;
static struct shmem_region *regions;
static shmemi_names_t names;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Another thread of the parent may have held it. */
static void fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void handle_fork(void)
{
    pthread_atfork(NULL, NULL, fork_child);
}

void shmemi_regions_lock(void)
{
    pthread_mutex_lock(&lock);
}

void shmemi_regions_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* ---- handles ---- */

shmem_status_t shmemi_region_check(shmem_region_t region, const char *what)
{
    if (!region)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "%s: the region is NULL", what);
    if (!region->context)
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "%s: the region was closed, by shmem_region_close() or with its "
                           "context: open it again",
                           what);
    return shmemi_context_check(region->context, what);
}

static struct shmem_region *handle_make(shmem_context_t context)
{
    struct shmem_region *r = SHMEMI_FAULT("job.region.handle") ? NULL : calloc(1, sizeof *r);
    if (!r) {
        shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for a region's handle");
        return NULL;
    }
    r->context = context;
    r->segment.fd = -1;
    r->refs = 1;
    return r;
}

/* Undo everything that has been done for a handle that is in no list. */
static void undo(struct shmem_region *r)
{
    if (r->page)
        munmap((void *)(uintptr_t)r->page, SHMEMI_PAGE);
    shmemi_arenas_segment_close(r->context, &r->segment);
    memset(r, 0, sizeof *r);
}

static void discard(struct shmem_region *r)
{
    undo(r);
    free(r);
}

static shmem_status_t map_page(struct shmem_region *r)
{
    if (r->segment.bytes < 2 * SHMEMI_PAGE)
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                           "a segment of %llu bytes is no region: another program gave it the name "
                           "of one",
                           (unsigned long long)r->segment.bytes);
    void *page = SHMEMI_FAULT("job.region.page")
                     ? MAP_FAILED
                     : mmap(NULL, SHMEMI_PAGE, PROT_READ, MAP_SHARED, r->segment.fd,
                            (off_t)shmemi_region_limit(r));
    if (page == MAP_FAILED)
        return shmemi_fail_errno(LAYER, "cannot map the page with a region's size");
    r->page = page;
    return SHMEM_OK;
}

static struct shmem_region *of_name(shmemi_name_t *name)
{
    return (struct shmem_region *)((char *)name - offsetof(struct shmem_region, name));
}

static struct shmem_region *find_name_locked(shmem_context_t context, const char *full, int rights)
{
    shmemi_name_t *name = shmemi_names_find(&names, context, full);
    while (name && (of_name(name)->segment.rights != rights || !shmemi_name_is_current(name)))
        name = shmemi_names_next(name);
    return name ? of_name(name) : NULL;
}

static struct shmem_region *find_same_locked(const struct shmem_region *r)
{
    struct shmem_region *same = regions;
    while (same && (same->context != r->context || same->segment.id != r->segment.id ||
                    same->segment.rights != r->segment.rights))
        same = same->next;
    return same;
}

/* The handle of a segment that was just opened: a new one, or the one that is there. */
static shmem_status_t enter(struct shmem_region *r, const char *full, uint64_t generation,
                            shmem_region_t *region)
{
    shmem_status_t status = map_page(r);
    if (status) {
        discard(r);
        return status;
    }
    pthread_mutex_lock(&lock);
    struct shmem_region *same = find_same_locked(r);
    if (same) {
        same->refs++;
        same->name.generation = generation;
    } else {
        r->next = regions;
        regions = r;
        if (*full)
            shmemi_names_add(&names, &r->name, r->context, full, generation);
    }
    pthread_mutex_unlock(&lock);
    if (same)
        discard(r);
    *region = same ? same : r;
    return SHMEM_OK;
}

/* ---- create ---- */

static shmem_status_t set_sizes(const shmem_region_params_t *params,
                                shmemi_segment_request_t *request)
{
    uint64_t limit = params->limit ? params->limit : params->bytes;
    if (limit < params->bytes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "a region of %llu bytes with a limit of %llu",
                           (unsigned long long)params->bytes, (unsigned long long)limit);
    if (limit > SHMEMI_SPACE_BYTES - SHMEMI_SPACE_UNIT)
        return shmemi_fail(SHMEM_ERR_OVERFLOW, LAYER,
                           "a region of up to %llu bytes: the address range has %llu",
                           (unsigned long long)limit, SHMEMI_SPACE_BYTES);
    request->bytes = params->bytes;
    request->limit = (limit + SHMEMI_PAGE - 1) / SHMEMI_PAGE * SHMEMI_PAGE + SHMEMI_PAGE;
    return SHMEM_OK;
}

static shmem_status_t set_node(shmem_context_t context, int node, shmemi_segment_request_t *request)
{
    shmem_topology_t topology;
    shmem_topology_node_t info;
    if (node == -1)
        return SHMEM_OK;
    shmem_status_t status = shmemi_context_topology(context, &topology);
    if (!status)
        status = shmem_topology_node(topology, node, &info);
    if (status)
        return status;
    request->bind = shmem_topology_nodes(topology) > 1;
    request->node = info.os_index;
    return SHMEM_OK;
}

static shmem_status_t create(shmem_context_t context, const char *full,
                             const shmem_region_params_t *params, shmem_region_t *region)
{
    uint64_t generation = shmemi_names_generation(context);
    shmemi_segment_request_t request = {.name = *full ? full : NULL,
                                        .kind = SHMEMI_SEGMENT_REGION,
                                        .huge = (int)context->settings.huge_pages,
                                        .reserve = 1,
                                        .access = params->access};
    shmem_status_t status = set_sizes(params, &request);
    if (!status)
        status = set_node(context, params->node, &request);
    if (status)
        return status;
    if (request.limit < SHMEMI_SPACE_UNIT)
        request.huge = SHMEMI_HUGE_OFF;
    struct shmem_region *r = handle_make(context);
    if (!r)
        return SHMEM_ERR_NOMEM;
    status = shmemi_client_segment_create(context->client, &request, &r->segment);
    SHMEMI_KILL_POINT("job.region.created");
    if (!status)
        return enter(r, full, generation, region);
    discard(r);
    return status;
}

shmem_status_t shmem_region_create(shmem_context_t context, const char *name,
                                   const shmem_region_params_t *given, shmem_region_t *region)
{
    char full[SHMEMI_NAME_MAX + 1] = "";
    shmem_region_params_t params;
    if (!context || !region)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_region_create wants a context and a place for the region");
    shmem_status_t status =
        shmemi_params_take(&params, sizeof params, sizeof params, given, "shmem_region_params_t");
    if (!status && !params.bytes)
        status = shmemi_fail(SHMEM_ERR_INVALID, LAYER, "a region of 0 bytes: set `bytes`");
    if (!status)
        status = shmemi_context_check(context, "shmem_region_create");
    if (!status && name)
        status = shmemi_named_make(&named, name, full);
    if (!status)
        status = create(context, full, &params, region);
    return status ? shmemi_named_translate(&named, context, name ? name : "(anonymous)", status)
                  : SHMEM_OK;
}

/* ---- open ---- */

static shmem_status_t open_asking(shmem_context_t context, const char *full, int rights,
                                  shmem_region_t *region)
{
    uint64_t generation = shmemi_names_generation(context);
    struct shmem_region *r = handle_make(context);
    if (!r)
        return SHMEM_ERR_NOMEM;
    shmem_status_t status = shmemi_client_segment_open(context->client, full, rights, &r->segment);
    SHMEMI_KILL_POINT("job.region.opened");
    if (!status)
        return enter(r, full, generation, region);
    discard(r);
    return status;
}

shmem_status_t shmem_region_open(shmem_context_t context, const char *name, shmem_mapping_t rights,
                                 shmem_region_t *region)
{
    char full[SHMEMI_NAME_MAX + 1];
    if (!context || !name || !region ||
        (rights != SHMEM_MAP_READ && rights != SHMEM_MAP_READ_WRITE))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_region_open wants a context, a name, SHMEM_MAP_READ or "
                           "SHMEM_MAP_READ_WRITE, and a place for the region");
    shmem_status_t status = shmemi_context_check(context, "shmem_region_open");
    if (!status)
        status = shmemi_named_make(&named, name, full);
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    struct shmem_region *r = find_name_locked(context, full, (int)rights);
    if (r)
        r->refs++;
    pthread_mutex_unlock(&lock);
    if (r) {
        *region = r;
        return SHMEM_OK;
    }
    status = open_asking(context, full, (int)rights, region);
    return status ? shmemi_named_translate(&named, context, name, status) : SHMEM_OK;
}

/* ---- close ---- */

static void unlink_locked(struct shmem_region *r)
{
    struct shmem_region **link = &regions;
    while (*link && *link != r)
        link = &(*link)->next;
    if (*link)
        *link = r->next;
    shmemi_names_remove(&names, &r->name);
    if (r->maps)
        shmemi_region_unmap_locked(r);
    r->refs = 0;
}

static void bury(struct shmem_region *r)
{
    SHMEMI_KILL_POINT("job.region.unmapped");
    undo(r);
    shmemi_bury(&closed_regions, r);
}

void shmem_region_close(shmem_region_t region)
{
    if (!region)
        return;
    pthread_mutex_lock(&lock);
    /* one without references was closed already, perhaps with its context */
    bool last = region->refs && --region->refs == 0;
    if (last)
        unlink_locked(region);
    pthread_mutex_unlock(&lock);
    if (last)
        bury(region);
}

void shmemi_region_drop_all(shmem_context_t context)
{
    struct shmem_region *r;
    unsigned open = 0;
    do {
        pthread_mutex_lock(&lock);
        r = regions;
        while (r && r->context != context)
            r = r->next;
        if (r)
            unlink_locked(r);
        pthread_mutex_unlock(&lock);
        if (r)
            bury(r);
        open += r != NULL;
    } while (r);
    if (open && !shmemi_context_is_inherited(context))
        shmemi_log(SHMEM_LOG_INFO, LAYER, "the context ends with %u regions that were not closed",
                   open);
}

/* ---- by name ---- */

shmem_status_t shmem_region_destroy(shmem_context_t context, const char *name)
{
    char full[SHMEMI_NAME_MAX + 1];
    if (!context || !name)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_region_destroy wants a context and a name");
    shmem_status_t status = shmemi_context_check(context, "shmem_region_destroy");
    if (!status)
        status = shmemi_named_make(&named, name, full);
    if (!status)
        status = shmemi_client_segment_unlink(context->client, full, 0);
    SHMEMI_KILL_POINT("job.region.destroyed");
    return status ? shmemi_named_translate(&named, context, name, status) : SHMEM_OK;
}

static void entry_fill(shmem_region_entry_t *to, const shmemi_segment_entry_t *from)
{
    memset(to, 0, sizeof *to);
    shmemi_named_user_name(&named, from, to->name);
    to->bytes = from->first;
    to->limit = from->bytes > SHMEMI_PAGE ? from->bytes - SHMEMI_PAGE : 0;
    to->uid = from->uid;
    to->gid = from->gid;
    to->access = from->access;
    to->users = from->users;
}

shmem_status_t shmem_region_list(shmem_context_t context, shmem_region_entry_t *entries,
                                 size_t room, size_t *count)
{
    shmemi_segment_entry_t *all;
    size_t listed, found;
    shmem_status_t status =
        shmemi_named_list(&named, context, entries, room, count, &all, &listed, &found);
    if (status)
        return status;
    for (size_t i = 0; i < listed; i++)
        entry_fill(&entries[i], &all[i]);
    free(all);
    *count = found;
    return SHMEM_OK;
}
