/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a training loop gain when the buffers of each step come from a pool?
 *
 * A step of a small network (4,096 samples, layers of 32, 32, 32 and 16 units, forward and
 * backward, update of the weights) allocates its activations and gradients in shared memory,
 * computes, and frees them: from a pool, or as segments that are created and removed at every step.
 * The time of the whole step counts, arithmetic included. All ways take turns in one process and
 * compute the same numbers.
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <shmem/shmem.h>

#include "bench.h"

enum { SAMPLES = 4096, LAYERS = 3, STEPS = 20, ROUNDS = 15, WIDEST = 32 };
static const int width[LAYERS + 1] = {WIDEST, 32, 32, 16};

static void must(shmem_status_t status, const char *what)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", what, shmem_error_detail()->text);
        exit(1);
    }
}

static void stop(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- ways to get a buffer ---- */

typedef struct buffer {
    float *at;
    size_t bytes;
    void *object; /* region */
    int fd;
} buffer_t;

static shmem_context_t context;
static shmem_pool_t pool;

static void pool_get(buffer_t *b)
{
    must(shmem_pool_alloc(pool, b->bytes, (void **)&b->at), "alloc");
}

static void pool_put(buffer_t *b)
{
    must(shmem_pool_free(pool, b->at), "free");
}

static void map(buffer_t *b)
{
    if (b->fd < 0 || ftruncate(b->fd, (off_t)b->bytes))
        stop("segment");
    b->at = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
    if (b->at == MAP_FAILED)
        stop("mmap");
}

static void memfd_get(buffer_t *b)
{
    b->fd = memfd_create("bench", MFD_CLOEXEC);
    map(b);
}

static void segment_put(buffer_t *b)
{
    munmap(b->at, b->bytes);
    close(b->fd);
}

static void posix_get(buffer_t *b)
{
    char name[64];
    snprintf(name, sizeof name, "/bench-reuse-%d", (int)getpid());
    b->fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    shm_unlink(name);
    map(b);
}

static void region_get(buffer_t *b)
{
    shmem_region_t region = NULL;
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    params.bytes = b->bytes;
    must(shmem_region_create(context, NULL, &params, &region), "region");
    b->object = region;
    b->at = shmem_region_map(region, SHMEM_MAP_READ_WRITE);
    if (!b->at)
        must(shmem_error_detail()->status, "map");
}

static void region_put(buffer_t *b)
{
    shmem_region_close(b->object);
}

static void malloc_get(buffer_t *b)
{
    b->at = malloc(b->bytes);
    if (!b->at)
        stop("malloc");
}

static void malloc_put(buffer_t *b)
{
    free(b->at);
}

static const struct way {
    const char *name;
    void (*get)(buffer_t *);
    void (*put)(buffer_t *);
} ways[] = {{"shmem pool", pool_get, pool_put},
            {"shmem regions", region_get, region_put},
            {"memfd + mmap", memfd_get, segment_put},
            {"shm_open + mmap", posix_get, segment_put},
            {"malloc, own mapping (private)", malloc_get, malloc_put}};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* ---- the network ---- */

static float input[SAMPLES * WIDEST], target[SAMPLES * 16];
static float weight[LAYERS][WIDEST * WIDEST];

static void buffers_get(const struct way *way, buffer_t *b, int units)
{
    memset(b, 0, sizeof *b);
    b->bytes = sizeof(float) * SAMPLES * (size_t)units;
    way->get(b);
}

/* out = relu(in * w) */
static void forward(const float *restrict in, const float *restrict w, float *restrict out, int m,
                    int n)
{
    for (int s = 0; s < SAMPLES; s++) {
        float sum[WIDEST] = {0};
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++)
                sum[j] += in[s * m + i] * w[i * n + j];
        for (int j = 0; j < n; j++)
            out[s * n + j] = sum[j] > 0 ? sum[j] : 0;
    }
}

/* From the gradient of the outputs to that of the inputs; the weights follow theirs. */
static void backward(const float *restrict in, float *restrict w, const float *restrict gradient,
                     float *restrict before, int m, int n)
{
    float change[WIDEST * WIDEST] = {0};
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < m; i++) {
            float sum = 0, x = in[s * m + i];
            for (int j = 0; j < n; j++) {
                sum += gradient[s * n + j] * w[i * n + j];
                change[i * n + j] += gradient[s * n + j] * x;
            }
            before[s * m + i] = x > 0 ? sum : 0;
        }
    for (int i = 0; i < m * n; i++)
        w[i] -= 1e-3f / SAMPLES * change[i];
}

static void step(const struct way *way)
{
    buffer_t out[LAYERS], gradient[LAYERS + 1];
    const float *in = input;
    for (int l = 0; l < LAYERS; l++) {
        buffers_get(way, &out[l], width[l + 1]);
        forward(in, weight[l], out[l].at, width[l], width[l + 1]);
        in = out[l].at;
    }
    buffers_get(way, &gradient[LAYERS], width[LAYERS]);
    for (int i = 0; i < SAMPLES * 16; i++)
        gradient[LAYERS].at[i] = out[LAYERS - 1].at[i] - target[i];
    for (int l = LAYERS - 1; l >= 0; l--) {
        buffers_get(way, &gradient[l], width[l]);
        backward(l ? out[l - 1].at : input, weight[l], gradient[l + 1].at, gradient[l].at, width[l],
                 width[l + 1]);
        way->put(&gradient[l + 1]);
        way->put(&out[l]);
    }
    way->put(&gradient[0]);
}

static void network_init(void)
{
    uint32_t r = 1;
    for (int i = 0; i < SAMPLES * WIDEST; i++)
        input[i] = (float)((r = r * 1664525 + 1013904223) >> 8) / (1 << 24);
    for (int i = 0; i < SAMPLES * 16; i++)
        target[i] = (float)((r = r * 1664525 + 1013904223) >> 8) / (1 << 24);
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < WIDEST * WIDEST; i++)
            weight[l][i] = (float)((r = r * 1664525 + 1013904223) >> 8) / (1 << 26) - 0.1f;
}

static double steps_us(const struct way *way)
{
    network_init();
    double begin = bench_now_ns();
    for (int i = 0; i < STEPS; i++)
        step(way);
    return (bench_now_ns() - begin) / STEPS / 1000;
}

int main(void)
{
    double samples[WAYS][ROUNDS];
    bench_result_t result[WAYS];
    shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
    params.bytes = 64 << 20;
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* fixed: malloc would raise it and keep the memory */
    must(shmem_context_init(&context), "context");
    must(shmem_pool_create(context, NULL, &params, &pool), "pool");
    bench_pin(0);
    for (int w = 0; w < WAYS; w++)
        steps_us(&ways[w]);
    for (int i = 0; i < ROUNDS; i++)
        for (int w = 0; w < WAYS; w++)
            samples[w][i] = steps_us(&ways[w]);
    for (int w = 0; w < WAYS; w++) {
        result[w] = bench_summary(samples[w], ROUNDS);
        bench_report("pool reuse", "step of a small network", ways[w].name, "us", result[w]);
    }
    for (int w = 1; w < WAYS; w++)
        printf("{\"bench\":\"pool reuse\",\"what\":\"step from a pool is faster by (%%)\","
               "\"who\":\"than %s\",\"value\":%.3g}\n",
               ways[w].name, 100 * (result[w].median / result[0].median - 1));
    shmem_pool_close(pool);
    must(shmem_context_finalize(context), "finalize");
    return 0;
}
