/* SPDX-License-Identifier: Apache-2.0 */
/* Order of processors for --bind: the first hardware thread of each core, then the others. */
#include "bind.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CPUS_MAX = 1 << 16 };

/* The mask of the calling process, grown until the kernel's fits. */
static cpu_set_t *allowed_mask(int *cpus)
{
    for (int n = 1024; n <= CPUS_MAX; n *= 2) {
        cpu_set_t *mask = CPU_ALLOC((size_t)n);
        if (!mask)
            return NULL;
        if (sched_getaffinity(0, CPU_ALLOC_SIZE(n), mask) == 0) {
            *cpus = n;
            return mask;
        }
        CPU_FREE(mask);
        if (errno != EINVAL)
            return NULL;
    }
    return NULL;
}

/* Is an allowed processor with a smaller number on the same core? The file lists "0,4" or "0-1". */
static bool core_is_taken(int cpu, const cpu_set_t *mask, size_t mask_bytes)
{
    char path[96], list[256];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool taken = false;
    if (fgets(list, sizeof list, file)) {
        for (char *p = list; *p && *p != '\n';) {
            char *end;
            long from = strtol(p, &end, 10), to = from;
            if (end == p)
                break;
            if (*end == '-')
                to = strtol(end + 1, &end, 10);
            for (long i = from; i <= to && i < cpu; i++)
                taken = taken || CPU_ISSET_S((size_t)i, mask_bytes, mask);
            p = *end == ',' ? end + 1 : end;
        }
    }
    fclose(file);
    return taken;
}

int run_bind_order(int **cpus)
{
    int limit;
    cpu_set_t *mask = allowed_mask(&limit);
    if (!mask)
        return 0;
    size_t bytes = CPU_ALLOC_SIZE(limit);
    int count = CPU_COUNT_S(bytes, mask), used = 0;
    int *order = calloc((size_t)count, sizeof *order);
    for (int shared = 0; order && shared <= 1; shared++)
        for (int cpu = 0; cpu < limit && used < count; cpu++)
            if (CPU_ISSET_S((size_t)cpu, bytes, mask) &&
                core_is_taken(cpu, mask, bytes) == (shared == 1))
                order[used++] = cpu;
    CPU_FREE(mask);
    *cpus = order;
    return used;
}

int run_bind_self(int cpu)
{
    cpu_set_t *mask = CPU_ALLOC((size_t)cpu + 1);
    if (!mask)
        return -1;
    size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
    CPU_ZERO_S(bytes, mask);
    CPU_SET_S((size_t)cpu, bytes, mask);
    int result = sched_setaffinity(0, bytes, mask);
    int error = errno;
    CPU_FREE(mask);
    errno = error;
    return result;
}
