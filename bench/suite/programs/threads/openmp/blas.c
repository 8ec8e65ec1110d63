/*
 * Products of matrices as libraries of linear algebra make them: `calls`, a sequential program that calls a product with a region of
 * its own, with small work in between, as LAPACK calls BLAS; and `inside`, where a loop's members call products of their own, which find
 * themselves in a region and open one of one member. The figures are for a product.
 */
#include "../kernels.h"

enum { ORDER = 48, BLOCK = 8, PRODUCTS = 24 };

typedef double Matrix[ORDER][ORDER];

static Matrix a[PRODUCTS], b[PRODUCTS], c[PRODUCTS + 1], expected[PRODUCTS + 1];

/* Rows from `row` on of c := c + a times b, a block of them. */
static void __attribute__((noinline)) rows(const Matrix *left, const Matrix *right, Matrix *sum, int row) {
    for (int k = 0; k < ORDER; k++)
        for (int i = row; i < row + BLOCK; i++)
            for (int j = 0; j < ORDER; j++) (*sum)[i][j] += (*left)[i][k] * (*right)[k][j];
}

static void product_sequential(const Matrix *left, const Matrix *right, Matrix *sum) {
    for (int row = 0; row < ORDER; row += BLOCK) rows(left, right, sum, row);
}

/* As a library does it: alone inside of a region. */
static void product(const Matrix *left, const Matrix *right, Matrix *sum) {
#ifdef _OPENMP
    const int members = omp_in_parallel() ? 1 : threads;
#endif
#pragma omp parallel for num_threads(members) schedule(static)
    for (int row = 0; row < ORDER; row += BLOCK) rows(left, right, sum, row);
}

/* What a program does between products: a column of the next one. */
static void between(int n) {
    for (int i = 0; i < ORDER; i++) c[n + 1][i][0] += 1e-3 * c[n][i][ORDER - 1];
}

static void calls(void) {
    for (int n = 0; n < PRODUCTS; n++) {
        product(&a[n], &b[n], &c[n]);
        between(n);
    }
}

static void inside(void) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int n = 0; n < PRODUCTS; n++) product(&a[n], &b[n], &c[n]);
    for (int n = 0; n < PRODUCTS; n++) between(n);
}

static void prepare(void) { memset(c, 0, sizeof c); }

static long wrong(void) { return kernels_differ(c, expected, sizeof c); }

int main(int argc, char **argv) {
    threads_start(argc, argv, "blas", openmp_symbol);
    kernels_fill(&a[0][0][0], PRODUCTS * ORDER * ORDER, 1);
    kernels_fill(&b[0][0][0], PRODUCTS * ORDER * ORDER, 2);
    prepare();
    for (int n = 0; n < PRODUCTS; n++) {
        product_sequential(&a[n], &b[n], &c[n]);
        between(n);
    }
    memcpy(expected, c, sizeof c);
    threads_measure("calls", "us", 1e6 / PRODUCTS, prepare, calls, wrong);
    prepare();
    for (int n = 0; n < PRODUCTS; n++) product_sequential(&a[n], &b[n], &c[n]);
    for (int n = 0; n < PRODUCTS; n++) between(n);
    memcpy(expected, c, sizeof c);
    threads_measure("inside", "us", 1e6 / PRODUCTS, prepare, inside, wrong);
    return suite_failed;
}
