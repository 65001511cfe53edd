/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs of real kinds of networks, as lists of operators with the sizes of what they read and
 * write: training of a residual network and of a transformer, inference of a U-Net, a stage of a
 * pipeline. Weights are not planned: they live for ever.
 */
#ifndef TEST_PLAN_NETWORKS_H
#define TEST_PLAN_NETWORKS_H

#include <stdlib.h>

#include "harness.h"
#include "shmem/plan.h"

enum { NET_STEPS = 4000, NET_BUFFERS = 4000, NET_USES = 8 };

typedef struct net {
    shmem_plan_buffer_t buffers[NET_BUFFERS];
    shmem_plan_step_t steps[NET_STEPS];
    size_t reads[NET_STEPS][NET_USES], writes[NET_STEPS][NET_USES];
    size_t buffer_count, step_count;
} net_t;

static inline size_t net_buffer(net_t *net, uint64_t bytes)
{
    CHECK(net->buffer_count < NET_BUFFERS);
    net->buffers[net->buffer_count] = (shmem_plan_buffer_t){.bytes = bytes, .alignment = 256};
    return net->buffer_count++;
}

static inline void net_step(net_t *net)
{
    CHECK(net->step_count < NET_STEPS);
    shmem_plan_step_t *step = &net->steps[net->step_count];
    *step = (shmem_plan_step_t){net->reads[net->step_count], 0, net->writes[net->step_count], 0};
    net->step_count++;
}

static inline void net_reads(net_t *net, size_t buffer)
{
    shmem_plan_step_t *step = &net->steps[net->step_count - 1];
    CHECK(step->read_count < NET_USES);
    net->reads[net->step_count - 1][step->read_count++] = buffer;
}

static inline size_t net_writes(net_t *net, uint64_t bytes)
{
    shmem_plan_step_t *step = &net->steps[net->step_count - 1];
    CHECK(step->write_count < NET_USES);
    size_t buffer = net_buffer(net, bytes);
    net->writes[net->step_count - 1][step->write_count++] = buffer;
    return buffer;
}

/* An operator with up to three inputs (NONE: fewer), one output and working memory. */
#define NET_NONE SIZE_MAX
static inline size_t net_op(net_t *net, size_t a, size_t b, size_t c, uint64_t out, uint64_t work)
{
    net_step(net);
    const size_t inputs[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (inputs[i] != NET_NONE)
            net_reads(net, inputs[i]);
    if (work)
        net_writes(net, work);
    return net_writes(net, out);
}

/* 16 blocks of three convolutions in four stages, forward, then backward. */
static inline void net_resnet(net_t *net, uint64_t batch)
{
    enum { BLOCKS = 16 };
    size_t in[BLOCKS], mid1[BLOCKS], mid2[BLOCKS], conv[BLOCKS];
    uint64_t pixels[BLOCKS], narrow[BLOCKS], wide[BLOCKS];
    size_t x = net_op(net, NET_NONE, NET_NONE, NET_NONE, batch * 56 * 56 * 64 * 4, 0);
    for (int i = 0; i < BLOCKS; i++) {
        int stage = i < 3 ? 0 : i < 7 ? 1 : i < 13 ? 2 : 3;
        pixels[i] = batch * (56u >> stage) * (56u >> stage) * 4;
        narrow[i] = pixels[i] * (64u << stage);
        wide[i] = pixels[i] * (256u << stage);
        in[i] = x;
        mid1[i] = net_op(net, x, NET_NONE, NET_NONE, narrow[i], narrow[i] / 2);
        mid2[i] = net_op(net, mid1[i], NET_NONE, NET_NONE, narrow[i], narrow[i] * 9 / 8);
        conv[i] = net_op(net, mid2[i], NET_NONE, NET_NONE, wide[i], narrow[i] / 2);
        x = net_op(net, conv[i], x, NET_NONE, wide[i], 0);
    }
    size_t gradient = net_op(net, x, NET_NONE, NET_NONE, wide[BLOCKS - 1], 0);
    for (int i = BLOCKS; i-- > 0;) {
        size_t g = net_op(net, gradient, mid2[i], conv[i], narrow[i], narrow[i] / 2);
        g = net_op(net, g, mid1[i], NET_NONE, narrow[i], narrow[i] * 9 / 8);
        g = net_op(net, g, in[i], NET_NONE, net->buffers[in[i]].bytes, narrow[i] / 2);
        gradient = net_op(net, g, gradient, NET_NONE, net->buffers[in[i]].bytes, 0);
    }
}

typedef struct net_layer {
    size_t x, normal, q, k, v, probs, heads, sum, normal2, up, act;
} net_layer_t;

static inline size_t net_layer_forward(net_t *net, net_layer_t *l, size_t x, uint64_t unit,
                                       uint64_t scores)
{
    l->x = x;
    l->normal = net_op(net, x, NET_NONE, NET_NONE, unit, 0);
    l->q = net_op(net, l->normal, NET_NONE, NET_NONE, unit, 0);
    l->k = net_op(net, l->normal, NET_NONE, NET_NONE, unit, 0);
    l->v = net_op(net, l->normal, NET_NONE, NET_NONE, unit, 0);
    size_t raw = net_op(net, l->q, l->k, NET_NONE, scores, 0);
    l->probs = net_op(net, raw, NET_NONE, NET_NONE, scores, scores / 64);
    l->heads = net_op(net, l->probs, l->v, NET_NONE, unit, 0);
    size_t projected = net_op(net, l->heads, NET_NONE, NET_NONE, unit, 0);
    l->sum = net_op(net, projected, x, NET_NONE, unit, 0);
    l->normal2 = net_op(net, l->sum, NET_NONE, NET_NONE, unit, 0);
    l->up = net_op(net, l->normal2, NET_NONE, NET_NONE, 4 * unit, 0);
    l->act = net_op(net, l->up, NET_NONE, NET_NONE, 4 * unit, 0);
    size_t down = net_op(net, l->act, NET_NONE, NET_NONE, unit, 0);
    return net_op(net, down, l->sum, NET_NONE, unit, 0);
}

static inline size_t net_layer_backward(net_t *net, const net_layer_t *l, size_t gradient,
                                        uint64_t unit, uint64_t scores)
{
    size_t act = net_op(net, gradient, l->act, NET_NONE, 4 * unit, 0);
    size_t up = net_op(net, act, l->up, NET_NONE, 4 * unit, 0);
    size_t normal2 = net_op(net, up, l->normal2, NET_NONE, unit, 0);
    size_t sum = net_op(net, normal2, l->sum, gradient, unit, unit / 128);
    size_t heads = net_op(net, sum, l->heads, NET_NONE, unit, 0);
    size_t v = net_op(net, heads, l->probs, NET_NONE, unit, 0);
    size_t probs = net_op(net, heads, l->v, NET_NONE, scores, 0);
    size_t raw = net_op(net, probs, l->probs, NET_NONE, scores, scores / 64);
    size_t q = net_op(net, raw, l->k, NET_NONE, unit, 0);
    size_t k = net_op(net, raw, l->q, NET_NONE, unit, 0);
    size_t a = net_op(net, q, l->normal, NET_NONE, unit, 0);
    size_t b = net_op(net, k, l->normal, a, unit, 0);
    size_t c = net_op(net, v, l->normal, b, unit, 0);
    return net_op(net, c, l->x, sum, unit, unit / 128);
}

/* Training, all activations kept; or inference (is_training 0). */
static inline void net_transformer(net_t *net, int layers, uint64_t tokens, uint64_t width,
                                   int is_training)
{
    net_layer_t l[96];
    const uint64_t unit = tokens * width * 2, scores = 16 * tokens * tokens * 2;
    size_t x = net_op(net, NET_NONE, NET_NONE, NET_NONE, unit, 0);
    for (int i = 0; i < layers; i++)
        x = net_layer_forward(net, &l[i], x, unit, scores);
    size_t logits = net_op(net, x, NET_NONE, NET_NONE, tokens * 32000 * 2, 0);
    x = net_op(net, logits, x, NET_NONE, unit, tokens * 4);
    for (int i = layers; is_training && i-- > 0;)
        x = net_layer_backward(net, &l[i], x, unit, scores);
}

/* Five levels down and up again, each level's result kept for its counterpart. */
static inline void net_unet(net_t *net, uint64_t side)
{
    size_t kept[5], x = net_op(net, NET_NONE, NET_NONE, NET_NONE, side * side * 3 * 4, 0);
    for (int i = 0; i < 5; i++) {
        uint64_t bytes = (side >> i) * (side >> i) * (64u << i) * 4;
        x = net_op(net, x, NET_NONE, NET_NONE, bytes, bytes / 4);
        kept[i] = x = net_op(net, x, NET_NONE, NET_NONE, bytes, bytes / 2);
        x = net_op(net, x, NET_NONE, NET_NONE, bytes / 4, 0);
    }
    for (int i = 5; i-- > 0;) {
        uint64_t bytes = (side >> i) * (side >> i) * (64u << i) * 4;
        size_t up = net_op(net, x, NET_NONE, NET_NONE, bytes, 0);
        size_t both = net_op(net, up, kept[i], NET_NONE, 2 * bytes, 0);
        x = net_op(net, both, NET_NONE, NET_NONE, bytes, bytes / 4);
        x = net_op(net, x, NET_NONE, NET_NONE, bytes, bytes / 2);
    }
}

/* Stage `stage` of a pipeline, one forward, one backward in turn; three tensors for each of the
 * micro-batches that are under way. */
static inline void net_pipeline(net_t *net, int stages, int stage, int batches, uint64_t bytes)
{
    size_t kept[256][3], sum = NET_NONE;
    int forward = 0, backward = 0;
    CHECK(batches <= 256);
    while (backward < batches) {
        if (forward < batches && forward - backward < stages - stage) {
            size_t in = net_op(net, NET_NONE, NET_NONE, NET_NONE, bytes, 0);
            kept[forward][0] = in;
            kept[forward][1] = net_op(net, in, NET_NONE, NET_NONE, 3 * bytes, bytes / 2);
            kept[forward][2] = net_op(net, kept[forward][1], NET_NONE, NET_NONE, 4 * bytes, 0);
            net_op(net, kept[forward][2], NET_NONE, NET_NONE, bytes, 0);
            forward++;
        } else {
            size_t *k = kept[backward++];
            size_t g = net_op(net, NET_NONE, NET_NONE, NET_NONE, bytes, 0);
            g = net_op(net, g, k[2], NET_NONE, 4 * bytes, 0);
            g = net_op(net, g, k[1], NET_NONE, 3 * bytes, 0);
            size_t weights = net_op(net, g, k[0], NET_NONE, 5 * bytes, 0);
            net_op(net, g, NET_NONE, NET_NONE, bytes, 0);
            sum = sum == NET_NONE ? net_op(net, weights, NET_NONE, NET_NONE, 5 * bytes, 0) : sum;
            net_step(net);
            net_reads(net, weights);
            net_reads(net, sum);
        }
    }
}

#endif
