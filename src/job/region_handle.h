/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handle of a region: what a context has open, with certain rights.
 *
 *     region.c       create, open, close, destroy, list
 *     region_use.c   map, unmap, protect, resize, info
 *
 *   Invariants  a handle is in the process's list <=> it is open <=> refs >= 1 <=> context != NULL;
 *               closed ones are buried (job/graves.h)
 *               handles of one context with the same rights have different segments
 *               maps > 0 <=> it has one reference to the mapping at its segment's place
 *
 * The file of a region is its memory, up to its limit, and one page more (node/client.h), which is
 * mapped apart, for reading only. The list, names and maps are guarded by one lock.
 */
#ifndef SHMEMI_JOB_REGION_HANDLE_H
#define SHMEMI_JOB_REGION_HANDLE_H

#include "job/context.h"
#include "job/names.h"
#include "shmem/region.h"

#define SHMEMI_REGION_PREFIX "region/" /* of the names of their segments */

struct shmem_region {
    shmem_context_t context;
    shmemi_segment_t segment;
    const shmemi_region_page_t *page;
    unsigned refs, maps;
    shmem_mapping_t mapped;
    shmemi_name_t name; /* of the segment */
    struct shmem_region *next;
};

void shmemi_regions_lock(void);
void shmemi_regions_unlock(void);

/* INVALID (NULL), STATE (closed; a forked parent's). `what`: the function that was called. */
shmem_status_t shmemi_region_check(shmem_region_t region, const char *what);

/* Memory, or address space for it. */
static inline uint64_t shmemi_region_limit(const struct shmem_region *region)
{
    return region->segment.bytes - SHMEMI_PAGE;
}

/* How large is it now? CORRUPT: its last page was overwritten. */
shmem_status_t shmemi_region_bytes(const struct shmem_region *region, uint64_t *bytes);

/* Drop the handle's reference to the mapping. */
void shmemi_region_unmap_locked(struct shmem_region *region);

#endif
