/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training in a pipeline, with planned memory.
 *
 *     shmem-run -n 4 ./pipeline [MICROBATCHES]
 *
 * Each PE is a stage: y = W2 * max(0, W1 * x). A step of training sends micro-batches through the
 * stages and their gradients back, one forward, one backward in turn, and adds the gradients of the
 * weights up. Each stage writes down what it will do as a list of operators; from that list the
 * planner tells where each activation and gradient lies, so that what is no longer needed makes
 * room. The list is run twice, with a place of its own for every buffer and with the plan: the
 * gradients must be the same to the last bit.
 */
#include <shmem/shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 24, HIDDEN = 96, BATCH = 8, MOST = 64, STEPS = 3, ALIGNMENT = 128 };
enum { X_FLOATS = WIDTH * BATCH, H_FLOATS = HIDDEN * BATCH, W_FLOATS = WIDTH * HIDDEN };

/* Operators. The inputs and the output of each are in this order. */
typedef enum kind {
    RECEIVE_X,  /* -> x */
    HIDE,       /* x -> h */
    SHOW,       /* h -> y */
    SEND_Y,     /* y */
    RECEIVE_GY, /* -> gy; the last stage makes it from y */
    BACK_SHOW,  /* gy h -> gh */
    WEIGHTS_2,  /* gy h -> w */
    BACK_HIDE,  /* gh -> gx */
    WEIGHTS_1,  /* gh x -> w */
    ADD,        /* w sum -> sum */
    SEND_GX     /* gx */
} kind_t;

typedef struct operator
{
    kind_t kind;
    int batch;
    size_t in[2], out;
    int ins, outs;
}
operator_t;

typedef struct stage {
    shmem_context_t ctx;
    int rank, size, batches;
    operator_t list[MOST * 16];
    shmem_plan_buffer_t buffers[MOST * 12];
    size_t operators, count, sums[2];
    float w1[W_FLOATS], w2[W_FLOATS];
} stage_t;

/* What a PE has in symmetric memory: mailboxes for each micro-batch, then the planned memory. */
typedef struct mail {
    uint64_t x_is_here[MOST], g_is_here[MOST]; /* the number of the last run that filled it */
    float x[MOST][X_FLOATS], g[MOST][X_FLOATS];
    _Alignas(ALIGNMENT) char memory[];
} mail_t;

static void must(shmem_status_t status, const char *what)
{
    if (status == SHMEM_OK)
        return;
    fprintf(stderr, "pipeline: %s: %s\n", what, shmem_error_detail()->text);
    exit(1);
}

/* ---- the list of operators ---- */

static size_t buffer(stage_t *s, size_t floats)
{
    s->buffers[s->count] =
        (shmem_plan_buffer_t){.bytes = floats * sizeof(float), .alignment = ALIGNMENT};
    return s->count++;
}

#define NONE SIZE_MAX
static size_t add(stage_t *s, kind_t kind, int batch, size_t a, size_t b, size_t out)
{
    s->list[s->operators++] =
        (operator_t){kind, batch, {a, b}, out, (a != NONE) + (b != NONE), out != NONE};
    return out;
}

static void forward(stage_t *s, int m, size_t *x, size_t *h)
{
    x[m] = add(s, RECEIVE_X, m, NONE, NONE, buffer(s, X_FLOATS));
    h[m] = add(s, HIDE, m, x[m], NONE, buffer(s, H_FLOATS));
    size_t y = add(s, SHOW, m, h[m], NONE, buffer(s, X_FLOATS));
    add(s, SEND_Y, m, y, NONE, NONE);
}

static void backward(stage_t *s, int m, const size_t *x, const size_t *h)
{
    size_t gy = add(s, RECEIVE_GY, m, NONE, NONE, buffer(s, X_FLOATS));
    size_t gh = add(s, BACK_SHOW, m, gy, h[m], buffer(s, H_FLOATS));
    size_t w = add(s, WEIGHTS_2, m, gy, h[m], buffer(s, W_FLOATS));
    add(s, ADD, m, w, s->sums[1], s->sums[1]);
    size_t gx = add(s, BACK_HIDE, m, gh, NONE, buffer(s, X_FLOATS));
    w = add(s, WEIGHTS_1, m, gh, x[m], buffer(s, W_FLOATS));
    add(s, ADD, m, w, s->sums[0], s->sums[0]);
    add(s, SEND_GX, m, gx, NONE, NONE);
}

/* One forward, one backward: a stage has as many micro-batches under way as stages follow it, and
 * its own. */
static void write_list(stage_t *s)
{
    size_t x[MOST], h[MOST];
    s->sums[0] = buffer(s, W_FLOATS);
    s->sums[1] = buffer(s, W_FLOATS);
    for (int f = 0, b = 0; b < s->batches;) {
        if (f < s->batches && f - b < s->size - s->rank)
            forward(s, f++, x, h);
        else
            backward(s, b++, x, h);
    }
}

static void find_lifetimes(stage_t *s)
{
    static shmem_plan_step_t steps[MOST * 16];
    for (size_t i = 0; i < s->operators; i++) {
        operator_t *o = &s->list[i];
        steps[i] = (shmem_plan_step_t){o->in, (size_t)o->ins, &o->out, (size_t)o->outs};
    }
    must(shmem_plan_from_steps(steps, s->operators, s->buffers, s->count), "lifetimes");
    for (int i = 0; i < 2; i++) { /* the sums start at zero and are used after the last operator */
        s->buffers[s->sums[i]].first = 0;
        s->buffers[s->sums[i]].last = (int64_t)s->operators + 1;
    }
}

/* ---- what the operators do; matrices of a micro-batch have a row for each sample ---- */

static void hide(float *h, const float *x, const float *w1)
{
    for (int n = 0; n < BATCH; n++)
        for (int i = 0; i < HIDDEN; i++) {
            float sum = 0;
            for (int k = 0; k < WIDTH; k++)
                sum += w1[i * WIDTH + k] * x[n * WIDTH + k];
            h[n * HIDDEN + i] = sum > 0 ? sum : 0;
        }
}

static void show(float *y, const float *h, const float *w2)
{
    for (int n = 0; n < BATCH; n++)
        for (int k = 0; k < WIDTH; k++) {
            y[n * WIDTH + k] = 0;
            for (int i = 0; i < HIDDEN; i++)
                y[n * WIDTH + k] += w2[i * WIDTH + k] * h[n * HIDDEN + i];
        }
}

static void back_show(float *gh, const float *gy, const float *h, const float *w2)
{
    for (int n = 0; n < BATCH; n++)
        for (int i = 0; i < HIDDEN; i++) {
            float sum = 0;
            for (int k = 0; k < WIDTH; k++)
                sum += w2[i * WIDTH + k] * gy[n * WIDTH + k];
            gh[n * HIDDEN + i] = h[n * HIDDEN + i] > 0 ? sum : 0;
        }
}

static void weights(float *w, const float *hidden, const float *outer)
{
    memset(w, 0, W_FLOATS * sizeof *w);
    for (int n = 0; n < BATCH; n++)
        for (int i = 0; i < HIDDEN; i++)
            for (int k = 0; k < WIDTH; k++)
                w[i * WIDTH + k] += hidden[n * HIDDEN + i] * outer[n * WIDTH + k];
}

/* ---- the messages ---- */

static void receive(const stage_t *s, shmem_memory_t mem, int m, int is_gradient, uint64_t run,
                    float *to)
{
    const mail_t *mail = shmem_memory_address(mem, s->rank);
    const float *from = is_gradient ? mail->g[m] : mail->x[m];
    size_t signal = is_gradient ? offsetof(mail_t, g_is_here) : offsetof(mail_t, x_is_here);
    if (!is_gradient && s->rank == 0) { /* the input */
        for (int i = 0; i < X_FLOATS; i++)
            to[i] = (float)((i * 7 + m * 13) % 17 - 8) / 16;
        return;
    }
    must(shmem_memory_wait(mem, signal + (size_t)m * 8, SHMEM_COMPARE_EQ, run, SHMEM_FOREVER, NULL),
         "wait for the neighbour");
    memcpy(to, from, X_FLOATS * sizeof *to);
}

/* To the next stage, or back to the one before. The last stage gets back how far its result is from
 * what it should be: 1/2. */
static void send(const stage_t *s, shmem_memory_t mem, int m, int is_gradient, uint64_t run,
                 const float *from)
{
    int to = is_gradient ? s->rank - 1 : s->rank + 1;
    size_t place = (is_gradient ? offsetof(mail_t, g) : offsetof(mail_t, x)) +
                   (size_t)m * X_FLOATS * sizeof *from;
    size_t signal = is_gradient ? offsetof(mail_t, g_is_here) : offsetof(mail_t, x_is_here);
    float gradient[X_FLOATS];
    if (to < 0)
        return;
    if (to == s->size) {
        for (int i = 0; i < X_FLOATS; i++)
            gradient[i] = from[i] - 0.5f;
        from = gradient;
        to = s->rank;
        place = offsetof(mail_t, g) + (size_t)m * X_FLOATS * sizeof *from;
        signal = offsetof(mail_t, g_is_here);
    }
    must(shmem_memory_put_signal(mem, to, place, from, X_FLOATS * sizeof *from,
                                 signal + (size_t)m * 8, run, SHMEM_SIGNAL_OP_SET),
         "send to the neighbour");
}

/* ---- running the list ---- */

static void operate(const stage_t *s, const operator_t *o, shmem_memory_t mem, uint64_t run,
                    char *base, const uint64_t *offsets)
{
    const float *a = o->ins > 0 ? (float *)(base + offsets[o->in[0]]) : NULL;
    const float *b = o->ins > 1 ? (float *)(base + offsets[o->in[1]]) : NULL;
    float *out = o->outs ? (float *)(base + offsets[o->out]) : NULL;
    switch (o->kind) {
    case RECEIVE_X:
    case RECEIVE_GY:
        receive(s, mem, o->batch, o->kind == RECEIVE_GY, run, out);
        break;
    case SEND_Y:
    case SEND_GX:
        send(s, mem, o->batch, o->kind == SEND_GX, run, a);
        break;
    case HIDE:
        hide(out, a, s->w1);
        break;
    case SHOW:
        show(out, a, s->w2);
        break;
    case BACK_SHOW:
        back_show(out, a, b, s->w2);
        break;
    case BACK_HIDE:
        show(out, a, s->w1);
        break;
    case WEIGHTS_1:
        weights(out, a, b);
        break;
    case WEIGHTS_2:
        weights(out, b, a);
        break;
    case ADD:
        for (int i = 0; i < W_FLOATS; i++)
            out[i] += a[i];
    }
}

/* Some steps of training from the same weights; the gradients of the last one go to `gradients`. */
static void train(stage_t *s, shmem_memory_t mem, uint64_t *run, char *base,
                  const uint64_t *offsets, float *gradients)
{
    for (int i = 0; i < W_FLOATS; i++) {
        s->w1[i] = (float)((i * 31 + s->rank * 7) % 23 - 11) / 64;
        s->w2[i] = (float)((i * 17 + s->rank * 5) % 19 - 9) / 64;
    }
    for (int step = 0; step < STEPS; step++) {
        float *sums[] = {(float *)(base + offsets[s->sums[0]]),
                         (float *)(base + offsets[s->sums[1]])};
        memset(sums[0], 0, W_FLOATS * sizeof(float));
        memset(sums[1], 0, W_FLOATS * sizeof(float));
        ++*run;
        for (size_t i = 0; i < s->operators; i++)
            operate(s, &s->list[i], mem, *run, base, offsets);
        for (int i = 0; i < W_FLOATS; i++) {
            s->w1[i] -= sums[0][i] / 4096;
            s->w2[i] -= sums[1][i] / 4096;
        }
        memcpy(gradients, sums[0], W_FLOATS * sizeof(float));
        memcpy(gradients + W_FLOATS, sums[1], W_FLOATS * sizeof(float));
        must(shmem_barrier(s->ctx), "barrier"); /* the mailboxes are read */
    }
}

/* A place of its own for every buffer; returns the bytes. */
static uint64_t place_apart(const stage_t *s, uint64_t *offsets)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->count; i++) {
        offsets[i] = bytes;
        bytes += (s->buffers[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return bytes;
}

static int compare(stage_t *s)
{
    static uint64_t apart[MOST * 12], planned[MOST * 12];
    static float expected[2 * W_FLOATS], got[2 * W_FLOATS];
    shmem_plan_params_t params = SHMEM_PLAN_PARAMS_INIT;
    shmem_plan_result_t result = {.size = sizeof result};
    int64_t bytes[2], most[2], all[2];
    uint64_t run = 0;
    params.time_limit = 2000000000;
    must(shmem_plan_solve(s->buffers, s->count, &params, planned, &result), "plan");
    bytes[0] = (int64_t)place_apart(s, apart);
    bytes[1] = (int64_t)result.peak;
    must(shmem_coll_allreduce(s->ctx, most, bytes, 2, SHMEM_TYPE_INT64, SHMEM_MAX), "maximum");
    must(shmem_coll_allreduce(s->ctx, all, bytes, 2, SHMEM_TYPE_INT64, SHMEM_SUM), "sum");

    shmem_memory_t mem = NULL;
    char *private = malloc((size_t)bytes[0]);
    must(shmem_memory_create(s->ctx, &mem, sizeof(mail_t) + (size_t)most[1]), "symmetric memory");
    mail_t *mail = shmem_memory_map(mem);
    if (!private || !mail)
        must(SHMEM_ERR_NOMEM, "memory");
    train(s, mem, &run, private, apart, expected);
    train(s, mem, &run, mail->memory, planned, got);
    free(private);

    int same = memcmp(expected, got, sizeof got) == 0, all_zero = 1;
    for (int i = 0; i < 2 * W_FLOATS; i++)
        all_zero = all_zero && got[i] == 0;
    printf(
        "stage %d: %zu buffers, apart %lld bytes, planned %llu (lower bound %llu), gradients %s\n",
        s->rank, s->count, (long long)bytes[0], (unsigned long long)result.peak,
        (unsigned long long)result.lower_bound,
        all_zero ? "all zero"
        : same   ? "identical"
                 : "DIFFERENT");
    fflush(stdout);
    must(shmem_barrier(s->ctx), "barrier");
    if (s->rank == 0)
        printf("all stages: %lld bytes apart, %lld planned: %.1f %%\n", (long long)all[0],
               (long long)all[1], 100.0 * (double)all[1] / (double)all[0]);
    return same && !all_zero ? 0 : 1;
}

int main(int argc, char **argv)
{
    static stage_t s;
    s.batches = argc > 1 ? atoi(argv[1]) : 16;
    if (argc > 2 || s.batches < 1 || s.batches > MOST) {
        fprintf(stderr, "usage: pipeline [MICROBATCHES], 1 to %d\n", MOST);
        return 2;
    }
    must(shmem_init(&s.ctx), "init");
    s.rank = shmem_context_rank(s.ctx);
    s.size = shmem_context_size(s.ctx);
    write_list(&s);
    find_lifetimes(&s);
    int code = compare(&s);
    must(shmem_finalize(s.ctx), "finalize");
    return code;
}
