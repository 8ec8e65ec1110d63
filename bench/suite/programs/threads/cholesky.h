/*
 * Cholesky factorization of a symmetric positive definite matrix in tiles, where a tile's task waits for those whose tiles it reads:
 * a directed acyclic graph of 816 tasks, most of them some microseconds long. The tasks of one tile come in one order, so that
 * the result is that of the sequential factorization bit by bit; that one is held against the matrix.
 */
#ifndef THREADS_CHOLESKY_H
#define THREADS_CHOLESKY_H
#include "threads.h"

enum { CHOLESKY_TILE = 32, CHOLESKY_TILES = 16, CHOLESKY_ORDER = CHOLESKY_TILE * CHOLESKY_TILES };

/* A tile by rows. */
typedef double CholeskyTile[CHOLESKY_TILE][CHOLESKY_TILE];

/* The lower triangle of tiles; what is above it is not used. */
static CholeskyTile cholesky[CHOLESKY_TILES][CHOLESKY_TILES], cholesky_original[CHOLESKY_TILES][CHOLESKY_TILES],
    cholesky_expected[CHOLESKY_TILES][CHOLESKY_TILES];

/* a := its factor */
static void __attribute__((noinline)) cholesky_factor(CholeskyTile a) {
    for (int j = 0; j < CHOLESKY_TILE; j++) {
        for (int k = 0; k < j; k++) a[j][j] -= a[j][k] * a[j][k];
        a[j][j] = sqrt(a[j][j]);
        for (int i = j + 1; i < CHOLESKY_TILE; i++) {
            for (int k = 0; k < j; k++) a[i][j] -= a[i][k] * a[j][k];
            a[i][j] /= a[j][j];
        }
        for (int i = 0; i < j; i++) a[i][j] = 0;
    }
}

/* b := b / transposed l */
static void __attribute__((noinline)) cholesky_solve(CholeskyTile l, CholeskyTile b) {
    for (int j = 0; j < CHOLESKY_TILE; j++)
        for (int i = 0; i < CHOLESKY_TILE; i++) {
            for (int k = 0; k < j; k++) b[i][j] -= b[i][k] * l[j][k];
            b[i][j] /= l[j][j];
        }
}

/* c := c - a times transposed b */
static void __attribute__((noinline)) cholesky_update(CholeskyTile a, CholeskyTile b, CholeskyTile c) {
    CholeskyTile turned;
    for (int k = 0; k < CHOLESKY_TILE; k++)
        for (int j = 0; j < CHOLESKY_TILE; j++) turned[k][j] = b[j][k];
    for (int i = 0; i < CHOLESKY_TILE; i++)
        for (int k = 0; k < CHOLESKY_TILE; k++) {
            const double factor = a[i][k];
            for (int j = 0; j < CHOLESKY_TILE; j++) c[i][j] -= factor * turned[k][j];
        }
}

static void cholesky_prepare(void) { memcpy(cholesky, cholesky_original, sizeof cholesky); }

static long cholesky_wrong(void) {
    long wrong = 0;
    for (int i = 0; i < CHOLESKY_TILES; i++)
        for (int j = 0; j <= i; j++) wrong += memcmp(cholesky[i][j], cholesky_expected[i][j], sizeof(CholeskyTile)) != 0;
    return wrong;
}

/* Element (i, j) of the lower triangle. */
static inline double *cholesky_element(CholeskyTile matrix[CHOLESKY_TILES][CHOLESKY_TILES], int i, int j) {
    return &matrix[i / CHOLESKY_TILE][j / CHOLESKY_TILE][i % CHOLESKY_TILE][j % CHOLESKY_TILE];
}

/* Makes the matrix and its factor, and reports the scaled residual |A x - L (L' x)| of a vector. */
static inline void cholesky_expect(void) {
    static double x[CHOLESKY_ORDER], y[CHOLESKY_ORDER];
    double residual = 0, size = 0;
    for (int i = 0; i < CHOLESKY_ORDER; i++)
        for (int j = 0; j <= i / CHOLESKY_TILE * CHOLESKY_TILE + CHOLESKY_TILE - 1; j++) {
            const int high = i > j ? i : j, low = i > j ? j : i;
            *cholesky_element(cholesky_original, i, j) = threads_random((uint64_t)high * CHOLESKY_ORDER + (uint64_t)low) + (i == j ? CHOLESKY_ORDER : 0);
        }
    cholesky_prepare();
    for (int k = 0; k < CHOLESKY_TILES; k++) {
        cholesky_factor(cholesky[k][k]);
        for (int i = k + 1; i < CHOLESKY_TILES; i++) cholesky_solve(cholesky[k][k], cholesky[i][k]);
        for (int i = k + 1; i < CHOLESKY_TILES; i++)
            for (int j = k + 1; j <= i; j++) cholesky_update(cholesky[i][k], cholesky[j][k], cholesky[i][j]);
    }
    memcpy(cholesky_expected, cholesky, sizeof cholesky);
    for (int i = 0; i < CHOLESKY_ORDER; i++) x[i] = threads_random((uint64_t)i + 7);
    for (int j = 0; j < CHOLESKY_ORDER; j++)
        for (int i = j; i < CHOLESKY_ORDER; i++) y[j] += *cholesky_element(cholesky, i, j) * x[i];
    for (int i = 0; i < CHOLESKY_ORDER; i++) {
        double left = 0, right = 0;
        for (int j = 0; j < CHOLESKY_ORDER; j++) left += *cholesky_element(cholesky_original, i > j ? i : j, i > j ? j : i) * x[j];
        for (int j = 0; j <= i; j++) right += *cholesky_element(cholesky, i, j) * y[j];
        residual = fmax(residual, fabs(left - right));
        size = fmax(size, fabs(left));
    }
    suite_check("residual", residual / size / CHOLESKY_ORDER, 1e-15);
}
#endif
