/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output of the PEs: whole lines from many pipes into one standard output and one standard error.
 *
 *   stream (pipe of a PE) --lines--> sink (our descriptor 1 or 2) --> whoever reads it
 *
 * A line leaves its stream when it is complete, or when it is longer than RUN_LINE_MAX, or when its
 * writer ends. If another stream must follow an unfinished line, a newline is put between them.
 *   Invariant: sink.floor is the stream whose unfinished text is the last in the sink, or NULL.
 * A sink never blocks on a pipe: it is written in pieces of PIPE_BUF when poll() allows it. Streams
 * of a sink that is RUN_SINK_MAX behind are not read meanwhile, so memory is bounded.
 */
#ifndef RUN_OUTPUT_H
#define RUN_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

enum { RUN_LINE_MAX = 64 << 10, RUN_SINK_MAX = 256 << 10 };

typedef struct run_stream run_stream_t;

typedef struct run_sink {
    int fd;
    int error; /* errno of the write that failed; everything after it is dropped */
    char *data;
    size_t start, end, capacity; /* waiting: data[start] to data[end - 1] */
    run_stream_t *floor;
} run_sink_t;

struct run_stream {
    int fd; /* read end of the pipe, -1: ended or not used */
    int rank;
    bool tag, midline; /* midline: text of the present line has been handed over already */
    run_sink_t *sink;
    char *line;
    size_t used, capacity;
};

/* `out` and `err` share one sink (out) where both descriptors are the same file, so that order is
 * kept and lines of one do not land inside lines of the other. */
typedef struct run_output {
    run_sink_t out, err_own;
    run_sink_t *err;
} run_output_t;

void run_output_init(run_output_t *output);
void run_output_fini(run_output_t *output);

/* A line of our own, on standard error: "shmem-run: ..." and a newline. */
void run_output_say(run_output_t *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Write what poll() lets through; returns whether something is still waiting. */
bool run_sink_flush(run_sink_t *sink);
bool run_sink_is_full(const run_sink_t *sink);

/* Take the read end `fd`. */
void run_stream_init(run_stream_t *stream, int fd, int rank, bool tag, run_sink_t *sink);
void run_stream_fini(run_stream_t *stream);
/* Read once; at end of file, hand over the rest and close. Returns whether something was read. */
bool run_stream_read(run_stream_t *stream);
/* The writer has ended: read what is there, without waiting for others who hold the pipe. */
void run_stream_drain(run_stream_t *stream);

#endif
