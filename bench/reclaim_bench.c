/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that holds 10,000 live blocks of mixed sizes is killed: how long until a survivor that
 * waits for its memory, or for its lock, goes on?
 *
 * The survivor waits already when the kill is sent; the clock runs from the system call that kills.
 */
#include "jobs.h"

enum { BLOCKS = 10000, REPEATS = 21 };

#define POOL_BYTES (32ull << 20)
#define WANTED     (16ull << 20) /* more than is free while the victim lives */

static char address[108];

/* The node server is a process of its own. */
static pid_t server_start(void)
{
    int ends[2];
    if (pipe(ends))
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        shmem_server_t server;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        BENCH_OK(shmem_server_create(&server, NULL));
        const char *name = shmem_server_address(server);
        if (write(ends[1], name, strlen(name)) <= 0)
            _exit(1);
        close(ends[1]);
        BENCH_OK(shmem_server_run(server));
        _exit(0);
    }
    close(ends[1]);
    if (pid < 0 || read(ends[0], address, sizeof address - 1) <= 0)
        exit(1);
    close(ends[0]);
    return pid;
}

static shmem_context_t join(void)
{
    shmem_context_t context;
    shmem_context_params_t params = SHMEM_CONTEXT_PARAMS_INIT;
    params.server = address;
    params.pes = 1;
    BENCH_OK(shmem_context_init_params(&context, &params));
    return context;
}

static void hold_blocks(shmem_pool_t pool)
{
    void *block;
    uint64_t r = 1;
    for (int i = 0; i < BLOCKS; i++) {
        r = r * 6364136223846793005ull + 1442695040888963407ull;
        BENCH_OK(shmem_pool_alloc(pool, 64ull << (r >> 40) % 8 | (r >> 50) % 64, &block));
    }
}

/* Holds the lock, too, says so, and waits for its end. */
static void victim(shmem_mutex_t *mutex, int ready)
{
    shmem_pool_t pool;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_pin(1);
    shmem_context_t context = join();
    BENCH_OK(shmem_pool_open(context, "reclaim", &pool));
    hold_blocks(pool);
    BENCH_OK(shmem_mutex_lock(context, mutex));
    if (write(ready, "x", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

/* ---- the survivor ---- */

typedef struct survivor {
    shmem_context_t context;
    shmem_pool_t pool;
    shmem_mutex_t *mutex;
    int waits_for_memory;
} survivor_t;

static pid_t victim_start(const survivor_t *s)
{
    int ends[2];
    char byte;
    if (pipe(ends))
        exit(1);
    pid_t pid = fork();
    if (pid == 0)
        victim(s->mutex, ends[1]);
    close(ends[1]);
    if (pid < 0 || read(ends[0], &byte, 1) != 1)
        exit(1);
    close(ends[0]);
    return pid;
}

typedef struct shot {
    pid_t pid;
    double at; /* ns */
} shot_t;

static void *shoot(void *arg)
{
    shot_t *shot = arg;
    usleep(20000); /* until then the survivor waits */
    shot->at = bench_now_ns();
    kill(shot->pid, SIGKILL);
    return NULL;
}

static double once(void *arg)
{
    survivor_t *s = arg;
    shot_t shot = {victim_start(s), 0};
    pthread_t thread;
    void *block = NULL;
    pthread_create(&thread, NULL, shoot, &shot);
    if (s->waits_for_memory) {
        BENCH_OK(shmem_pool_alloc_timed(s->pool, WANTED, 0, SHMEM_FOREVER, &block));
    } else if (shmem_mutex_lock(s->context, s->mutex) != SHMEM_ERR_OWNER_DIED) {
        fprintf(stderr, "reclaim_bench: the lock's owner did not die\n");
        exit(1);
    }
    double end = bench_now_ns();
    pthread_join(thread, NULL);
    waitpid(shot.pid, NULL, 0);
    if (s->waits_for_memory) {
        BENCH_OK(shmem_pool_free(s->pool, block));
        shmem_mutex_lock(s->context, s->mutex);
    }
    BENCH_OK(shmem_mutex_consistent(s->context, s->mutex));
    BENCH_OK(shmem_mutex_unlock(s->context, s->mutex));
    return (end - shot.at) / 1e6;
}

int main(void)
{
    survivor_t s;
    void *block;
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    pid_t server = server_start();
    params.bytes = POOL_BYTES;
    bench_pin(0);
    s.context = join();
    BENCH_OK(shmem_pool_create(s.context, "reclaim", &params, &s.pool));
    BENCH_OK(shmem_pool_alloc(s.pool, sizeof(shmem_mutex_t), &block));
    s.mutex = block;
    BENCH_OK(shmem_mutex_init(s.mutex));
    s.waits_for_memory = 1;
    bench_report("reclaim", "memory of 10,000 blocks", "shmem", "ms",
                 bench_repeat(REPEATS, once, &s));
    s.waits_for_memory = 0;
    bench_report("reclaim", "lock, besides 10,000 blocks", "shmem", "ms",
                 bench_repeat(REPEATS, once, &s));
    shmem_pool_close(s.pool);
    BENCH_OK(shmem_context_finalize(s.context));
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return 0;
}
