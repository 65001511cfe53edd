/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocators that pools are measured beside: glibc's, mimalloc, boost.interprocess with a lock,
 * as far as this machine has them (HAVE_MIMALLOC, HAVE_BOOST). Each has alloc() and free(); how it
 * is prepared is the benchmark's.
 */
#ifndef SHMEM_BENCH_ALLOCATORS_HPP
#define SHMEM_BENCH_ALLOCATORS_HPP

#include <dlfcn.h>
#include <shmem/status.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if HAVE_MIMALLOC
#include <mimalloc.h>
#endif
#if HAVE_BOOST
#include <boost/interprocess/indexes/iset_index.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>
#endif

static inline void must(shmem_status_t status, const char *what)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", what, shmem_error_detail()->text);
        exit(1);
    }
}

static inline uint64_t random_next(uint64_t &state)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* glibc's own functions, even where another library took over malloc. */
struct GlibcHeap {
    static constexpr const char *name = "glibc (private)";
    void *(*malloc_function)(size_t);
    void (*free_function)(void *);
    void find()
    {
        void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
        malloc_function = (void *(*)(size_t))dlsym(libc, "malloc");
        free_function = (void (*)(void *))dlsym(libc, "free");
    }
    void *alloc(size_t n) { return malloc_function(n); }
    void free(void *p) { free_function(p); }
};

#if HAVE_MIMALLOC
struct MimallocHeap {
    static constexpr const char *name = "mimalloc (private)";
    void *alloc(size_t n) { return mi_malloc(n); }
    void free(void *p) { mi_free(p); }
};
#endif

#if HAVE_BOOST
struct BoostHeap {
    static constexpr const char *name = "boost.interprocess";
    /* the default for an external buffer is no lock at all */
    typedef boost::interprocess::basic_managed_external_buffer<
        char, boost::interprocess::rbtree_best_fit<boost::interprocess::mutex_family>,
        boost::interprocess::iset_index>
        heap_t;
    heap_t *heap;
    /* In `bytes` of shared memory; `flags`: further ones of mmap(). */
    void make(size_t bytes, int flags)
    {
        void *memory =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | flags, -1, 0);
        if (memory == MAP_FAILED)
            exit(1);
        heap = new heap_t(boost::interprocess::create_only, memory, bytes);
    }
    void *alloc(size_t n) { return heap->allocate(n); }
    void free(void *p) { heap->deallocate(p); }
};
#endif

#endif
