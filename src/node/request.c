/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request, one answer.
 *
 * Invariants: an answer belongs to the request with its sequence number; late answers of requests
 * that timed out are dropped with their descriptors, and the segments that they opened are closed
 * again; answers that the successor of a killed server repeats are dropped; number 0 is an error of
 * the connection itself and answers whatever is asked. After SERVER_LOST or PROTOCOL no request is
 * made any more. The next request takes back one that timed out and that the server has not
 * answered yet.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/status.h"
#include "node/client_core.h"
#include "os/identity.h"
#include "os/socket.h"

#define LAYER "node"

#define ANSWER_SPIN_NS 30000

/* ---- descriptors ---- */

shmem_status_t shmemi_handle_init(shmemi_handle_t *handle, int fd)
{
    struct stat info;
    if (fstat(fd, &info))
        return shmemi_fail_errno(LAYER, "cannot look at descriptor %d", fd);
    *handle = (shmemi_handle_t){fd, info.st_dev, info.st_ino};
    return SHMEM_OK;
}

bool shmemi_handle_is_ours(const shmemi_handle_t *handle)
{
    struct stat info;
    int saved = errno;
    bool ours = handle->fd >= 0 && fstat(handle->fd, &info) == 0 && info.st_dev == handle->dev &&
                info.st_ino == handle->ino;
    errno = saved;
    return ours;
}

void shmemi_handle_close(shmemi_handle_t *handle)
{
    if (shmemi_handle_is_ours(handle))
        close(handle->fd);
    handle->fd = -1;
}

/* ---- the exchange ---- */

shmem_status_t shmemi_client_check(const shmemi_client_t *client)
{
    if (client->fork_generation == shmemi_fork_generation())
        return SHMEM_OK;
    return shmemi_fail(SHMEM_ERR_STATE, LAYER,
                       "this context belongs to the parent of this forked process; make a new one");
}

/* Before there is a roster the attach goes on with the next server: nothing is lost yet. */
static shmem_status_t lost(shmemi_client_t *client, const char *how)
{
    atomic_store_explicit(&client->lost, true, memory_order_relaxed);
    if (!client->roster)
        return shmemi_quiet(SHMEM_ERR_SERVER_LOST, LAYER, "the node server at %s %s",
                            client->address, how);
    return shmemi_fail(SHMEM_ERR_SERVER_LOST, LAYER,
                       "the node server at %s %s; what is mapped keeps working, new memory needs a "
                       "new context",
                       client->address, how);
}

/* The server's own sentence becomes ours. What a caller may well expect is not logged. */
static shmem_status_t server_said(shmemi_client_t *client, const shmemi_wire_error_t *error)
{
    shmem_status_t status = (shmem_status_t)error->status;
    if (error->text_bytes >= sizeof error->text || error->status >= 0 ||
        strcmp(shmem_status_name(status), "unknown") == 0) {
        atomic_store_explicit(&client->lost, true, memory_order_relaxed);
        return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER, "the server at %s answered with status %d",
                           client->address, (int)error->status);
    }
    int length = (int)error->text_bytes;
    if (status == SHMEM_ERR_EXISTS || status == SHMEM_ERR_NOT_FOUND || status == SHMEM_ERR_MISMATCH)
        return shmemi_quiet(status, LAYER, "%.*s", length, error->text);
    return shmemi_fail(status, LAYER, "%.*s", length, error->text);
}

/* Most answers come within a few microseconds: worth asking for them before going to sleep, which
 * costs as much. The yield lets the server run where it has no processor of its own. */
static void spin(int fd)
{
    shmemi_deadline_t end = shmemi_deadline_in(ANSWER_SPIN_NS);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 0) == 0 && !shmemi_deadline_passed(end))
        sched_yield();
}

/* Receive the next well-formed message. A reset connection may still hold the server's last words:
 * the error is reported once, then the message comes. */
static shmem_status_t receive(shmemi_client_t *client, shmemi_wire_message_t *message, int *fd,
                              shmemi_deadline_t deadline)
{
    int fds[SHMEMI_SOCKET_FDS], nfds = 0;
    size_t got = 0;
    spin(client->socket.fd);
    shmem_status_t status = shmemi_socket_receive(client->socket.fd, message, sizeof *message, &got,
                                                  fds, &nfds, deadline);
    if (status == SHMEM_ERR_SERVER_LOST)
        status =
            shmemi_socket_receive(client->socket.fd, message, sizeof *message, &got, fds, &nfds, 0);
    if (status)
        return status == SHMEM_ERR_SERVER_LOST ? lost(client, "went away") : status;
    status = shmemi_wire_check(message, got);
    if (status == SHMEM_OK && nfds > 1)
        status = shmemi_quiet(SHMEM_ERR_PROTOCOL, LAYER, "an answer with %d descriptors", nfds);
    if (status) {
        while (nfds)
            close(fds[--nfds]);
        atomic_store_explicit(&client->lost, true, memory_order_relaxed);
        char text[256];
        snprintf(text, sizeof text, "%s", shmem_error_detail()->text);
        return shmemi_fail(status, LAYER, "the server at %s: %s", client->address, text);
    }
    *fd = nfds ? fds[0] : -1;
    return SHMEM_OK;
}

/* An answer came too late for who asked. What it opened is to be closed; more than fit stay
 * open for this client until it ends. One that came before, from a server that was killed then, is
 * only said again. */
static void note_stray(shmemi_client_t *client, const shmemi_wire_message_t *message)
{
    if (message->header.sequence == client->answered)
        return;
    client->answered = message->header.sequence;
    if (message->header.type == SHMEMI_WIRE_SEGMENT && client->strays < SHMEMI_STRAYS)
        client->stray[client->strays++] = message->segment.id;
}

/* Receive until the answer of this sequence number. */
static shmem_status_t receive_answer(shmemi_client_t *client, shmemi_wire_message_t *message,
                                     uint32_t sequence, int *fd, shmemi_deadline_t deadline)
{
    for (;;) {
        shmem_status_t status = receive(client, message, fd, deadline);
        if (status == SHMEM_ERR_TIMEOUT)
            return shmemi_fail(SHMEM_ERR_TIMEOUT, LAYER,
                               "the node server at %s did not answer in time: it is stopped or "
                               "overloaded",
                               client->address);
        if (status == SHMEM_ERR_LIMIT) /* it came, but not its descriptor */
            note_stray(client, message);
        if (status)
            return status;
        if (message->header.sequence == sequence) {
            client->answered = sequence;
            return SHMEM_OK;
        }
        if (message->header.sequence == 0 && message->header.type == SHMEMI_WIRE_ERROR)
            return SHMEM_OK;
        note_stray(client, message);
        if (*fd >= 0)
            close(*fd);
    }
}

static shmem_status_t exchange(shmemi_client_t *client, shmemi_wire_message_t *message,
                               shmemi_wire_type_t wanted, int *fd, shmemi_deadline_t deadline)
{
    if (++client->sequence == 0)
        client->sequence = 1;
    uint32_t sequence = message->header.sequence = client->sequence;
    shmem_status_t status =
        shmemi_socket_send(client->socket.fd, message, message->header.bytes, NULL, 0, deadline);
    SHMEMI_KILL_POINT("node.request.sent");
    if (status && status != SHMEM_ERR_SERVER_LOST) /* its last words may lie there */
        return status;
    status = receive_answer(client, message, sequence, fd, deadline);
    if (status)
        return status;
    if (message->header.type == wanted ||
        (wanted == SHMEMI_WIRE_WELCOME && message->header.type == SHMEMI_WIRE_HELLO_AGAIN))
        return SHMEM_OK;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    if (message->header.type == SHMEMI_WIRE_ERROR)
        return server_said(client, &message->error);
    atomic_store_explicit(&client->lost, true, memory_order_relaxed);
    return shmemi_fail(SHMEM_ERR_PROTOCOL, LAYER, "the server at %s answered with %s, not with %s",
                       client->address, shmemi_wire_type_name(message->header.type),
                       shmemi_wire_type_name(wanted));
}

/* The thread's error detail stays that of the request. */
static void close_strays(shmemi_client_t *client, shmemi_deadline_t deadline)
{
    shmem_error_detail_t detail = *shmem_error_detail();
    char text[512];
    snprintf(text, sizeof text, "%s", detail.text);
    while (client->strays) {
        shmemi_wire_message_t message;
        int came = -1;
        shmemi_wire_begin(&message, SHMEMI_WIRE_SEGMENT_CLOSE, 0);
        message.close.id = client->stray[--client->strays];
        if (exchange(client, &message, SHMEMI_WIRE_DONE, &came, deadline))
            break;
    }
    if (detail.status)
        shmemi_quiet(detail.status, detail.layer, "%s", text);
}

shmem_status_t shmemi_client_request(shmemi_client_t *client, shmemi_wire_message_t *message,
                                     shmemi_wire_type_t wanted, int *fd, shmemi_deadline_t deadline)
{
    int came = -1;
    shmem_status_t status = shmemi_client_check(client);
    if (status)
        return status;
    pthread_mutex_lock(&client->lock);
    if (atomic_load_explicit(&client->lost, memory_order_relaxed))
        status = lost(client, "is gone");
    else if (!shmemi_handle_is_ours(&client->socket))
        status = lost(client, "cannot be asked: this process has closed the connection");
    else
        status = exchange(client, message, wanted, &came, deadline);
    if (client->strays && status != SHMEM_ERR_TIMEOUT && status != SHMEM_ERR_SERVER_LOST)
        close_strays(client, shmemi_deadline_in(SHMEMI_REQUEST_NS));
    pthread_mutex_unlock(&client->lock);
    if (status == SHMEM_OK && fd)
        *fd = came;
    else if (status == SHMEM_OK && came >= 0)
        close(came);
    return status;
}
