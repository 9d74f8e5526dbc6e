/* SPDX-License-Identifier: MIT
 *
 * Recordings, waits for the device and stream captures exclude one another: two threads record, one frees with a wait,
 * and two capture. Checked: no recording and no wait is in the driver while a stream captures, nobody waits for ever,
 * and once the captures have ended a recording gets through.
 *
 * Steps interleave; memory orders are not modelled. Begin-capture waits without a limit here. A mark on one stream, which
 * harms no other stream's capture, is no recording here. Each FAULT is a mistake that must be found.
 */
byte captures;                     /* announced */
byte records_begun, records_ended; /* one that gives way has begun and ended */
byte waits_begun, waits_ended;     /* one that gives way has not begun */

byte inside;    /* recordings and waits in the driver */
byte capturing; /* streams that capture */
#ifdef LIVENESS
byte at_work = 4; /* threads */
#else
byte at_work = 5;
#endif

#define exclusive (inside == 0 || capturing == 0)

inline driver_call() {
    atomic {
        inside++;
        assert(exclusive)
    }
    inside--
}

inline record() {
    records_begun++;
    if
#ifndef FAULT_CAPTURES_NOT_READ_AGAIN
    :: captures != 0 -> records_ended++
#endif
    :: else ->
        driver_call();
        records_ended++;
        recorded = true
    fi
}

/* Tries a few times; then somebody needs it. */
proctype recorder(byte tries) {
    bool recorded;
    do
    :: tries > 0 ->
        tries--;
#ifdef FAULT_CAPTURES_NOT_READ_AGAIN
        if
        :: captures == 0 -> record()
        :: else
        fi
#else
        record()
#endif
    :: else -> break
    od;
#ifdef LIVENESS
    recorded = false;
    do
    :: !recorded ->
        if
        :: captures == 0 -> record()
        :: else
        fi
    :: else -> break
    od;
#endif
    at_work--
}

proctype freer(byte tries) {
    do
    :: tries > 0 ->
        tries--;
#ifdef FAULT_WAIT_NOT_ANNOUNCED
        if
        :: captures == 0 -> driver_call()
        :: else
        fi
#else
        waits_begun++;
        if
        :: captures != 0 -> waits_begun--
        :: else ->
            driver_call();
            waits_ended++
        fi
#endif
    :: else -> break
    od;
    at_work--
}

inline await(begun, ended) {
    do
#ifdef FAULT_BEGUN_READ_FIRST
    :: seen = begun;
       if
       :: ended == seen -> break
#else
    :: seen = ended;
       if
       :: begun == seen -> break
#endif
       :: else
       fi
    od;
    seen = 0
}

proctype capturer(byte times) {
    byte seen;
    do
    :: times > 0 ->
        times--;
        captures++;
#ifndef FAULT_BEGIN_DOES_NOT_WAIT
        await(waits_begun, waits_ended);
        await(records_begun, records_ended);
#endif
        if
        :: atomic {
               capturing++;
               assert(exclusive)
           }
#ifdef FAULT_ANNOUNCEMENT_ENDS_FIRST
           captures--;
           capturing--
#else
           capturing--;
           captures--
#endif
        :: skip; /* the driver refuses */
#ifndef FAULT_REFUSED_BEGIN_COUNTS
           captures--
#endif
        fi
    :: else -> break
    od;
    at_work--
}

init {
    atomic {
#ifndef LIVENESS
        run recorder(2);
#endif
        run recorder(1);
        run freer(2);
        run capturer(2);
        run capturer(1)
    }
}

#ifdef LIVENESS
ltl everybody_gets_through { <> (at_work == 0) }
#endif
