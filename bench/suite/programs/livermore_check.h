/*
 * The Livermore loops' formulas evaluated plainly, to check the kernels against: elements one by one from their
 * definitions, sums in extended precision, recurrences as recurrences, no order that a compiler could vectorize by chance.
 */
#ifndef LIVERMORE_CHECK_H
#define LIVERMORE_CHECK_H
#include "livermore.h"

static inline void plain_cholesky(Data *a) {
    int base = 0;
    for (int length = 101; length > 0; length /= 2) {
        const int next = base + length;
        for (int pair = 0; 2 * pair + 1 < length; pair++) {
            const int k = base + 2 * pair + 1;
            a->x[next + pair] = a->x[k] - a->v[k] * a->x[k - 1] - a->v[k + 1] * a->x[k + 1];
        }
        base = next;
    }
}

static inline void plain_banded(Data *a) {
    for (int band = 0; band < 3; band++) {
        const int row = 6 + band * 497 - 1;
        if (row + 1 >= 1001) return;
        long double sum = a->x[row];
        for (int term = 0; 4 + 5 * term < 1001; term++) sum -= (long double)a->x[row - 5 + term] * a->y[4 + 5 * term];
        a->x[row] = (double)(a->y[4] * sum);
    }
}

static inline void plain_recurrence(Data *a) {
    for (int i = 1; i < 64; i++) {
        long double sum = 0.01L;
        for (int back = i; back >= 1; back--) sum += (long double)a->b[back - 1][i] * a->w[i - back];
        a->w[i] = (double)sum;
    }
}

static inline double plain_advanced(double u[2][COLUMNS][5], int y, int x, double sig, const double *m, const double *d) {
    const double second = u[0][y][x + 1] - 2 * u[0][y][x] + u[0][y][x - 1];
    return u[0][y][x] + (m[0] * d[0] + m[1] * d[1] + m[2] * d[2]) + sig * second;
}

static inline void plain_implicit(Data *a) {
    for (int x = 1; x <= 2; x++)
        for (int y = 1; y <= 99; y++) {
            const double d[3] = {a->u1[0][y + 1][x] - a->u1[0][y - 1][x], a->u2[0][y + 1][x] - a->u2[0][y - 1][x],
                                 a->u3[0][y + 1][x] - a->u3[0][y - 1][x]};
            double m[3];
            a->du1[y] = d[0];
            a->du2[y] = d[1];
            a->du3[y] = d[2];
            for (int row = 0; row < 3; row++) {
                for (int k = 0; k < 3; k++) m[k] = (31 + 3 * row + k) / 1000.0;
                double(*u)[COLUMNS][5] = row == 0 ? a->u1 : row == 1 ? a->u2 : a->u3;
                u[1][y][x] = plain_advanced(u, y, x, a->s, m, d);
            }
        }
}

static inline void plain_predictors(Data *a) {
    for (int i = 100; i >= 0; i--) {
        long double sum = a->px[i][2] + 0.15L * ((long double)a->px[i][4] + a->px[i][5]);
        for (int k = 6; k <= 12; k++) sum += (16 + (k - 6)) / 100.0L * a->px[i][k];
        a->px[i][0] = (double)sum;
    }
}

/* The k-th new value is the (k - 4)-th backward difference. */
static inline void plain_differences(Data *a) {
    for (int i = 0; i < 101; i++) {
        double old[14];
        memcpy(old, a->px[i], sizeof old);
        for (int k = 4; k <= 13; k++) {
            double value = a->cx[i][4];
            for (int l = 4; l < k; l++) value -= old[l];
            a->px[i][k] = value;
        }
    }
}

static inline void plain_particles(Data *a) {
    for (int n = 0; n < PARTICLES; n++) {
        double position[2] = {a->p[n][0], a->p[n][1]}, speed[2] = {a->p[n][2], a->p[n][3]};
        long cell[2] = {(long)position[0] % 64, (long)position[1] % 64};
        speed[0] += a->b[cell[1]][cell[0]];
        speed[1] += a->c[cell[1]][cell[0]];
        for (int k = 0; k < 2; k++) {
            position[k] += speed[k];
            cell[k] = (long)position[k] % 64 - 1;
            position[k] += (k ? a->z : a->y)[cell[k] + 32];
            cell[k] += (k ? a->f : a->e)[cell[k] + 32];
            a->p[n][k] = position[k];
            a->p[n][2 + k] = speed[k];
        }
        a->h[cell[1]][cell[0]] += 1;
    }
}

static inline void plain_line_of_particles(Data *a) {
    for (int k = 0; k < 1001; k++) {
        const long cell = (long)floor(a->grid[k]);
        const double speed = a->ex[cell - 1] - (double)cell * a->dex[cell - 1], moved = speed + 1000, whole = floor(moved);
        a->ix[k] = cell;
        a->xi[k] = (double)cell;
        a->ex1[k] = a->ex[cell - 1];
        a->dex1[k] = a->dex[cell - 1];
        a->vx[k] = speed;
        a->rx[k] = moved - whole;
        a->ir[k] = (long)whole % 2048 + 1;
        a->xx[k] = a->rx[k] + (double)a->ir[k];
        a->rh[a->ir[k] - 1] += 1 - a->rx[k];
        a->rh[a->ir[k]] += a->rx[k];
    }
}

static inline void plain_casual(Data *a) {
    for (int k = 1; k < 101; k++) a->za[ROWS - 1][k] = 0;
    for (int j = 1; j < ROWS - 1; j++) {
        for (int k = 1; k < 101; k++) {
            const int from = a->zm[j][k] < a->zm[j][k - 1] ? k - 1 : k;
            const double t = a->zb[j + 1][k] > a->zb[j][k] ? 0.053 : 0.073;
            a->za[j][k] = hypot(a->zp[j][k], fmax(a->zb[j][from], a->zb[j + 1][from])) * t / a->zm[j][from];
        }
        a->zq[j][100] = 0;
        for (int k = 1; k < 100; k++) {
            const int from = a->zm[j][k] < a->zm[j - 1][k] ? j - 1 : j;
            a->zq[j][k] = hypot(a->zb[j][k], fmax(a->zp[from][k], a->zp[from][k + 1])) * (from == j ? 0.053 : 0.073) / a->zm[from][k];
        }
    }
}

static inline void plain_search(Data *a) {
    enum { INNER = 25, WHOLE = 75 };
    long steps = 0, outer = 0, m = 1, k = 0;
    while (k < WHOLE) {
        const long at = (2 * WHOLE * (m - 1) + 2 * (k + 1)) % ZONES, zone = a->zone[at], side = a->zone[(at + ZONES - 1) % ZONES];
        const double *d = a->d + zone;
        double value = 0;
        steps++;
        k++;
        if (zone == WHOLE) break;
        if (zone > WHOLE) {
            outer++;
            value = d[-1] - (d[-2] * pow(a->t - d[-3], 2) + pow(a->s - d[-4], 2) + pow(a->r - d[-5], 2));
        } else {
            value = a->plan[zone - 1] - (zone >= WHOLE - INNER ? a->r : zone >= WHOLE - 2 * INNER ? a->s : a->t);
        }
        if (value * (double)side == 0) break;
        if (value * (double)side > 0) continue;
        k = 0;
        m = m % a->zone[0] + 1;
        if (m == 1) break;
    }
    a->found[0] = (double)steps;
    a->found[1] = (double)outer;
    a->found[2] = (double)m;
}

static inline void plain_conditional(Data *a) {
    double before = 1.0 / 3, latest = 1.03 / 3.07;
    for (int k = 100; k >= 1; k--) {
        const double guess = before * a->w[k] + a->g[k], old = a->z[k], most = fmax(before, old);
        a->u[k] = latest;
        latest = most > 5.0 / 3 * guess ? before * a->x[k] + a->y[k] : 2 * guess - before;
        a->z[k] = most > 5.0 / 3 * guess ? latest : 2 * guess - old;
        a->v[k] = most > 5.0 / 3 * guess ? latest : guess;
        before = latest;
    }
}

static inline double plain_flow(const Data *a, const double z[ROWS + 1][COLUMNS], int k, int j) {
    const double right = a->za[k][j] * (z[k][j] - z[k][j + 1]), left = a->za[k][j - 1] * (z[k][j] - z[k][j - 1]);
    const double below = a->zb[k][j] * (z[k][j] - z[k - 1][j]), above = a->zb[k + 1][j] * (z[k][j] - z[k + 1][j]);
    return 0.0041 * (right - left - below + above);
}

static inline void plain_explicit(Data *a) {
    for (int j = 99; j >= 1; j--)
        for (int k = 5; k >= 1; k--) {
            const double corner = a->zp[k][j - 1] + a->zq[k][j - 1];
            a->za[k][j] = (a->zp[k + 1][j - 1] + a->zq[k + 1][j - 1] - corner) * (a->zr[k][j] + a->zr[k][j - 1]) / (a->zm[k][j - 1] + a->zm[k + 1][j - 1]);
            a->zb[k][j] = (corner - a->zp[k][j] - a->zq[k][j]) * (a->zr[k][j] + a->zr[k - 1][j]) / (a->zm[k][j] + a->zm[k][j - 1]);
        }
    for (int j = 1; j <= 99; j++)
        for (int k = 1; k <= 5; k++) {
            a->zu[k][j] += plain_flow(a, a->zz, k, j);
            a->zv[k][j] += plain_flow(a, a->zr, k, j);
        }
    for (int j = 1; j <= 99; j++)
        for (int k = 1; k <= 5; k++) {
            a->zr[k][j] += 0.0037 * a->zu[k][j];
            a->zz[k][j] += 0.0037 * a->zv[k][j];
        }
}

static inline void plain_both_ways(Data *a) {
    long double carried = a->t;
    for (int n = 0; n < 202; n++) {
        const int k = n < 101 ? n : 201 - n;
        const long double value = a->y[k] + carried * a->z[k];
        a->x[k] = (double)value;
        carried = value - carried;
    }
    a->q = (double)carried;
}

static inline void plain_transport(Data *a) {
    for (int k = 0; k < 1000; k++) {
        const double x = a->xx[k], difference = a->y[k] - a->g[k] / (x + 0.5);
        const double dn = difference == 0 ? 0.2 : fmin(fmax(a->z[k] / difference, a->t), a->s);
        a->x[k] = (x * (a->w[k] + a->v[k] * dn) + a->u[k]) / (a->vx[k] + a->v[k] * dn);
        a->xx[k + 1] = x + dn * (a->x[k] - x);
    }
}

static inline void plain_product(Data *a) {
    for (int j = 0; j < LINES; j++)
        for (int i = 0; i < ORDERS; i++) {
            long double sum = a->px[j][i];
            for (int k = 0; k < ORDERS; k++) sum += (long double)a->vy[k][i] * a->cx[j][k];
            a->px[j][i] = (double)sum;
        }
}

static inline void plain_relaxed(Data *a) {
    for (int j = 1; j <= 5; j++)
        for (int k = 1; k <= 99; k++) {
            long double q = a->zz[j][k];
            q += (long double)a->za[j][k - 1] * a->zv[j][k] + (long double)a->za[j][k + 1] * a->zu[j][k];
            q += (long double)a->za[j - 1][k] * a->zb[j][k] + (long double)a->za[j + 1][k] * a->zr[j][k];
            a->za[j][k] = (double)(0.825L * a->za[j][k] + 0.175L * q);
        }
}

static inline void plain_elements(int number, Data *a) {
    const double *u = a->u;
    long double sum = 0;
    switch (number) {
    case 1:
        for (int k = 1000; k >= 0; k--) a->x[k] = a->q + a->y[k] * a->r * a->z[k + 10] + a->y[k] * a->t * a->z[k + 11];
        break;
    case 3:
        for (int k = 1000; k >= 0; k--) sum += (long double)a->z[k] * a->x[k];
        a->q = (double)sum;
        break;
    case 5:
        for (int i = 1; i <= 1000; i++) a->x[i] = a->z[i] * a->y[i] - a->z[i] * a->x[i - 1];
        break;
    case 7:
        for (int k = 994; k >= 0; k--) {
            const double r = a->r, t = a->t, q = a->q;
            a->x[k] = u[k] + r * a->z[k] + r * r * a->y[k] + t * u[k + 3] + t * r * u[k + 2] + t * r * r * u[k + 1] + t * t * u[k + 6] +
                      t * t * q * u[k + 5] + t * t * q * q * u[k + 4];
        }
        break;
    case 11:
        for (int k = 0; k < 1001; k++) a->x[k] = (double)(sum += a->y[k]);
        break;
    case 12:
        for (int k = 999; k >= 0; k--) a->x[k] = -(a->y[k] - a->y[k + 1]);
        break;
    case 22:
        a->u[100] = 19.8 * a->v[100];
        for (int k = 100; k >= 0; k--) a->w[k] = a->x[k] / expm1(a->y[k] = u[k] / a->v[k]);
        break;
    default:
        a->found[0] = 0;
        for (int k = 1000; k >= 0; k--)
            if (a->x[k] <= a->x[(int)a->found[0]]) a->found[0] = k;
    }
}

/* Evaluates kernel `number`, 1 to 24. */
static inline void livermore_plain(int number, Data *a) {
    static void (*const plain[25])(Data *) = {[2] = plain_cholesky,     [4] = plain_banded,     [6] = plain_recurrence,
                                              [8] = plain_implicit,     [9] = plain_predictors, [10] = plain_differences,
                                              [13] = plain_particles,   [14] = plain_line_of_particles,
                                              [15] = plain_casual,      [16] = plain_search,    [17] = plain_conditional,
                                              [18] = plain_explicit,    [19] = plain_both_ways, [20] = plain_transport,
                                              [21] = plain_product,     [23] = plain_relaxed};
    if (plain[number]) plain[number](a);
    else plain_elements(number, a);
}
#endif
