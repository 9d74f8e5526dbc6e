/* SPDX-License-Identifier: MIT
 *
 * Blocks that wait for a fence: two threads, two streams, two neighbouring blocks, and the device. Checked: no block is
 * given out before the work on it has ended, and a block that waits is given out in the end. That a recording fails, or
 * is postponed by a capture, is in here as a choice; how the two exclude one another is in capture.pml.
 *
 * A stream is two counters, the work submitted to it and the work that has ended, in this order; an event holds what
 * had been submitted when it was recorded. Steps interleave; memory orders are not modelled. Each FAULT is a mistake
 * that must be found.
 */
#define STREAMS 2
#define EVENTS 2 /* outstanding at most; reused */
#define NONE 2

/* The blocks. `used` is the last work on a block, by stream. All of it is guarded by the pool's lock: each of its
 * sections is one atomic step. */
mtype = { IDLE, LIVE, WAITING };
mtype state[2] = IDLE;
byte batch[2];
byte used[2 * STREAMS];

/* Read without a lock. */
byte open = 1;
byte passed;

/* Guarded by the lock of the fences, whose sections are atomic steps too; it is not held across driver calls. */
bool recording;
byte recorded; /* the last batch that has an event */
byte outstanding;
byte queue_batch[EVENTS], queue_event[EVENTS]; /* the oldest first */
bool event_taken[EVENTS];

/* The driver. */
byte submitted[STREAMS], completed[STREAMS];
byte at[EVENTS * STREAMS];
byte failures_left = 1;

byte served;

#define work_ended(block) (completed[0] >= used[(block) * STREAMS] && completed[1] >= used[(block) * STREAMS + 1])
#define event_done(event) (completed[0] >= at[(event) * STREAMS] && completed[1] >= at[(event) * STREAMS + 1])
#define may_take(block) (state[block] == IDLE || (state[block] == WAITING && batch[block] <= passed))
#define unproven(block) (state[block] == WAITING && batch[block] > recorded)

inline seal() {
    k = open;
    open = k + 1
}

inline close_batch() {
    if
    :: atomic {
           !recording && outstanding < EVENTS && (unproven(0) || unproven(1)) ->
           recording = true;
           event = (event_taken[0] -> 1 : 0);
           event_taken[event] = true;
#ifndef FAULT_RECORDED_BEFORE_SEALED
           seal()
#endif
       }
       if
       :: atomic {
              at[event * STREAMS] = submitted[0];
              at[event * STREAMS + 1] = submitted[1]
          }
       :: atomic {
              failures_left > 0 -> failures_left--;
#ifndef FAULT_FAILED_RECORD_COUNTS
              failed = true
#endif
          }
       fi;
       atomic {
#ifdef FAULT_RECORDED_BEFORE_SEALED
           seal();
#endif
           if
           :: failed ->
#ifdef FAULT_FAILED_RECORD_FORGOTTEN
               recorded = k;
#endif
               event_taken[event] = false
           :: else ->
               queue_batch[outstanding] = k;
               queue_event[outstanding] = event;
               outstanding++;
               recorded = k
           fi;
           recording = false;
           failed = false;
           k = 0;
           event = 0
       }
    :: else
    fi
}

/* The event asked about may have passed for another thread meanwhile, and have been recorded anew. */
inline poll() {
    if
    :: atomic {
           outstanding > 0 ->
           k = queue_batch[0];
           event = queue_event[0]
       }
       if
       :: event_done(event) ->
           atomic {
#ifdef FAULT_PASSED_IS_OPEN
               k = open;
#endif
#ifdef FAULT_PASSED_IS_OLDEST_NOW
               k = queue_batch[0];
#endif
               passed = (k > passed -> k : passed);
               if
               :: outstanding > 0 && queue_batch[0] <= passed ->
                   event_taken[queue_event[0]] = false;
                   outstanding--;
                   queue_batch[0] = queue_batch[1];
                   queue_event[0] = queue_event[1];
                   queue_batch[1] = 0;
                   queue_event[1] = 0
               :: else
               fi;
               k = 0;
               event = 0
           }
       :: else ->
           atomic {
               k = 0;
               event = 0
           }
       fi
    :: outstanding == 0
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
            used[block * STREAMS] = 0;
            used[block * STREAMS + 1] = 0;
            batch[block] = 0;
            state[block] = LIVE
        :: else
        fi
    }
}

/* Leaves `block` NONE where the pool grows. */
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
        :: stream = 0
        :: stream = 1
        fi;
        submitted[stream]++;
        used[block * STREAMS + stream] = submitted[stream];
        stream = 0
    }
}

/* Neighbours that wait are one block, of the later batch. */
inline make_waiting() {
    atomic {
        state[block] = WAITING;
        batch[block] = mine;
        if
        :: state[1 - block] == WAITING && batch[1 - block] != mine ->
            if
#ifdef FAULT_MERGED_HAS_EARLIER_BATCH
            :: batch[1 - block] > mine -> batch[1 - block] = mine
#else
            :: batch[1 - block] < mine -> batch[1 - block] = mine
#endif
            :: else -> batch[block] = batch[1 - block]
            fi
        :: else
        fi;
        block = NONE;
        mine = 0
    }
}

/* A block that it starts with is its own. */
proctype program(byte lives, block) {
    byte stream, mine, k, event;
    bool failed;
    do
    :: block == NONE && lives > 0 ->
        lives--;
        allocate()
    :: block != NONE ->
#ifdef FAULT_BATCH_READ_BEFORE_WORK
        mine = open;
        submit_work();
#else
        submit_work();
        mine = open;
#endif
        make_waiting();
        if
        :: close_batch()
        :: skip
        fi
    :: else -> break
    od
}

#ifdef LIVENESS
/* Tries until it is served. */
proctype patient_program() {
    byte block = NONE, k, event;
    bool failed;
    do
    :: allocate();
       if
       :: block == NONE
       :: else -> break
       fi
    od;
    served++
}

ltl waiting_blocks_are_served { <> (served == 2) }
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
        /* One block waits already, the other one is being used and freed. */
        state[0] = WAITING;
        batch[0] = 1;
        submitted[0] = 1;
        used[0] = 1;
        state[1] = LIVE;
        run program(0, 1);
        run patient_program();
        run patient_program();
#else
        run program(3, NONE);
        run program(2, NONE);
#endif
        run device()
    }
}
