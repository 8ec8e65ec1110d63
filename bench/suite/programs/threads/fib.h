/* Fibonacci numbers by recursion, where every call is a task: nothing but the cost of tasks. The figure is for one call. */
#ifndef THREADS_FIB_H
#define THREADS_FIB_H
#include "threads.h"

enum { FIB_N = 25, FIB_VALUE = 75025, FIB_CALLS = 2 * 121393 - 1 };

static long fib_result;

/* Keeps the compiler from computing the number itself. */
static inline int fib_opaque(int n) {
    __asm__ volatile("" : "+r"(n));
    return n;
}

static long fib_wrong(void) { return fib_result != FIB_VALUE; }
#endif
