/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of mappings in the unified range.
 *
 *   Invariants  every page of the range is PROT_NONE or belongs to exactly one entry;
 *               entries do not overlap; entry.references >= 1.
 *
 * The table is process-wide, as the address space is. A lock guards it; handlers of fork keep it
 * usable in the child, where it is empty: inherited mappings stay until something else is mapped
 * over them.
 */
#include "os/space.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/status.h"
#include "base/util.h"

#define LAYER "os"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

typedef struct entry {
    uint64_t offset, bytes;
    dev_t device;
    ino_t inode;
    int writable;
    unsigned references;
} entry_t;

static struct {
    pthread_mutex_t lock;
    bool reserved;
    bool fork_handled;
    entry_t *entries;
    size_t count, room;
} space = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void)
{
    pthread_mutex_lock(&space.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&space.lock);
}

static void fork_child(void)
{
    space.count = 0;
    unlock(); /* taken by this thread, in the parent */
}

/* ---- the range ---- */

/* The first mapping that overlaps the range, as a line for a message. */
static void name_obstacle(char *text, size_t bytes)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned long from, to;
    snprintf(text, bytes, "an unknown mapping");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx", &from, &to) != 2 || to <= SHMEMI_SPACE_BASE ||
            from >= SHMEMI_SPACE_BASE + SHMEMI_SPACE_BYTES)
            continue;
        line[strcspn(line, "\n")] = 0;
        const char *path = strchr(line, '/');
        snprintf(text, bytes, "%lx-%lx %s", from, to, path ? path : "(anonymous memory)");
        break;
    }
    if (f)
        fclose(f);
}

static shmem_status_t reserve_failed(int error)
{
    struct rlimit limit;
    char obstacle[256];
    if (error == ENOMEM && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return shmemi_fail(SHMEM_ERR_LIMIT, LAYER,
                           "the unified range takes %llu GiB of addresses "
                           "(not memory), but RLIMIT_AS allows this process %llu GiB: raise it "
                           "with ulimit -v unlimited",
                           SHMEMI_SPACE_BYTES >> 30, (unsigned long long)limit.rlim_cur >> 30);
    if (error == EEXIST) {
        name_obstacle(obstacle, sizeof obstacle);
        return shmemi_fail(SHMEM_ERR_ADDRESS_TAKEN, LAYER,
                           "the unified range %llx-%llx is taken "
                           "in this process by %s",
                           SHMEMI_SPACE_BASE, SHMEMI_SPACE_BASE + SHMEMI_SPACE_BYTES, obstacle);
    }
    errno = error;
    return shmemi_fail_errno(LAYER, "cannot reserve the unified range %llx-%llx", SHMEMI_SPACE_BASE,
                             SHMEMI_SPACE_BASE + SHMEMI_SPACE_BYTES);
}

static shmem_status_t reserve_locked(void)
{
    void *want = (void *)(uintptr_t)SHMEMI_SPACE_BASE;
    if (space.reserved)
        return SHMEM_OK;
    if (!space.fork_handled && pthread_atfork(lock, unlock, fork_child))
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "cannot register the handlers of fork");
    space.fork_handled = true;
    void *got = mmap(want, SHMEMI_SPACE_BYTES, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED)
        return reserve_failed(errno);
    if (got != want) { /* a kernel before 4.17 takes the address as a hint */
        munmap(got, SHMEMI_SPACE_BYTES);
        return reserve_failed(EEXIST);
    }
    space.reserved = true;
    return SHMEM_OK;
}

shmem_status_t shmemi_space_reserve(void)
{
    lock();
    shmem_status_t status = reserve_locked();
    unlock();
    return status;
}

/* ---- mappings ---- */

static void *address_of(uint64_t offset)
{
    return (void *)(uintptr_t)(SHMEMI_SPACE_BASE + offset);
}

/* Make room for one more entry; the table may move. */
static bool grow(void)
{
    if (space.count < space.room)
        return true;
    size_t wanted = space.room ? space.room * 2 : 16;
    entry_t *moved = realloc(space.entries, wanted * sizeof *moved);
    if (!moved)
        return false;
    space.entries = moved;
    space.room = wanted;
    return true;
}

static entry_t *find_overlap(uint64_t offset, uint64_t bytes)
{
    for (size_t i = 0; i < space.count; i++) {
        entry_t *e = &space.entries[i];
        if (e->offset < offset + bytes && offset < e->offset + e->bytes)
            return e;
    }
    return NULL;
}

static shmem_status_t check_file(uint64_t offset, uint64_t bytes, int fd, struct stat *info)
{
    if (bytes == 0 || offset % SHMEMI_SPACE_UNIT || bytes % SHMEMI_PAGE ||
        !shmemi_range_inside(offset, bytes, SHMEMI_SPACE_BYTES))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "no segment of %llu bytes can lie at offset "
                           "%llx of the unified range",
                           (unsigned long long)bytes, (unsigned long long)offset);
    if (fstat(fd, info))
        return shmemi_fail_errno(LAYER, "cannot look at segment descriptor %d", fd);
    if (info->st_size < 0 || (uint64_t)info->st_size < bytes)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "cannot map %llu bytes of a segment that has "
                           "%lld",
                           (unsigned long long)bytes, (long long)info->st_size);
    return SHMEM_OK;
}

/* Another reference to what is there already, if it is the same. */
static shmem_status_t share_entry(entry_t *e, const entry_t *wanted)
{
    if (e->offset != wanted->offset || e->bytes != wanted->bytes || e->device != wanted->device ||
        e->inode != wanted->inode)
        return shmemi_fail(SHMEM_ERR_ADDRESS_TAKEN, LAYER,
                           "%s is mapped at %p + %llu already, "
                           "where %p + %llu was asked for",
                           e->inode == wanted->inode && e->device == wanted->device
                               ? "the same segment, with another size,"
                               : "another segment",
                           address_of(e->offset), (unsigned long long)e->bytes,
                           address_of(wanted->offset), (unsigned long long)wanted->bytes);
    if (e->writable != wanted->writable)
        return shmemi_fail(
            SHMEM_ERR_STATE, LAYER, "the segment is mapped at %p already in this process, for %s",
            address_of(e->offset), e->writable ? "reading and writing" : "reading only");
    e->references++;
    return SHMEM_OK;
}

static shmem_status_t add_entry(const entry_t *wanted, int fd)
{
    if (SHMEMI_FAULT("os.space.map") || !grow())
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "no memory for the table of mappings");
    int rights = PROT_READ | (wanted->writable ? PROT_WRITE : 0);
    if (mmap(address_of(wanted->offset), wanted->bytes, rights, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        int error = errno;
        /* a failed MAP_FIXED may have removed what was there */
        mmap(address_of(wanted->offset), wanted->bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        errno = error;
        return shmemi_fail_errno(LAYER, "cannot map %llu bytes of a segment%s",
                                 (unsigned long long)wanted->bytes,
                                 wanted->writable ? " for writing" : "");
    }
    space.entries[space.count++] = *wanted;
    return SHMEM_OK;
}

shmem_status_t shmemi_space_map(uint64_t offset, uint64_t bytes, int fd, int writable,
                                void **address)
{
    struct stat info;
    shmem_status_t status = check_file(offset, bytes, fd, &info);
    if (status)
        return status;
    entry_t wanted = {offset, bytes, info.st_dev, info.st_ino, writable != 0, 1};
    lock();
    status = reserve_locked();
    if (!status) {
        entry_t *there = find_overlap(offset, bytes);
        status = there ? share_entry(there, &wanted) : add_entry(&wanted, fd);
    }
    unlock();
    if (!status)
        *address = address_of(offset);
    return status;
}

/* Put PROT_NONE back over an entry and forget it. */
static shmem_status_t remove_entry(entry_t *e)
{
    if (mmap(address_of(e->offset), e->bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return shmemi_fail_errno(LAYER, "cannot unmap %p", address_of(e->offset));
    *e = space.entries[--space.count];
    return SHMEM_OK;
}

shmem_status_t shmemi_space_unmap(void *address)
{
    shmem_status_t status = SHMEM_OK;
    uint64_t offset = (uintptr_t)address - SHMEMI_SPACE_BASE;
    lock();
    entry_t *e = (uintptr_t)address >= SHMEMI_SPACE_BASE ? find_overlap(offset, 1) : NULL;
    if (!e || e->offset != offset)
        status = shmemi_fail(SHMEM_ERR_INVALID, LAYER, "no segment is mapped at %p", address);
    else if (e->references > 1)
        e->references--;
    else
        status = remove_entry(e);
    unlock();
    return status;
}
