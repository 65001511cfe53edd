/* SPDX-License-Identifier: Apache-2.0 */
/* The network: forward and backward pass, written for reading rather than for speed. */
#include "model.h"

#include <math.h>
#include <string.h>

uint64_t random_next(uint64_t *state)
{
    uint64_t x = (*state += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Uniform in [-limit, limit). */
static void fill(float *values, int n, float limit, uint64_t *state)
{
    for (int i = 0; i < n; i++)
        values[i] = ((float)(random_next(state) >> 40) / (float)(1 << 23) - 1) * limit;
}

void model_init(model_t *model, uint64_t seed)
{
    memset(model, 0, sizeof *model);
    fill(&model->hidden[0][0], MODEL_HIDDEN * DIGITS_PIXELS,
         sqrtf(6.0f / (DIGITS_PIXELS + MODEL_HIDDEN)), &seed);
    fill(&model->output[0][0], DIGITS_CLASSES * MODEL_HIDDEN,
         sqrtf(6.0f / (MODEL_HIDDEN + DIGITS_CLASSES)), &seed);
}

static float dot(const float *a, const float *b, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Activations of the hidden layer and probabilities of the classes. Returns the loss. */
static float forward(const model_t *model, const digits_image_t *image, float *hidden,
                     float *probability)
{
    for (int h = 0; h < MODEL_HIDDEN; h++)
        hidden[h] =
            tanhf(dot(model->hidden[h], image->pixels, DIGITS_PIXELS) + model->hidden_bias[h]);
    float most = -INFINITY, sum = 0;
    for (int c = 0; c < DIGITS_CLASSES; c++) {
        probability[c] = dot(model->output[c], hidden, MODEL_HIDDEN) + model->output_bias[c];
        most = fmaxf(most, probability[c]);
    }
    float wanted = probability[image->label] - most;
    for (int c = 0; c < DIGITS_CLASSES; c++)
        sum += probability[c] = expf(probability[c] - most);
    for (int c = 0; c < DIGITS_CLASSES; c++)
        probability[c] /= sum;
    return logf(sum) - wanted;
}

float model_learn(const model_t *model, const digits_image_t *image, model_t *gradient)
{
    float hidden[MODEL_HIDDEN], back[MODEL_HIDDEN] = {0}, error[DIGITS_CLASSES];
    float loss = forward(model, image, hidden, error);
    error[image->label] -= 1;
    for (int c = 0; c < DIGITS_CLASSES; c++) {
        gradient->output_bias[c] += error[c];
        for (int h = 0; h < MODEL_HIDDEN; h++) {
            gradient->output[c][h] += error[c] * hidden[h];
            back[h] += error[c] * model->output[c][h];
        }
    }
    for (int h = 0; h < MODEL_HIDDEN; h++) {
        float e = back[h] * (1 - hidden[h] * hidden[h]);
        gradient->hidden_bias[h] += e;
        for (int i = 0; i < DIGITS_PIXELS; i++)
            gradient->hidden[h][i] += e * image->pixels[i];
    }
    return loss;
}

int model_classify(const model_t *model, const digits_image_t *image, float *loss)
{
    float hidden[MODEL_HIDDEN], probability[DIGITS_CLASSES];
    *loss = forward(model, image, hidden, probability);
    int best = 0;
    for (int c = 1; c < DIGITS_CLASSES; c++)
        if (probability[c] > probability[best])
            best = c;
    return best;
}

void model_step(model_t *model, model_t *velocity, const model_t *gradient, float rate,
                float momentum)
{
    float *w = (float *)model, *v = (float *)velocity;
    const float *g = (const float *)gradient;
    for (int i = 0; i < MODEL_PARAMETERS; i++) {
        v[i] = momentum * v[i] - rate * g[i];
        w[i] += v[i];
    }
}

uint64_t model_hash(const model_t *model)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    const unsigned char *bytes = (const unsigned char *)model;
    for (size_t i = 0; i < sizeof *model; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}
