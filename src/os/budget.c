/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory limits, read from /proc/meminfo and the cgroup files (version 2, and the memory controller
 * of version 1).
 *
 *   available = min(MemAvailable + SwapFree, min over groups g from ours to the root (max(g) -
 *               (current(g) - inactive_file(g) - active_file(g))))
 *
 * It is an estimate: others allocate too. It exists because running into a memory limit does not
 * return an error but starts the OOM killer.
 */
#include "os/budget.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/status.h"

#define LAYER "os"

enum { PATH_BYTES = 512, FILE_BYTES = 8192 };

/* Kept back for everybody else: the last pages cannot be had without the OOM killer. */
enum { SPARE_PART = 32, SPARE_MAX = 256 << 20 };

typedef struct hierarchy {
    const char *mount, *limit, *used; /* the files of one cgroup version */
} hierarchy_t;

static const hierarchy_t version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current"};
static const hierarchy_t version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                      "memory.usage_in_bytes"};

/* The beginning of a small file as text; false when there is none. */
static bool read_text(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t used = 0;
    ssize_t n;
    while (used < bytes - 1 && (n = read(fd, text + used, bytes - 1 - used)) != 0) {
        if (n < 0 && errno != EINTR)
            break;
        used += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    text[used] = 0;
    return used > 0;
}

/* The number after `key` at the start of a line of `text`, times `unit`; 0 when missing. */
static uint64_t number_after(const char *text, const char *key, uint64_t unit)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0)
            return strtoull(line + n, NULL, 10) * unit;
    }
    return 0;
}

static void read_system(const char *root, shmemi_budget_t *budget)
{
    char path[PATH_BYTES], text[FILE_BYTES];
    struct sysinfo info;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!read_text(path, text, sizeof text) || !strstr(text, "MemAvailable:")) {
        if (*root == 0 && sysinfo(&info) == 0) /* without /proc: what is free, without caches */
            budget->available = budget->system_bytes =
                (info.freeram + info.bufferram + info.freeswap) * (uint64_t)info.mem_unit;
        return;
    }
    budget->system_bytes =
        number_after(text, "MemAvailable:", 1024) + number_after(text, "SwapFree:", 1024);
    budget->available = budget->system_bytes;
}

/* One number from directory/file; UINT64_MAX for "max", for version 1's "no limit" (a huge number)
 * and for a missing file. */
static uint64_t read_number(const char *directory, const char *file)
{
    char path[PATH_BYTES + 64], text[64];
    snprintf(path, sizeof path, "%s/%s", directory, file);
    if (!read_text(path, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return UINT64_MAX;
    uint64_t n = strtoull(text, NULL, 10);
    return n >= (uint64_t)INT64_MAX - 65536 ? UINT64_MAX : n;
}

static void consider_group(const char *directory, const char *name, const hierarchy_t *h,
                           shmemi_budget_t *budget)
{
    uint64_t limit = read_number(directory, h->limit), used = read_number(directory, h->used);
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return;
    char path[PATH_BYTES + 64], text[FILE_BYTES];
    snprintf(path, sizeof path, "%s/memory.stat", directory);
    if (read_text(path, text, sizeof text)) {
        uint64_t files =
            number_after(text, "inactive_file ", 1) + number_after(text, "active_file ", 1);
        used -= files < used ? files : used;
    }
    uint64_t left = used < limit ? limit - used : 0;
    if (left >= budget->available && budget->group_limit != UINT64_MAX)
        return;
    if (left < budget->available)
        budget->available = left;
    budget->group_limit = limit;
    budget->group_used = used;
    snprintf(budget->group, sizeof budget->group, "%s", name[0] ? name : "/");
}

/* Walk from our group to the root. In a container the path may lie outside of what is mounted: then
 * only the levels that exist count, and the last one, the mount itself, is the container's. */
static void read_groups(const char *root, const hierarchy_t *h, char *name, shmemi_budget_t *budget)
{
    char directory[PATH_BYTES];
    for (;;) {
        size_t n = strlen(name);
        while (n && name[n - 1] == '/')
            name[--n] = 0;
        snprintf(directory, sizeof directory, "%s%s%s", root, h->mount, name);
        consider_group(directory, name, h, budget);
        char *slash = strrchr(name, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

void shmemi_budget_read(const char *root, shmemi_budget_t *budget)
{
    *budget = (shmemi_budget_t){UINT64_MAX, UINT64_MAX, UINT64_MAX, 0, ""};
    read_system(root, budget);
    char path[PATH_BYTES], text[FILE_BYTES], name[256];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!read_text(path, text, sizeof text))
        return;
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        const char *group = strchr(line, ':');
        group = group ? strchr(group + 1, ':') : NULL;
        if (!group || group[1] != '/' || strlen(group + 1) >= sizeof name || strstr(group, "/../"))
            continue;
        strcpy(name, group + 1);
        if (strncmp(line, "0::", 3) == 0)
            read_groups(root, &version_2, name, budget);
        else if (strstr(line, ":memory:") || strstr(line, ",memory:") || strstr(line, ":memory,"))
            read_groups(root, &version_1, name, budget);
    }
}

shmem_status_t shmemi_budget_check(const shmemi_budget_t *budget, uint64_t bytes)
{
    unsigned long long mib = 1 << 20;
    uint64_t spare = budget->available / SPARE_PART;
    if (spare > SPARE_MAX)
        spare = SPARE_MAX;
    if (budget->available == UINT64_MAX || bytes <= budget->available - spare)
        return SHMEM_OK;
    if (budget->group_limit != UINT64_MAX && budget->available < budget->system_bytes)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER,
                           "asked for %llu MiB of memory, but memory cgroup %s allows %llu MiB, of "
                           "which %llu MiB are used: %llu MiB are left, and %llu MiB of "
                           "them are kept back. Ask for less or raise the group's memory limit",
                           bytes / mib, budget->group, budget->group_limit / mib,
                           budget->group_used / mib, budget->available / mib,
                           (unsigned long long)spare / mib);
    return shmemi_fail(SHMEM_ERR_NOMEM, LAYER,
                       "asked for %llu MiB of memory, but the system has %llu MiB available, and "
                       "%llu MiB of them are kept back. Ask for less or end other programs",
                       bytes / mib, budget->available / mib, (unsigned long long)spare / mib);
}
