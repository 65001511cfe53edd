/* SPDX-License-Identifier: Apache-2.0 */
/* Memory limits, read from trees that look like /proc and /sys. */
#include "os/budget.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "helpers.h"

#define MIB (1ull << 20)

static char root[64];

/* Write a file below the root, making its folders. */
static void put(const char *file, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s%s", root, file);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = 0;
        CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
        *p = '/';
    }
    FILE *f = fopen(path, "we");
    CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void begin(void)
{
    snprintf(root, sizeof root, "/tmp/shmem-budget-test-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
    put("/proc/meminfo", "MemTotal:  9000000 kB\nMemFree: 10 kB\nMemAvailable:    8192000 kB\n"
                         "SwapTotal: 3000 kB\nSwapFree: 1024 kB\n");
}

static void end(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    CHECK(system(command) == 0);
}

static void system_only(void)
{
    begin();
    shmemi_budget_t b;
    shmemi_budget_read(root, &b);
    CHECK_EQ(b.system_bytes, 8192000ull * 1024 + MIB);
    CHECK_EQ(b.available, b.system_bytes);
    CHECK_EQ(b.group_limit, UINT64_MAX);
    CHECK_OK(shmemi_budget_check(&b, b.available - b.available / 32));
    CHECK_STATUS(shmemi_budget_check(&b, b.available - b.available / 32 + 1), SHMEM_ERR_NOMEM);
    check_detail("the system has 8001 MiB available, and 250 MiB of them are kept back");
    end();
}

static void group_version_2(void)
{
    begin();
    put("/proc/self/cgroup", "0::/user.slice/job/step\n");
    put("/sys/fs/cgroup/memory.stat", "inactive_file 1\n"); /* the root has no limits */
    put("/sys/fs/cgroup/user.slice/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/user.slice/memory.current", "629145600\n");
    put("/sys/fs/cgroup/user.slice/memory.stat",
        "anon 5\nfile 9\ninactive_file 41943040\nactive_file 62914560\n");
    put("/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
    put("/sys/fs/cgroup/user.slice/job/memory.current", "524288000\n");
    put("/sys/fs/cgroup/user.slice/job/step/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/user.slice/job/step/memory.current", "1048576\n");
    shmemi_budget_t b;
    shmemi_budget_read(root, &b);
    CHECK_STR(b.group, "/user.slice");
    CHECK_EQ(b.available, 524 * MIB); /* 1024 - (600 - 40 - 60) */
    CHECK_STATUS(shmemi_budget_check(&b, 600 * MIB), SHMEM_ERR_NOMEM);
    check_detail("asked for 600 MiB");
    check_detail("cgroup /user.slice allows 1024 MiB, of which 500 MiB are used: 524 MiB are left");
    end();
}

/* In a container the path is that of the outside, and the mount is the container's own group. */
static void container(void)
{
    begin();
    put("/proc/self/cgroup", "0::/system.slice/docker-4711.scope\n");
    put("/sys/fs/cgroup/memory.max", "268435456\n");
    put("/sys/fs/cgroup/memory.current", "67108864\n");
    shmemi_budget_t b;
    shmemi_budget_read(root, &b);
    CHECK_EQ(b.available, 192 * MIB);
    CHECK_STR(b.group, "/");
    end();
}

static void group_version_1(void)
{
    begin();
    put("/proc/self/cgroup", "12:cpuset:/a\n5:cpu,memory:/slurm/job_1\n1:name=systemd:/x\n0::/y\n");
    put("/sys/fs/cgroup/memory/slurm/job_1/memory.limit_in_bytes", "104857600\n");
    put("/sys/fs/cgroup/memory/slurm/job_1/memory.usage_in_bytes", "1048576\n");
    put("/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/slurm/memory.usage_in_bytes", "1048576\n");
    shmemi_budget_t b;
    shmemi_budget_read(root, &b);
    CHECK_EQ(b.available, 99 * MIB);
    CHECK_STR(b.group, "/slurm/job_1");
    end();
}

static void over_the_limit_already(void)
{
    begin();
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "1048576\n");
    put("/sys/fs/cgroup/memory.current", "2097152\n");
    shmemi_budget_t b;
    shmemi_budget_read(root, &b);
    CHECK_EQ(b.available, 0);
    CHECK_OK(shmemi_budget_check(&b, 0));
    CHECK_STATUS(shmemi_budget_check(&b, 1), SHMEM_ERR_NOMEM);
    end();
}

/* Nonsense and missing files mean no limit, never a wrong one. */
static void nonsense(void)
{
    begin();
    put("/proc/meminfo", "\0");
    put("/proc/self/cgroup", "0::\n:\n\n0::/../../etc\n0::relative\nmemory\n");
    put("/sys/fs/cgroup/memory.max", "-5\n");
    put("/sys/fs/cgroup/memory.current", "x\n");
    shmemi_budget_t b;
    shmemi_budget_read(root, &b);
    CHECK_EQ(b.available, UINT64_MAX);
    CHECK_OK(shmemi_budget_check(&b, UINT64_MAX));
    end();
    shmemi_budget_read("/nowhere", &b);
    CHECK_EQ(b.available, UINT64_MAX);
}

static void hide_proc(void *arg)
{
    shmemi_budget_t *b = arg;
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", "/proc", "tmpfs", 0, NULL))
        _exit(77);
    shmemi_budget_read("", b);
}

/* A machine without /proc is not one without limits. */
static void without_proc(void)
{
    shmemi_budget_t *b = harness_shared(sizeof *b);
    if (harness_wait(harness_fork(hide_proc, b), 10) == 77)
        SKIP("needs the right to mount");
    CHECK(b->available > MIB && b->available < 1ull << 50);
}

static void this_machine(void)
{
    shmemi_budget_t b;
    double begin_at = harness_now();
    shmemi_budget_read("", &b);
    fprintf(stderr, "  %.0f us, %llu MiB available\n", (harness_now() - begin_at) * 1e6,
            (unsigned long long)(b.available / MIB));
    CHECK(b.available > MIB && b.available < 1ull << 50);
}

int main(void)
{
    RUN(system_only);
    RUN(group_version_2);
    RUN(container);
    RUN(group_version_1);
    RUN(over_the_limit_already);
    RUN(nonsense);
    RUN(without_proc);
    RUN(this_machine);
    return harness_end();
}
