// Fibonacci numbers by oneTBB's tasks.
#include <tbb/parallel_invoke.h>

#include "../fib.h"
#include "../tbb.h"

static long __attribute__((noinline)) fib(int n) {
    long a, b;
    n = fib_opaque(n);
    if (n < 2) return n;
    tbb::parallel_invoke([&a, n] { a = fib(n - 1); }, [&b, n] { b = fib(n - 2); });
    return a + b;
}

static void body() { fib_result = fib(FIB_N); }

int main(int argc, char **argv) {
    threads_start(argc, argv, "fib", tbb_symbol);
    tbb_measure("call", "ns", 1e9 / FIB_CALLS, nullptr, body, fib_wrong);
    return suite_failed;
}
