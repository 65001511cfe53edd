/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring this machine, and what is kept of it in the user's cache. Several nodes: see
 * test/scripts/numa_test.sh. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../os/helpers.h"
#include "base/fault.h"
#include "harness.h"
#include "topo/internal.h"

#define MIB (1ull << 20)

static const shmem_topology_measure_params_t quick = {sizeof quick, MIB, 3};
static char cache[] = "/tmp/shmem-measure-test-XXXXXX", file[400];
static int lines;
static char text_seen[640];

static void sink(void *user, shmem_log_level_t level, const char *layer, const char *text)
{
    (void)user, (void)level, (void)layer;
    lines++;
    snprintf(text_seen, sizeof text_seen, "%s", text);
}

static shmem_topology_t measured(void)
{
    shmem_topology_t t;
    shmem_status_t status = shmem_topology_measure(&quick, &t);
    if (status == SHMEM_ERR_UNSUPPORTED)
        SKIP("several nodes, and this kernel does not tell where pages are");
    CHECK_EQ(status, SHMEM_OK);
    return t;
}

static shmem_topology_t created(shmem_topology_source_t expected)
{
    shmem_topology_t t;
    CHECK_OK(shmem_topology_create(&t));
    CHECK_EQ(shmem_topology_latency_source(t), expected);
    CHECK_EQ(shmem_topology_bandwidth_source(t), expected);
    return t;
}

static shmem_topology_source_t source_without_file(void)
{
    shmem_topology_t t;
    CHECK_OK(shmemi_topo_detect(&t));
    shmem_topology_source_t source = shmem_topology_latency_source(t);
    shmem_topology_destroy(t);
    return source;
}

static int entries(const char *path)
{
    int n = -2; /* . and .. */
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static void folder_of(char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/shmem", cache);
}

/* ---- measuring ---- */

static void numbers_are_plausible(void)
{
    shmem_topology_t t = measured();
    int n = shmem_topology_nodes(t);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double ns = shmem_topology_latency(t, i, j), gbs = shmem_topology_bandwidth(t, i, j);
            fprintf(stderr, "  %d to %d: %.1f ns (+- %.0f %%), %.2f GB/s (+- %.0f %%)\n", i, j, ns,
                    100 * shmem_topology_latency_spread(t, i, j), gbs,
                    100 * shmem_topology_bandwidth_spread(t, i, j));
            CHECK(ns > 0.2 && ns < SHMEMI_TOPO_NS_MAX);
            CHECK(gbs > 1e-4 && gbs < SHMEMI_TOPO_GBS_MAX);
        }
    CHECK_EQ(shmem_topology_latency_source(t), SHMEM_TOPOLOGY_MEASURED);
    CHECK_EQ(shmem_topology_bandwidth_source(t), SHMEM_TOPOLOGY_MEASURED);
    CHECK(shmem_topology_latency_spread(t, 0, 0) >= 0);
    shmem_topology_destroy(t);
}

/* Affinity, memory policy and signal mask of the caller are as before. */
static void caller_is_untouched(void)
{
    cpu_set_t before, after;
    unsigned long mask[16] = {1}, found[16] = {0};
    sigset_t signals, signals_after;
    int mode = -1;
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &signals) == 0);
    bool policies = syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, 1024ul) == 0;
    shmem_topology_destroy(measured());
    CHECK(sched_getaffinity(0, sizeof after, &after) == 0 && CPU_EQUAL(&before, &after));
    CHECK(sigprocmask(SIG_SETMASK, NULL, &signals_after) == 0);
    for (int i = 1; i < 65; i++)
        CHECK_EQ(sigismember(&signals, i), sigismember(&signals_after, i));
    if (!policies)
        return;
    CHECK(syscall(SYS_get_mempolicy, &mode, found, 1024ul, NULL, 0ul) == 0);
    CHECK(mode == MPOL_PREFERRED && found[0] == 1);
    CHECK(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0ul) == 0);
}

static void bad_parameters(void)
{
    shmem_topology_t t = NULL;
    shmem_topology_measure_params_t p = SHMEM_TOPOLOGY_MEASURE_PARAMS_INIT;
    CHECK_STATUS(shmem_topology_measure(&quick, NULL), SHMEM_ERR_INVALID);
    static const uint64_t bytes[] = {1, MIB - 1, 1024 * MIB + 1, UINT64_MAX};
    for (int i = 0; i < 4; i++) {
        p.bytes = bytes[i];
        CHECK_STATUS(shmem_topology_measure(&p, &t), SHMEM_ERR_INVALID);
    }
    p = quick;
    p.repeats = -1;
    CHECK_STATUS(shmem_topology_measure(&p, &t), SHMEM_ERR_INVALID);
    p.repeats = 101;
    CHECK_STATUS(shmem_topology_measure(&p, &t), SHMEM_ERR_INVALID);
    p = quick;
    p.size = 8;
    CHECK_STATUS(shmem_topology_measure(&p, &t), SHMEM_ERR_INVALID);
    CHECK(t == NULL);
}

static void injected(void)
{
    shmem_topology_t t = NULL;
    static const char *const points[] = {"topo.build", "topo.measure.map", "topo.measure.run"};
    for (int i = 0; i < 3; i++)
        for (unsigned n = 1; n <= (i == 1 ? 2 : 1); n++) {
            shmemi_fault_arm(points[i], SHMEMI_FAULT_FAIL, n);
            CHECK(shmem_topology_measure(&quick, &t) != SHMEM_OK);
            CHECK(t == NULL && shmemi_fault_passages() >= n);
            shmemi_fault_disarm();
        }
}

/* ---- keeping ---- */

static void saved_is_used(void)
{
    shmem_topology_source_t source = source_without_file();
    shmem_topology_destroy(created(source)); /* nothing there, not even the folder */
    shmem_topology_t t = measured(), u;
    CHECK_OK(shmem_topology_save(t, file, sizeof file));
    CHECK(strncmp(file, cache, strlen(cache)) == 0);
    struct stat info;
    CHECK(lstat(file, &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 0777) == 0600);
    u = created(SHMEM_TOPOLOGY_MEASURED);
    int n = shmem_topology_nodes(t);
    for (int i = 0; i < n * n; i++) {
        CHECK(t->latency[i] - u->latency[i] < 0.001 && u->latency[i] - t->latency[i] < 0.001);
        CHECK(t->bandwidth[i] / u->bandwidth[i] > 0.99 && t->bandwidth[i] / u->bandwidth[i] < 1.01);
        CHECK((t->latency_spread[i] < 0) == (u->latency_spread[i] < 0));
    }
    CHECK_OK(shmem_topology_save(t, NULL, 0)); /* again: replaced */
    CHECK_OK(shmem_topology_save(u, NULL, 0)); /* what was loaded is as good */
    char folder[64];
    folder_of(folder, sizeof folder);
    CHECK_EQ(entries(folder), 1);
    shmem_topology_destroy(t);
    shmem_topology_destroy(u);
    CHECK_EQ(lines, 0);
}

/* A process that may use less than all processors uses the measurements, too. */
static void bound_to_one(void *arg)
{
    (void)arg;
    harness_use_processors(1);
    shmem_topology_t t = created(SHMEM_TOPOLOGY_MEASURED);
    if (t->is_confined)
        CHECK_STATUS(shmem_topology_save(t, NULL, 0), SHMEM_ERR_STATE);
    shmem_topology_destroy(t);
}

static void affinity_does_not_matter(void)
{
    CHECK_EQ(harness_wait(harness_fork(bound_to_one, NULL), 10), 0);
}

static size_t read_file(char *content, size_t room)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, content, room);
    CHECK(n > 0 && (size_t)n < room);
    close(fd);
    return (size_t)n;
}

static void write_file(const char *content, size_t bytes)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, content, bytes) == (ssize_t)bytes);
    close(fd);
}

static void expect_ignored(shmem_topology_source_t source, const char *why)
{
    lines = 0;
    shmem_topology_destroy(created(source));
    CHECK_EQ(lines, 1);
    if (!strstr(text_seen, why))
        harness_fail(__FILE__, __LINE__, "'%s' is not in '%s'", why, text_seen);
    lines = 0;
}

/* Whatever is in the file: it is used whole or not at all, and said so. */
static void garbage_is_ignored(void)
{
    static char good[65536], bad[65536];
    shmem_topology_source_t source = source_without_file();
    size_t n = read_file(good, sizeof good);
    for (size_t cut = 0; cut < n; cut += 1 + n / 50) {
        write_file(good, cut);
        expect_ignored(source, "is ");
    }
    for (size_t i = 0; i < n; i += 1 + n / 50) {
        memcpy(bad, good, n);
        bad[i] ^= 1 << i % 7;
        write_file(bad, n);
        expect_ignored(source, "is ");
    }
    memcpy(bad, good, n);
    memset(bad + n, 'x', sizeof bad - n);
    write_file(bad, sizeof bad);
    expect_ignored(source, "is ");
    memset(bad, 0, sizeof bad);
    write_file(bad, sizeof bad);
    expect_ignored(source, "is ");
    write_file(good, n);
    shmem_topology_destroy(created(SHMEM_TOPOLOGY_MEASURED));
    CHECK_EQ(lines, 0);
}

static uint64_t sum_of(const char *text, size_t n)
{
    uint64_t hash = 14695981039346656037ull;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211ull;
    return hash;
}

/* A good check sum around senseless values. */
static void values_are_checked(void)
{
    static const char *const rows[] = {"0 0 0 0 1000 0",
                                       "0 0 -5 0 1000 0",
                                       "0 0 90000 0 0 0",
                                       "0 0 1000000001 0 1 0",
                                       "0 0 9 9",
                                       "0 0 nan 0 inf 0",
                                       "1 0 90000 0 1000 0",
                                       "0 0 90000 -2 1 0",
                                       "0 0 99999999999999999999 0 1 0",
                                       "",
                                       "0 0 9 0 9 0 9",
                                       "0 0 90000 0 100000000001 0"};
    static char good[65536], bad[1024];
    shmem_topology_source_t source = source_without_file();
    size_t n = read_file(good, sizeof good);
    int head = (int)(strchr(good, '\n') - good) + 1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t length = (size_t)snprintf(bad, sizeof bad, "%.*s%s\n", head, good, rows[i]);
        length += (size_t)snprintf(bad + length, sizeof bad - length, "end %016llx\n",
                                   (unsigned long long)sum_of(bad, length));
        write_file(bad, length);
        expect_ignored(source, "make no sense");
    }
    write_file(good, n);
}

static void strangers_files_are_ignored(void)
{
    shmem_topology_source_t source = source_without_file();
    char folder[64], other[420];
    folder_of(folder, sizeof folder);
    CHECK(chmod(file, 0620) == 0);
    expect_ignored(source, "may be written by others");
    CHECK(chmod(file, 0600) == 0 && chmod(folder, 0702) == 0);
    expect_ignored(source, "may be written by others");
    shmem_topology_t t = measured();
    CHECK_STATUS(shmem_topology_save(t, NULL, 0), SHMEM_ERR_ACCESS);
    CHECK(chmod(folder, 0700) == 0);
    snprintf(other, sizeof other, "%s.other", file);
    CHECK(rename(file, other) == 0 && symlink(other, file) == 0);
    expect_ignored(source, "ymbolic link");
    CHECK(unlink(file) == 0 && mkfifo(file, 0600) == 0);
    expect_ignored(source, "of the wrong kind");
    CHECK(unlink(file) == 0 && mkdir(file, 0700) == 0);
    expect_ignored(source, "of the wrong kind");
    CHECK(rmdir(file) == 0);
    shmem_topology_destroy(created(source)); /* no file: no complaint */
    CHECK_EQ(lines, 0);
    CHECK(rename(other, file) == 0);
    if (geteuid() == 0) {
        CHECK(chown(file, 1, 1) == 0);
        expect_ignored(source, "another user");
        CHECK(chown(file, 0, 0) == 0);
    }
    shmem_topology_destroy(t);
}

/* Killed while saving: the old file is as it was, the next one to save clears up. */
static void save_and_die(void *arg)
{
    shmemi_fault_arm(arg, SHMEMI_FAULT_KILL, 1);
    CHECK_OK(shmem_topology_save(measured(), NULL, 0));
}

static void killed_while_saving(void)
{
    static const char *const points[] = {"topo.save.created", "topo.save.written"};
    char folder[64];
    folder_of(folder, sizeof folder);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(harness_wait(harness_fork(save_and_die, (void *)(uintptr_t)points[i]), 20), -9);
        CHECK_EQ(entries(folder), 2);
        shmem_topology_t t = created(SHMEM_TOPOLOGY_MEASURED);
        CHECK_OK(shmem_topology_save(t, NULL, 0));
        CHECK_EQ(entries(folder), 1);
        shmem_topology_destroy(t);
    }
    shmem_topology_t t = measured();
    shmemi_fault_arm("topo.save.write", SHMEMI_FAULT_FAIL, 1);
    CHECK(shmem_topology_save(t, NULL, 0) != SHMEM_OK);
    shmemi_fault_disarm();
    CHECK_EQ(entries(folder), 1);
    int held = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(held >= 0 && flock(held, LOCK_EX) == 0);
    CHECK_STATUS(shmem_topology_save(t, NULL, 0), SHMEM_ERR_BUSY);
    close(held);
    shmem_topology_destroy(t);
}

/* Neither through a link nor into another user's cache. */
static void only_in_an_own_cache(void)
{
    char link[80];
    shmem_topology_t t = measured();
    snprintf(link, sizeof link, "%s.link", cache);
    CHECK(symlink(cache, link) == 0);
    setenv("XDG_CACHE_HOME", link, 1);
    CHECK(shmem_topology_save(t, NULL, 0) != SHMEM_OK);
    CHECK(unlink(link) == 0);
    setenv("XDG_CACHE_HOME", cache, 1);
    if (geteuid() == 0) {
        CHECK(chown(cache, 1, 1) == 0);
        CHECK_STATUS(shmem_topology_save(t, NULL, 0), SHMEM_ERR_ACCESS);
        check_detail("another user");
        CHECK(chown(cache, 0, 0) == 0);
    }
    CHECK_OK(shmem_topology_save(t, NULL, 0));
    shmem_topology_destroy(t);
}

/* What would not be believed when it is read is not written. */
static void only_what_makes_sense(void)
{
    shmem_topology_t t = measured();
    static const double bad[] = {0, -1, 2e6, 1e300, 0.0 / 0.0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double latency = t->latency[0], spread = t->latency_spread[0];
        t->latency[0] = bad[i];
        CHECK_STATUS(shmem_topology_save(t, NULL, 0), SHMEM_ERR_STATE);
        t->latency[0] = latency;
        t->latency_spread[0] = bad[i] > 0 ? bad[i] : 0.0 / 0.0;
        CHECK_STATUS(shmem_topology_save(t, NULL, 0), SHMEM_ERR_STATE);
        t->latency_spread[0] = spread;
    }
    CHECK_OK(shmem_topology_save(t, NULL, 0));
    shmem_topology_destroy(t);
    shmem_topology_destroy(created(SHMEM_TOPOLOGY_MEASURED));
}

static void without_a_home(void *arg)
{
    (void)arg;
    char path[8] = "same";
    shmem_topology_t t = measured();
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK_STATUS(shmem_topology_save(t, path, sizeof path), SHMEM_ERR_NOT_FOUND);
    setenv("XDG_CACHE_HOME", "relative", 1);
    CHECK_STATUS(shmem_topology_save(t, path, sizeof path), SHMEM_ERR_NOT_FOUND);
    CHECK_STR(path, "same");
    shmem_topology_destroy(created(source_without_file()));
    setenv("HOME", cache, 1); /* then in .cache */
    CHECK_OK(shmem_topology_save(t, file, sizeof file));
    CHECK(strstr(file, "/.cache/shmem/topology-") != NULL);
    shmem_topology_destroy(created(SHMEM_TOPOLOGY_MEASURED));
    setenv("HOME", "/proc/nowhere", 1);
    CHECK(shmem_topology_save(t, NULL, 0) != SHMEM_OK);
    shmem_topology_destroy(t);
}

static void places(void)
{
    CHECK_EQ(harness_wait(harness_fork(without_a_home, NULL), 20), 0);
    shmem_topology_t t;
    CHECK_OK(shmemi_topo_detect(&t));
    CHECK_STATUS(shmem_topology_save(t, NULL, 0), SHMEM_ERR_INVALID); /* nothing measured */
    CHECK_STATUS(shmem_topology_save(NULL, NULL, 0), SHMEM_ERR_INVALID);
    shmem_topology_destroy(t);
}

static void remove_all(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", cache);
    CHECK(system(command) == 0);
}

int main(void)
{
    CHECK(mkdtemp(cache) != NULL);
    setenv("XDG_CACHE_HOME", cache, 1);
    shmem_log_set_sink(sink, NULL, SHMEM_LOG_WARN);
    RUN(numbers_are_plausible);
    RUN(caller_is_untouched);
    RUN(bad_parameters);
    RUN(injected);
    lines = 0;
    RUN(saved_is_used);
    RUN(affinity_does_not_matter);
    RUN(garbage_is_ignored);
    RUN(values_are_checked);
    RUN(strangers_files_are_ignored);
    RUN(killed_while_saving);
    RUN(only_in_an_own_cache);
    RUN(only_what_makes_sense);
    RUN(places);
    remove_all();
    return harness_end();
}
