/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bell (src/sync/wait.h, wait.c). Two ringers store something and ring; two sleepers wait.
 *
 *   default       rings wake all; each sleeper waits for both stores (barriers, manual events,
 *                 signals)
 *   -DONE         rings wake one; each sleeper takes one of the two stores (semaphores, auto events)
 *
 *   -DNO_HEAVY    the sleeper does not make the others fence: a wake-up is lost
 *   -DCLEAR_LATE  (all) the flag is cleared after the bump: a wake-up is lost
 *   -DCLEAR_BLIND (one) the flag is cleared without looking whether it changed: a wake-up is lost
 */
#define PROCESSES 4 /* 0 and 1 sleep, 2 and 3 ring */
#define DATA 0      /* and 1: one for each ringer */
#define FLAG 2
#define SEQUENCE 3
#define PLACES 4
#include "memory.pml"

inline READY()
{
#ifdef ONE
    d_step {
        FENCE(me);
        if
        :: memory[DATA] == 1 -> memory[DATA] = 2; ready = true
        :: memory[DATA] != 1 && memory[DATA + 1] == 1 -> memory[DATA + 1] = 2; ready = true
        :: else -> ready = false
        fi
    }
#else
    LOAD(me, DATA, first);
    LOAD(me, DATA + 1, second);
    ready = (first == 1 && second == 1)
#endif
}

proctype sleeper(byte me)
{
    byte sequence, other, first, second;
    bool ready;
    READY();
    do
    :: ready -> break
    :: else ->
        LOAD(me, SEQUENCE, sequence);
        d_step { FENCE(me); memory[FLAG] = memory[FLAG] + 1 };
        HEAVY(me);
        READY();
        if
        :: ready -> break
        :: else -> SLEEP(me, SEQUENCE, sequence)
        fi;
        READY()
    od
}

proctype ringer(byte me)
{
    byte flag;
    bool woken;
    STORE(me, me - 2, 1);
    LOAD(me, FLAG, flag);
    if
    :: flag ->
#ifdef ONE
        LOAD(me, FLAG, flag);
        d_step { FENCE(me); memory[SEQUENCE] = memory[SEQUENCE] + 1 };
        if
        :: atomic { asleep[0] -> asleep[0] = false; woken = true }
        :: atomic { asleep[1] -> asleep[1] = false; woken = true }
        :: atomic { !asleep[0] && !asleep[1] -> woken = false }
        fi;
        if
        :: woken -> skip
        :: else ->
            d_step {
                FENCE(me);
                if
#ifdef CLEAR_BLIND
                :: true -> memory[FLAG] = 0
#else
                :: memory[FLAG] == flag -> memory[FLAG] = 0
                :: else -> skip
#endif
                fi
            }
        fi
#else
#ifndef CLEAR_LATE
        d_step { FENCE(me); memory[FLAG] = 0 };
#endif
        d_step { FENCE(me); memory[SEQUENCE] = memory[SEQUENCE] + 1 };
        d_step { asleep[0] = false; asleep[1] = false };
#ifdef CLEAR_LATE
        d_step { FENCE(me); memory[FLAG] = 0 }
#endif
#endif
    :: else -> skip
    fi
}

init
{
    atomic { run sleeper(0); run sleeper(1); run ringer(2); run ringer(3) }
}
