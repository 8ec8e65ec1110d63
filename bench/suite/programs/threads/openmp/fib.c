/* Fibonacci numbers by OpenMP's tasks. */
#include "../fib.h"
#include "../openmp.h"

static long __attribute__((noinline)) fib(int n) {
    long a, b;
    n = fib_opaque(n);
    if (n < 2) return n;
#pragma omp task shared(a) firstprivate(n)
    a = fib(n - 1);
#pragma omp task shared(b) firstprivate(n)
    b = fib(n - 2);
#pragma omp taskwait
    return a + b;
}

static void body(void) {
#pragma omp parallel num_threads(threads)
#pragma omp single
    fib_result = fib(FIB_N);
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "fib", openmp_symbol);
    threads_measure("call", "ns", 1e9 / FIB_CALLS, NULL, body, fib_wrong);
    return suite_failed;
}
