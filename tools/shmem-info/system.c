/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of the system: read from /proc and /sys, or asked by harmless calls. */
#include <dirent.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <shmem/version.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "info.h"

/* The first line of a file without the newline; false when it cannot be read. */
static bool read_line(const char *path, char *line, size_t bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool ok = fgets(line, (int)bytes, file) != NULL;
    fclose(file);
    if (ok)
        line[strcspn(line, "\n")] = '\0';
    return ok;
}

/* A whole number in a file, or null ("max", an unreadable file, anything else). */
static json_t *read_number(const char *path)
{
    char line[64], *end;
    if (!read_line(path, line, sizeof line) || *line < '0' || *line > '9')
        return json_null();
    errno = 0;
    unsigned long long n = strtoull(line, &end, 10);
    return errno || *end || n > INT64_MAX ? json_null() : json_integer((json_int_t)n);
}

/* The word in brackets of "always [madvise] never". */
static json_t *read_choice(const char *path)
{
    char line[128];
    if (!read_line(path, line, sizeof line))
        return json_null();
    char *open = strchr(line, '['), *close = open ? strchr(open, ']') : NULL;
    return close ? json_stringn(open + 1, (size_t)(close - open - 1)) : json_null();
}

/* "Name:   123 kB" of /proc/meminfo, in bytes if kB; or null. */
static json_t *meminfo(const char *name)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    json_t *result = NULL;
    while (file && !result && fgets(line, sizeof line, file)) {
        size_t n = strlen(name);
        if (strncmp(line, name, n) != 0 || line[n] != ':')
            continue;
        long long value = strtoll(line + n + 1, NULL, 10);
        result = json_integer(strstr(line, "kB") ? value * 1024 : value);
    }
    if (file)
        fclose(file);
    return result ? result : json_null();
}

json_t *info_versions(void)
{
    return json_pack("{s:s, s:s, s:s}", "tool", SHMEM_VERSION_TEXT, "library", shmem_version(),
                     "compiler", __VERSION__);
}

static json_t *limit(int which)
{
    struct rlimit l;
    if (getrlimit((__rlimit_resource_t)which, &l))
        return json_null();
    json_t *soft = l.rlim_cur == RLIM_INFINITY ? json_null() : json_integer((json_int_t)l.rlim_cur);
    json_t *hard = l.rlim_max == RLIM_INFINITY ? json_null() : json_integer((json_int_t)l.rlim_max);
    return json_pack("{s:o, s:o}", "soft", soft, "hard", hard);
}

/* The caller's control group (version 2) in /sys/fs/cgroup; the root's limits when it is hidden. */
static void cgroup_path(char *path, size_t bytes, const char *file)
{
    char line[512];
    FILE *groups = fopen("/proc/self/cgroup", "re");
    snprintf(path, bytes, "/sys/fs/cgroup/%s", file);
    while (groups && fgets(line, sizeof line, groups)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::", 3) != 0)
            continue;
        char full[768];
        int n = snprintf(full, sizeof full, "/sys/fs/cgroup%s/%s", line + 3, file);
        if (n > 0 && (size_t)n < bytes && access(full, R_OK) == 0)
            memcpy(path, full, (size_t)n + 1);
        break;
    }
    if (groups)
        fclose(groups);
}

static json_t *cgroup_number(const char *file)
{
    char path[768];
    cgroup_path(path, sizeof path, file);
    return read_number(path);
}

json_t *info_limits(void)
{
    cpu_set_t mask;
    json_t *processors =
        sched_getaffinity(0, sizeof mask, &mask) ? json_null() : json_integer(CPU_COUNT(&mask));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "locked_bytes",
                     limit(RLIMIT_MEMLOCK), "files", limit(RLIMIT_NOFILE), "processes",
                     limit(RLIMIT_NPROC), "address_space", limit(RLIMIT_AS), "cgroup_memory_max",
                     cgroup_number("memory.max"), "cgroup_memory_current",
                     cgroup_number("memory.current"), "memory_available", meminfo("MemAvailable"),
                     "processors", processors);
}

/* Pools of explicit huge pages: size, how many, how many free. */
static json_t *huge_pools(void)
{
    json_t *pools = json_array();
    const char *base = "/sys/kernel/mm/hugepages";
    DIR *dir = opendir(base);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        unsigned long long kb;
        char path[512];
        if (sscanf(entry->d_name, "hugepages-%llukB", &kb) != 1)
            continue;
        snprintf(path, sizeof path, "%s/%s/nr_hugepages", base, entry->d_name);
        json_t *total = read_number(path);
        snprintf(path, sizeof path, "%s/%s/free_hugepages", base, entry->d_name);
        json_array_append_new(pools,
                              json_pack("{s:I, s:o, s:o}", "page_bytes", (json_int_t)kb * 1024,
                                        "total", total, "free", read_number(path)));
    }
    if (dir)
        closedir(dir);
    return pools;
}

json_t *info_huge_pages(void)
{
    return json_pack(
        "{s:i, s:o, s:o, s:o, s:o}", "page_bytes", (int)sysconf(_SC_PAGESIZE), "transparent",
        read_choice("/sys/kernel/mm/transparent_hugepage/enabled"), "transparent_shared",
        read_choice("/sys/kernel/mm/transparent_hugepage/shmem_enabled"), "transparent_bytes",
        read_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"), "pools", huge_pools());
}

static json_t *membarrier_state(void)
{
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (commands < 0)
        return json_string(errno == ENOSYS ? "not in this kernel" : "refused");
    return json_string(commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED ? "global expedited"
                                                                  : "without global expedited");
}

static json_t *call_state(long number, long a, long b)
{
    long result = syscall(number, a, b, 0, 0, 0, 0);
    if (result >= 0 && number == SYS_pidfd_open)
        close((int)result);
    if (result >= 0)
        return json_true();
    return errno == ENOSYS || errno == EPERM ? json_false() : json_true();
}

json_t *info_kernel(void)
{
    struct utsname u;
    if (uname(&u))
        memset(&u, 0, sizeof u);
    int seccomp = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "system", u.sysname, "release",
                     u.release, "machine", u.machine, "membarrier", membarrier_state(), "pidfd",
                     call_state(SYS_pidfd_open, getpid(), 0), "numa_calls",
                     call_state(SYS_get_mempolicy, 0, 0), "seccomp",
                     seccomp < 0 ? json_null() : json_boolean(seccomp), "numa_balancing",
                     read_number("/proc/sys/kernel/numa_balancing"));
}
