/*
 * The data of the Livermore loops: one set of arrays, filled alike before every kernel, and a checksum over all of it that
 * depends on positions.
 */
#ifndef LIVERMORE_H
#define LIVERMORE_H
#include <stddef.h>
#include "suite.h"

enum { LONG = 1024, PARTICLES = 64, CELLS = 96, ORDERS = 25, LINES = 101, ROWS = 7, COLUMNS = 102, ZONES = 300 };

typedef struct {
    double x[2 * LONG], y[2 * LONG], z[2 * LONG], u[2 * LONG], v[2 * LONG], w[2 * LONG], g[2 * LONG], xx[2 * LONG], vx[2 * LONG];
    double grid[2 * LONG], ex[2 * LONG], dex[2 * LONG], xi[2 * LONG], ex1[2 * LONG], dex1[2 * LONG], rx[2 * LONG], rh[4 * LONG];
    double p[PARTICLES][4], b[CELLS][CELLS], c[CELLS][CELLS], h[CELLS][CELLS];
    double px[LINES][ORDERS], cx[LINES][ORDERS], vy[LINES][ORDERS];
    double za[ROWS + 1][COLUMNS], zb[ROWS + 1][COLUMNS], zm[ROWS + 1][COLUMNS], zp[ROWS + 1][COLUMNS], zq[ROWS + 1][COLUMNS];
    double zr[ROWS + 1][COLUMNS], zu[ROWS + 1][COLUMNS], zv[ROWS + 1][COLUMNS], zz[ROWS + 1][COLUMNS];
    double u1[2][COLUMNS][5], u2[2][COLUMNS][5], u3[2][COLUMNS][5], du1[COLUMNS], du2[COLUMNS], du3[COLUMNS];
    double plan[ZONES], d[ZONES], q, r, s, t, found[3];
    long e[CELLS], f[CELLS], ix[2 * LONG], ir[2 * LONG], zone[ZONES];
} Data;

static inline size_t livermore_doubles(void) { return offsetof(Data, e) / sizeof(double); }

/* Numbers between 0.1 and 0.9 that repeat from run to run; then the arrays whose values have a meaning. */
static inline void livermore_fill(Data *data) {
    double *values = (double *)data;
    uint64_t state = 1;
    for (size_t n = 0; n < livermore_doubles(); n++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        values[n] = 0.1 + 0.8 * (double)(state >> 11) / 9007199254740992.0;
    }
    for (int n = 0; n < 2 * LONG; n++) {
        data->grid[n] = 1 + (double)((n * 37) % 1000) + data->grid[n] / 2;
        data->vx[n] += 1;
        data->ix[n] = data->ir[n] = 0;
    }
    data->x[LONG / 2] = -1; /* where the smallest element is */
    for (int n = 0; n < PARTICLES; n++)
        for (int k = 0; k < 2; k++) data->p[n][k] = (double)((n * 11 + k * 17) % 64) + data->p[n][k];
    for (int n = 0; n < CELLS; n++) data->e[n] = data->f[n] = 1 + n % 2;
    /* Recurrences that are run again and again stay bounded when their rows sum to less than 1. */
    for (int n = 0; n < CELLS; n++)
        for (int k = 0; k < CELLS; k++) data->b[n][k] *= 0.02;
    for (int n = 0; n <= ROWS; n++)
        for (int k = 0; k < COLUMNS; k++) {
            data->zr[n][k] *= 0.25;
            data->zb[n][k] *= 0.25;
            data->zu[n][k] *= 0.25;
            data->zv[n][k] *= 0.25;
            data->zm[n][k] += 1;
        }
    data->q = 0.25;
    data->r = 0.35;
    data->s = 0.45;
    data->t = 0.15;
    data->zone[0] = 5;
    for (int n = 1; n < ZONES; n++) data->zone[n] = n % 2 == 0 ? 10 + n * 7 % 140 : n % 32 == 17 ? -1 : 1;
    for (int n = 0; n < ZONES; n++)
        if (data->zone[n] == 75) data->zone[n] = 76;
    for (int n = 0; n < 3; n++) data->found[n] = 0;
}

/* The sum of all numbers with weights by position, and the sum of their sizes. */
static inline double livermore_checksum(const Data *data, double *size) {
    const double *values = (const double *)data;
    double sum = 0;
    *size = 0;
    for (size_t n = 0; n < livermore_doubles(); n++) {
        double weight = 1 + (double)(n % 97) / 97;
        sum += weight * values[n];
        *size += fabs(weight * values[n]);
    }
    for (int n = 0; n < 2 * LONG; n++) sum += (double)(data->ix[n] + data->ir[n]) * (1 + n % 13);
    return sum;
}

static inline double livermore_larger(double a, double b) { return a > b ? a : b; }
#endif
