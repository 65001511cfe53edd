/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory a node still has, from its meminfo in /sys and the zones in /proc/zoneinfo.
 *
 *   available = MemFree + Active(file) + Inactive(file) + SReclaimable / 2 - what is kept back
 *   kept back = max(1/32 of the node, at most 256 MiB;
 *                   sum over its zones of min(managed, high watermark + largest protection))
 *
 * It is an estimate: others allocate too. It exists because pages that are bound to a node which
 * has none left are not refused: the OOM killer looks for a victim. Swap does not count.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/status.h"
#include "base/util.h"
#include "topo/internal.h"

#define LAYER "topo"

/* Kept back on each node: the last pages cannot be had without the OOM killer. */
enum { SPARE_PART = 32, SPARE_MAX = 256 << 20 };

/* The largest number in "(0, 3019, 24137)". */
static uint64_t largest_of(const char *list)
{
    uint64_t most = 0;
    for (; *list; list++)
        if (*list >= '0' && *list <= '9') {
            char *end;
            uint64_t n = strtoull(list, &end, 10);
            most = n > most ? n : most;
            list = end - 1;
        }
    return most;
}

/* Bytes that the kernel keeps back in the zones of a node, from a file like /proc/zoneinfo. */
static uint64_t kept_by_zones(const char *path, int os_index)
{
    char line[256], zone[32];
    int node = -1;
    unsigned long long n, high = 0, managed = 0;
    uint64_t pages = 0;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *protection = strstr(line, "protection:");
        if (sscanf(line, "Node %d, zone %31s", &node, zone) == 2)
            high = managed = 0;
        else if (sscanf(line, " high %llu", &n) == 1)
            high = n;
        else if (sscanf(line, " managed %llu", &n) == 1)
            managed = n;
        else if (protection && node == os_index) { /* the last one of a zone's lines wanted here */
            uint64_t kept = high + largest_of(protection);
            pages += kept < managed ? kept : managed;
        }
    }
    if (f)
        fclose(f);
    return pages * SHMEMI_PAGE;
}

bool shmemi_topo_room_read(const char *meminfo, const char *zoneinfo, int os_index,
                           shmemi_topo_room_t *room)
{
    char line[128], key[32];
    unsigned long long kib;
    uint64_t total = 0, spare, kept = kept_by_zones(zoneinfo, os_index);
    FILE *f = fopen(meminfo, "re");
    if (!f)
        return false;
    *room = (shmemi_topo_room_t){0, 0};
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "Node %*d %31[^:]: %llu kB", key, &kib) != 2)
            continue;
        if (strcmp(key, "MemTotal") == 0)
            total = kib * 1024;
        else if (strcmp(key, "MemFree") == 0)
            room->free = kib * 1024;
        else if (strcmp(key, "Active(file)") == 0 || strcmp(key, "Inactive(file)") == 0)
            room->available += kib * 1024;
        else if (strcmp(key, "SReclaimable") == 0)
            room->available += kib * 512;
    }
    fclose(f);
    spare = total / SPARE_PART < SPARE_MAX ? total / SPARE_PART : SPARE_MAX;
    spare = kept > spare ? kept : spare;
    room->available += room->free;
    room->available -= spare < room->available ? spare : room->available;
    return total > 0;
}

bool shmemi_topo_room_of(int os_index, shmemi_topo_room_t *room)
{
    char path[80];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", os_index);
    return shmemi_topo_room_read(path, "/proc/zoneinfo", os_index, room);
}

shmem_status_t shmemi_topo_afford(shmem_topology_t topology, int node, uint64_t bytes)
{
    shmemi_topo_room_t room;
    const shmem_topology_node_t *n = &topology->nodes[node];
    if (topology->count == 1 || !topology->is_this_machine || !n->total_bytes ||
        !shmemi_topo_room_of(n->os_index, &room))
        return SHMEM_OK;
    if (bytes <= room.available && !SHMEMI_FAULT("topo.afford"))
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_NOMEM, LAYER,
                       "%llu MiB are wanted on node %d (the system's node %d), which has %llu MiB "
                       "left of its %llu MiB: ask for less, or free memory there",
                       (unsigned long long)(bytes >> 20), node, n->os_index,
                       (unsigned long long)(room.available >> 20),
                       (unsigned long long)(n->total_bytes >> 20));
}
