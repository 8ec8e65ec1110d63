/*
 * Unbalanced tree search, after Olivier et al. (LCPC 2006): a tree that nobody knows before it is walked. Each node has a state of 64
 * bits, from which a hash makes the states of its children; a node but the root has UTS_CHILDREN or none, as its state decides
 * (a binomial tree). The hash takes about as long as the SHA-1 of the original. Every node is a task. The figure is for one node.
 */
#ifndef THREADS_UTS_H
#define THREADS_UTS_H
#include "threads.h"

enum { UTS_ROOTS = 400, UTS_CHILDREN = 4, UTS_HASH_STEPS = 24 };

/* Just below 1 / UTS_CHILDREN, where trees become endless. */
#define UTS_PART 0.248

static long uts_nodes, uts_expected;

static inline uint64_t uts_child(uint64_t state, int number) {
    state += (uint64_t)number + 1;
    for (int step = 0; step < UTS_HASH_STEPS; step++) state = threads_mix(state);
    return state;
}

static inline int uts_children(uint64_t state) { return threads_random(state) < UTS_PART ? UTS_CHILDREN : 0; }

static long uts_sequential(uint64_t state) {
    long nodes = 1;
    for (int n = 0; n < uts_children(state); n++) nodes += uts_sequential(uts_child(state, n));
    return nodes;
}

static inline void uts_expect(void) {
    uts_expected = 1;
    for (int n = 0; n < UTS_ROOTS; n++) uts_expected += uts_sequential(uts_child(0, n));
}

static void uts_prepare(void) { uts_nodes = 0; }

static long uts_wrong(void) { return uts_nodes != uts_expected; }
#endif
