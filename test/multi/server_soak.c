/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A minute of everything at once: clients that come, share segments, go, are killed in the middle
 * of anything; a server that is killed and replaced; and at the end nothing is left.
 */
#include "../unit/node/fixture.h"

enum { WORKERS = 6, NAMES = 5, SEGMENT = 65536 };

typedef struct stage {
    char address[108];
    _Atomic int over;
    _Atomic unsigned attaches, opens;
} stage_t;

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

/* What a live server may answer in this chaos. */
static bool fine(shmem_status_t status)
{
    if (status && status != SHMEM_ERR_SERVER_LOST && status != SHMEM_ERR_NO_SERVER &&
        status != SHMEM_ERR_NOT_FOUND)
        harness_fail(__FILE__, __LINE__, "%s: %s", shmem_status_name(status),
                     shmem_error_detail()->text);
    return status == SHMEM_OK;
}

/* Every word of a segment holds 0 or a value that belongs to its place. */
static void use_memory(const shmemi_segment_t *segment)
{
    void *address;
    if (shmemi_space_map(segment->offset, segment->bytes, segment->fd, 1, &address))
        harness_fail(__FILE__, __LINE__, "%s", shmem_error_detail()->text);
    _Atomic uint64_t *word = address;
    for (uint64_t i = draw(64); i < SEGMENT / 8; i += 64) {
        uint64_t seen = atomic_load_explicit(&word[i], memory_order_relaxed);
        CHECK(seen == 0 || seen == i * 0x9e3779b97f4a7c15ull);
        atomic_store_explicit(&word[i], i * 0x9e3779b97f4a7c15ull, memory_order_relaxed);
    }
    CHECK_OK(shmemi_space_unmap(address));
}

static void live_once(stage_t *stage)
{
    fixture_server_t f;
    shmemi_client_t *client;
    shmemi_segment_t segments[4];
    char name[8];
    int n = 0;
    memcpy(f.address, stage->address, sizeof f.address);
    if (!fine(fixture_try_attach(&f, &client))) {
        harness_sleep(0.001);
        return;
    }
    atomic_fetch_add(&stage->attaches, 1);
    for (uint64_t i = draw(12); i; i--) {
        snprintf(name, sizeof name, "s%d", (int)draw(NAMES));
        shmemi_segment_request_t r = {.name = name,
                                      .bytes = SEGMENT,
                                      .huge = SHMEMI_HUGE_OFF,
                                      .reserve = 1,
                                      .open_existing = 1};
        if (n < 4 && fine(draw(3) ? shmemi_client_segment_create(client, &r, &segments[n])
                                  : shmemi_client_segment_open(client, name, SHMEMI_RIGHTS_WRITE,
                                                               &segments[n]))) {
            atomic_fetch_add(&stage->opens, 1);
            use_memory(&segments[n++]);
        }
        if (n && draw(2))
            shmemi_client_segment_close(client, &segments[--n]);
        CHECK(shmemi_self(shmemi_client_actor(client)));
    }
    shmemi_client_detach(client);
}

static void worker(void *arg)
{
    stage_t *stage = arg;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    seed = (uint64_t)getpid() * 0x2545f4914f6cdd1dull;
    while (!atomic_load(&stage->over))
        live_once(stage);
}

static double chaos(fixture_server_t *f, stage_t *stage, double seconds)
{
    pid_t pids[WORKERS];
    double end = harness_now() + seconds;
    for (int i = 0; i < WORKERS; i++)
        pids[i] = harness_fork(worker, stage);
    while (harness_now() < end) {
        harness_sleep(0.001 * (double)(1 + draw(20)));
        int i = (int)draw(WORKERS);
        if (draw(40) == 0) {
            kill(f->pid, SIGKILL);
            CHECK_EQ(harness_wait(f->pid, 5), -SIGKILL);
            fixture_start(f);
            CHECK_EQ(atomic_load(&f->ready), 1);
        }
        kill(pids[i], SIGKILL);
        CHECK_EQ(harness_wait(pids[i], 5), -SIGKILL);
        pids[i] = harness_fork(worker, stage);
    }
    atomic_store(&stage->over, 1);
    for (int i = 0; i < WORKERS; i++)
        CHECK_EQ(harness_wait(pids[i], 10), 0);
    return seconds;
}

static void a_minute(void)
{
    fixture_server_t *f = fixture_new();
    stage_t *stage = harness_shared(sizeof *stage);
    char directory[] = "/tmp/shmem-test-XXXXXX", path[64];
    seed = 88172645463325252ull;
    CHECK(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/server", directory);
    f->listen_at = path;
    fixture_start(f);
    int fds = fixture_count_fds(f->pid);
    snprintf(stage->address, sizeof stage->address, "%s", path);
    const char *seconds = getenv("SHMEM_TEST_SECONDS");
    chaos(f, stage, seconds ? atof(seconds) : 60);
    shmemi_client_t *client = fixture_attach(f);
    FIXTURE_AWAIT(client, clients, 1);
    FIXTURE_AWAIT(client, segments, 0);
    CHECK_EQ(fixture_counts(client).segment_bytes, 0);
    shmemi_client_detach(client);
    harness_sleep(0.05);
    CHECK_EQ(fixture_count_fds(f->pid), fds);
    fprintf(stderr, "%u attaches, %u openings\n", atomic_load(&stage->attaches),
            atomic_load(&stage->opens));
    fixture_end(f);
    CHECK(rmdir(directory) == 0);
}

int main(void)
{
    RUN(a_minute);
    return harness_end();
}
