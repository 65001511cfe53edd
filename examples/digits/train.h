/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel training: every PE holds a part of the images and a whole copy of the model. */
#ifndef DIGITS_TRAIN_H
#define DIGITS_TRAIN_H

#include <shmem/shmem.h>

#include "data.h"
#include "model.h"

enum { TRAIN_BATCH = 128, TRAIN_SEED = 1998 };

typedef struct train {
    shmem_context_t ctx;
    int rank, pes;
    int32_t images;                /* in the whole set */
    shmem_memory_t shard, summing; /* symmetric memory */
    const digits_image_t *mine;    /* this PE's part: images with digits_owner() == rank */
    struct train_sums *sums;       /* what is added up over the PEs at each step */
    model_t model, velocity;
    int32_t *order; /* of the training images in this epoch; the same on every PE */
    int32_t order_count;
    int64_t steps;
    double loss;     /* mean over the last epoch's training images */
    double accuracy; /* percent of the held-out images */
    double test_loss;
} train_t;

typedef struct train_sums {
    model_t gradient;
    float loss;
} train_sums_t;

/* The status of every call of the library is looked at here: says what failed, returns false. */
bool check(shmem_status_t status, const char *what);

/* Rank 0 reads the file and puts each PE's images into that PE's memory. Collective. */
bool train_distribute(train_t *t, const char *path);
/* One pass over the training images. Collective. */
bool train_epoch(train_t *t, int epoch);
/* Accuracy and loss on the held-out images. Collective. */
bool train_test(train_t *t);
/* Do all PEs hold the same bits? Collective. */
bool train_verify(train_t *t, uint64_t *hash);
void train_free(train_t *t);

#endif
