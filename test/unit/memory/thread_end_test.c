/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program's own destructor of thread data uses a pool while the thread ends, when others may have
 * its row of the roster already: what it counts must not go into their row.
 */
#include <pthread.h>
#include <semaphore.h>

#include "pool_world.h"

static shmemi_actor_t actor;
static shmemi_pool_t *pool;
static pthread_key_t key;
static sem_t taken, over;

/* Takes the first free row, and keeps it. */
static void *next_one(void *arg)
{
    CHECK(shmemi_self(&actor));
    sem_post(&taken);
    sem_wait(&over);
    return arg;
}

static void destructor(void *block)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, next_one, NULL) == 0);
    sem_wait(&taken);
    CHECK_OK(shmemi_pool_free(pool, block));
    const shmemi_heap_t *heap = shmemi_heap_get(pool);
    const shmemi_self_t *self = shmemi_self(&actor);
    CHECK(heap && self && heap->stats == &self->thread->stats);
    sem_post(&over);
    pthread_join(thread, NULL);
}

static void *user(void *arg)
{
    CHECK(pthread_setspecific(key, world_alloc(pool, 300)) == 0);
    return arg;
}

static void counts_go_to_the_own_row(void)
{
    pthread_t thread;
    world_make(1);
    world_pool(8 << 20, SHMEM_POOL_NEAREST, 0, NULL);
    world_actor(&actor, 0);
    CHECK(pthread_key_create(&key, destructor) == 0); /* before the pool is used at all */
    CHECK(sem_init(&taken, 0, 0) == 0 && sem_init(&over, 0, 0) == 0);
    pool = world_attach(&actor, NULL);
    CHECK(pthread_create(&thread, NULL, user, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_OK(shmemi_pool_trim(pool));
    CHECK_OK(shmemi_pool_check(pool));
    CHECK_EQ(world_used(pool), 0);
    shmemi_pool_detach(pool);
    shmemi_actor_fini(&actor);
}

int main(void)
{
    RUN(counts_go_to_the_own_row);
    return harness_end();
}
