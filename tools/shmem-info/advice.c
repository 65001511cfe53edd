/* SPDX-License-Identifier: Apache-2.0 */
/* What is slow or missing on this machine, and what to do about it. */
#include <string.h>

#include "info.h"

static const json_t *at(const json_t *all, const char *section, const char *key)
{
    return json_object_get(json_object_get(all, section), key);
}

static void advise(json_t *list, const char *what, const char *todo)
{
    json_array_append_new(list, json_pack("{s:s, s:s}", "what", what, "do", todo));
}

static int has_huge_pool(const json_t *pools)
{
    size_t i;
    json_t *pool;
    json_array_foreach((json_t *)pools, i,
                       pool) if (json_integer_value(json_object_get(pool, "free")) > 0) return 1;
    return 0;
}

static void advise_memory(json_t *list, const json_t *all)
{
    const char *shared = json_string_value(at(all, "huge_pages", "transparent_shared"));
    if (!has_huge_pool(at(all, "huge_pages", "pools")) &&
        (!shared || strcmp(shared, "never") == 0 || strcmp(shared, "deny") == 0))
        advise(
            list, "segments get small pages unless they can be collapsed afterwards",
            "as root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or reserve "
            "pages in /proc/sys/vm/nr_hugepages");
    const json_t *soft = json_object_get(at(all, "limits", "locked_bytes"), "soft");
    if (json_is_integer(soft) && json_integer_value(soft) < (64 << 20))
        advise(
            list, "little memory may be locked (SHMEM_LOCK_PAGES=yes will not do much)",
            "raise 'ulimit -l' (memlock in /etc/security/limits.conf, LimitMEMLOCK in a service)");
    const json_t *hard = json_object_get(at(all, "limits", "files"), "hard");
    if (json_is_integer(hard) && json_integer_value(hard) < 1024)
        advise(list, "few files may be open at once", "raise 'ulimit -Hn'");
}

static void advise_topology(json_t *list, const json_t *all)
{
    const char *source = json_string_value(at(all, "topology", "latency_source"));
    if (json_array_size(at(all, "topology", "nodes")) > 1 && source && strcmp(source, "measured"))
        advise(list, "latency and bandwidth between the nodes are not measured",
               "run 'shmem-info --measure' once, while the machine is idle");
}

static void advise_kernel(json_t *list, const json_t *all)
{
    const char *membarrier = json_string_value(at(all, "kernel", "membarrier"));
    if (!membarrier || strcmp(membarrier, "global expedited") != 0)
        advise(
            list, "membarrier cannot be used: unlocking and putting cost a fence",
            "allow the membarrier system call (container's seccomp profile), or use Linux 4.16 or "
            "later");
    if (json_is_false(at(all, "kernel", "pidfd")))
        advise(list, "pidfd_open cannot be used: deaths of processes are not noticed",
               "allow the pidfd_open system call, or use Linux 5.3 or later");
    if (json_is_false(at(all, "kernel", "numa_calls")))
        advise(list, "the NUMA calls are refused: memory cannot be bound to nodes",
               "allow mbind, get_mempolicy and move_pages in the container's seccomp profile");
    if (json_is_false(at(all, "servers", "reachable")))
        advise(
            list, "nobody answers at the address in SHMEM_SERVER",
            "start it with 'shmemd --address ADDRESS', or unset SHMEM_SERVER to use a private one");
}

json_t *info_advice(const json_t *all)
{
    json_t *list = json_array();
    advise_memory(list, all);
    advise_topology(list, all);
    advise_kernel(list, all);
    return list;
}
