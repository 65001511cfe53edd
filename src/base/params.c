/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of the public interface that may grow; see params.h. */
#include "base/params.h"

#include <stdbool.h>
#include <string.h>

#include "base/status.h"

#define LAYER "base"

static size_t size_of(const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

static bool is_zero(const unsigned char *bytes, size_t n)
{
    while (n && !*bytes) {
        bytes++;
        n--;
    }
    return !n;
}

shmem_status_t shmemi_params_check(const void *given, size_t least, const char *name)
{
    if (!given)
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER, "%s: the pointer is NULL", name);
    if (size_of(given) < least || size_of(given) > SHMEMI_PARAMS_MOST)
        return shmemi_fail(
            SHMEM_ERR_INVALID, LAYER,
            "%s has size %zu, %zu or a little more expected: set its member `size` to "
            "sizeof(%s), or begin with its initializer",
            name, size_of(given), least, name);
    return SHMEM_OK;
}

shmem_status_t shmemi_params_take(void *own, size_t bytes, size_t least, const void *given,
                                  const char *name)
{
    shmem_status_t status = shmemi_params_check(given, least, name);
    if (status)
        return status;
    size_t size = size_of(given), known = size < bytes ? size : bytes;
    if (!is_zero((const unsigned char *)given + known, size - known))
        return shmemi_fail(SHMEM_ERR_INVALID, LAYER,
                           "%s of %zu bytes: this library knows the first %zu, and what follows "
                           "is not zero: the program needs a newer library",
                           name, size, known);
    memset(own, 0, bytes);
    memcpy(own, given, known);
    memcpy(own, &bytes, sizeof bytes);
    return SHMEM_OK;
}

void shmemi_params_give(void *given, const void *own, size_t bytes)
{
    size_t size = size_of(given), known = size < bytes ? size : bytes;
    memset(given, 0, size);
    memcpy(given, own, known);
    memcpy(given, &size, sizeof size);
}
