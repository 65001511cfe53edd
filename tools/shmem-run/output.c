/* SPDX-License-Identifier: Apache-2.0 */
/* Streams to lines, lines to sinks. A failed allocation loses output, says so, and goes on. */
#include "output.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_MAX = 64 << 10, DRAIN_READS = 17 /* as much as a pipe can hold */ };

static bool same_file(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

void run_output_init(run_output_t *output)
{
    *output = (run_output_t){.out.fd = STDOUT_FILENO, .err_own.fd = STDERR_FILENO};
    output->err = same_file(STDOUT_FILENO, STDERR_FILENO) ? &output->out : &output->err_own;
}

void run_output_fini(run_output_t *output)
{
    free(output->out.data);
    free(output->err_own.data);
}

/* Room for n more bytes at `end`: move the waiting bytes to the front, then grow. */
static bool sink_reserve(run_sink_t *sink, size_t n)
{
    if (sink->capacity - sink->end >= n)
        return true;
    if (sink->start) {
        memmove(sink->data, sink->data + sink->start, sink->end - sink->start);
        sink->end -= sink->start;
        sink->start = 0;
    }
    size_t capacity = sink->capacity ? sink->capacity : READ_MAX;
    while (capacity - sink->end < n)
        capacity *= 2;
    char *data = capacity == sink->capacity ? sink->data : realloc(sink->data, capacity);
    if (!data)
        return false;
    sink->data = data;
    sink->capacity = capacity;
    return true;
}

static void sink_append(run_sink_t *sink, const char *data, size_t n)
{
    if (sink->error)
        return;
    if (!sink_reserve(sink, n)) {
        sink->error = ENOMEM;
        return;
    }
    memcpy(sink->data + sink->end, data, n);
    sink->end += n;
}

/* If another stream's line is unfinished, it ends here. */
static void sink_take_floor(run_sink_t *sink, run_stream_t *stream)
{
    if (sink->floor && sink->floor != stream) {
        sink_append(sink, "\n", 1);
        sink->floor->midline = false;
    }
    sink->floor = NULL;
}

void run_output_say(run_output_t *output, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = snprintf(text, sizeof text, "shmem-run: ");
    vsnprintf(text + n, sizeof text - (size_t)n - 1, format, args);
    va_end(args);
    strcat(text, "\n");
    sink_take_floor(output->err, NULL);
    sink_append(output->err, text, strlen(text));
}

bool run_sink_is_full(const run_sink_t *sink)
{
    return sink->end - sink->start >= RUN_SINK_MAX;
}

bool run_sink_flush(run_sink_t *sink)
{
    while (!sink->error && sink->start != sink->end) {
        struct pollfd p = {sink->fd, POLLOUT, 0};
        if (poll(&p, 1, 0) != 1)
            return true;
        size_t waiting = sink->end - sink->start;
        ssize_t n =
            write(sink->fd, sink->data + sink->start, waiting < PIPE_BUF ? waiting : PIPE_BUF);
        if (n >= 0)
            sink->start += (size_t)n;
        else if (errno == EAGAIN)
            return true;
        else if (errno != EINTR)
            sink->error = errno;
    }
    sink->start = sink->end = 0;
    return false;
}

void run_stream_init(run_stream_t *stream, int fd, int rank, bool tag, run_sink_t *sink)
{
    *stream = (run_stream_t){.fd = fd, .rank = rank, .tag = tag, .sink = sink};
}

void run_stream_fini(run_stream_t *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
    free(stream->line);
    stream->line = NULL;
    if (stream->sink && stream->sink->floor == stream)
        stream->sink->floor = NULL;
}

/* Hand over one line, or (only as the last piece) a part of one. */
static void stream_emit(run_stream_t *stream, const char *text, size_t n)
{
    run_sink_t *sink = stream->sink;
    sink_take_floor(sink, stream);
    if (stream->tag && !stream->midline) {
        char tag[16];
        sink_append(sink, tag, (size_t)snprintf(tag, sizeof tag, "[%d] ", stream->rank));
    }
    sink_append(sink, text, n);
    stream->midline = text[n - 1] != '\n';
    sink->floor = stream->midline ? stream : NULL;
}

static void stream_emit_lines(run_stream_t *stream, const char *text, size_t n)
{
    while (n) {
        const char *newline = memchr(text, '\n', n);
        size_t length = newline ? (size_t)(newline - text) + 1 : n;
        stream_emit(stream, text, length);
        text += length;
        n -= length;
    }
}

static bool stream_keep(run_stream_t *stream, const char *text, size_t n)
{
    if (stream->capacity - stream->used < n) {
        size_t capacity = stream->used + n < 1024 ? 1024 : 2 * (stream->used + n);
        char *line = realloc(stream->line, capacity);
        if (!line)
            return false;
        stream->line = line;
        stream->capacity = capacity;
    }
    if (n)
        memcpy(stream->line + stream->used, text, n);
    stream->used += n;
    return true;
}

static void stream_emit_kept(run_stream_t *stream)
{
    if (stream->used)
        stream_emit_lines(stream, stream->line, stream->used);
    stream->used = 0;
}

static void stream_feed(run_stream_t *stream, const char *text, size_t n)
{
    const char *last = memrchr(text, '\n', n);
    size_t whole = last ? (size_t)(last - text) + 1 : 0;
    if (whole) {
        const char *first = memchr(text, '\n', n);
        size_t head = stream->used ? (size_t)(first - text) + 1 : 0;
        if (head && !stream_keep(stream, text, head))
            head = 0; /* no memory to join them: the line is cut in two */
        stream_emit_kept(stream);
        stream_emit_lines(stream, text + head, whole - head);
    }
    if (!stream_keep(stream, text + whole, n - whole))
        stream_emit_lines(stream, text + whole, n - whole);
    if (stream->used >= RUN_LINE_MAX)
        stream_emit_kept(stream);
}

static void stream_end(run_stream_t *stream)
{
    stream_emit_kept(stream);
    close(stream->fd);
    stream->fd = -1;
}

bool run_stream_read(run_stream_t *stream)
{
    static char buffer[READ_MAX];
    ssize_t n = read(stream->fd, buffer, sizeof buffer);
    if (n > 0) {
        stream_feed(stream, buffer, (size_t)n);
        return true;
    }
    if (n == 0 || (errno != EINTR && errno != EAGAIN))
        stream_end(stream);
    return false;
}

void run_stream_drain(run_stream_t *stream)
{
    for (int i = 0; i < DRAIN_READS && stream->fd >= 0; i++) {
        struct pollfd p = {stream->fd, POLLIN, 0};
        if (poll(&p, 1, 0) != 1 || !run_stream_read(stream))
            break;
    }
    if (stream->fd >= 0)
        stream_end(stream);
}
