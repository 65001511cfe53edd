/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native interface, whole: what programs include.
 *
 * <shmem/shmem.h>, this file, is not <shmem.h>: that is the name of OpenSHMEM's header, which is
 * another interface. Three functions have short names that OpenSHMEM uses too, with other
 * arguments: shmem_init, shmem_barrier, shmem_finalize. Here they are macros for
 * shmem_context_init, shmem_context_barrier, shmem_context_finalize, which a program may always use
 * instead; a program that includes both headers, in any order, has to.
 *
 *     shmem_context_t ctx;
 *     shmem_memory_t mem;
 *     shmem_init(&ctx);
 *     shmem_memory_create(ctx, &mem, 1 << 20);
 *     char *mine = shmem_memory_map(mem);
 *     shmem_barrier(ctx);
 *     shmem_memory_unmap(mine);
 *     shmem_memory_destroy(mem);
 *     shmem_finalize(ctx);
 */
#ifndef SHMEM_SHMEM_H
#define SHMEM_SHMEM_H

#include <shmem/arena.h>
#include <shmem/comm.h>
#include <shmem/context.h>
#include <shmem/memory.h>
#include <shmem/plan.h>
#include <shmem/pool.h>
#include <shmem/region.h>
#include <shmem/server.h>
#include <shmem/settings.h>
#include <shmem/status.h>
#include <shmem/sync.h>
#include <shmem/topology.h>
#include <shmem/version.h>

/* The short names step aside for <shmem.h>. */
#ifndef SHMEM_OPENSHMEM_H
#define shmem_init(context)     shmem_context_init(context)
#define shmem_barrier(context)  shmem_context_barrier(context)
#define shmem_finalize(context) shmem_context_finalize(context)
#endif

#endif
