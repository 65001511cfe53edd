/* SPDX-License-Identifier: Apache-2.0 */
/* The table of mapped objects: a hash table of lists. In a forked child it is usable and still
 * holds the parent's objects, whose contexts then refuse. */
#include "job/mapped.h"

#include <pthread.h>

enum { BUCKETS = 256 };

static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    struct shmem_memory *bucket[BUCKETS];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

static struct shmem_memory **bucket_of(const void *address)
{
    uintptr_t page = (uintptr_t)address / SHMEMI_PAGE;
    return &table.bucket[(page ^ page >> 9 ^ page >> 18) % BUCKETS];
}

static void handle_fork(void)
{
    pthread_atfork(shmemi_mapped_lock, shmemi_mapped_unlock, shmemi_mapped_unlock);
}

void shmemi_mapped_lock(void)
{
    pthread_once(&table.once, handle_fork);
    pthread_mutex_lock(&table.lock);
}

void shmemi_mapped_unlock(void)
{
    pthread_mutex_unlock(&table.lock);
}

void shmemi_mapped_add_locked(shmem_memory_t memory)
{
    struct shmem_memory **head = bucket_of(shmemi_memory_part(memory, memory->context->rank));
    memory->next_mapped = *head;
    *head = memory;
}

void shmemi_mapped_remove_locked(shmem_memory_t memory)
{
    struct shmem_memory **link = bucket_of(shmemi_memory_part(memory, memory->context->rank));
    for (; *link; link = &(*link)->next_mapped)
        if (*link == memory) {
            *link = memory->next_mapped;
            return;
        }
}

shmem_memory_t shmemi_mapped_find_locked(const void *address)
{
    struct shmem_memory *m = *bucket_of(address);
    while (m && shmemi_memory_part(m, m->context->rank) != (const char *)address)
        m = m->next_mapped;
    return m;
}
