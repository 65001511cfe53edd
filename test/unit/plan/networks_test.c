/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of real kinds of networks are proved optimal or lie within 1 % of the lower bound; 10,000
 * buffers are planned at once; lifetimes from operators and traces are what the header says.
 */
#include "networks.h"

static net_t net;

static uint64_t draw(uint64_t below)
{
    static uint64_t seed = 99;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* Plans; says what came out; the result must be within a percent of the bound. */
static void plan_well(const char *name, shmem_plan_buffer_t *buffers, size_t count)
{
    static uint64_t offsets[20000];
    shmem_plan_params_t params = SHMEM_PLAN_PARAMS_INIT;
    shmem_plan_result_t greedy = {.size = sizeof greedy}, r = greedy;
    uint64_t peak, naive = 0;
    CHECK(count <= 20000);
    for (size_t i = 0; i < count; i++)
        naive += buffers[i].bytes;
    double begin = harness_now();
    CHECK_OK(shmem_plan_solve(buffers, count, NULL, offsets, &greedy));
    double middle = harness_now();
    params.time_limit = 500000000;
    CHECK_OK(shmem_plan_solve(buffers, count, &params, offsets, &r));
    double end = harness_now();
    CHECK_OK(shmem_plan_check(buffers, count, offsets, &peak));
    printf("%-12s %5zu buffers, %6.2f of naive; greedy +%.2f %% in %.3f s; %s +%.2f %% in %.3f s\n",
           name, count, (double)peak / (double)naive,
           100.0 * (double)(greedy.peak - greedy.lower_bound) / (double)greedy.lower_bound,
           middle - begin, r.is_optimal ? "optimal" : "search",
           100.0 * (double)(r.peak - r.lower_bound) / (double)r.lower_bound, end - middle);
    CHECK(r.peak - r.lower_bound <= r.lower_bound / 100);
}

static void plan_net(const char *name)
{
    CHECK_OK(shmem_plan_from_steps(net.steps, net.step_count, net.buffers, net.buffer_count));
    plan_well(name, net.buffers, net.buffer_count);
    net.buffer_count = net.step_count = 0;
}

static void networks(void)
{
    net_resnet(&net, 32);
    plan_net("resnet");
    net_resnet(&net, 7);
    plan_net("resnet odd");
    net_transformer(&net, 24, 2048, 1024, 1);
    plan_net("transformer");
    net_transformer(&net, 24, 1500, 1600, 1);
    plan_net("wide");
    net_transformer(&net, 48, 1000, 768, 0);
    plan_net("inference");
    net_unet(&net, 512);
    plan_net("unet");
    net_unet(&net, 388);
    plan_net("unet odd");
    for (int stage = 0; stage < 4; stage++) {
        net_pipeline(&net, 4, stage, 16, 1 << 20);
        plan_net("pipeline");
    }
    net_pipeline(&net, 16, 0, 128, 12345);
    plan_net("long pipeline");
}

/* A server: each request takes blocks as it grows and gives them back when it ends. */
static void blocks_of_a_cache(void)
{
    enum { EVENTS = 20000, LIVE = 40, MOST = 60 };
    static shmem_plan_event_t events[EVENTS + LIVE * MOST];
    static shmem_plan_buffer_t buffers[EVENTS];
    uint64_t held[LIVE][MOST], next = 1;
    int count[LIVE] = {0};
    size_t n = 0, buffer_count = EVENTS;
    while (n < EVENTS) {
        int r = (int)draw(LIVE);
        if (count[r] == MOST || (count[r] && draw(30) == 0)) {
            while (count[r] > 0)
                events[n++] = (shmem_plan_event_t){held[r][--count[r]], 0};
        } else {
            held[r][count[r]++] = next;
            events[n++] = (shmem_plan_event_t){next++, r % 2 ? 65536 : 16384};
        }
    }
    CHECK_OK(shmem_plan_from_trace(events, n, buffers, &buffer_count));
    CHECK_EQ(buffer_count, next - 1);
    plan_well("cache blocks", buffers, buffer_count);
}

static void ten_thousand(void)
{
    static shmem_plan_buffer_t b[10000];
    static uint64_t offsets[10000];
    for (size_t i = 0; i < 10000; i++) {
        int64_t first = (int64_t)draw(20000);
        b[i] = (shmem_plan_buffer_t){.bytes = 256 * (1 + draw(4096)),
                                     .first = first,
                                     .last = first + 1 + (int64_t)draw(draw(50) ? 200 : 10000)};
    }
    double begin = harness_now();
    CHECK_OK(shmem_plan_solve(b, 10000, NULL, offsets, NULL));
    double took = harness_now() - begin;
    CHECK_OK(shmem_plan_check(b, 10000, offsets, NULL));
    printf("10,000 buffers: %.3f s\n", took);
    CHECK(took < (harness_has_asan() || harness_has_tsan() ? 60 : 10)); /* 1 when it is quiet */
}

/* ---- lifetimes ---- */

static void steps(void)
{
    const size_t first[] = {0}, second[] = {1, 0}, third[] = {1, 1};
    const shmem_plan_step_t list[] = {
        {NULL, 0, first, 1}, {NULL, 0, NULL, 0}, {first, 1, second, 1}, {third, 2, NULL, 0}};
    shmem_plan_buffer_t b[3] = {{.bytes = 7, .first = 9, .last = 99}, {0}, {.first = 5, .last = 8}};
    CHECK_OK(shmem_plan_from_steps(list, 4, b, 3));
    CHECK(b[0].first == 0 && b[0].last == 3 && b[0].bytes == 7);
    CHECK(b[1].first == 2 && b[1].last == 4);
    CHECK(b[2].first == 0 && b[2].last == 0);
    CHECK_STATUS(shmem_plan_from_steps(list, 4, b, 1), SHMEM_ERR_INVALID);
    CHECK(strstr(shmem_error_detail()->text, "step 2 uses buffer 1") != NULL);
    CHECK(b[0].first == 0 && b[0].last == 3);
    const shmem_plan_step_t bad = {NULL, 2, NULL, 0};
    CHECK_STATUS(shmem_plan_from_steps(&bad, 1, b, 3), SHMEM_ERR_INVALID);
    CHECK_STATUS(shmem_plan_from_steps(NULL, 1, b, 3), SHMEM_ERR_INVALID);
    CHECK_OK(shmem_plan_from_steps(NULL, 0, NULL, 0));
}

static void trace(void)
{
    const shmem_plan_event_t events[] = {{5, 10}, {UINT64_MAX, 20}, {5, 0}, {5, 30},
                                         {0, 40}, {UINT64_MAX, 0},  {5, 0}};
    shmem_plan_buffer_t b[4];
    size_t n = 3;
    CHECK_STATUS(shmem_plan_from_trace(events, 7, b, &n), SHMEM_ERR_LIMIT);
    CHECK_EQ(n, 3);
    n = 4;
    CHECK_OK(shmem_plan_from_trace(events, 7, b, &n));
    CHECK_EQ(n, 4);
    const int64_t first[] = {0, 1, 3, 4}, last[] = {2, 5, 6, 7};
    for (int i = 0; i < 4; i++)
        CHECK(b[i].bytes == 10u * (unsigned)(i + 1) && b[i].first == first[i] &&
              b[i].last == last[i] && !b[i].alignment && !b[i].is_fixed);

    const shmem_plan_event_t twice[] = {{5, 10}, {6, 10}, {6, 10}, {7, 0}};
    n = 4;
    CHECK_STATUS(shmem_plan_from_trace(twice, 4, b, &n), SHMEM_ERR_INVALID);
    CHECK(strstr(shmem_error_detail()->text, "event 2 allocates 6") != NULL);
    CHECK_STATUS(shmem_plan_from_trace(twice + 3, 1, b, &n), SHMEM_ERR_INVALID);
    CHECK(strstr(shmem_error_detail()->text, "event 0 frees 7") != NULL);
    CHECK_STATUS(shmem_plan_from_trace(NULL, 1, b, &n), SHMEM_ERR_INVALID);
    n = 0;
    CHECK_OK(shmem_plan_from_trace(NULL, 0, NULL, &n));
}

int main(void)
{
    RUN(networks);
    RUN(blocks_of_a_cache);
    RUN(ten_thousand);
    RUN(steps);
    RUN(trace);
    return harness_end();
}
