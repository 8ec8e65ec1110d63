/* Fibonacci numbers by IML's forks of two. */
#include "../fib.h"
#include "../by_iml.h"

typedef struct { long n, result; } Call;

static void fib(void *argument) {
    Call *call = argument;
    call->n = fib_opaque((int)call->n);
    if (call->n < 2) {
        call->result = call->n;
        return;
    }
    Call left = {call->n - 1, 0}, right = {call->n - 2, 0};
    iml_Both(fib, &left, fib, &right);
    call->result = left.result + right.result;
}

static void body(void) {
    Call call = {FIB_N, 0};
    fib(&call);
    fib_result = call.result;
}

int main(int argc, char **argv) {
    iml_start(argc, argv, "fib");
    threads_measure("call", "ns", 1e9 / FIB_CALLS, NULL, body, fib_wrong);
    return suite_failed;
}
