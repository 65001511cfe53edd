/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory does it take to hold so many bytes?
 *
 * 10,000 live objects with sizes that are log-uniform between 64 B and 64 KiB or 1 MiB, of which a
 * random one is replaced 300,000 times; each allocator gets the same sequence, in a process of its
 * own. The result is
 *
 *     most memory ever touched / most bytes ever live
 *
 * Touched is what the process has resident more than before (boost, mimalloc, glibc). The memory of
 * a pool is resident from the beginning, so its touched pages are counted: those that blocks ever
 * covered, and of the bookkeeping the same share.
 */
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unordered_set>
#include <vector>

#include <shmem/shmem.h>

#include "allocators.hpp"
#include "bench.h"

enum { LIVE = 10000, STEPS = 300000, SAMPLE = 500, PAGE = 4096, RUNS = 3 };

static uint64_t resident()
{
    unsigned long long size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f || fscanf(f, "%llu %llu", &size, &pages) != 2)
        exit(1);
    fclose(f);
    return pages * PAGE;
}

/* ---- the allocators ---- */

struct Shmem {
    static constexpr const char *name = "shmem";
    shmem_context_t context;
    shmem_pool_t pool;
    uint64_t capacity, bookkeeping;
    std::unordered_set<uint64_t> pages;

    void prepare(uint64_t room)
    {
        char label[64];
        size_t count = 0;
        shmem_pool_entry_t entry;
        shmem_pool_info_t info = {};
        shmem_pool_params_t params = SHMEM_POOL_PARAMS_INIT;
        snprintf(label, sizeof label, "bench/frag-%d", (int)getpid());
        capacity = params.bytes = room;
        must(shmem_context_init(&context), "context");
        must(shmem_pool_create(context, label, &params, &pool), "pool");
        must(shmem_pool_list(context, &entry, 1, &count), "list");
        info.size = sizeof info;
        must(shmem_pool_info(pool, &info), "info");
        bookkeeping = count == 1 ? entry.bytes - info.bytes : 0;
    }
    void *alloc(size_t n)
    {
        void *p = nullptr;
        must(shmem_pool_alloc(pool, n, &p), "alloc");
        for (uint64_t at = (uint64_t)p / PAGE; at <= ((uint64_t)p + n - 1) / PAGE; at++)
            pages.insert(at);
        return p;
    }
    void free(void *p) { must(shmem_pool_free(pool, p), "free"); }
    uint64_t touched()
    {
        double blocks = (double)pages.size() * PAGE;
        return (uint64_t)(blocks * (1 + (double)bookkeeping / (double)capacity));
    }
};

struct Private {
    uint64_t before;
    void prepare(uint64_t) { before = resident(); }
    uint64_t touched() { return resident() - before; }
};

struct Glibc : Private, GlibcHeap {
    void prepare(uint64_t room)
    {
        find();
        Private::prepare(room);
    }
};

#if HAVE_MIMALLOC
struct Mimalloc : Private, MimallocHeap {
};
#endif

#if HAVE_BOOST
struct Boost : Private, BoostHeap {
    void prepare(uint64_t room)
    {
        Private::prepare(room);
        make(room, 0);
    }
};
#endif

/* ---- the task ---- */

static size_t random_size(uint64_t &state, double octaves)
{
    double u = (double)(random_next(state) >> 11) / (double)(1ull << 53);
    return (size_t)(64 * exp2(u * octaves));
}

struct Object {
    void *block;
    size_t bytes;
};

template <class A> static Object make(A &a, size_t bytes)
{
    Object o = {a.alloc(bytes), bytes};
    memset(o.block, 1, bytes);
    return o;
}

template <class A> static double ratio(double octaves, uint64_t seed)
{
    A a;
    a.prepare((uint64_t)(LIVE * (exp2(octaves) - 1) * 64 / (octaves * M_LN2) * 1.35));
    std::vector<Object> objects(LIVE);
    uint64_t state = seed * 0x9E3779B97F4A7C15ull, live = 0, most_live = 0, most_touched = 0;
    for (Object &o : objects) {
        o = make(a, random_size(state, octaves));
        live += o.bytes;
    }
    for (int i = 0; i < STEPS; i++) {
        Object &o = objects[random_next(state) % LIVE];
        live -= o.bytes;
        a.free(o.block);
        o = make(a, random_size(state, octaves));
        live += o.bytes;
        if (live > most_live)
            most_live = live;
        if (i % SAMPLE == 0 && a.touched() > most_touched)
            most_touched = a.touched();
    }
    return (double)most_touched / (double)most_live;
}

/* In a process of its own: what one leaves behind must not serve the next. */
template <class A> static void measure(const char *what, double octaves)
{
    double samples[RUNS];
    for (int i = 0; i < RUNS; i++) {
        int ends[2];
        if (pipe(ends))
            exit(1);
        pid_t pid = fork();
        if (pid == 0) {
            double r = ratio<A>(octaves, (uint64_t)i + 1);
            _exit(write(ends[1], &r, sizeof r) == sizeof r ? 0 : 1);
        }
        close(ends[1]);
        if (read(ends[0], &samples[i], sizeof samples[i]) != sizeof samples[i]) {
            bench_missing("fragmentation", what, A::name, "it ran out of memory");
            samples[0] = 0;
        }
        close(ends[0]);
        waitpid(pid, nullptr, 0);
        if (!samples[0])
            return;
    }
    bench_report("fragmentation", what, A::name, "ratio", bench_summary(samples, RUNS));
}

static void measure_all(const char *what, double octaves)
{
    measure<Shmem>(what, octaves);
    measure<Glibc>(what, octaves);
#if HAVE_BOOST
    measure<Boost>(what, octaves);
#else
    bench_missing("fragmentation", what, "boost.interprocess", "built without it");
#endif
#if HAVE_MIMALLOC
    measure<Mimalloc>(what, octaves);
#else
    bench_missing("fragmentation", what, "mimalloc", "built without it");
#endif
}

int main()
{
    uint64_t available = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * PAGE;
    measure_all("touched / live, 64 B to 64 KiB", 10);
    if (available > (uint64_t)4 << 30)
        measure_all("touched / live, 64 B to 1 MiB", 14);
    else
        bench_missing("fragmentation", "touched / live, 64 B to 1 MiB", "all",
                      "less than 4 GiB of memory are free");
    return 0;
}
