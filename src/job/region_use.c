/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one does with an open region: map, unmap, protect, resize, info.
 *
 * All of its limit is mapped at once, so that it is larger everywhere as soon as its memory is
 * there. What protect() changes are the process's pages: all handles of the process see it, until
 * none of them has it mapped.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fault.h"
#include "base/params.h"
#include "base/status.h"
#include "job/arenas.h"
#include "job/region_handle.h"
#include "os/segment.h"
#include "os/space.h"

#define LAYER "job"

shmem_status_t shmemi_region_bytes(const struct shmem_region *region, uint64_t *bytes)
{
    /* SYNC region-bytes: acquire, pairs with release in shmemi_growing_publish() */
    uint64_t found = atomic_load_explicit(&region->page->bytes, memory_order_acquire);
    if (!found || found > shmemi_region_limit(region))
        return shmemi_fail(SHMEM_ERR_CORRUPT, LAYER,
                           "the page with the region's size says %llu bytes, its limit is %llu: "
                           "a process that may write it has overwritten it",
                           (unsigned long long)found,
                           (unsigned long long)shmemi_region_limit(region));
    *bytes = found;
    return SHMEM_OK;
}

static void *address_of(const struct shmem_region *region)
{
    return (void *)(uintptr_t)(SHMEMI_SPACE_BASE + region->segment.offset);
}

static shmem_status_t opened_for_reading(const char *what)
{
    return shmemi_fail(SHMEM_ERR_ACCESS, LAYER,
                       "%s: this handle was opened for reading only; open the region with "
                       "SHMEM_MAP_READ_WRITE",
                       what);
}

/* Make pages of a mapped region present in this process: a fault later is dear. A wish: parts may
 * be protected against touching. */
static void fill(const struct shmem_region *region, uint64_t from, uint64_t to)
{
    const shmemi_settings_t *settings = &region->context->settings;
    int huge = to < SHMEMI_SPACE_UNIT ? SHMEMI_HUGE_OFF : (int)settings->huge_pages;
    char *start = (char *)address_of(region) + from / SHMEMI_PAGE * SHMEMI_PAGE;
    uint64_t bytes = (uint64_t)((char *)address_of(region) + to - start);
    shmemi_segment_populate(start, bytes, huge, (int)settings->fill_threads, NULL);
    if (settings->lock_pages)
        shmemi_segment_lock(start, bytes); /* a refusal is logged there */
}

/* ---- map ---- */

/* What engines get to know of it: all pages that it has by now. */
static void list_pages(const void *owner, shmemi_arena_taker_t *taker)
{
    const struct shmem_region *region = owner;
    uint64_t bytes;
    if (shmemi_region_bytes(region, &bytes))
        return;
    const shmemi_arena_range_t range = {
        address_of(region), (bytes + SHMEMI_PAGE - 1) / SHMEMI_PAGE * SHMEMI_PAGE, -1, -1};
    taker->take(taker, &range);
}

static shmem_status_t announce_locked(const struct shmem_region *region)
{
    const char *full = region->name.text;
    const shmemi_arena_source_t source = {.owner = region,
                                          .kind = SHMEM_ARENA_REGION,
                                          .name =
                                              *full ? full + sizeof SHMEMI_REGION_PREFIX - 1 : NULL,
                                          .segment = &region->segment,
                                          .base = address_of(region),
                                          .writable = region->mapped == SHMEM_MAP_READ_WRITE,
                                          .list = list_pages};
    return shmemi_arenas_add(region->context, &source);
}

static shmem_status_t map_locked(struct shmem_region *region, shmem_mapping_t rights, bool *first)
{
    void *address;
    *first = region->maps == 0;
    if (!*first && region->mapped != rights)
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "the region is mapped for %s already: unmap it first, or change the "
                           "mapping with shmem_region_protect()",
                           region->mapped == SHMEM_MAP_READ ? "reading" : "reading and writing");
    shmem_status_t status = SHMEM_OK;
    if (*first)
        status = shmemi_space_map(region->segment.offset, shmemi_region_limit(region),
                                  region->segment.fd, rights == SHMEM_MAP_READ_WRITE, &address);
    if (status)
        return status;
    region->mapped = rights;
    region->maps++;
    if (!*first)
        return SHMEM_OK;
    status = announce_locked(region);
    if (status)
        shmemi_region_unmap_locked(region);
    return status;
}

static shmem_status_t map(shmem_region_t region, shmem_mapping_t rights)
{
    uint64_t bytes;
    bool first;
    shmem_status_t status = shmemi_region_check(region, "shmem_region_map");
    if (status)
        return status;
    if (rights != SHMEM_MAP_READ && rights != SHMEM_MAP_READ_WRITE)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_region_map wants SHMEM_MAP_READ or SHMEM_MAP_READ_WRITE, not %d",
                           (int)rights);
    if ((int)rights & ~region->segment.rights)
        return opened_for_reading("shmem_region_map");
    status = shmemi_region_bytes(region, &bytes);
    if (status)
        return status;
    shmemi_regions_lock();
    status = map_locked(region, rights, &first);
    shmemi_regions_unlock();
    SHMEMI_KILL_POINT("job.region.mapped");
    if (!status && first)
        fill(region, 0, bytes);
    return status;
}

void *shmem_region_map(shmem_region_t region, shmem_mapping_t rights)
{
    return map(region, rights) ? NULL : address_of(region);
}

static void unmap(void *address)
{
    shmemi_space_unmap(address);
}

static void leave(void *address)
{
    (void)address; /* the mapping is the parent's */
}

void shmemi_region_unmap_locked(struct shmem_region *region)
{
    region->maps = 0;
    region->mapped = SHMEM_MAP_NONE;
    shmemi_arenas_remove(region->context, region,
                         shmemi_context_is_inherited(region->context) ? leave : unmap,
                         address_of(region));
}

static shmem_status_t not_mapped(const char *what)
{
    return shmemi_fail(SHMEM_ERR_STATE, LAYER, "%s: the region is not mapped through this handle",
                       what);
}

shmem_status_t shmem_region_unmap(shmem_region_t region)
{
    shmem_status_t status = shmemi_region_check(region, "shmem_region_unmap");
    if (status)
        return status;
    shmemi_regions_lock();
    if (region->maps == 0)
        status = not_mapped("shmem_region_unmap");
    else if (region->maps > 1)
        region->maps--;
    else
        shmemi_region_unmap_locked(region);
    shmemi_regions_unlock();
    return status;
}

/* ---- protect ---- */

/* A mapping that a handle for reading made cannot be made writable: it is replaced, by the same
 * pages, through this handle's descriptor. */
static shmem_status_t change(const struct shmem_region *region, uint64_t offset, uint64_t bytes,
                             shmem_mapping_t rights)
{
    char *start = (char *)address_of(region) + offset;
    int flags = (rights & SHMEM_MAP_READ ? PROT_READ : 0) |
                (rights == SHMEM_MAP_READ_WRITE ? PROT_WRITE : 0);
    if (mprotect(start, bytes, flags) == 0)
        return SHMEM_OK;
    if (errno == EACCES && mmap(start, bytes, flags, MAP_SHARED | MAP_FIXED, region->segment.fd,
                                (off_t)offset) != MAP_FAILED)
        return SHMEM_OK;
    return shmemi_fail_errno(LAYER, "cannot change the rights of %llu bytes at %p",
                             (unsigned long long)bytes, (void *)start);
}

static shmem_status_t protect_check(const struct shmem_region *region, uint64_t offset,
                                    uint64_t bytes, shmem_mapping_t rights)
{
    uint64_t size;
    if ((rights != SHMEM_MAP_NONE && rights != SHMEM_MAP_READ && rights != SHMEM_MAP_READ_WRITE) ||
        !bytes || offset % SHMEMI_PAGE || bytes % SHMEMI_PAGE)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_region_protect wants whole pages of 4 KiB and one of "
                           "SHMEM_MAP_*, not %llu bytes at %llu and %d",
                           (unsigned long long)bytes, (unsigned long long)offset, (int)rights);
    shmem_status_t status = shmemi_region_bytes(region, &size);
    if (status)
        return status;
    if (!shmemi_range_inside(offset, bytes, (size + SHMEMI_PAGE - 1) / SHMEMI_PAGE * SHMEMI_PAGE))
        return shmemi_fail(
            SHMEM_ERR_OVERFLOW, LAYER, "%llu bytes at %llu are not inside a region of %llu bytes",
            (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)size);
    return (int)rights & ~region->segment.rights ? opened_for_reading("shmem_region_protect")
                                                 : SHMEM_OK;
}

shmem_status_t shmem_region_protect(shmem_region_t region, uint64_t offset, uint64_t bytes,
                                    shmem_mapping_t rights)
{
    shmem_status_t status = shmemi_region_check(region, "shmem_region_protect");
    if (!status)
        status = protect_check(region, offset, bytes, rights);
    if (status)
        return status;
    shmemi_regions_lock();
    status =
        region->maps ? change(region, offset, bytes, rights) : not_mapped("shmem_region_protect");
    shmemi_regions_unlock();
    return status;
}

/* ---- size ---- */

static shmem_mapping_t mapped_for(const struct shmem_region *region)
{
    shmemi_regions_lock();
    shmem_mapping_t rights = region->mapped;
    shmemi_regions_unlock();
    return rights;
}

shmem_status_t shmem_region_resize(shmem_region_t region, uint64_t bytes)
{
    uint64_t before;
    shmem_status_t status = shmemi_region_check(region, "shmem_region_resize");
    if (!status)
        status = shmemi_region_bytes(region, &before);
    if (status)
        return status;
    if (region->segment.rights != SHMEMI_RIGHTS_WRITE)
        return opened_for_reading("shmem_region_resize");
    if (bytes < before)
        return shmemi_quiet(SHMEM_ERR_INVALID, LAYER,
                            "the region has %llu bytes and cannot shrink to %llu: others may use "
                            "its end",
                            (unsigned long long)before, (unsigned long long)bytes);
    if (bytes > shmemi_region_limit(region))
        return shmemi_fail(SHMEM_ERR_OVERFLOW, LAYER,
                           "the region shall grow to %llu bytes, but was created with a limit of "
                           "%llu",
                           (unsigned long long)bytes,
                           (unsigned long long)shmemi_region_limit(region));
    if (bytes == before)
        return SHMEM_OK;
    status = shmemi_client_segment_grow(region->context->client, &region->segment, bytes);
    SHMEMI_KILL_POINT("job.region.grown");
    if (!status && mapped_for(region)) {
        fill(region, before, bytes);
        shmemi_arenas_grown(region->context, region);
    }
    return status;
}

shmem_status_t shmem_region_info(shmem_region_t region, shmem_region_info_t *info)
{
    uint64_t bytes;
    shmem_status_t status = shmemi_region_check(region, "shmem_region_info");
    if (!status)
        status = shmemi_params_check(info, sizeof *info, "shmem_region_info_t");
    if (!status)
        status = shmemi_region_bytes(region, &bytes);
    if (status)
        return status;
    const shmem_region_info_t own = {.bytes = bytes,
                                     .limit = shmemi_region_limit(region),
                                     .address = address_of(region),
                                     .uid = region->segment.uid,
                                     .gid = region->segment.gid,
                                     .access = region->segment.access,
                                     .rights = (shmem_mapping_t)region->segment.rights,
                                     .mapped = mapped_for(region)};
    shmemi_params_give(info, &own, sizeof own);
    return SHMEM_OK;
}
