/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement: binding ranges, asking where pages are. The system calls are made directly, so that
 * nothing but the kernel headers is needed, and only for ranges: the policy of the calling thread
 * is neither read nor changed.
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "base/util.h"
#include "topo/internal.h"

#define LAYER "topo"

enum { BATCH = 512, WORD_BITS = 8 * sizeof(unsigned long) };

/* Node that shall get the pages: `node`, or for a mere preference of a node without memory the
 * nearest that has some. */
static int node_with_memory(shmem_topology_t topology, int node, int strict)
{
    int order[SHMEMI_TOPO_NODES_MAX];
    if (strict || topology->nodes[node].total_bytes)
        return node;
    shmemi_topo_order(topology, node, order);
    return order[0];
}

static bool is_refusal(int error)
{
    return error == EPERM || error == ENOSYS || error == EACCES;
}

shmem_status_t shmemi_topo_bind(shmem_topology_t topology, void *address, uint64_t bytes, int node,
                                int strict)
{
    unsigned long mask[SHMEMI_TOPO_NODES_MAX / WORD_BITS] = {0};
    if (node < 0 || node >= topology->count || (uintptr_t)address % SHMEMI_PAGE)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "cannot bind memory at %p to node %d: nodes "
                           "are 0 to %d, ranges start on pages",
                           address, node, topology->count - 1);
    if (topology->count == 1 || !topology->is_this_machine || bytes == 0)
        return SHMEM_OK;
    unsigned os = (unsigned)topology->nodes[node_with_memory(topology, node, strict)].os_index;
    mask[os / WORD_BITS] = 1ul << os % WORD_BITS;
    int mode = strict ? MPOL_BIND : MPOL_PREFERRED;
    /* the kernel reads maxnode - 1 bits */
    if (syscall(SYS_mbind, address, bytes, mode, mask, (unsigned long)SHMEMI_TOPO_NODES_MAX + 1,
                0) == 0)
        return SHMEM_OK;
    if (is_refusal(errno)) {
        shmemi_topo_refused(topology, "mbind", errno);
        return SHMEM_OK;
    }
    return shmemi_fail_errno(LAYER, "cannot bind %llu bytes at %p to node %d (system node %u)",
                             (unsigned long long)bytes, address, node, os);
}

shmem_status_t shmemi_topo_placement(shmem_topology_t topology, const void *address, size_t pages,
                                     uint64_t page_bytes, int *nodes)
{
    void *at[BATCH];
    int found[BATCH];
    if (!topology->is_this_machine)
        return shmemi_quiet(SHMEM_ERR_UNSUPPORTED, LAYER, "this topology is not of this machine");
    for (size_t done = 0, n; done < pages; done += n) {
        n = pages - done < BATCH ? pages - done : BATCH;
        for (size_t i = 0; i < n; i++)
            at[i] = (char *)(uintptr_t)address + (done + i) * page_bytes;
        if (syscall(SYS_move_pages, 0, n, at, NULL, found, 0)) {
            shmemi_topo_refused(topology, "move_pages", errno);
            return shmemi_quiet(SHMEM_ERR_UNSUPPORTED, LAYER,
                                "the kernel does not say where pages "
                                "are: move_pages failed with errno %d",
                                errno);
        }
        for (size_t i = 0; i < n; i++)
            nodes[done + i] = found[i] < 0 ? -1 : shmemi_topo_index_of(topology, found[i]);
    }
    return SHMEM_OK;
}
