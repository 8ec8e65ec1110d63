/* A long sequential part releases the other threads and requests them again afterwards.
 *
 * Figure A-8 of "Illinois-Intel Multithreading Library" (Intel Technology Journal, Q1 1998), completed to a program.
 *
 *     cc -I PREFIX/include a8_fewer_threads.c -L PREFIX/lib -Wl,-rpath,PREFIX/lib -liml
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
    iml_ReInitMultiThread(1);
    double a = 0;
    for (int i = 0; i < threads; i++) a += A[i];
    iml_ReInitMultiThread(threads);

    double expected = N * (N - 1.0) / 2;
    printf("a = %.0f%s\n", a, a == expected ? "" : ", which is wrong");
    return a != expected;
}
