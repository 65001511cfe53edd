/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's private server: one per user, layout and network namespace, at an abstract address. It
 * ends when its last client has gone, so an attach may meet one that is just ending, or several
 * processes may start one at once: connect and start alternate until a hello is answered.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "base/util.h"
#include "node/client_core.h"

#define LAYER "node"

#define START_NS       10000000000 /* how long starting may take in all */
#define LEAST_START_NS 1000000000  /* and how long it may take whatever the program's patience */

enum { TRIED_BYTES = 400 };

/* ---- finding the program ---- */

typedef struct search {
    char found[PATH_MAX];
    char tried[TRIED_BYTES]; /* for the error's text */
} search_t;

static bool try_program(search_t *search, const char *path)
{
    size_t used = strlen(search->tried);
    snprintf(search->tried + used, sizeof search->tried - used, "%s%s", used ? ", " : "", path);
    if (access(path, X_OK))
        return false;
    snprintf(search->found, sizeof search->found, "%s", path);
    return true;
}

static bool try_beside_library(search_t *search)
{
    static const char here;
    Dl_info info;
    char path[PATH_MAX], real[PATH_MAX];
    if (!dladdr(&here, &info) || !info.dli_fname || !realpath(info.dli_fname, real))
        return false;
    char *slash = strrchr(real, '/');
    if (!slash)
        return false;
    *slash = 0;
    static const char *const places[] = {"/../bin/shmemd", "/../../bin/shmemd"}; /* lib/<triplet> */
    for (size_t i = 0; i < SHMEMI_COUNT(places); i++)
        if (snprintf(path, sizeof path, "%s%s", real, places[i]) < (int)sizeof path &&
            try_program(search, path))
            return true;
    return false;
}

static bool try_search_path(search_t *search)
{
    const char *list = getenv("PATH");
    char path[PATH_MAX];
    while (list && *list) {
        size_t n = strcspn(list, ":");
        bool fits = snprintf(path, sizeof path, "%.*s/shmemd", (int)n, list) < (int)sizeof path;
        if (n && *list == '/' && fits && access(path, X_OK) == 0)
            return try_program(search, path);
        list += n + (list[n] == ':');
    }
    size_t used = strlen(search->tried);
    snprintf(search->tried + used, sizeof search->tried - used, "%sshmemd on PATH",
             used ? ", " : "");
    return false;
}

/* A program with more rights than its caller takes no directions from the environment. */
static bool find_program(const shmemi_settings_t *settings, search_t *search)
{
    bool trusted = !getauxval(AT_SECURE);
    search->tried[0] = 0;
    if (trusted && settings->shmemd[0])
        return try_program(search, settings->shmemd);
    return try_beside_library(search) || (trusted && try_search_path(search));
}

/* ---- starting ---- */

/* Reads what the program says until it closes the pipe or the deadline passes. */
static size_t read_word(int fd, char *word, size_t room, shmemi_deadline_t deadline)
{
    size_t got = 0;
    while (got < room) {
        int64_t left = (deadline - shmemi_clock_now()) / 1000000;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left <= 0)
            break;
        int n = poll(&p, 1, left > INT_MAX ? INT_MAX : (int)left);
        if (n < 0 && errno == EINTR)
            continue;
        ssize_t came = n == 1 ? read(fd, word + got, room - got) : -1;
        if (came < 0 && n == 1 && errno == EINTR)
            continue;
        if (came <= 0)
            break;
        got += (size_t)came;
    }
    return got;
}

static shmem_status_t start_failed(const char *program, const char *word, size_t got)
{
    int error = 0;
    char reason[96];
    if (got == 1 + sizeof error && word[0] == '!') {
        memcpy(&error, word + 1, sizeof error);
        return shmemi_fail(SHMEM_ERR_NO_SERVER, LAYER, "cannot run %s to start a node server: %s",
                           program, strerror_r(error, reason, sizeof reason));
    }
    if (got > 1 && word[0] == '-')
        return shmemi_fail(SHMEM_ERR_NO_SERVER, LAYER, "%s could not start a node server: %.*s",
                           program, (int)(got - 1), word + 1);
    return shmemi_fail(SHMEM_ERR_NO_SERVER, LAYER,
                       "%s was started as node server but ended or hung without a word; run it by "
                       "hand to see why, or set SHMEM_SHMEMD",
                       program);
}

/* The program says "+" when it listens, "=" when another server does, "-" and a sentence when it
 * failed (see daemon/shmemd.c). */
static shmem_status_t start(const shmemi_client_t *client, const shmemi_settings_t *settings,
                            shmemi_deadline_t deadline, bool once_more)
{
    search_t search;
    char word[256];
    int ready;
    if (!find_program(settings, &search))
        return shmemi_fail(SHMEM_ERR_NO_SERVER, LAYER,
                           "no node server runs, and the program to start one was not found; tried "
                           "%s. Install shmemd, or set SHMEM_SHMEMD to it, or SHMEM_SERVER to a "
                           "running server",
                           search.tried);
    char *argv[] = {"shmemd", "--private", "--detach", "--address", (char *)client->address, NULL};
    shmem_status_t status = shmemi_spawn(search.found, argv, &ready);
    if (status)
        return status;
    size_t got = read_word(ready, word, sizeof word, deadline);
    close(ready);
    if (!got && once_more && !shmemi_deadline_passed(deadline)) /* somebody killed it */
        return start(client, settings, deadline, false);
    if (got >= 1 && (word[0] == '+' || word[0] == '='))
        return SHMEM_OK;
    return start_failed(search.found, word, got);
}

/* ---- attach ---- */

static void private_address(char *address, size_t room)
{
    snprintf(address, room, "@shmem-%u-%08x-%u", (unsigned)geteuid(), shmemi_wire_layout(),
             (unsigned)SHMEMI_WIRE_VERSION);
}

static void pause_briefly(unsigned attempt)
{
    struct timespec t = {0, attempt < 20 ? 500000 * (long)attempt : 10000000};
    nanosleep(&t, NULL);
}

shmem_status_t shmemi_private_attach(shmemi_client_t *client, const shmemi_settings_t *settings,
                                     const char *name)
{
    shmemi_deadline_t deadline =
        shmemi_deadline_in(shmemi_client_patience(settings, LEAST_START_NS, START_NS));
    private_address(client->address, sizeof client->address);
    for (unsigned attempt = 0;; attempt++) {
        shmem_status_t status = shmemi_client_connect(client);
        if (status == SHMEM_OK) {
            status = shmemi_client_hello(client, name, settings);
            if (status != SHMEM_ERR_SERVER_LOST || shmemi_deadline_passed(deadline))
                return status;
            shmemi_client_disconnect(client); /* it was just ending: another one is due */
            pause_briefly(attempt);
        } else if (status == SHMEM_ERR_NO_SERVER) {
            if (shmemi_deadline_passed(deadline))
                return shmemi_fail(SHMEM_ERR_NO_SERVER, LAYER,
                                   "private node servers at %s start and end again before they can "
                                   "be used",
                                   client->address);
            status = start(client, settings, deadline, true);
            if (status)
                return status;
        } else {
            return status;
        }
    }
}
