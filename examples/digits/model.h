/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small neural network: 64 pixels -> 128 hidden (tanh) -> 10 classes (softmax).
 *
 * All parameters are one array of floats, and so are their gradients: that is what is summed over
 * the PEs. Nothing here knows of PEs.
 */
#ifndef DIGITS_MODEL_H
#define DIGITS_MODEL_H

#include "data.h"

enum { MODEL_HIDDEN = 128 };

typedef struct model {
    float hidden[MODEL_HIDDEN][DIGITS_PIXELS], hidden_bias[MODEL_HIDDEN];
    float output[DIGITS_CLASSES][MODEL_HIDDEN], output_bias[DIGITS_CLASSES];
} model_t;

enum { MODEL_PARAMETERS = sizeof(model_t) / sizeof(float) };

/* The same start values for the same seed, on every machine. */
void model_init(model_t *model, uint64_t seed);

/* Adds the gradient of the loss (cross entropy) of one image to *gradient, and returns the loss. */
float model_learn(const model_t *model, const digits_image_t *image, model_t *gradient);

/* The digit that the model sees, and its loss. */
int model_classify(const model_t *model, const digits_image_t *image, float *loss);

/* One step of gradient descent with momentum. */
void model_step(model_t *model, model_t *velocity, const model_t *gradient, float rate,
                float momentum);

/* A number that differs when any bit of the parameters differs. */
uint64_t model_hash(const model_t *model);

/* Pseudo-random bits (splitmix64). */
uint64_t random_next(uint64_t *state);

#endif
