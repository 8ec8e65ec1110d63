/*
 * The Livermore loops: the 24 kernels of F. H. McMahon's Livermore Fortran Kernels, with their usual lengths and counts of
 * operations. Each kernel is run once on fresh data and its checksum compared with that of a plain evaluation of the same
 * formulas (livermore_check.h); then it is timed. Every rank runs all kernels; the figures are rank 0's.
 *   livermore [-ms 30] [-kernel 0]
 */
#include "livermore.h"
#include "livermore_check.h"

enum { MS, KERNEL, OPTIONS };

static SuiteOption options[OPTIONS] = {
    [MS] = {"-ms", "milliseconds to measure each kernel for", 30, 1, 100000, NULL, 0},
    [KERNEL] = {"-kernel", "only this one; 0: all", 0, 0, 24, NULL, 0},
};

/* Every kernel gives the number of its floating-point operations, by the usual weights. */
#define NOT_INLINED __attribute__((noinline))

/* Hydrodynamics fragment. */
static NOT_INLINED double kernel1(Data *restrict a) {
    const double q = a->q, r = a->r, t = a->t;
    for (int k = 0; k < 1001; k++) a->x[k] = q + a->y[k] * (r * a->z[k + 10] + t * a->z[k + 11]);
    return 5 * 1001;
}

/* Incomplete Cholesky, conjugate gradient. */
static NOT_INLINED double kernel2(Data *restrict a) {
    int length = 101, begin = 0, end = 0, count = 0;
    while (length > 0) {
        begin = end;
        end += length;
        length /= 2;
        int i = end;
        for (int k = begin + 1; k < end; k += 2, i++, count++) a->x[i] = a->x[k] - a->v[k] * a->x[k - 1] - a->v[k + 1] * a->x[k + 1];
    }
    return 4.0 * count;
}

/* Inner product. */
static NOT_INLINED double kernel3(Data *restrict a) {
    double q = 0;
    for (int k = 0; k < 1001; k++) q += a->z[k] * a->x[k];
    a->q = q;
    return 2 * 1001;
}

/* Banded linear equations. */
static NOT_INLINED double kernel4(Data *restrict a) {
    int count = 0;
    for (int k = 6; k < 1001; k += (1001 - 7) / 2) {
        double sum = a->x[k - 1];
        for (int j = 4, l = k - 6; j < 1001; j += 5, l++, count++) sum -= a->x[l] * a->y[j];
        a->x[k - 1] = a->y[4] * sum;
    }
    return 2.0 * count;
}

/* Tri-diagonal elimination, below the diagonal. */
static NOT_INLINED double kernel5(Data *restrict a) {
    for (int i = 1; i < 1001; i++) a->x[i] = a->z[i] * (a->y[i] - a->x[i - 1]);
    return 2 * 1000;
}

/* General linear recurrence. */
static NOT_INLINED double kernel6(Data *restrict a) {
    int count = 0;
    for (int i = 1; i < 64; i++) {
        double sum = 0.01;
        for (int k = 0; k < i; k++, count++) sum += a->b[k][i] * a->w[i - k - 1];
        a->w[i] = sum;
    }
    return 2.0 * count;
}

/* Equation of state. */
static NOT_INLINED double kernel7(Data *restrict a) {
    const double q = a->q, r = a->r, t = a->t, *u = a->u;
    for (int k = 0; k < 995; k++)
        a->x[k] = u[k] + r * (a->z[k] + r * a->y[k]) +
                  t * (u[k + 3] + r * (u[k + 2] + r * u[k + 1]) + t * (u[k + 6] + q * (u[k + 5] + q * u[k + 4])));
    return 16 * 995;
}

/* Alternating direction implicit integration. */
static NOT_INLINED double kernel8(Data *restrict a) {
    static const double m[3][3] = {{0.031, 0.032, 0.033}, {0.034, 0.035, 0.036}, {0.037, 0.038, 0.039}};
    const double sig = a->s;
    for (int kx = 1; kx < 3; kx++)
        for (int ky = 1; ky < 100; ky++) {
            const double d1 = a->u1[0][ky + 1][kx] - a->u1[0][ky - 1][kx], d2 = a->u2[0][ky + 1][kx] - a->u2[0][ky - 1][kx];
            const double d3 = a->u3[0][ky + 1][kx] - a->u3[0][ky - 1][kx];
            a->du1[ky] = d1;
            a->du2[ky] = d2;
            a->du3[ky] = d3;
#define ADVANCE(u, row) \
    a->u[1][ky][kx] = a->u[0][ky][kx] + m[row][0] * d1 + m[row][1] * d2 + m[row][2] * d3 + \
                      sig * (a->u[0][ky][kx + 1] - 2 * a->u[0][ky][kx] + a->u[0][ky][kx - 1])
            ADVANCE(u1, 0);
            ADVANCE(u2, 1);
            ADVANCE(u3, 2);
#undef ADVANCE
        }
    return 36.0 * 2 * 99;
}

/* Integrate predictors. */
static NOT_INLINED double kernel9(Data *restrict a) {
    for (int i = 0; i < 101; i++) {
        double *px = a->px[i];
        px[0] = 0.22 * px[12] + 0.21 * px[11] + 0.20 * px[10] + 0.19 * px[9] + 0.18 * px[8] + 0.17 * px[7] + 0.16 * px[6] +
                0.15 * (px[4] + px[5]) + px[2];
    }
    return 17 * 101;
}

/* Difference predictors. */
static NOT_INLINED double kernel10(Data *restrict a) {
    for (int i = 0; i < 101; i++) {
        double *px = a->px[i], carried = a->cx[i][4];
        for (int k = 4; k < 13; k++) {
            double difference = carried - px[k];
            px[k] = carried;
            carried = difference;
        }
        px[13] = carried;
    }
    return 9 * 101;
}

/* First sum. */
static NOT_INLINED double kernel11(Data *restrict a) {
    a->x[0] = a->y[0];
    for (int k = 1; k < 1001; k++) a->x[k] = a->x[k - 1] + a->y[k];
    return 1000;
}

/* First difference. */
static NOT_INLINED double kernel12(Data *restrict a) {
    for (int k = 0; k < 1000; k++) a->x[k] = a->y[k + 1] - a->y[k];
    return 1000;
}

/* Particles in cells, two dimensions. */
static NOT_INLINED double kernel13(Data *restrict a) {
    for (int n = 0; n < PARTICLES; n++) {
        double *p = a->p[n];
        long i = (long)p[0] & 63, j = (long)p[1] & 63;
        p[2] += a->b[j][i];
        p[3] += a->c[j][i];
        p[0] += p[2];
        p[1] += p[3];
        i = ((long)p[0] & 63) - 1;
        j = ((long)p[1] & 63) - 1;
        p[0] += a->y[i + 32];
        p[1] += a->z[j + 32];
        i += a->e[i + 32];
        j += a->f[j + 32];
        a->h[j][i] += 1;
    }
    return 7 * PARTICLES;
}

/* Particles in cells, one dimension. */
static NOT_INLINED double kernel14(Data *restrict a) {
    for (int k = 0; k < 1001; k++) {
        a->vx[k] = 0;
        a->xx[k] = 0;
        a->ix[k] = (long)a->grid[k];
        a->xi[k] = (double)a->ix[k];
        a->ex1[k] = a->ex[a->ix[k] - 1];
        a->dex1[k] = a->dex[a->ix[k] - 1];
    }
    for (int k = 0; k < 1001; k++) {
        a->vx[k] += a->ex1[k] + (a->xx[k] - a->xi[k]) * a->dex1[k];
        a->xx[k] += a->vx[k] + 1000;
        a->ir[k] = (long)a->xx[k];
        a->rx[k] = a->xx[k] - (double)a->ir[k];
        a->ir[k] = (a->ir[k] & 2047) + 1;
        a->xx[k] = a->rx[k] + (double)a->ir[k];
    }
    for (int k = 0; k < 1001; k++) {
        a->rh[a->ir[k] - 1] += 1 - a->rx[k];
        a->rh[a->ir[k]] += a->rx[k];
    }
    return 11 * 1001;
}

/* Casual Fortran. The arrays are, in McMahon's names, vy: za, vh: zb, vf: zm, vg: zp, vs: zq. */
static NOT_INLINED double kernel15(Data *restrict a) {
    for (int j = 1; j < ROWS; j++)
        for (int k = 1; k < 101; k++) {
            if (j + 1 >= ROWS) {
                a->za[j][k] = 0;
                continue;
            }
            double t = a->zb[j + 1][k] > a->zb[j][k] ? 0.053 : 0.073, r, s;
            const int back = a->zm[j][k] < a->zm[j][k - 1];
            r = livermore_larger(a->zb[j][k - back], a->zb[j + 1][k - back]);
            s = a->zm[j][k - back];
            a->za[j][k] = sqrt(a->zp[j][k] * a->zp[j][k] + r * r) * t / s;
            if (k + 1 >= 101) {
                a->zq[j][k] = 0;
                continue;
            }
            const int up = a->zm[j][k] < a->zm[j - 1][k];
            r = livermore_larger(a->zp[j - up][k], a->zp[j - up][k + 1]);
            s = a->zm[j - up][k];
            t = up ? 0.073 : 0.053;
            a->zq[j][k] = sqrt(a->zb[j][k] * a->zb[j][k] + r * r) * t / s;
        }
    return 33.0 * 500;
}

/* Monte Carlo search. Leaves the steps, the steps through the outer zone and the group at which it ended. */
static NOT_INLINED double kernel16(Data *restrict a) {
    const int n = 75, third = n / 3;
    const double r = a->r, s = a->s, t = a->t, *d = a->d;
    long steps = 0, outer = 0, m = 1;
    for (int searching = 1; searching;) {
        const long group = 2 * n * (m - 1) + 1;
        int next = 0;
        for (int k = 1; k <= n && !next; k++) {
            const long at = (group + 2 * k - 1) % ZONES, zone = a->zone[at], side = a->zone[at - 1 < 0 ? ZONES - 1 : at - 1];
            double value;
            steps++;
            if (zone < n - 2 * third) value = a->plan[zone - 1] - t;
            else if (zone < n - third) value = a->plan[zone - 1] - s;
            else if (zone < n) value = a->plan[zone - 1] - r;
            else if (zone == n) { searching = 0; break; }
            else {
                const double *e = d + zone - 1;
                outer++;
                value = e[0] - (e[-1] * (t - e[-2]) * (t - e[-2]) + (s - e[-3]) * (s - e[-3]) + (r - e[-4]) * (r - e[-4]));
            }
            if (value == 0 || side == 0) { searching = 0; break; }
            next = (value < 0) != (side < 0);
        }
        if (!searching || !next) break;
        m = m + 1 > a->zone[0] ? 1 : m + 1;
        if (m == 1) break;
    }
    a->found[0] = (double)steps;
    a->found[1] = (double)outer;
    a->found[2] = (double)m;
    return (double)(2 * steps + 10 * outer);
}

/* Implicit, conditional computation. In McMahon's names vsp: x, vstp: y, vxne: z, vxnd: u, ve3: v, vlr: w, vlin: g. */
static NOT_INLINED double kernel17(Data *restrict a) {
    const double scale = 5.0 / 3;
    double before = 1.0 / 3, e6 = 1.03 / 3.07;
    for (int k = 100; k > 0; k--) {
        const double e3 = before * a->w[k] + a->g[k], old = a->z[k], limit = scale * e3;
        a->u[k] = e6;
        if (before > limit || old > limit) {
            e6 = before * a->x[k] + a->y[k];
            a->z[k] = a->v[k] = e6;
        } else {
            a->v[k] = e3;
            e6 = e3 + e3 - before;
            a->z[k] = e3 + e3 - old;
        }
        before = e6;
    }
    return 9 * 100;
}

/* Explicit hydrodynamics, two dimensions. */
static NOT_INLINED double kernel18(Data *restrict a) {
    const double t = 0.0037, s = 0.0041;
    for (int k = 1; k < 6; k++)
        for (int j = 1; j < 100; j++) {
            a->za[k][j] = (a->zp[k + 1][j - 1] + a->zq[k + 1][j - 1] - a->zp[k][j - 1] - a->zq[k][j - 1]) * (a->zr[k][j] + a->zr[k][j - 1]) /
                          (a->zm[k][j - 1] + a->zm[k + 1][j - 1]);
            a->zb[k][j] = (a->zp[k][j - 1] + a->zq[k][j - 1] - a->zp[k][j] - a->zq[k][j]) * (a->zr[k][j] + a->zr[k - 1][j]) /
                          (a->zm[k][j] + a->zm[k][j - 1]);
        }
    for (int k = 1; k < 6; k++)
        for (int j = 1; j < 100; j++) {
#define FLOW(z) \
    s *(a->za[k][j] * (a->z[k][j] - a->z[k][j + 1]) - a->za[k][j - 1] * (a->z[k][j] - a->z[k][j - 1]) - \
        a->zb[k][j] * (a->z[k][j] - a->z[k - 1][j]) + a->zb[k + 1][j] * (a->z[k][j] - a->z[k + 1][j]))
            a->zu[k][j] += FLOW(zz);
            a->zv[k][j] += FLOW(zr);
#undef FLOW
        }
    for (int k = 1; k < 6; k++)
        for (int j = 1; j < 100; j++) {
            a->zr[k][j] += t * a->zu[k][j];
            a->zz[k][j] += t * a->zv[k][j];
        }
    return 44.0 * 5 * 99;
}

/* General linear recurrence, forth and back. */
static NOT_INLINED double kernel19(Data *restrict a) {
    double carried = a->t;
    for (int k = 0; k < 101; k++) {
        a->x[k] = a->y[k] + carried * a->z[k];
        carried = a->x[k] - carried;
    }
    for (int k = 100; k >= 0; k--) {
        a->x[k] = a->y[k] + carried * a->z[k];
        carried = a->x[k] - carried;
    }
    a->q = carried;
    return 6 * 101;
}

/* Discrete ordinates transport. */
static NOT_INLINED double kernel20(Data *restrict a) {
    const double low = a->t, high = a->s;
    for (int k = 0; k < 1000; k++) {
        const double di = a->y[k] - a->g[k] / (a->xx[k] + 0.5);
        double dn = 0.2;
        if (di != 0) {
            dn = a->z[k] / di;
            if (low > dn) dn = low;
            if (high < dn) dn = high;
        }
        a->x[k] = ((a->w[k] + a->v[k] * dn) * a->xx[k] + a->u[k]) / (a->vx[k] + a->v[k] * dn);
        a->xx[k + 1] = (a->x[k] - a->xx[k]) * dn + a->xx[k];
    }
    return 26 * 1000;
}

/* Matrix product. */
static NOT_INLINED double kernel21(Data *restrict a) {
    for (int k = 0; k < ORDERS; k++)
        for (int i = 0; i < ORDERS; i++)
            for (int j = 0; j < LINES; j++) a->px[j][i] += a->vy[k][i] * a->cx[j][k];
    return 2.0 * ORDERS * ORDERS * LINES;
}

/* Planckian distribution. */
static NOT_INLINED double kernel22(Data *restrict a) {
    a->u[100] = 0.99 * 20 * a->v[100];
    for (int k = 0; k < 101; k++) {
        a->y[k] = a->u[k] / a->v[k];
        a->w[k] = a->x[k] / (exp(a->y[k]) - 1);
    }
    return 17 * 101;
}

/* Implicit hydrodynamics, two dimensions. */
static NOT_INLINED double kernel23(Data *restrict a) {
    for (int j = 1; j < 6; j++)
        for (int k = 1; k < 100; k++) {
            const double q = a->za[j + 1][k] * a->zr[j][k] + a->za[j - 1][k] * a->zb[j][k] + a->za[j][k + 1] * a->zu[j][k] +
                             a->za[j][k - 1] * a->zv[j][k] + a->zz[j][k];
            a->za[j][k] += 0.175 * (q - a->za[j][k]);
        }
    return 11.0 * 5 * 99;
}

/* Where the smallest element is. */
static NOT_INLINED double kernel24(Data *restrict a) {
    int least = 0;
    for (int k = 1; k < 1001; k++)
        if (a->x[k] < a->x[least]) least = k;
    a->found[0] = least;
    return 1000;
}

static double (*const kernels[24])(Data *restrict) = {
    kernel1,  kernel2,  kernel3,  kernel4,  kernel5,  kernel6,  kernel7,  kernel8,  kernel9,  kernel10, kernel11, kernel12,
    kernel13, kernel14, kernel15, kernel16, kernel17, kernel18, kernel19, kernel20, kernel21, kernel22, kernel23, kernel24};

/* Runs a kernel and its plain evaluation on equal data; the difference of their checksums, relative to the data's size. */
static void verify(int number, Data *data, const char *name) {
    double size, plain_size;
    livermore_fill(data);
    kernels[number - 1](data);
    const double sum = livermore_checksum(data, &size);
    livermore_fill(data);
    livermore_plain(number, data);
    const double plain = livermore_checksum(data, &plain_size);
    suite_check(name, fabs(sum - plain) / plain_size, 1e-12);
}

/* Seconds of this many runs on fresh data; not slower by the filling. */
static double timed(int number, Data *data, long runs, double *operations) {
    livermore_fill(data);
    const double start = MPI_Wtime();
    *operations = 0;
    for (long n = 0; n < runs; n++) {
        *operations += kernels[number - 1](data);
        __asm__ volatile("" ::: "memory");
    }
    return MPI_Wtime() - start;
}

/* The best rate of a kernel, in MFLOPS. */
static double measure(int number, Data *data, double *noise) {
    enum { BATCHES = 7 };
    const double aim = (double)options[MS].value * 1e-3 / BATCHES;
    double rates[BATCHES], operations, best = 0;
    long runs = 1;
    while (timed(number, data, runs, &operations) < aim && runs < 1L << 30) runs *= 2;
    for (int batch = 0; batch < BATCHES; batch++) {
        const double seconds = timed(number, data, runs, &operations);
        rates[batch] = operations / seconds * 1e-6;
        if (rates[batch] > best) best = rates[batch];
    }
    *noise = suite_noise(rates, BATCHES);
    return best;
}

int main(int argc, char **argv) {
    suite_start(&argc, &argv, "livermore", options, OPTIONS);
    Data *data = suite_memory(sizeof *data);
    double sum = 0, logarithms = 0, inverses = 0, squares = 0, least = 0, most = 0, noises = 0;
    int count = 0;
    for (int number = 1; number <= 24; number++) {
        char name[16];
        double noise;
        if (options[KERNEL].value && options[KERNEL].value != number) continue;
        snprintf(name, sizeof name, "kernel-%02d", number);
        verify(number, data, name);
        const double rate = measure(number, data, &noise);
        suite_figure(name, "MFLOPS", rate, noise);
        count++;
        sum += rate;
        logarithms += log(rate);
        inverses += 1 / rate;
        squares += rate * rate;
        noises += noise;
        if (count == 1 || rate < least) least = rate;
        if (rate > most) most = rate;
    }
    const double mean = sum / count, noise = noises / count;
    suite_figure("arithmetic-mean", "MFLOPS", mean, noise);
    suite_figure("geometric-mean", "MFLOPS", exp(logarithms / count), noise);
    suite_figure("harmonic-mean", "MFLOPS", count / inverses, noise);
    suite_figure("minimum", "MFLOPS", least, noise);
    suite_figure("maximum", "MFLOPS", most, noise);
    suite_figure("deviation", "MFLOPS", count > 1 ? sqrt(fabs(squares - count * mean * mean) / (count - 1)) : 0, -1);
    return suite_end();
}
