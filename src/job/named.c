/* SPDX-License-Identifier: Apache-2.0 */
/* Objects by name; see named.h. */
#include "job/named.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "job/names.h"

#define LAYER "job"

shmem_status_t shmemi_named_refuse(const char *what, const char *name, size_t room)
{
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                       "%s name '%.80s': want 1 to %zu letters, digits, '.', '_', '-' or '/', and "
                       "no '..' between slashes",
                       what, name, room - 1);
}

shmem_status_t shmemi_named_make(const shmemi_named_t *kind, const char *name, char *full)
{
    if (!shmemi_name_is_good(name, kind->room))
        return shmemi_named_refuse(kind->what, name, kind->room);
    strcpy(full, kind->prefix);
    strcat(full, name);
    return SHMEM_OK;
}

shmem_status_t shmemi_named_translate(const shmemi_named_t *kind, shmem_context_t context,
                                      const char *name, shmem_status_t status)
{
    const char *belongs = strstr(shmem_error_detail()->text, "belongs to user");
    if (status == SHMEM_ERR_NOT_FOUND)
        return shmemi_quiet(status, LAYER,
                            "there is no %s '%s' at the node server %s: is its creator running, "
                            "with the same SHMEM_SERVER?",
                            kind->what, name, shmemi_client_address(context->client));
    if (status == SHMEM_ERR_EXISTS)
        return shmemi_quiet(status, LAYER,
                            "a %s '%s' exists already: open it with shmem_%s_open() or choose "
                            "another name",
                            kind->what, name, kind->what);
    if (status == SHMEM_ERR_ACCESS && belongs)
        return shmemi_quiet(status, LAYER, "%s '%s' %s", kind->what, name, belongs);
    return status;
}

void shmemi_named_user_name(const shmemi_named_t *kind, const shmemi_segment_entry_t *entry,
                            char *text)
{
    const char *name = entry->name + strlen(kind->prefix);
    size_t n = strnlen(name, kind->room - 1);
    memcpy(text, name, n);
    text[n] = 0;
}

static shmem_status_t list_check(const shmemi_named_t *kind, shmem_context_t context,
                                 const void *entries, size_t room, const size_t *count)
{
    char call[32];
    snprintf(call, sizeof call, "shmem_%s_list", kind->what);
    if (context && count && (!room || entries))
        return shmemi_context_check(context, call);
    return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                       "%s wants a context, a place for the number of %ss, and for as many entries "
                       "as it is told",
                       call, kind->what);
}

shmem_status_t shmemi_named_list(const shmemi_named_t *kind, shmem_context_t context,
                                 const void *entries, size_t room, const size_t *count,
                                 shmemi_segment_entry_t **all, size_t *listed, size_t *found)
{
    shmem_status_t status = list_check(kind, context, entries, room, count);
    if (status)
        return status;
    shmemi_segment_entry_t *list = room ? calloc(room, sizeof *list) : NULL;
    if (room && !list)
        return shmemi_fail(SHMEM_ERR_NOMEM, LAYER, "private memory for a list of %zu %ss", room,
                           kind->what);
    status = shmemi_client_segment_list(context->client, kind->prefix, list, room, found);
    if (status) {
        free(list);
        return status;
    }
    *all = list;
    *listed = *found < room ? *found : room;
    return SHMEM_OK;
}
