/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model in a region: one program loads it, others read it where it lies and cannot change it.
 *
 *     ./layers load N     loads N layers, growing the region, and keeps it until its input ends
 *     ./layers read       follows the pointers from layer to layer
 */
#include <inttypes.h>
#include <shmem/shmem.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "layers-example"

enum { WEIGHTS = 100000 };

typedef struct layer {
    struct layer *next; /* the region is at the same address everywhere */
    float weight[WEIGHTS];
} layer_t;

typedef struct model {
    _Atomic uint32_t layers; /* that are complete; they may be read while others are loaded */
    layer_t *first;
} model_t;

static int failed(const char *what)
{
    fprintf(stderr, "layers: %s: %s: %s\n", what, shmem_status_name(shmem_error_detail()->status),
            shmem_error_detail()->text);
    return 1;
}

/* Room for one more layer: the region grows and stays where it is. */
static layer_t *add_layer(shmem_region_t region, model_t *model, layer_t *last)
{
    layer_t *layer = last ? last + 1 : (layer_t *)(model + 1);
    uint64_t wanted = (uint64_t)((char *)(layer + 1) - (char *)model);
    if (shmem_region_resize(region, wanted))
        return NULL;
    for (int i = 0; i < WEIGHTS; i++)
        layer->weight[i] = 0.5f;
    if (last)
        last->next = layer;
    else
        model->first = layer;
    model->layers++; /* after all of it */
    return layer;
}

static int load(shmem_context_t ctx, uint32_t layers)
{
    shmem_region_t region;
    shmem_region_params_t params = SHMEM_REGION_PARAMS_INIT;
    params.bytes = sizeof(model_t);
    params.limit = sizeof(model_t) + (uint64_t)layers * sizeof(layer_t); /* addresses, no memory */
    params.access = SHMEM_ACCESS_GROUP_READ | SHMEM_ACCESS_OTHER_READ;
    if (shmem_region_create(ctx, NAME, &params, &region))
        return failed("create");
    model_t *model = shmem_region_map(region, SHMEM_MAP_READ_WRITE);
    if (!model)
        return failed("map");
    layer_t *last = NULL;
    for (uint32_t i = 0; i < layers; i++)
        if (!(last = add_layer(region, model, last)))
            return failed("grow");
    printf("%" PRIu32 " layers are loaded\n", (uint32_t)model->layers);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}

static int read_all(shmem_context_t ctx)
{
    shmem_region_t region;
    double sum = 0;
    if (shmem_region_open(ctx, NAME, SHMEM_MAP_READ, &region))
        return failed("open");
    const model_t *model = shmem_region_map(region, SHMEM_MAP_READ);
    if (!model)
        return failed("map");
    uint32_t layers = model->layers;
    const layer_t *layer = model->first;
    for (uint32_t l = 0; l < layers; l++, layer = layer->next)
        for (int i = 0; i < WEIGHTS; i++)
            sum += layer->weight[i];
    printf("%" PRIu32 " layers, sum %.0f\n", layers, sum);
    if (shmem_region_protect(region, 0, 4096, SHMEM_MAP_READ_WRITE) != SHMEM_ERR_ACCESS) {
        fprintf(stderr, "layers: a reader may write\n");
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    shmem_context_t ctx;
    int code = 2, layers = argc == 3 ? atoi(argv[2]) : 0;
    bool loads = layers > 0 && strcmp(argv[1], "load") == 0;
    if (!loads && (argc != 2 || strcmp(argv[1], "read") != 0)) {
        fprintf(stderr, "usage: layers load N | layers read\n");
        return code;
    }
    if (shmem_init(&ctx))
        return failed("init");
    code = loads ? load(ctx, (uint32_t)layers) : read_all(ctx);
    shmem_finalize(ctx);
    return code;
}
