/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A processor with a store buffer (x86-TSO), for models of sleeping and waking.
 *
 *   STORE puts into the own buffer; a flusher commits the oldest entry at any time
 *   LOAD  takes the newest own entry for the place, else memory
 *   FENCE empties the own buffer; so does every read-modify-write (use it inside atomic)
 *   HEAVY empties all buffers: every processor passes a fence (membarrier)
 *
 * With -DNO_HEAVY the heavy barrier is a plain fence, and the models must find a lost wake-up.
 * There are no time slices here: a lost wake-up is a process that sleeps for ever, which spin
 * reports as an invalid end state.
 */
#define CAPACITY 2

typedef buffer_t {
    byte n;
    byte place[CAPACITY];
    byte value[CAPACITY]
};

buffer_t buffer[PROCESSES];
byte memory[PLACES];
bool asleep[PROCESSES];

inline COMMIT(p)
{
    memory[buffer[p].place[0]] = buffer[p].value[0];
    buffer[p].place[0] = buffer[p].place[1];
    buffer[p].value[0] = buffer[p].value[1];
    buffer[p].place[1] = 0;
    buffer[p].value[1] = 0;
    buffer[p].n = buffer[p].n - 1
}

inline FENCE(p)
{
    do
    :: buffer[p].n > 0 -> COMMIT(p)
    :: else -> break
    od
}

inline HEAVY(p)
{
#ifdef NO_HEAVY
    d_step { FENCE(p) }
#else
    d_step {
        other = 0;
        do
        :: other < PROCESSES -> FENCE(other); other++
        :: else -> break
        od;
        other = 0
    }
#endif
}

inline STORE(p, where, what)
{
    atomic {
        buffer[p].n < CAPACITY ->
        buffer[p].place[buffer[p].n] = where;
        buffer[p].value[buffer[p].n] = what;
        buffer[p].n = buffer[p].n + 1
    }
}

inline LOAD(p, where, into)
{
    d_step {
        if
        :: buffer[p].n == 2 && buffer[p].place[1] == where -> into = buffer[p].value[1]
        :: else ->
            if
            :: buffer[p].n > 0 && buffer[p].place[0] == where -> into = buffer[p].value[0]
            :: else -> into = memory[where]
            fi
        fi
    }
}

/* The futex on memory[where]. */
inline SLEEP(p, where, seen)
{
    d_step {
        FENCE(p);
        if
        :: memory[where] == seen -> asleep[p] = true
        :: else -> skip
        fi
    };
    !asleep[p]
}

active proctype flusher()
{
    byte p;
end:
    do
    :: atomic { buffer[0].n > 0 -> COMMIT(0) }
    :: atomic { buffer[1].n > 0 -> COMMIT(1) }
    :: atomic { buffer[2].n > 0 -> COMMIT(2) }
#if PROCESSES > 3
    :: atomic { buffer[3].n > 0 -> COMMIT(3) }
#endif
    od
}
