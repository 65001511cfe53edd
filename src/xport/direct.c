/* SPDX-License-Identifier: Apache-2.0 */
/* The direct transport as a table, for callers that do not know the way beforehand. */
#include "xport/direct.h"

#include "base/fault.h"
#include "base/sanitizer.h"

/* The string instruction writes whole lines without reading them first. Stores that follow it in
 * program order become visible after it, so a signal still implies its data. */
void shmemi_direct_copy_large(void *dst, const void *src, size_t n)
{
#if defined(__x86_64__) && !SHMEMI_TSAN && !SHMEMI_ASAN
    __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
#else
    memcpy(dst, src, n);
#endif
}

static shmem_status_t direct_put(const shmemi_xport_target_t *target, const void *src, size_t n)
{
    shmemi_direct_copy(target->address, src, n);
    SHMEMI_KILL_POINT("xport.direct.put");
    return SHMEM_OK;
}

static shmem_status_t direct_get(const shmemi_xport_target_t *target, void *dst, size_t n)
{
    shmemi_direct_copy(dst, target->address, n);
    return SHMEM_OK;
}

static shmem_status_t direct_fetch_add(const shmemi_xport_target_t *target, uint64_t value,
                                       uint64_t *old)
{
    *old = shmemi_direct_fetch_add(target->address, value);
    return SHMEM_OK;
}

static shmem_status_t direct_set(const shmemi_xport_target_t *target, uint64_t value)
{
    shmemi_direct_set(target->address, value);
    return SHMEM_OK;
}

const shmemi_xport_ops_t shmemi_xport_direct = {.name = "direct",
                                                .put = direct_put,
                                                .get = direct_get,
                                                .fetch_add = direct_fetch_add,
                                                .set = direct_set};
