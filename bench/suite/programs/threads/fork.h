/*
 * Fork and join: an empty parallel region, flat, and one with another in each of its members; and empty tasks that one thread
 * makes. Where one thread forks by handing out work rather than by teams, also what that costs when nobody takes it: for each part of a loop
 * that is forked in as many parts as there are iterations (`doall`), and for each task that is enqueued, without running it (`enq`).
 * Before it is measured, a counter for each member shows that each was there in each round.
 */
#ifndef THREADS_FORK_H
#define THREADS_FORK_H
#include "threads.h"

/* Tasks of one round, and the largest team that is nested in itself: a runtime may start the square of that many threads. */
enum { FORK_TASKS = 1000, FORK_NESTED_MOST = 32 };

static int fork_counting;
static long *fork_counts;

/* What member `slot` does. */
static inline void fork_member(long slot) {
    if (fork_counting) __atomic_add_fetch(&fork_counts[slot], 1, __ATOMIC_RELAXED);
    __asm__ volatile("" ::: "memory");
}

/* Whether each of `members` members is there once in each of some rounds. */
static inline void fork_verify(const char *name, void (*body)(void), long members) {
    enum { ROUNDS = 20 };
    long wrong = 0;
    fork_counts = (long *)calloc((size_t)members, sizeof *fork_counts);
    if (!fork_counts) suite_fail("no memory for %ld counters", members);
    fork_counting = 1;
    for (int round = 0; round < ROUNDS; round++) body();
    fork_counting = 0;
    for (long n = 0; n < members; n++) wrong += fork_counts[n] != ROUNDS;
    free(fork_counts);
    suite_check(name, (double)wrong, 0);
    if (wrong) exit(1);
}

/* Verifies and measures `nested`, a region of all threads in each member of another one, unless these are too many. */
static inline void fork_nested(void (*nested)(void),
                               void (*measure)(const char *, const char *, double, void (*)(void), void (*)(void), long (*)(void))) {
    if (threads > FORK_NESTED_MOST) {
        suite_note("not nested: %d by %d threads are too many", threads, threads);
        return;
    }
    fork_verify("members-nested", nested, (long)threads * threads);
    measure("nested", "us", 1e6, NULL, nested, NULL);
}
#endif
