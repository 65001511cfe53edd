/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training. The batch of a step is the same set of images for any number of PEs: each PE takes
 * those of its own shard, the gradients are summed in shared memory, and every PE makes the same
 * step. Invariant: the model has the same bits on all PEs.
 */
#include "train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float learning_rate = 0.2f, momentum = 0.9f;

bool check(shmem_status_t status, const char *what)
{
    if (status)
        fprintf(stderr, "digits: %s: %s: %s\n", what, shmem_strerror(status),
                shmem_error_detail()->text);
    return status == SHMEM_OK;
}

/* Symmetric memory, mapped: the own part's address, or NULL. */
static void *symmetric(train_t *t, shmem_memory_t *memory, size_t bytes)
{
    if (!check(shmem_memory_create(t->ctx, memory, bytes), "create symmetric memory"))
        return NULL;
    void *address = shmem_memory_map(*memory);
    if (!address)
        check(shmem_error_detail()->status, "map symmetric memory");
    return address;
}

static bool deal_out(train_t *t, const digits_image_t *images)
{
    for (int32_t i = 0; i < t->images; i++) {
        size_t offset = (size_t)(i / t->pes) * sizeof *images;
        if (!check(shmem_memory_put(t->shard, digits_owner(i, t->pes), offset, &images[i],
                                    sizeof *images),
                   "put an image"))
            return false;
    }
    return true;
}

static bool make_order(train_t *t)
{
    t->order = calloc((size_t)t->images, sizeof *t->order);
    if (!t->order) {
        fprintf(stderr, "digits: out of memory\n");
        return false;
    }
    for (int32_t i = 0; i < t->images; i++)
        if (!digits_is_held_out(i))
            t->order[t->order_count++] = i;
    return true;
}

bool train_distribute(train_t *t, const char *path)
{
    digits_image_t *images = NULL;
    bool ok = false;
    if (t->rank == 0 && !digits_read(path, &images, &t->images))
        t->images = -1; /* the others are told and end, too */
    if (!check(shmem_coll_broadcast(t->ctx, &t->images, sizeof t->images, 0), "broadcast"))
        goto out;
    if (t->images < 0)
        goto out;
    size_t most = ((size_t)t->images + (size_t)t->pes - 1) / (size_t)t->pes;
    t->mine = symmetric(t, &t->shard, most * sizeof *images);
    t->sums = t->mine ? symmetric(t, &t->summing, sizeof *t->sums) : NULL;
    if (!t->sums || (t->rank == 0 && !deal_out(t, images)))
        goto out;
    ok = check(shmem_barrier(t->ctx), "barrier") && make_order(t);
    model_init(&t->model, TRAIN_SEED);
out:
    free(images);
    return ok;
}

/* Every PE draws the same numbers, so all have the same order without talking. */
static void shuffle(train_t *t, int epoch)
{
    uint64_t state = TRAIN_SEED + (uint64_t)epoch;
    for (int32_t i = t->order_count - 1; i > 0; i--) {
        int32_t j = (int32_t)(random_next(&state) % (uint64_t)(i + 1)), swap = t->order[i];
        t->order[i] = t->order[j];
        t->order[j] = swap;
    }
}

static bool train_batch(train_t *t, const int32_t *batch, int32_t n)
{
    memset(t->sums, 0, sizeof *t->sums);
    for (int32_t i = 0; i < n; i++)
        if (digits_owner(batch[i], t->pes) == t->rank)
            t->sums->loss +=
                model_learn(&t->model, &t->mine[batch[i] / t->pes], &t->sums->gradient);
    if (!check(shmem_coll_allreduce(t->ctx, t->sums, t->sums, sizeof *t->sums / sizeof(float),
                                    SHMEM_TYPE_FLOAT, SHMEM_SUM),
               "sum the gradients"))
        return false;
    model_step(&t->model, &t->velocity, &t->sums->gradient, learning_rate / (float)n, momentum);
    t->loss += t->sums->loss;
    t->steps++;
    return true;
}

bool train_epoch(train_t *t, int epoch)
{
    t->loss = 0;
    shuffle(t, epoch);
    for (int32_t at = 0; at < t->order_count; at += TRAIN_BATCH) {
        int32_t left = t->order_count - at;
        if (!train_batch(t, t->order + at, left < TRAIN_BATCH ? left : TRAIN_BATCH))
            return false;
    }
    t->loss /= t->order_count;
    return true;
}

bool train_test(train_t *t)
{
    double sums[3] = {0, 0, 0}; /* images, right ones, loss */
    for (int32_t i = t->rank; i < t->images; i += t->pes) {
        if (!digits_is_held_out(i))
            continue;
        const digits_image_t *image = &t->mine[i / t->pes];
        float loss;
        sums[0]++;
        sums[1] += model_classify(&t->model, image, &loss) == image->label;
        sums[2] += loss;
    }
    if (!check(shmem_coll_allreduce(t->ctx, sums, sums, 3, SHMEM_TYPE_DOUBLE, SHMEM_SUM),
               "sum the test's results"))
        return false;
    t->accuracy = 100 * sums[1] / sums[0];
    t->test_loss = sums[2] / sums[0];
    return true;
}

bool train_verify(train_t *t, uint64_t *hash)
{
    uint64_t *all = calloc((size_t)t->pes, sizeof *all);
    bool same = all != NULL;
    *hash = model_hash(&t->model);
    if (all && !check(shmem_coll_allgather(t->ctx, all, hash, sizeof *hash), "gather the hashes"))
        same = false;
    for (int i = 0; same && i < t->pes; i++)
        if (all[i] != *hash) {
            fprintf(stderr, "digits: PE %d holds other parameters than PE %d\n", i, t->rank);
            same = false;
        }
    free(all);
    return same;
}

void train_free(train_t *t)
{
    free(t->order);
}
