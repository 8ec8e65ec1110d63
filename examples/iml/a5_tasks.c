/* A graph of tasks: the last of two to end enqueues the third.
 *
 * Figure A-5 of "Illinois-Intel Multithreading Library" (Intel Technology Journal, Q1 1998), completed to a program.
 *
 *     cc -I PREFIX/include a5_tasks.c -L PREFIX/lib -Wl,-rpath,PREFIX/lib -liml
 */
#include <iml.h>
#include <stdio.h>

enum { M = 300, N = 200 };

/* Uses both arrays, in place of the rest of a program. */
static double foo(double A[N][M], const double *B, int n, int m) {
    double sum = 0;
    for (int k = 0; k < n; k++) sum += B[k];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) sum += A[i][j];
    return sum;
}

static void iloop(const int *start, const int *iterations, double A[N][M], const int *j) {
    for (int i = *start; i < *start + *iterations; i++) A[i][*j] = (double)i * *j;
}

/* Each iteration of this loop is a parallel loop of its own. */
static void jloop(const int *start, const int *iterations, double A[N][M], const int *n) {
    const int chunk = 16, params = 2;
    for (int j = *start; j < *start + *iterations; j++) iml_DOALL(iloop, n, &self_schedule, &chunk, &params, A, &j);
}

static void kloop(const int *start, const int *iterations, double *B) {
    for (int k = *start; k < *start + *iterations; k++) B[k] = k;
}

static void foo_0(double A[N][M], double *B, const int *n, const int *m, double *c) { *c = foo(A, B, *n, *m); }

static void go_on(double A[N][M], double *B, const int *n, const int *m, int *count, double *c) {
    const int params = 5;
    if (iml_DecAndFetch(count) == 0) iml_EnQ(foo_0, &params, A, B, n, m, c);
}

static void jloop_0(double A[N][M], double *B, const int *n, const int *m, int *count, double *c) {
    const int chunk = 1, params = 2;
    iml_DOALL(jloop, m, &static_schedule, &chunk, &params, A, n);
    go_on(A, B, n, m, count, c);
}

static void kloop_0(double A[N][M], double *B, const int *n, const int *m, int *count, double *c) {
    const int chunk = 1, params = 1;
    iml_DOALL(kloop, n, &simple_schedule, &chunk, &params, B);
    go_on(A, B, n, m, count, c);
}

int main(void) {
    static double A[N][M], B[N];
    const int m = M, n = N, params = 6;
    int count = 2;
    double c = 0;
    iml_EnQ(jloop_0, &params, A, B, &n, &m, &count, &c);
    iml_EnQ(kloop_0, &params, A, B, &n, &m, &count, &c);
    iml_WaitEnQ();

    /* The sums of k and of i * j, in closed form. */
    double expected = N * (N - 1) / 2.0 + (N * (N - 1) / 2.0) * (M * (M - 1) / 2.0);
    printf("c = %.0f%s\n", c, c == expected ? "" : ", which is wrong");
    return c != expected;
}
