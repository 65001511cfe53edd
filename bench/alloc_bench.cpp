/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a block of shared memory cost?
 *
 *   pair      allocate a block and free it, one size after the other: at its best
 *   batch     allocate 64 blocks, free them in another order
 *   two       two processes at once on one pool, each with 10,000 live blocks of 64 B to 64 KiB
 *             (log-uniform): free a random one, allocate another
 *
 * Peers: boost.interprocess in shared memory (the same task); mimalloc and glibc, which are private
 * to each process, as the measure of what allocators can do.
 */
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shmem/shmem.h>

#include "allocators.hpp"
#include "bench.h"

static const size_t POOL_BYTES = (size_t)1 << 30;
enum { LIVE = 10000, STEPS = 200000, BATCH = 64, REPEATS = 21, TWO_REPEATS = 5 };

/* ---- the allocators, each with the same three calls ---- */

struct Shmem {
    static constexpr const char *name = "shmem";
    shmem_context_t context;
    shmem_pool_t pool;
    char label[64];
    void prepare()
    {
        snprintf(label, sizeof label, "bench/alloc-%d", (int)getpid());
        open(true);
    }
    void open(bool create)
    {
        shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
        params.bytes = POOL_BYTES;
        must(shmem_context_init(&context), "context");
        must(create ? shmem_pool_create(context, label, &params, &pool)
                    : shmem_pool_open(context, label, &pool),
             "pool");
    }
    void enter_child() { open(false); }
    void leave_child()
    {
        shmem_pool_close(pool);
        shmem_context_finalize(context);
    }
    void finish() { leave_child(); }
    void *alloc(size_t n)
    {
        void *p = nullptr;
        if (__builtin_expect(shmem_pool_alloc(pool, n, &p), 0))
            must(shmem_pool_alloc(pool, n, &p), "alloc");
        return p;
    }
    void free(void *p) { shmem_pool_free(pool, p); }
};

struct Private {
    void prepare() {}
    void enter_child() {}
    void leave_child() {}
    void finish() {}
};

struct Glibc : Private, GlibcHeap {
    void prepare() { find(); }
};

#if HAVE_MIMALLOC
struct Mimalloc : Private, MimallocHeap {
};
#endif

#if HAVE_BOOST
struct Boost : Private, BoostHeap {
    void prepare() { make(POOL_BYTES, MAP_POPULATE); }
    void finish()
    {
        munmap(heap->get_address(), POOL_BYTES);
        delete heap;
    }
};
#endif

/* ---- the tasks ---- */

template <class A> static double pair_ns(A &a, size_t n)
{
    const int rounds = 50000;
    double begin = bench_now_ns();
    for (int i = 0; i < rounds; i++) {
        char *p = (char *)a.alloc(n);
        *(volatile char *)p = 1;
        a.free(p);
    }
    return (bench_now_ns() - begin) / rounds;
}

template <class A> static double batch_ns(A &a, size_t n)
{
    void *block[BATCH];
    const int rounds = 500;
    double begin = bench_now_ns();
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < BATCH; k++) {
            block[k] = a.alloc(n);
            *(volatile char *)block[k] = 1;
        }
        for (int k = 0; k < BATCH; k++)
            a.free(block[(k * 37 + i) % BATCH]);
    }
    return (bench_now_ns() - begin) / rounds / BATCH;
}

/* The sizes are drawn beforehand: logarithms are not what is measured. */
static size_t *sizes_make()
{
    size_t *sizes = new size_t[65536];
    uint64_t seed = 88172645463325252ull;
    for (int i = 0; i < 65536; i++)
        sizes[i] = (size_t)(64 * exp2(10.0 * (double)(random_next(seed) >> 11) / (1ull << 53)));
    return sizes;
}

template <class A> static double replace_ns(A &a, const size_t *sizes, uint64_t seed)
{
    static void *live[LIVE];
    for (int i = 0; i < LIVE; i++)
        live[i] = a.alloc(sizes[random_next(seed) & 65535]);
    double begin = 0;
    for (int i = -STEPS; i < STEPS; i++) { /* the first half warms up */
        if (i == 0)
            begin = bench_now_ns();
        uint64_t r = random_next(seed);
        uint32_t k = (uint32_t)(r >> 20) % LIVE;
        a.free(live[k]);
        live[k] = a.alloc(sizes[r & 65535]);
        *(volatile char *)live[k] = 1;
    }
    double ns = (bench_now_ns() - begin) / STEPS;
    for (int i = 0; i < LIVE; i++)
        a.free(live[i]);
    return ns;
}

/* Two children at once; the slower one counts. */
template <class A> static double two_processes(A &a, const size_t *sizes)
{
    double *result =
        (double *)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    volatile int *ready = (volatile int *)(result + 8);
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            bench_pin(i);
            a.enter_child();
            __atomic_fetch_add(ready, 1, __ATOMIC_SEQ_CST);
            while (*ready < 2)
                usleep(100);
            result[i] = replace_ns(a, sizes, 1234567 + (uint64_t)i * 999);
            a.leave_child();
            _exit(0);
        }
    int status, failed = 0;
    for (int i = 0; i < 2; i++)
        failed |= wait(&status) < 0 || status;
    double worst = result[0] > result[1] ? result[0] : result[1];
    munmap(result, 4096);
    return failed ? -1 : worst;
}

/* ---- all of them in turn, so that a busy machine is busy for all ---- */

static const char two[] = "two processes, 10000 live, 64 B to 64 KiB";

struct Samples {
    double pair[REPEATS], batch[REPEATS], two[TWO_REPEATS];
};

template <class A> static void sample(A &a, Samples &s, size_t n, int i)
{
    s.pair[i] = pair_ns(a, n);
    s.batch[i] = batch_ns(a, n);
}

template <class A> static void report(const A &, Samples &s, size_t n)
{
    char what[64];
    snprintf(what, sizeof what, "pair %zu", n);
    bench_report("alloc", what, A::name, "ns", bench_summary(s.pair, REPEATS));
    snprintf(what, sizeof what, "batch %zu", n);
    bench_report("alloc", what, A::name, "ns", bench_summary(s.batch, REPEATS));
}

template <class... As> static void measure(const size_t *sizes, As &...as)
{
    static const size_t wanted[] = {64,   128,   256,   512,   1024,   4096,
                                    8192, 16384, 32768, 65536, 262144, 1048576};
    Samples samples[sizeof...(As)];
    int k;
    (as.prepare(), ...);
    bench_pin(0);
    for (size_t n : wanted) {
        for (int i = 0; i < REPEATS; i++)
            k = 0, (sample(as, samples[k++], n, i), ...);
        k = 0, (report(as, samples[k++], n), ...);
    }
    for (int i = 0; i < TWO_REPEATS; i++)
        k = 0, ((samples[k++].two[i] = two_processes(as, sizes)), ...);
    k = 0,
    (bench_report("alloc", two, As::name, "ns", bench_summary(samples[k++].two, TWO_REPEATS)), ...);
    (as.finish(), ...);
}

int main()
{
    const size_t *sizes = sizes_make();
    Shmem ours;
    Glibc glibc;
#if !HAVE_MIMALLOC
    bench_missing("alloc", "all", "mimalloc (private)", "not installed when this was built");
#endif
#if !HAVE_BOOST
    bench_missing("alloc", "all", "boost.interprocess", "not installed when this was built");
#endif
#if HAVE_MIMALLOC && HAVE_BOOST
    Mimalloc mimalloc;
    Boost boost;
    measure(sizes, ours, glibc, mimalloc, boost);
#elif HAVE_MIMALLOC
    Mimalloc mimalloc;
    measure(sizes, ours, glibc, mimalloc);
#elif HAVE_BOOST
    Boost boost;
    measure(sizes, ours, glibc, boost);
#else
    measure(sizes, ours, glibc);
#endif
    return 0;
}
