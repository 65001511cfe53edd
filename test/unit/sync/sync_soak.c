/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long storm: processes use two mutexes, a semaphore and two events at random; every few
 * milliseconds one of them is killed, anywhere or at a random fault point. Afterwards nothing is
 * held, nothing is lost, and no wait took longer than it may.
 *
 *     sync_soak [seconds]
 */
#include <sys/wait.h>

#include "sync/event.h"
#include "sync/mutex.h"
#include "sync/semaphore.h"
#include "sync_world.h"

enum { PROCESSES = 10, PERMITS = 3, WORST_MS = 5000 };

typedef struct storm {
    shmemi_mutex_t mutex[2];
    uint64_t plain[2], copy[2];
    shmemi_event_t event, idle;
    _Atomic uint64_t ops, died, faults, worst_ns;
    _Atomic int stop;
    _Alignas(64) char semaphore[SHMEM_SEMAPHORE_BYTES(PERMITS)];
} storm_t;

static storm_t *storm;
static int soak_seconds = 60;

static const char *const points[] = {
    "sync.mutex.lock.taken",
    "sync.mutex.lock.flagged",
    "sync.mutex.inherit.taken",
    "sync.mutex.unlock.checked",
    "sync.mutex.unlock.stored",
    "sync.bell.ring.cleared",
    "sync.bell.ring.bumped",
    "sync.wait.announced",
    "sync.wait.woken",
    "sync.event.set.stored",
    "sync.event.wait.consumed",
    "sync.semaphore.acquire.taken",
    "sync.semaphore.release.given",
    "sync.semaphore.release.counted",
    "sync.row.claim.owned",
};

static uint32_t random_next(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

static void note_wait(double begin)
{
    uint64_t ns = (uint64_t)((harness_now() - begin) * 1e9);
    uint64_t worst = atomic_load(&storm->worst_ns);
    while (ns > worst && !atomic_compare_exchange_weak(&storm->worst_ns, &worst, ns))
        ;
}

static void use_mutex(const shmemi_actor_t *actor, int which, bool linger)
{
    double begin = harness_now();
    shmem_status_t status =
        shmemi_mutex_lock(actor, &storm->mutex[which], shmemi_deadline_in(WORST_MS * MS));
    note_wait(begin);
    if (status == SHMEM_ERR_OWNER_DIED) {
        storm->copy[which] = storm->plain[which];
        CHECK_OK(shmemi_mutex_consistent(actor, &storm->mutex[which]));
        atomic_fetch_add(&storm->died, 1);
    } else {
        CHECK_OK(status);
    }
    CHECK_EQ(storm->plain[which], storm->copy[which]);
    storm->plain[which]++;
    if (linger)
        harness_sleep(0);
    storm->copy[which]++;
    CHECK_OK(shmemi_mutex_unlock(actor, &storm->mutex[which]));
}

static void use_semaphore(const shmemi_actor_t *actor, bool linger)
{
    shmemi_semaphore_t *semaphore = (shmemi_semaphore_t *)storm->semaphore;
    double begin = harness_now();
    CHECK_OK(shmemi_semaphore_acquire(actor, semaphore, shmemi_deadline_in(WORST_MS * MS)));
    note_wait(begin);
    if (linger)
        harness_sleep(0);
    CHECK_OK(shmemi_semaphore_release(actor, semaphore));
}

static void use_one(const shmemi_actor_t *actor, uint32_t random)
{
    bool linger = random >> 8 & 1;
    switch (random % 8) {
    case 0:
    case 1:
    case 2:
        use_mutex(actor, random >> 9 & 1, linger);
        break;
    case 3:
    case 4:
        use_semaphore(actor, linger);
        break;
    case 5:
        CHECK_OK(shmemi_event_set(actor, &storm->event));
        break;
    case 6: /* whoever sets it may be dead */
        (void)!shmemi_event_wait(actor, &storm->event, shmemi_deadline_in(1 * MS));
        break;
    default:
        CHECK_STATUS(shmemi_event_wait(actor, &storm->idle, shmemi_deadline_in(100000)),
                     SHMEM_ERR_TIMEOUT);
    }
    atomic_fetch_add(&storm->ops, 1);
}

static void member(void *arg)
{
    int client = (int)(intptr_t)arg;
    uint32_t state = (uint32_t)getpid() * 2654435761u | 1;
    shmemi_actor_t actor;
    if (random_next(&state) % 2)
        shmemi_fault_arm(points[random_next(&state) % SHMEMI_COUNT(points)], SHMEMI_FAULT_KILL,
                         1 + random_next(&state) % 50);
    world_actor(&actor, client, random_next(&state) % 3 * 10000);
    while (!atomic_load(&storm->stop))
        use_one(&actor, random_next(&state));
    shmemi_fault_disarm();
    shmemi_actor_fini(&actor);
}

static void replace(pid_t *pid, int client)
{
    world_bury(client);
    CHECK_OK(slots_add(world.roster, "soak", 0, 0, &world.client[client].slot,
                       &world.client[client].epoch));
    *pid = harness_fork(member, (void *)(intptr_t)client);
}

/* One step of the server and the killer. */
static unsigned tend(pid_t *pids, uint32_t random)
{
    unsigned kills = 0;
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        if (waitpid(pids[i], &status, WNOHANG) != pids[i])
            continue;
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        atomic_fetch_add(&storm->faults, 1);
        replace(&pids[i], i);
        kills++;
    }
    int victim = (int)(random % PROCESSES);
    if (random >> 8 & 1) {
        CHECK(kill(pids[victim], SIGKILL) == 0);
        CHECK_EQ(harness_wait(pids[victim], 10), -SIGKILL);
        replace(&pids[victim], victim);
        kills++;
    }
    return kills;
}

static void check_nothing_lost(void)
{
    shmemi_actor_t actor;
    uint32_t permits = 0;
    for (int i = 0; i < PROCESSES; i++)
        world_bury(i);
    CHECK_EQ(world_rows(), 0);
    CHECK_OK(
        slots_add(world.roster, "walker", 0, 0, &world.client[0].slot, &world.client[0].epoch));
    world_actor(&actor, 0, 0);
    for (int i = 0; i < 2; i++) {
        shmem_status_t status = shmemi_mutex_try(&actor, &storm->mutex[i]);
        CHECK(status == SHMEM_OK || status == SHMEM_ERR_OWNER_DIED);
    }
    CHECK_OK(shmemi_semaphore_available(&actor, (shmemi_semaphore_t *)storm->semaphore, &permits));
    CHECK_EQ(permits, PERMITS);
    shmemi_actor_fini(&actor);
}

static void random_kills(void)
{
    world_needs_kills();
    world_make(PROCESSES);
    storm = harness_shared(sizeof *storm);
    for (int i = 0; i < 2; i++)
        CHECK_OK(shmemi_mutex_init(&storm->mutex[i]));
    CHECK_OK(shmemi_event_init(&storm->event, SHMEM_EVENT_AUTO, false));
    CHECK_OK(shmemi_event_init(&storm->idle, SHMEM_EVENT_MANUAL, false));
    CHECK_OK(shmemi_semaphore_init(storm->semaphore, sizeof storm->semaphore, PERMITS));
    pid_t pids[PROCESSES];
    uint32_t state = (uint32_t)getpid() | 1;
    unsigned kills = 0;
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = harness_fork(member, (void *)(intptr_t)i);
    for (double end = harness_now() + soak_seconds; harness_now() < end; harness_sleep(0.003))
        kills += tend(pids, random_next(&state));
    atomic_store(&storm->stop, 1);
    for (int i = 0; i < PROCESSES; i++) {
        int code = harness_wait(pids[i], 20);
        CHECK(code == 0 || code == -SIGKILL);
    }
    check_nothing_lost();
    fprintf(stderr,
            "%llu operations, %u kills (%llu at fault points), %llu inherited mutexes, "
            "longest wait %.1f ms\n",
            (unsigned long long)storm->ops, kills, (unsigned long long)storm->faults,
            (unsigned long long)storm->died, (double)storm->worst_ns * 1e-6);
    CHECK(storm->died > 0 && storm->faults > 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        soak_seconds = atoi(argv[1]);
    RUN(random_kills);
    return harness_end();
}
