/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a classifier of handwritten digits on N processes through shared memory.
 *
 *     shmem-run -n 4 ./digits examples/data/digits.csv [epochs]
 *
 * Rank 0 reads the images and puts each PE's share into its memory. At every step each PE computes
 * the gradient for its images of the batch, and an allreduce in symmetric memory adds them up. At
 * the end all PEs compare their parameters bit by bit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "train.h"

enum { EPOCHS = 60, REPORTS = 6 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void say(const train_t *t, int epoch)
{
    if (t->rank == 0) {
        printf("  epoch %3d   loss %.5f   held-out accuracy %6.2f %%\n", epoch, t->loss,
               t->accuracy);
        fflush(stdout);
    }
}

static bool train_all(train_t *t, int epochs)
{
    int every = epochs < REPORTS ? 1 : epochs / REPORTS;
    for (int epoch = 1; epoch <= epochs; epoch++) {
        if (!train_epoch(t, epoch))
            return false;
        if (epoch % every && epoch != epochs)
            continue;
        if (!train_test(t))
            return false;
        say(t, epoch);
    }
    return true;
}

static void summary(const train_t *t, double seconds, uint64_t hash)
{
    double bytes = (double)sizeof *t->sums * (double)t->steps * t->pes;
    printf("  %lld steps in %.2f s: %.0f steps/s; %.1f MB of gradients summed in shared memory\n",
           (long long)t->steps, seconds, (double)t->steps / seconds, bytes / 1e6);
    printf("  parameters bit-identical on all %d PE%s: %016llx\n", t->pes, t->pes == 1 ? "" : "s",
           (unsigned long long)hash);
    printf("result pes %d loss %.9g test_loss %.9g accuracy %.4f steps_per_s %.0f hash %016llx\n",
           t->pes, t->loss, t->test_loss, t->accuracy, (double)t->steps / seconds,
           (unsigned long long)hash);
}

static bool run(train_t *t, const char *path, int epochs)
{
    uint64_t hash;
    if (!train_distribute(t, path))
        return false;
    if (t->rank == 0) {
        printf("  %d PE%s, %d images to learn from, %d held out, %d parameters\n", t->pes,
               t->pes == 1 ? "" : "s", t->order_count, t->images - t->order_count,
               MODEL_PARAMETERS);
        fflush(stdout);
    }
    double start = now();
    if (!train_all(t, epochs))
        return false;
    double seconds = now() - start;
    if (!train_verify(t, &hash))
        return false;
    if (t->rank == 0)
        summary(t, seconds, hash);
    return true;
}

int main(int argc, char **argv)
{
    train_t t = {0};
    int epochs = argc > 2 ? atoi(argv[2]) : EPOCHS;
    if (argc < 2 || epochs < 1 || epochs > 100000) {
        fprintf(stderr, "usage: digits FILE [epochs]\n");
        return 2;
    }
    if (!check(shmem_init(&t.ctx), "join the job"))
        return 1;
    t.rank = shmem_context_rank(t.ctx);
    t.pes = shmem_context_size(t.ctx);
    bool ok = run(&t, argv[1], epochs);
    ok = check(shmem_finalize(t.ctx), "leave the job") && ok; /* memory goes with the context */
    train_free(&t);
    return ok ? 0 : 1;
}
