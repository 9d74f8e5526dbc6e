/* SPDX-License-Identifier: MIT
 *
 * A fence over two contexts: two threads give work to two blocks in either, while an owner destroys the second context
 * and makes it anew. Checked: no block is given out before the work on it has ended in both, nothing is recorded or
 * asked in a context that is not there, and a block that waits is given out in the end.
 *
 * The work of a context that was destroyed has ended once the driver has said so. The driver may refuse to destroy: so
 * a fence that meets a context that is closing comes to nothing, rather than leave it out. Contexts have one stream;
 * the rest is as in fence.pml.
 */
#define LASTING 0
#define PASSING 1 /* the context that is destroyed and made anew */
#define NONE 2

/* The driver. */
bool alive[2] = true;
byte submitted[2], completed[2];

/* What the pool knows of contexts; guarded by the lock of the contexts, whose sections are atomic steps. */
mtype = { OPEN, CLOSING, GONE };
mtype status[2] = OPEN;
byte generation[2] = 1;
byte inside[2]; /* calls in the driver that need the context */

mtype = { IDLE, LIVE, WAITING };
mtype state[2] = IDLE;
byte batch[2];
byte used[4];
byte open = 1;
byte passed, recorded;

/* One fence at a time: an event in each context. */
bool recording;
byte outstanding; /* its batch, 0: none */
byte at[2];
byte made_in[2]; /* the generation of the context where it was recorded, 0: the context was not there */
byte failures_left = 1;

bool served;

#define work_ended(block) (completed[0] >= used[2 * (block)] && completed[1] >= used[2 * (block) + 1])
#define may_take(block) (state[block] == IDLE || (state[block] == WAITING && batch[block] <= passed))
#define unproven(block) (state[block] == WAITING && batch[block] > recorded)
#define context_is_there (alive[context] && generation[context] == made)

inline seal() {
    k = open;
    open = k + 1
}

inline record_in_context() {
    atomic {
#ifdef FAULT_LISTED_BEFORE_SEALED
        made = listed[context];
#else
        made = (status[context] == OPEN -> generation[context] : 0);
#endif
#ifdef FAULT_PEER_LEFT_OUT
        made = (context == PASSING -> 0 : made);
#endif
#ifndef FAULT_CLOSING_LEFT_OUT
        failed = failed || status[context] == CLOSING;
#endif
        made_in[context] = made;
        inside[context] = inside[context] + (made != 0 -> 1 : 0)
    }
    if
    :: made == 0
    :: else ->
        atomic {
            assert(context_is_there);
            if
            :: at[context] = submitted[context]
            :: failures_left > 0 ->
                failures_left--;
                failed = true
            fi;
            inside[context]--;
            made = 0
        }
    fi
}

inline close_batch() {
    if
    :: atomic {
           !recording && outstanding == 0 && (unproven(0) || unproven(1)) -> recording = true
       }
#ifdef FAULT_LISTED_BEFORE_SEALED
       atomic {
           listed[0] = (status[0] == OPEN -> generation[0] : 0);
           listed[1] = (status[1] == OPEN -> generation[1] : 0)
       }
#endif
       seal();
       do
       :: context < 2 ->
           record_in_context();
           context++
       :: else -> break
       od;
       atomic {
           outstanding = (failed -> 0 : k);
           recorded = (failed -> recorded : k);
           recording = false;
           failed = false;
           context = 0;
           k = 0
       }
    :: else
    fi
}

inline ask_in_context() {
    atomic {
        made = made_in[context];
#ifdef FAULT_GENERATION_IGNORED
        made = (status[context] == GONE -> 0 : made);
#else
        made = (generation[context] != made -> 0 : made);
#endif
#ifdef FAULT_CLOSING_HAS_PASSED
        made = (status[context] == CLOSING -> 0 : made);
#else
        done = done && (made == 0 || status[context] != CLOSING);
#endif
        inside[context] = inside[context] + (made != 0 && done -> 1 : 0)
    }
    if
    :: made != 0 && done ->
        atomic {
            assert(context_is_there);
            done = (completed[context] >= at[context]);
            inside[context]--;
            made = 0
        }
    :: else -> made = 0
    fi
}

inline poll() {
    if
    :: outstanding != 0 ->
        k = outstanding;
        done = true;
        do
        :: context < 2 && done ->
            ask_in_context();
            context++
        :: else -> break
        od;
        atomic {
            passed = (done && k > passed -> k : passed);
            outstanding = (outstanding <= passed -> 0 : outstanding);
            done = false;
            context = 0;
            k = 0
        }
    :: else
    fi
}

inline take() {
    atomic {
        if
        :: may_take(0) -> block = 0
        :: may_take(1) -> block = 1
        :: else
        fi;
        if
        :: block != NONE ->
            assert(work_ended(block));
            used[2 * block] = 0;
            used[2 * block + 1] = 0;
            batch[block] = 0;
            state[block] = LIVE
        :: else
        fi
    }
}

inline allocate() {
    take();
    if
    :: block == NONE ->
        poll();
        take();
        if
        :: block == NONE -> close_batch()
        :: else
        fi
    :: else
    fi
}

inline submit_work() {
    atomic {
        if
        :: context = LASTING
        :: status[PASSING] == OPEN -> context = PASSING
        fi;
        submitted[context]++;
        used[2 * block + context] = submitted[context];
        context = 0
    }
}

/* A block that it starts with is its own. */
proctype program(byte lives, block) {
    byte mine, k, context, made, listed[2];
    bool failed, done;
    do
    :: block == NONE && lives > 0 ->
        lives--;
        allocate()
    :: block != NONE ->
        submit_work();
        mine = open;
        atomic {
            state[block] = WAITING;
            batch[block] = mine;
            block = NONE;
            mine = 0
        }
        if
        :: close_batch()
        :: skip
        fi
    :: else -> break
    od
}

proctype owner(byte times) {
    do
    :: times > 0 ->
        times--;
        status[PASSING] = CLOSING;
#ifndef FAULT_DESTROY_DOES_NOT_AWAIT_CALLS
        inside[PASSING] == 0;
#endif
        if
        :: atomic {
               alive[PASSING] = false;
               completed[PASSING] = submitted[PASSING]
           }
           atomic {
               status[PASSING] = GONE;
               generation[PASSING]++
           }
           alive[PASSING] = true;
           status[PASSING] = OPEN
        :: status[PASSING] = OPEN /* the driver refused */
        fi
    :: else -> break
    od
}

#ifdef LIVENESS
/* Tries until it is served. */
proctype patient() {
    byte block = NONE, k, context, made, listed[2];
    bool failed, done;
    do
    :: allocate();
       if
       :: block == NONE
       :: else -> break
       fi
    od;
    served = true
}

ltl waiting_block_is_served { <> served }
#endif

proctype device() {
end:
    do
    :: completed[0] < submitted[0] -> completed[0]++
    :: completed[1] < submitted[1] -> completed[1]++
    od
}

init {
    atomic {
#ifdef LIVENESS
        state[0] = WAITING;
        batch[0] = 1;
        submitted[1] = 1;
        used[1] = 1;
        state[1] = LIVE;
        run patient();
        run owner(1);
#else
        run program(2, NONE);
        run program(1, NONE);
        run owner(1);
#endif
        run device()
    }
}
