/*
 * LU factorization without pivoting of a sparse matrix of blocks, as the Barcelona OpenMP Tasks Suite has it (Duran et al., ICPP 2009):
 * in each step the blocks of a row and of a column are tasks, then the rest of the matrix, of which blocks may come into being. The
 * result is that of a sequential factorization bit by bit; that one is held against the matrix.
 */
#ifndef THREADS_SPARSELU_H
#define THREADS_SPARSELU_H
#include "threads.h"

enum { SPARSELU_BLOCK = 20, SPARSELU_BLOCKS = 24, SPARSELU_ORDER = SPARSELU_BLOCK * SPARSELU_BLOCKS };

/* A block by rows. */
typedef double SparseluBlock[SPARSELU_BLOCK][SPARSELU_BLOCK];
typedef SparseluBlock *SparseluMatrix[SPARSELU_BLOCKS][SPARSELU_BLOCKS];

/* Blocks of zeros are NULL. */
static SparseluMatrix sparselu, sparselu_original, sparselu_expected;

static SparseluBlock *sparselu_block(void) {
    SparseluBlock *block = (SparseluBlock *)calloc(1, sizeof *block);
    if (!block) suite_fail("no memory for a block");
    return block;
}

/* a := L and U of a */
static void __attribute__((noinline)) sparselu_factor(SparseluBlock *a) {
    for (int k = 0; k < SPARSELU_BLOCK; k++)
        for (int i = k + 1; i < SPARSELU_BLOCK; i++) {
            (*a)[i][k] /= (*a)[k][k];
            for (int j = k + 1; j < SPARSELU_BLOCK; j++) (*a)[i][j] -= (*a)[i][k] * (*a)[k][j];
        }
}

/* b := inverse of the L of `diagonal` times b */
static void __attribute__((noinline)) sparselu_forward(SparseluBlock *diagonal, SparseluBlock *b) {
    for (int k = 0; k < SPARSELU_BLOCK; k++)
        for (int i = k + 1; i < SPARSELU_BLOCK; i++)
            for (int j = 0; j < SPARSELU_BLOCK; j++) (*b)[i][j] -= (*diagonal)[i][k] * (*b)[k][j];
}

/* b := b times inverse of the U of `diagonal` */
static void __attribute__((noinline)) sparselu_divide(SparseluBlock *diagonal, SparseluBlock *b) {
    for (int i = 0; i < SPARSELU_BLOCK; i++)
        for (int k = 0; k < SPARSELU_BLOCK; k++) {
            (*b)[i][k] /= (*diagonal)[k][k];
            for (int j = k + 1; j < SPARSELU_BLOCK; j++) (*b)[i][j] -= (*b)[i][k] * (*diagonal)[k][j];
        }
}

/* *c := *c - a times b; makes the block when it is zero */
static void __attribute__((noinline)) sparselu_update(SparseluBlock *a, SparseluBlock *b, SparseluBlock **c) {
    if (!*c) *c = sparselu_block();
    for (int i = 0; i < SPARSELU_BLOCK; i++)
        for (int k = 0; k < SPARSELU_BLOCK; k++)
            for (int j = 0; j < SPARSELU_BLOCK; j++) (**c)[i][j] -= (*a)[i][k] * (*b)[k][j];
}

static void sparselu_prepare(void) {
    for (int i = 0; i < SPARSELU_BLOCKS; i++)
        for (int j = 0; j < SPARSELU_BLOCKS; j++) {
            free(sparselu[i][j]);
            sparselu[i][j] = NULL;
            if (!sparselu_original[i][j]) continue;
            sparselu[i][j] = sparselu_block();
            memcpy(sparselu[i][j], sparselu_original[i][j], sizeof(SparseluBlock));
        }
}

static long sparselu_wrong(void) {
    long wrong = 0;
    for (int i = 0; i < SPARSELU_BLOCKS; i++)
        for (int j = 0; j < SPARSELU_BLOCKS; j++) {
            SparseluBlock *ours = sparselu[i][j], *expected = sparselu_expected[i][j];
            wrong += !ours != !expected || (ours && memcmp(ours, expected, sizeof *ours) != 0);
        }
    return wrong;
}

static inline double sparselu_element(SparseluMatrix matrix, int i, int j) {
    SparseluBlock *block = matrix[i / SPARSELU_BLOCK][j / SPARSELU_BLOCK];
    return block ? (*block)[i % SPARSELU_BLOCK][j % SPARSELU_BLOCK] : 0;
}

/* Makes the matrix and its factors, and reports the scaled residual |A x - L (U x)| of a vector. */
static inline void sparselu_expect(void) {
    static double x[SPARSELU_ORDER], y[SPARSELU_ORDER];
    double residual = 0, size = 0;
    for (int i = 0; i < SPARSELU_BLOCKS; i++)
        for (int j = 0; j < SPARSELU_BLOCKS; j++) {
            const uint64_t seed = (uint64_t)(i * SPARSELU_BLOCKS + j) << 32;
            if (abs(i - j) > 1 && threads_random(seed) > 0.2) continue;
            sparselu_original[i][j] = sparselu_block();
            for (int n = 0; n < SPARSELU_BLOCK; n++)
                for (int m = 0; m < SPARSELU_BLOCK; m++)
                    (*sparselu_original[i][j])[n][m] = threads_random(seed + (uint64_t)(n * SPARSELU_BLOCK + m)) - 0.5 + (i == j && n == m ? SPARSELU_ORDER : 0);
        }
    sparselu_prepare();
    for (int k = 0; k < SPARSELU_BLOCKS; k++) {
        sparselu_factor(sparselu[k][k]);
        for (int j = k + 1; j < SPARSELU_BLOCKS; j++)
            if (sparselu[k][j]) sparselu_forward(sparselu[k][k], sparselu[k][j]);
        for (int i = k + 1; i < SPARSELU_BLOCKS; i++)
            if (sparselu[i][k]) sparselu_divide(sparselu[k][k], sparselu[i][k]);
        for (int i = k + 1; i < SPARSELU_BLOCKS; i++)
            for (int j = k + 1; j < SPARSELU_BLOCKS; j++)
                if (sparselu[i][k] && sparselu[k][j]) sparselu_update(sparselu[i][k], sparselu[k][j], &sparselu[i][j]);
    }
    memcpy(sparselu_expected, sparselu, sizeof sparselu);
    memset(sparselu, 0, sizeof sparselu);
    for (int i = 0; i < SPARSELU_ORDER; i++) x[i] = threads_random((uint64_t)i + 7);
    for (int i = 0; i < SPARSELU_ORDER; i++)
        for (int j = i; j < SPARSELU_ORDER; j++) y[i] += sparselu_element(sparselu_expected, i, j) * x[j];
    for (int i = 0; i < SPARSELU_ORDER; i++) {
        double left = 0, right = y[i];
        for (int j = 0; j < SPARSELU_ORDER; j++) left += sparselu_element(sparselu_original, i, j) * x[j];
        for (int j = 0; j < i; j++) right += sparselu_element(sparselu_expected, i, j) * y[j];
        residual = fmax(residual, fabs(left - right));
        size = fmax(size, fabs(left));
    }
    suite_check("residual", residual / size / SPARSELU_ORDER, 1e-15);
}
#endif
