/* SPDX-License-Identifier: Apache-2.0 */
/* A node server for one test program alone: what the test counts, names and looks up in the roster
 * is not shared with other programs of the same user. */
#ifndef SHMEM_TEST_OWN_SERVER_H
#define SHMEM_TEST_OWN_SERVER_H

#include <shmem/server.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "harness.h"

static inline void own_server_serve(void *arg)
{
    int *ready = arg;
    shmem_server_t server;
    shmem_server_params_t params = SHMEM_SERVER_PARAMS_INIT;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    params.address = getenv("SHMEM_SERVER");
    CHECK_OK(shmem_server_create(&server, &params));
    CHECK_EQ(write(*ready, "", 1), 1);
    shmem_server_run(server);
    shmem_server_destroy(server);
}

/* Start it, as SHMEM_SERVER of this process and its children. */
static inline pid_t own_server_start(void)
{
    int ready[2];
    char address[64], byte;
    snprintf(address, sizeof address, "@shmem-test-%d", (int)getpid());
    setenv("SHMEM_SERVER", address, 1);
    if (pipe(ready))
        harness_fail(__FILE__, __LINE__, "no pipe");
    pid_t pid = harness_fork(own_server_serve, &ready[1]);
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        harness_fail(__FILE__, __LINE__, "the node server did not start");
    close(ready[0]);
    return pid;
}

static inline void own_server_stop(pid_t pid)
{
    kill(pid, SIGKILL);
    harness_wait(pid, 10);
}

#endif
