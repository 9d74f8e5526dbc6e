/* SPDX-License-Identifier: MIT
 *
 * Blocks that are ordered after a stream: two threads, two handles of streams, of which one is destroyed and comes back
 * as another stream, two blocks, and the device. Checked: a block is given out only in the order of its own stream or
 * when the work on it has ended, events are recorded only on the stream that they are meant for, and what a destroyed
 * stream left is given out in the end.
 *
 * The pool keeps a list for each stream, under a key that is never used again; `known` is the key that it remembers for
 * a handle until it forgets the stream. Each list, and the fence, has at most one event outstanding. A block is used on
 * one stream during a life. Captures are in capture.pml; the rest is as in fence.pml.
 */
#define STREAMS 3 /* the third one gets the handle of the second */
#define SHARED 0  /* handle that both threads use */
#define PASSING 1 /* handle that the first thread destroys, and the second gets anew */
#define NONE 2
#define FENCE 0 /* beside the keys of the lists, which are 1 + the stream */

/* The driver. */
bool live[2] = true;
byte stream_of[2];
byte submitted[STREAMS], completed[STREAMS];

/* The blocks and lists; each atomic step that touches them is a section of the pool's lock. */
mtype = { IDLE, LIVE, WAITING, ORDERED };
mtype state[2] = IDLE;
byte batch[2];
byte list[2]; /* ORDERED: the key */
byte used[2 * STREAMS];
byte known[2];
bool closed[1 + STREAMS]; /* by key: its stream is being destroyed */

/* By key, or FENCE. */
byte passed[1 + STREAMS];
byte recorded[1 + STREAMS];
byte outstanding[1 + STREAMS]; /* the batch, 0: no event */
byte at[(1 + STREAMS) * STREAMS];
byte open = 1;
bool recording[1 + STREAMS];
byte failures_left = 1;

bool served;

#define ended(block, stream) (completed[stream] >= used[(block) * STREAMS + (stream)])
#define all_ended(block) (ended(block, 0) && ended(block, 1) && ended(block, 2))
#define ended_or_before(block, stream) \
    ((ended(block, 0) || stream == 0) && (ended(block, 1) || stream == 1) && (ended(block, 2) || stream == 2))
#define event_done(target) \
    (completed[0] >= at[target * STREAMS] && completed[1] >= at[target * STREAMS + 1] && \
     completed[2] >= at[target * STREAMS + 2])
#define covered(target, stream) (target == FENCE || target == 1 + stream -> submitted[stream] : 0)
#define is_free(block) (state[block] == WAITING || state[block] == ORDERED)
#define is_idle(block) \
    (state[block] == IDLE || (is_free(block) && batch[block] <= passed[FENCE]) || \
     (state[block] == ORDERED && batch[block] <= passed[list[block]]))
#ifdef FAULT_FENCE_FOR_WAITING_ONLY
#define wants_fence(block) (state[block] == WAITING)
#else
#define wants_fence(block) is_free(block)
#endif
#define unproven(block, target)       \
    (batch[block] > recorded[target] && \
     (target == FENCE -> wants_fence(block) : state[block] == ORDERED && list[block] == target))
#define right_stream (live[on] && stream_of[on] == target - 1)

inline seal() {
    k = open;
    open = k + 1
}

/* Records for the fence or for a list; `on` is the handle of the list's stream. */
inline close_batch() {
    if
    :: atomic {
           !recording[target] && outstanding[target] == 0 && (unproven(0, target) || unproven(1, target)) &&
               (target == FENCE || !closed[target]) ->
           recording[target] = true;
           on = (target == FENCE || known[PASSING] != target -> SHARED : PASSING)
       }
       record();
       atomic {
           recording[target] = false;
           failed = false;
           on = 0;
           k = 0
       }
    :: else
    fi
}

inline record() {
#ifndef FAULT_RECORDED_BEFORE_SEALED
    seal();
#endif
    if
    :: atomic {
           assert(target == FENCE || right_stream);
           at[target * STREAMS] = covered(target, 0);
           at[target * STREAMS + 1] = covered(target, 1);
           at[target * STREAMS + 2] = covered(target, 2)
       }
    :: failures_left > 0 -> failures_left--; failed = true
    fi;
    atomic {
#ifdef FAULT_RECORDED_BEFORE_SEALED
        seal();
#endif
        if
        :: failed
        :: else ->
            outstanding[target] = k;
            recorded[target] = k
        fi
    }
}

inline poll() {
    if
    :: outstanding[target] != 0 ->
        k = outstanding[target];
        if
        :: event_done(target) ->
            atomic {
#ifdef FAULT_LIST_PASSES_FOR_ALL
                passed[FENCE] = (k > passed[FENCE] -> k : passed[FENCE]);
#endif
                passed[target] = (k > passed[target] -> k : passed[target]);
                if
                :: outstanding[target] <= passed[target] -> outstanding[target] = 0
                :: else
                fi;
                k = 0
            }
        :: else -> k = 0
        fi
    :: else
    fi
}

/* The key is looked up before the lock is taken. */
inline look_up() {
    atomic {
        known[handle] = (known[handle] == 0 -> 1 + stream_of[handle] : known[handle]);
        key = known[handle]
    }
}

inline give_out() {
    used[block * STREAMS] = (stream_of[handle] == 0 -> used[block * STREAMS] : 0);
    used[block * STREAMS + 1] = (stream_of[handle] == 1 -> used[block * STREAMS + 1] : 0);
    used[block * STREAMS + 2] = (stream_of[handle] == 2 -> used[block * STREAMS + 2] : 0);
    state[block] = LIVE;
    batch[block] = 0;
    list[block] = 0
}

#ifdef FAULT_ORDERED_FOR_ALL
#define is_own(block) (state[block] == ORDERED)
#else
#define is_own(block) (state[block] == ORDERED && list[block] == key)
#endif

inline take() {
    look_up();
    atomic {
        if
        :: is_own(0) -> block = 0
        :: is_own(1) -> block = 1
        :: else
        fi;
        if
        :: block != NONE ->
            assert(ended_or_before(block, stream_of[handle]));
            give_out()
        :: else ->
            if
            :: is_idle(0) -> block = 0
            :: is_idle(1) -> block = 1
            :: else
            fi;
            if
            :: block != NONE ->
                assert(all_ended(block));
                give_out()
            :: else
            fi
        fi;
        key = 0
    }
}

inline allocate() {
    take();
    if
    :: block == NONE ->
        do
        :: target <= STREAMS ->
            poll();
            target++
        :: else -> break
        od;
        take();
        if
        :: block == NONE ->
            if
            :: target = FENCE
            :: lists_too -> target = 1 + stream_of[SHARED]
            :: lists_too -> target = 1 + stream_of[PASSING]
            fi;
            close_batch()
        :: else
        fi;
        target = 0
    :: else
    fi
}

inline submit_work() {
    atomic {
        submitted[stream_of[handle]]++;
        used[block * STREAMS + stream_of[handle]] = submitted[stream_of[handle]]
    }
}

inline free() {
#ifndef FAULT_BATCH_READ_BEFORE_WORK
    mine = open;
#endif
    if
    :: atomic {
           state[block] = WAITING;
           batch[block] = mine;
           block = NONE;
           mine = 0
       }
    :: skip;
       look_up();
       atomic {
           state[block] = ORDERED;
           list[block] = key;
           batch[block] = mine;
           block = NONE;
           mine = 0;
           key = 0
       }
    fi
}

inline live_once() {
    allocate();
    if
    :: block == NONE
    :: else ->
#ifdef FAULT_BATCH_READ_BEFORE_WORK
        mine = open;
#endif
        submit_work();
        free()
    fi
}

/* Another thread may be recording on the stream, or about to. */
inline destroy() {
    handle = PASSING;
    look_up();
    atomic {
#ifndef FAULT_DESTROY_DOES_NOT_AWAIT_RECORD
        !recording[key];
#endif
#ifndef FAULT_RECORDED_DURING_DESTROY
        closed[key] = true
#endif
    }
    if
    :: atomic {
           !recording[key] && outstanding[key] == 0 ->
           recording[key] = true;
           target = key;
           on = PASSING
       }
       record();
       atomic {
           recording[key] = false;
           failed = false;
           target = 0;
           on = 0;
           k = 0
       }
    :: skip /* postponed by a capture, or a mark is outstanding: the fence will do */
    fi;
    key = 0;
#if !defined(FAULT_STREAM_FORGOTTEN_LATE) && !defined(FAULT_STREAM_NOT_FORGOTTEN)
    known[PASSING] = 0;
#endif
    live[PASSING] = false
#ifdef FAULT_STREAM_FORGOTTEN_LATE
    ; known[PASSING] = 0
#endif
}

proctype first(byte lives) {
    byte handle, block = NONE, mine, key, k, target, on;
    bool failed, lists_too = true;
    do
    :: lives > 0 ->
        lives--;
        if
        :: handle = SHARED
        :: handle = PASSING
        fi;
        live_once()
    :: else -> break
    od;
    destroy()
}

proctype second(byte lives) {
    byte handle, block = NONE, mine, key, k, target, on;
    bool failed, lists_too = true;
    do
    :: lives > 0 ->
        lives--;
        live_once()
    :: atomic {
           !live[PASSING] ->
           stream_of[PASSING] = 2;
           live[PASSING] = true;
           handle = PASSING
       }
    :: lives == 0 -> break
    od
}

#ifdef LIVENESS
/* Tries until it is served; closes only fences, which prove all that is proven by the lists. */
proctype patient() {
    byte handle, block = NONE, key, k, target, on;
    bool failed, lists_too;
    do
    :: allocate();
       if
       :: block == NONE
       :: else -> break
       fi
    od;
    served = true
}

ltl left_block_is_served { <> served }
#endif

proctype device() {
end:
    do
    :: completed[0] < submitted[0] -> completed[0]++
    :: completed[1] < submitted[1] -> completed[1]++
    :: completed[2] < submitted[2] -> completed[2]++
    od
}

init {
    atomic {
        stream_of[PASSING] = 1;
#ifdef LIVENESS
        /* The stream that is destroyed leaves a block with work under way. */
        state[0] = ORDERED;
        list[0] = 2;
        batch[0] = 1;
        submitted[1] = 1;
        used[1] = 1;
        state[1] = LIVE;
        run first(0);
        run patient();
#else
        run first(2);
        run second(2);
#endif
        run device()
    }
}
