/*
 * A loop whose iterations cost more and more, by each schedule. Iteration i leaves a number, and all numbers are compared with those
 * of a sequential loop.
 */
#ifndef THREADS_LOOPS_H
#define THREADS_LOOPS_H
#include "threads.h"

enum { LOOPS_COUNT = 4096 };

static uint64_t loops_results[LOOPS_COUNT], loops_expected[LOOPS_COUNT];

/* From one step of the generator to a hundred and some. */
static void __attribute__((noinline)) loops_iteration(long i) {
    uint64_t z = (uint64_t)i;
    for (long step = 0; step <= i / 32; step++) z = threads_mix(z);
    loops_results[i] = z;
}

static inline void loops_expect(void) {
    for (long i = 0; i < LOOPS_COUNT; i++) loops_iteration(i);
    memcpy(loops_expected, loops_results, sizeof loops_results);
}

static void loops_prepare(void) { memset(loops_results, 0, sizeof loops_results); }

static long loops_wrong(void) {
    long wrong = 0;
    for (long i = 0; i < LOOPS_COUNT; i++) wrong += loops_results[i] != loops_expected[i];
    return wrong;
}
#endif
