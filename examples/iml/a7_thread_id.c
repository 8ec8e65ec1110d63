/* A reduction by hand: each thread adds to its own sum.
 *
 * Figure A-7 of "Illinois-Intel Multithreading Library" (Intel Technology Journal, Q1 1998), completed to a program.
 *
 *     cc -I PREFIX/include a7_thread_id.c -L PREFIX/lib -Wl,-rpath,PREFIX/lib -liml
 */
#include <iml.h>
#include <stdio.h>

enum { N = 100000, MAX_THREADS = 1024 };

/* Each thread adds to its own sum. */
static void iloop(const int *start, const int *iterations, double *A, const double *B) {
    int id = iml_GetThreadID();
    for (int i = *start; i < *start + *iterations; i++) A[id] += B[i];
}

int main(void) {
    static double A[MAX_THREADS], B[N];
    const int n = N, chunk = 1, params = 2, threads = iml_NumThreads();
    for (int i = 0; i < N; i++) B[i] = i;
    iml_DOALL(iloop, &n, &static_schedule, &chunk, &params, A, B);
    double a = 0;
    for (int i = 0; i < threads; i++) a += A[i];

    double expected = N * (N - 1.0) / 2;
    printf("a = %.0f%s\n", a, a == expected ? "" : ", which is wrong");
    return a != expected;
}
