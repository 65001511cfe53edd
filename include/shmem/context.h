/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: a process's membership in a node server and in a job.
 *
 * A context is one client of a node server and one processing element (PE) of a job: rank r of n.
 * Started alone, a program is PE 0 of 1; under `shmem-run -n N` it is one of N. A process may
 * have several contexts at once (also N PEs as N threads: give rank, size and job explicitly).
 *
 * Threads: a context may be used by several threads, except that collective calls (those which say
 * so) must be made by one thread at a time. Fork: a child must not use its parent's context (calls
 * give SHMEM_ERR_STATE); it makes its own.
 *
 * Times: a timeout is in nanoseconds of the monotonic clock, negative (SHMEM_FOREVER) for no limit,
 * 0 for a try.
 */
#ifndef SHMEM_CONTEXT_H
#define SHMEM_CONTEXT_H

#include <shmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHMEM_FOREVER ((int64_t)-1)

/* Who may open an object: a mode as of files, read and write only. The creator's user may read
 * and write always. */
enum {
    SHMEM_ACCESS_GROUP_READ = 0040,
    SHMEM_ACCESS_GROUP_WRITE = 0020, /* wants GROUP_READ */
    SHMEM_ACCESS_OTHER_READ = 0004,
    SHMEM_ACCESS_OTHER_WRITE = 0002 /* wants OTHER_READ */
};

typedef struct shmem_context *shmem_context_t;

/* How to join. Zeroed members mean: as the environment says (see docs/settings.md). */
typedef struct shmem_context_params {
    size_t size;        /* sizeof(shmem_context_params_t) */
    const char *server; /* address of the node server: path or @name; NULL: SHMEM_SERVER */
    const char *job;    /* name of the job, the same for all of its PEs; NULL: SHMEM_JOB */
    int pes;            /* number of PEs, > 0; 0: SHMEM_SIZE. Then `rank` is ignored, too */
    int rank;           /* 0 to pes - 1 */
    int64_t timeout;    /* ns to wait for the others; 0: SHMEM_INIT_TIMEOUT */
} shmem_context_params_t;
#define SHMEM_CONTEXT_PARAMS_INIT                                                                  \
    {                                                                                              \
        sizeof(shmem_context_params_t), 0, 0, 0, 0, 0                                              \
    }

/*
 * Join a node server (starting a private one when none runs) and the job. Collective over the job:
 * returns when all PEs have joined. The context is the caller's until shmem_context_finalize().
 *   context  out, set on success only
 *   params   may be NULL: everything from the environment
 * Errors: INVALID, SETTING (a SHMEM_* variable is bad), NO_SERVER, VERSION (server or a peer of
 * another layout), ADDRESS_TAKEN (the unified address range; the text names the mapping in the
 * way), TIMEOUT (names the ranks that are missing), MISMATCH (another job size; a rank taken
 * twice), LIMIT, PEER_DEAD (a PE died meanwhile), UNSUPPORTED (started by a launcher that is not
 * understood, such as mpirun, and SHMEM_SIZE is not set), NOMEM, SYSTEM.
 */
SHMEM_API shmem_status_t shmem_context_init_params(shmem_context_t *context,
                                                   const shmem_context_params_t *params);
SHMEM_API shmem_status_t shmem_context_init(shmem_context_t *context);

/*
 * Leave. Collective: waits until all living PEs leave, so that nobody's memory goes away under
 * another's put; a dead PE does not hold it up. Unmaps and destroys what the context still has.
 * NULL is accepted. Afterwards the handle is invalid, as are the symmetric memory and the pools
 * made with it (pools are closed; shmem_pool_close() may follow and does nothing). Using such a
 * handle is a mistake that gives STATE as long as the process has finalized, destroyed or closed
 * fewer than 64 others of its kind since; later it is undefined.
 * Returns SHMEM_OK, or what ended badly (PEER_DEAD with the name of a PE that died in the job's
 * life, MISMATCH when a PE called something else here): the context is gone in every case, except
 * for STATE: it is finalized already, or another thread is inside a collective call of it; and
 * BUSY: operations in flight have memory pinned (shmem/arena.h), wait for them and call it again.
 */
SHMEM_API shmem_status_t shmem_context_finalize(shmem_context_t context);

/* Rank of the calling PE, and number of PEs. Never fail for a valid context; -1 for NULL and a
 * finalized one. */
SHMEM_API int shmem_context_rank(shmem_context_t context);
SHMEM_API int shmem_context_size(shmem_context_t context);

/*
 * Wait until all PEs of the job have called it; everything that a PE wrote to shared memory before
 * is visible to all afterwards. Collective, blocking.
 * Errors: PEER_DEAD (the text names the PE; every survivor gets it within a second, and so does
 * every later collective), MISMATCH (another PE made another collective call here; the text names
 * both; all PEs get it and may go on), STATE (forked child), TIMEOUT (timed form; the context's
 * collectives are then out of step with the others and refuse further use with STATE).
 */
SHMEM_API shmem_status_t shmem_context_barrier(shmem_context_t context);
/* `timeout` in nanoseconds, negative for no limit. */
SHMEM_API shmem_status_t shmem_context_barrier_timed(shmem_context_t context, int64_t timeout);

#ifdef __cplusplus
}
#endif
#endif
