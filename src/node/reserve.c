/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making segments that take long (filling 1 GiB of pages can take a second), in threads of their
 * own, so that the server notices deaths and serves others meanwhile.
 *
 * A job holds its entry by one `waiting`; the thread touches nothing but its job. So many run at
 * once; the others wait for their turn, oldest first, but no user takes more than half of what the
 * others leave: whoever comes finds room. A job that nobody waits for any more when its turn comes
 * is not begun. Without threads to be had the server makes one segment in a turn of its loop.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "node/server_core.h"

#define LAYER "node"

enum { JOBS = 16, TEXT_BYTES = SHMEMI_WIRE_TEXT };

typedef struct shmemi_job {
    struct shmemi_job *next;
    shmemi_entry_t *entry;
    bool started, threaded;
    pthread_t thread; /* if threaded */
    int event;        /* eventfd to write when done */
    shmemi_spec_t spec;
    uint64_t grow_to; /* 0: make it */
    /* results, valid once `done` */
    atomic_bool done;
    shmem_status_t status;
    int fd;
    uint64_t bytes, page_bytes;
    char text[TEXT_BYTES];
} shmemi_job_t;

static void *job_run(void *arg)
{
    shmemi_job_t *job = arg;
    uint64_t one = 1;
    job->status = job->grow_to
                      ? shmemi_growing_reserve(&job->spec, job->fd, job->grow_to)
                      : shmemi_making_run(&job->spec, &job->fd, &job->bytes, &job->page_bytes);
    if (job->status)
        snprintf(job->text, sizeof job->text, "%s", shmem_error_detail()->text);
    int event = job->event;
    /* SYNC reserve-done: release, pairs with acquire in shmemi_reserve_collect() */
    atomic_store_explicit(&job->done, true, memory_order_release);
    if (write(event, &one, sizeof one) < 0)
        return NULL; /* cannot fail: the counter is far from full */
    return NULL;
}

static unsigned jobs_running(shmem_server_t server)
{
    unsigned n = 0;
    for (shmemi_job_t *job = server->jobs; job; job = job->next)
        n += job->started;
    return n;
}

static bool may_start(shmem_server_t server, const shmemi_job_t *wanted)
{
    unsigned own = 0, others = 0;
    for (shmemi_job_t *job = server->jobs; job; job = job->next)
        if (job->started)
            ++*(job->spec.uid == wanted->spec.uid ? &own : &others);
    return others < JOBS && own < (JOBS - others + 1) / 2;
}

/* Signals belong to the program's threads: this one takes none. */
static bool start_thread(shmemi_job_t *job)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    job->threaded = !SHMEMI_FAULT("node.reserve.thread") &&
                    pthread_create(&job->thread, NULL, job_run, job) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    job->started = job->threaded;
    return job->threaded;
}

/* The turn of the oldest that may, if one does; newest are first in the list. False: no more. */
static bool start_next(shmem_server_t server)
{
    shmemi_job_t *oldest = NULL;
    for (shmemi_job_t *job = server->jobs; job; job = job->next)
        if (!job->started && may_start(server, job))
            oldest = job;
    if (!oldest)
        return false;
    if (start_thread(oldest))
        return true;
    if (jobs_running(server) == 0) { /* no thread to be had: here, then; the others next time */
        oldest->started = true;
        job_run(oldest);
    }
    return false;
}

static void job_finish(shmem_server_t server, shmemi_job_t **link)
{
    shmemi_job_t *job = *link;
    *link = job->next;
    if (job->threaded)
        pthread_join(job->thread, NULL);
    else if (!job->started) { /* the server ends, or nobody waits */
        job->status = SHMEM_ERR_SERVER_LOST;
        snprintf(job->text, sizeof job->text, "the node server ends");
    }
    if (job->status == SHMEM_OK && !job->grow_to)
        shmemi_table_ready(&server->table, job->entry, job->fd, job->bytes, job->page_bytes);
    job->entry->waiting--;
    SHMEMI_KILL_POINT("node.reserve.collected");
    if (job->grow_to) {
        job->entry->growing = false;
        shmemi_growing_settle(server, job->entry, job->grow_to, job->status, job->text);
    } else {
        shmemi_segments_settle(server, job->entry, job->status, job->text);
    }
    free(job);
}

static shmemi_job_t **find_orphan(shmem_server_t server)
{
    for (shmemi_job_t **link = &server->jobs; *link; link = &(*link)->next)
        if (!(*link)->started && (*link)->entry->waiting == 1)
            return link;
    return NULL;
}

static void drop_orphans(shmem_server_t server)
{
    shmemi_job_t **link;
    while ((link = find_orphan(server)) != NULL)
        job_finish(server, link);
}

static shmem_status_t job_start(shmem_server_t server, shmemi_entry_t *entry, uint64_t grow_to)
{
    shmemi_job_t *job = calloc(1, sizeof *job);
    if (!job)
        return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER, "no thread to make segment '%s'",
                            entry->spec.name);
    job->entry = entry;
    job->event = server->reserved.fd;
    job->spec = entry->spec;
    job->grow_to = grow_to;
    job->fd = entry->fd;
    drop_orphans(server);
    if (may_start(server, job) && !start_thread(job) && jobs_running(server) == 0) {
        free(job);
        return shmemi_quiet(SHMEM_ERR_LIMIT, LAYER, "no thread to make segment '%s'",
                            entry->spec.name);
    }
    entry->waiting++;
    job->next = server->jobs;
    server->jobs = job;
    return SHMEM_OK;
}

shmem_status_t shmemi_reserve_start(shmem_server_t server, shmemi_entry_t *entry)
{
    return job_start(server, entry, 0);
}

shmem_status_t shmemi_reserve_growth(shmem_server_t server, shmemi_entry_t *entry, uint64_t bytes)
{
    shmem_status_t status = job_start(server, entry, bytes);
    entry->growing = status == SHMEM_OK;
    return status;
}

static shmemi_job_t **find_done(shmem_server_t server)
{
    for (shmemi_job_t **link = &server->jobs; *link; link = &(*link)->next)
        /* SYNC reserve-done: acquire, pairs with release in job_run() */
        if (atomic_load_explicit(&(*link)->done, memory_order_acquire))
            return link;
    return NULL;
}

void shmemi_reserve_collect(shmem_server_t server)
{
    uint64_t count;
    if (read(server->reserved.fd, &count, sizeof count) < 0)
        return;
    shmemi_job_t **link;
    while ((link = find_done(server)) != NULL)
        job_finish(server, link);
    drop_orphans(server);
    while (start_next(server))
        ;
}

void shmemi_reserve_fini(shmem_server_t server)
{
    while (server->jobs)
        job_finish(server, &server->jobs); /* joins */
}
