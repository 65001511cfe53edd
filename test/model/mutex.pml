/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mutex (src/sync/mutex.h, mutex.c, wait.c): unlock is a plain store, one sleeper is woken with
 * the flag down, and who got the mutex after sleeping raises it again.
 *
 *   -DNO_HEAVY    the sleeper does not make the others fence: a wake-up is lost
 *   -DCLEAR_LATE  the flag is cleared after the bump: a wake-up is lost
 *   -DNO_DEBT     the flag is not raised again: a wake-up is lost
 */
#define PROCESSES 3
#define ROUNDS (me == 2 -> 1 : 2)
#define WORD 0 /* 0 free, else holder + 1 */
#define FLAG 1
#define SEQUENCE 2
#define PLACES 3
#include "memory.pml"

byte inside;

inline TRY()
{
    d_step {
        FENCE(me);
        if
        :: memory[WORD] == 0 -> memory[WORD] = me + 1; got = true
        :: else -> got = false
        fi
    }
}

inline WAKE_ONE()
{
    if
    :: atomic { asleep[0] -> asleep[0] = false }
    :: atomic { asleep[1] -> asleep[1] = false }
    :: atomic { asleep[2] -> asleep[2] = false }
    :: atomic { !asleep[0] && !asleep[1] && !asleep[2] -> skip }
    fi
}

proctype user(byte me)
{
    byte round, sequence, flag, other;
    bool got, slow;
    do
    :: round == ROUNDS -> break
    :: else ->
        slow = false;
        TRY();
        do
        :: got -> break
        :: else ->
            slow = true;
            LOAD(me, SEQUENCE, sequence);
            d_step { FENCE(me); memory[FLAG] = 1 };
            HEAVY(me);
            TRY();
            if
            :: got -> break
            :: else -> SLEEP(me, SEQUENCE, sequence)
            fi;
            TRY()
        od;
#ifndef NO_DEBT
        if
        :: slow -> STORE(me, FLAG, 1)
        :: else -> skip
        fi;
#endif
        inside++;
        assert(inside == 1);
        inside--;
        STORE(me, WORD, 0);
        LOAD(me, FLAG, flag);
        if
        :: flag ->
#ifndef CLEAR_LATE
            d_step { FENCE(me); memory[FLAG] = 0 };
#endif
            d_step { FENCE(me); memory[SEQUENCE] = memory[SEQUENCE] + 1 };
            WAKE_ONE();
#ifdef CLEAR_LATE
            d_step { FENCE(me); memory[FLAG] = 0 }
#endif
        :: else -> skip
        fi;
        round++
    od
}

init
{
    atomic { run user(0); run user(1); run user(2) }
}
