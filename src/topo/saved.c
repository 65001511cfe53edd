/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured matrices in a file of the user's cache, one for each machine and shape of it.
 *
 *   $XDG_CACHE_HOME/shmem/topology-KEY   or   $HOME/.cache/shmem/topology-KEY
 *
 *     shmem topology 1 KEY NODES
 *     FROM TO  latency in ps, its spread  bandwidth in kB/s, its spread    (for each pair, row by
 * row) end CHECKSUM
 *
 * Spreads are millionths, -1 where nothing was measured. All numbers are whole ones: no locale
 * changes them. KEY is a hash of the machine's identity (machine-id, or host name; what the
 * firmware calls it) and of the topology's shape, so that homes shared by machines, and one machine
 * with several views of itself (cpusets), do not mix.
 *
 *   Invariants  a file appears with its whole content (written aside, then renamed); nothing is
 *               believed that another user could have written; nothing changes the topology unless
 *               the whole file is good
 *
 * What it does not do: it does not notice that a file is old.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "base/util.h"
#include "topo/internal.h"

#define LAYER "topo"

enum { FORMAT = 1, HEAD_BYTES = 128, PAIR_BYTES = 96, END_BYTES = 21, NAME_BYTES = 32 };

#define PS_MAX     (1000 * (long long)SHMEMI_TOPO_NS_MAX)
#define SPREAD_MAX 1e6
#define KBS_MAX    (1000000 * (long long)SHMEMI_TOPO_GBS_MAX)

/* ---- which file ---- */

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211ull;
    return hash;
}

/* The hash over a small file too; unchanged when there is none or it is empty. */
static uint64_t hash_file(uint64_t hash, const char *path)
{
    char text[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text);
    if (fd >= 0)
        close(fd);
    return n > 0 ? hash_bytes(hash, text, (size_t)n) : hash;
}

static uint64_t key_of(shmem_topology_t t)
{
    struct utsname name;
    uint64_t begin = hash_bytes(14695981039346656037ull, (const char *)&t->shape, sizeof t->shape);
    uint64_t hash = hash_file(begin, "/etc/machine-id");
    if (hash == begin && uname(&name) == 0)
        hash = hash_bytes(hash, name.nodename, strlen(name.nodename));
    hash = hash_file(hash, "/sys/class/dmi/id/sys_vendor");
    hash = hash_file(hash, "/sys/class/dmi/id/product_name");
    return hash_file(hash, "/sys/class/dmi/id/board_name");
}

/* Where the user's programs keep such things: the folder whose part "shmem" is ours. false: unknown
 * (or absurdly long). */
static bool cache_folder(char *path, size_t bytes)
{
    const char *xdg = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int n = -1;
    if (xdg && *xdg == '/')
        n = snprintf(path, bytes, "%s", xdg);
    else if (home && *home == '/')
        n = snprintf(path, bytes, "%s/.cache", home);
    return n > 0 && (size_t)n < bytes;
}

/* NULL: only this user can have written it. */
static const char *objection(int fd, unsigned type)
{
    struct stat info;
    if (fstat(fd, &info))
        return "cannot be examined";
    if ((info.st_mode & S_IFMT) != type)
        return "is of the wrong kind";
    if (info.st_uid != geteuid())
        return "belongs to another user";
    return info.st_mode & 022 ? "may be written by others" : NULL;
}

/* ---- the content ---- */

/* The matrices as a file; NULL when out of memory. The caller frees it. */
static char *compose(shmem_topology_t t, uint64_t key, size_t *bytes)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, bytes);
    if (!f)
        return NULL;
    fprintf(f, "shmem topology %d %016llx %d\n", FORMAT, (unsigned long long)key, t->count);
    for (int i = 0; i < t->count * t->count; i++) {
        double ls = t->latency_spread[i], bs = t->bandwidth_spread[i];
        fprintf(f, "%d %d %lld %lld %lld %lld\n", i / t->count, i % t->count,
                (long long)(t->latency[i] * 1e3 + 0.5), ls < 0 ? -1 : (long long)(ls * 1e6 + 0.5),
                (long long)(t->bandwidth[i] * 1e6 + 0.5),
                bs < 0 ? -1 : (long long)(bs * 1e6 + 0.5));
    }
    if (fflush(f) == 0)
        fprintf(f, "end %016llx\n",
                (unsigned long long)hash_bytes(14695981039346656037ull, text, *bytes));
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

/* The next whole number, at *at; false: there is none from min to max. */
static bool take(char **at, long long min, long long max, long long *value)
{
    char *end;
    errno = 0;
    *value = strtoll(*at, &end, 10);
    if (end == *at || errno || *value < min || *value > max)
        return false;
    *at = end;
    return true;
}

/* Into m, four matrices as in the topology. */
static bool parse_pairs(char *at, int n, double *m)
{
    int pairs = n * n;
    long long from, to, ps, latency_spread, kbs, bandwidth_spread;
    for (int i = 0; i < pairs; i++) {
        if (!take(&at, i / n, i / n, &from) || !take(&at, i % n, i % n, &to) ||
            !take(&at, 1, PS_MAX, &ps) || !take(&at, -1, LLONG_MAX, &latency_spread) ||
            !take(&at, 1, KBS_MAX, &kbs) || !take(&at, -1, LLONG_MAX, &bandwidth_spread))
            return false;
        m[i] = (double)ps / 1e3;
        m[pairs + i] = (double)kbs / 1e6;
        m[2 * pairs + i] = latency_spread < 0 ? -1 : (double)latency_spread / 1e6;
        m[3 * pairs + i] = bandwidth_spread < 0 ? -1 : (double)bandwidth_spread / 1e6;
    }
    return strncmp(at, "\nend ", 5) == 0;
}

/* NULL and the matrices in m; or what is wrong. The text has a NUL behind its `bytes`. */
static const char *parse(char *text, size_t bytes, uint64_t key, int n, double *m)
{
    char head[HEAD_BYTES], end[END_BYTES + 1];
    int length = snprintf(head, sizeof head, "shmem topology %d %016llx %d\n", FORMAT,
                          (unsigned long long)key, n);
    if (bytes < (size_t)length + END_BYTES || strlen(text) != bytes)
        return "is cut off";
    if (memcmp(text, head, (size_t)length) != 0)
        return "is of another version or machine";
    snprintf(end, sizeof end, "end %016llx\n",
             (unsigned long long)hash_bytes(14695981039346656037ull, text, bytes - END_BYTES));
    if (strcmp(text + bytes - END_BYTES, end) != 0)
        return "is damaged (its check sum is wrong)";
    return parse_pairs(text + length, n, m) ? NULL : "has values that make no sense";
}

/* ---- loading ---- */

static const char *use(shmem_topology_t t, char *text, size_t bytes, uint64_t key)
{
    size_t pairs = (size_t)t->count * (size_t)t->count;
    double *m = malloc(4 * pairs * sizeof *m);
    const char *problem = m ? parse(text, bytes, key, t->count, m) : "finds no memory";
    if (!problem) {
        memcpy(t->latency, m, 4 * pairs * sizeof *m);
        t->latency_source = t->bandwidth_source = SHMEM_TOPOLOGY_MEASURED;
    }
    free(m);
    return problem;
}

static const char *read_all(int fd, shmem_topology_t t, uint64_t key)
{
    size_t room = HEAD_BYTES + END_BYTES + PAIR_BYTES * (size_t)t->count * (size_t)t->count;
    size_t n = 0;
    ssize_t got = 1;
    const char *problem = objection(fd, S_IFREG);
    char *text = problem ? NULL : malloc(room + 1);
    if (!text)
        return problem ? problem : "finds no memory";
    while (n < room && got > 0) {
        got = read(fd, text + n, room - n);
        n += got > 0 ? (size_t)got : 0;
    }
    text[n] = '\0';
    problem = got < 0 ? "cannot be read" : use(t, text, n, key);
    free(text);
    return problem;
}

void shmemi_topo_load(shmem_topology_t t)
{
    char cache[PATH_MAX], path[PATH_MAX + NAME_BYTES], name[NAME_BYTES];
    uint64_t key = key_of(t);
    if (!cache_folder(cache, sizeof cache - sizeof "/shmem"))
        return;
    strcat(cache, "/shmem");
    int folder = open(cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), fd = -1;
    if (folder < 0)
        return;
    snprintf(name, sizeof name, "topology-%016llx", (unsigned long long)key);
    fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int error = errno;
    const char *problem = NULL;
    if (fd < 0)
        problem = error == ENOENT ? NULL : strerrordesc_np(error);
    else if ((problem = objection(folder, S_IFDIR)) == NULL)
        problem = read_all(fd, t, key);
    if (problem) {
        snprintf(path, sizeof path, "%s/%s", cache, name);
        shmemi_log(SHMEM_LOG_WARN, LAYER,
                   "the measured topology in %s, or its folder, %s: it is not used; remove it, and "
                   "measure again with shmem-info --measure",
                   path, problem);
    }
    if (fd >= 0)
        close(fd);
    close(folder);
}

/* ---- saving ---- */

/* Make a folder, unless it is there, and open it; -1 with the detail. `name` in `at`; `path` is for
 * messages. A link is not followed: it may lead into another user's files. */
static int open_folder(int at, const char *name, const char *path)
{
    mkdirat(at, name, 0700); /* whatever is wrong shows below */
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        shmemi_fail_errno(LAYER, "cannot make or open the folder %s", path);
    return fd;
}

/* The folder "shmem" of the cache, ours alone, in a cache of our own; -1 with the detail. A program
 * that runs as another user than the one whose home it has saves nothing there. */
static int open_own_folder(const char *cache)
{
    char path[PATH_MAX + sizeof "/shmem"];
    struct stat info;
    int fd = -1, above = open_folder(AT_FDCWD, cache, cache);
    if (above < 0)
        return -1;
    const char *problem = fstat(above, &info) ? "cannot be examined" : NULL;
    if (!problem && info.st_uid != geteuid())
        problem = "belongs to another user";
    snprintf(path, sizeof path, "%s%s", cache, problem ? "" : "/shmem");
    if (!problem) {
        fd = open_folder(above, "shmem", path);
        problem = fd < 0 ? NULL : objection(fd, S_IFDIR);
    }
    close(above);
    if (!problem)
        return fd;
    if (fd >= 0)
        close(fd);
    shmemi_fail(SHMEM_ERR_ACCESS, LAYER, "nothing is saved in %s, which %s", path, problem);
    return -1;
}

static bool write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno != EINTR)
            return false;
        text += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Whoever saves holds a lock on the folder, so that a file left by one who died can be removed.
 * Where the file system has no locks, two at once may spoil each other's file: the check sum tells
 * the reader. */
static shmem_status_t replace(int folder, const char *path, const char *name, const char *text,
                              size_t bytes)
{
    char aside[NAME_BYTES + 4];
    shmem_status_t status = SHMEM_OK;
    snprintf(aside, sizeof aside, "%s.new", name);
    if (flock(folder, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return shmemi_fail(SHMEM_ERR_BUSY, LAYER,
                           "not saved: another process is just saving in the folder of %s; try "
                           "again",
                           path);
    unlinkat(folder, aside, 0);
    int fd = openat(folder, aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    SHMEMI_KILL_POINT("topo.save.created");
    bool written = fd >= 0 && !SHMEMI_FAULT("topo.save.write") && write_all(fd, text, bytes);
    if (fd >= 0 && close(fd))
        written = false;
    SHMEMI_KILL_POINT("topo.save.written");
    if (!written || renameat(folder, aside, folder, name)) {
        status = shmemi_fail_errno(LAYER, "cannot write %s", path);
        unlinkat(folder, aside, 0);
    }
    return status;
}

/* Only what would be believed when it is read. */
static bool is_believable(shmem_topology_t t)
{
    for (int i = 0; i < t->count * t->count; i++)
        if (!(t->latency[i] * 1e3 >= 1 && t->latency[i] * 1e3 + 1 <= (double)PS_MAX &&
              t->bandwidth[i] * 1e6 >= 1 && t->bandwidth[i] * 1e6 + 1 <= (double)KBS_MAX &&
              t->latency_spread[i] < SPREAD_MAX && t->bandwidth_spread[i] < SPREAD_MAX))
            return false;
    return true;
}

static shmem_status_t check_saveable(shmem_topology_t t)
{
    if (!t || t->latency_source != SHMEM_TOPOLOGY_MEASURED || !t->is_this_machine)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "shmem_topology_save wants a topology from shmem_topology_measure()");
    if (t->is_confined)
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "not saved: this process may not use the processors of some nodes, so "
                           "nothing was measured from there; measure without taskset or numactl");
    if (!is_believable(t))
        return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                           "not saved: a measured latency or bandwidth makes no sense; measure "
                           "again on an idle machine");
    return SHMEM_OK;
}

shmem_status_t shmem_topology_save(shmem_topology_t topology, char *path, size_t bytes)
{
    char cache[PATH_MAX], whole[PATH_MAX + NAME_BYTES + sizeof "/shmem/"], name[NAME_BYTES];
    shmem_status_t status = check_saveable(topology);
    if (status)
        return status;
    if (!cache_folder(cache, sizeof cache - sizeof "/shmem"))
        return shmemi_fail(SHMEM_ERR_NOT_FOUND, LAYER,
                           "no place to save in: set XDG_CACHE_HOME or HOME to an absolute path");
    uint64_t key = key_of(topology);
    snprintf(name, sizeof name, "topology-%016llx", (unsigned long long)key);
    snprintf(whole, sizeof whole, "%s/shmem/%s", cache, name);
    if (path && bytes)
        snprintf(path, bytes, "%s", whole);
    int folder = open_own_folder(cache);
    if (folder < 0)
        return shmem_error_detail()->status;
    size_t length;
    char *text = compose(topology, key, &length);
    if (text)
        status = replace(folder, whole, name, text, length);
    else
        status = shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for a file of measurements");
    free(text);
    close(folder);
    return status;
}
