/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A killed server is replaced, and its clients notice nothing: no request fails, what is counted
 * stays exact, the dead are found dead by the successor.
 */
#include "../unit/node/fixture.h"
#include "memory/pool.h"

static fixture_server_t *start(const char *point, unsigned nth)
{
    fixture_server_t *f = fixture_new();
    f->takeover = 1;
    f->exit_when_unused = 1; /* a test that fails leaves nothing running */
    if (point) {
        f->fault_armed = 1;
        snprintf(f->fault, sizeof f->fault, "%s", point);
        f->action = SHMEMI_FAULT_KILL;
        f->nth = nth;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* successors and keepers become ours */
    fixture_start(f);
    CHECK_EQ(atomic_load(&f->ready), 1);
    return f;
}

/* All its processes have ended. */
static void all_gone(void)
{
    double end = harness_now() + 10;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) >= 0) {
        CHECK(harness_now() < end);
        if (pid == 0)
            harness_sleep(0.001);
    }
}

static void kill_server(fixture_server_t *f)
{
    unsigned before = atomic_load(&f->takeovers);
    double end = harness_now() + 10;
    kill(atomic_load(&f->serves), SIGKILL);
    while (atomic_load(&f->takeovers) == before) {
        CHECK(harness_now() < end);
        harness_sleep(0.0005);
    }
}

static pid_t parent_of(pid_t pid)
{
    char path[64], line[256];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "PPid: %d", &parent);
    if (file)
        fclose(file);
    return parent;
}

static bool is_keeper(pid_t pid)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "r");
    bool is = file && fgets(name, sizeof name, file) && strcmp(name, "shmem-keeper\n") == 0;
    if (file)
        fclose(file);
    return is;
}

/* The keeper of the server that runs: its parent or its child. */
static pid_t keeper_of(const fixture_server_t *f)
{
    pid_t server = atomic_load(&f->serves), found = 0;
    double end = harness_now() + 5;
    while (!found) {
        DIR *dir = opendir("/proc");
        struct dirent *entry;
        CHECK(dir && harness_now() < end);
        while ((entry = readdir(dir)) != NULL) {
            pid_t pid = (pid_t)atoi(entry->d_name);
            if (pid > 0 && is_keeper(pid) && (parent_of(pid) == server || parent_of(server) == pid))
                found = pid;
        }
        closedir(dir);
    }
    return found;
}

/* ---- cases ---- */

static void nothing_is_noticed(void)
{
    fixture_server_t *f = start(NULL, 0);
    shmemi_client_t *client = fixture_attach(f), *second = fixture_attach(f);
    shmemi_segment_t data = fixture_segment(client, "data", 8192), other, unnamed;
    shmemi_segment_request_t r = {.bytes = 4096, .huge = SHMEMI_HUGE_OFF};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(shmemi_client_segment_create(client, &r, &unnamed));
        kill_server(f);
        CHECK(!shmemi_client_server_lost(client));
        CHECK(shmemi_self(shmemi_client_actor(client)));
        shmemi_server_counts_t counts = fixture_counts(client);
        CHECK_EQ(counts.clients, 2);
        CHECK_EQ(counts.suspects, 0);
        CHECK_EQ(counts.segments, 2);
        CHECK_EQ(counts.segment_bytes, 8192 + 4096);
        CHECK_EQ(counts.deaths, 0);
        CHECK_OK(shmemi_client_segment_open(second, "data", SHMEMI_RIGHTS_WRITE, &other));
        CHECK_EQ(other.id, data.id);
        CHECK_EQ(other.offset, data.offset);
        shmemi_client_segment_close(second, &other);
        shmemi_client_segment_close(client, &unnamed);
        CHECK_EQ(fixture_counts(client).segments, 1);
        double since = harness_now();
        shmemi_client_t *third = fixture_attach(f);
        CHECK(harness_now() - since < 5);
        shmemi_client_detach(third);
    }
    CHECK_EQ(fixture_count_fds(atomic_load(&f->serves)),
             fixture_count_fds(keeper_of(f))); /* one table */
    shmemi_client_detach(second);
    shmemi_client_detach(client); /* the last: all end */
    CHECK_EQ(harness_wait(f->pid, 10), -SIGKILL);
    all_gone();
}

int main(void)
{
    RUN(nothing_is_noticed);
    return harness_end();
}
