/*
 * What the chapter `kernels` of `margay bench threads` shares: small programs in the shapes of real ones. Each has two drivers of the
 * same pieces of work, a sequential one without OpenMP and one with it, and compares what they leave.
 */
#ifndef THREADS_KERNELS_H
#define THREADS_KERNELS_H
/* A product and a sum in one instruction here and in two there would differ in the last bit. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif
#include "openmp.h"

/* Numbers from -0.5 to 0.5 that `seed` decides. */
static inline void kernels_fill(double *numbers, long count, uint64_t seed) {
    for (long i = 0; i < count; i++) numbers[i] = threads_random((seed << 32) + (uint64_t)i) - 0.5;
}

/* How many bytes are not those that are expected: results that do not depend on an order are equal bit by bit. */
static inline long kernels_differ(const void *ours, const void *expected, size_t bytes) {
    const char *a = (const char *)ours, *b = (const char *)expected;
    long wrong = 0;
    for (size_t n = 0; n < bytes; n++) wrong += a[n] != b[n];
    return wrong;
}
#endif
