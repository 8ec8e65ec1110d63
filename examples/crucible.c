/*
 * crucible: convection of a melt in a heated, rotating crucible.
 *
 * The application class of the crystal-growth code that Forschungszentrum Juelich ran on the Intel Paragon
 * (report KFA-ZAM-IB-9409, section 5.4): a cylinder of radius 3 cm and height 4 cm is cut open along one half-plane and
 * unfolded to a regular grid of r x phi x z elements (30 x 90 x 40, stored with boundary planes as 32 x 92 x 42). Each
 * time step computes temperature and velocity by explicit finite differences and the pressure by successive
 * over-relaxation. The second and third dimension are distributed in blocks over a px x py grid of ranks; ranks update
 * the overlap with their neighbours, and a wrap-around copy of the boundary planes (in the report's numbering plane 91
 * onto plane 1, plane 2 onto plane 92) closes the cylinder again.
 *
 * Equations: incompressible flow with Boussinesq buoyancy in cylindrical coordinates on a staggered grid: T and p sit in
 * the cells, u (radial) on the faces towards larger r, v (azimuthal) towards larger phi, w (axial) towards larger z.
 * Advection blends central and upwind differences; time advances by forward Euler with a step bounded by the Courant
 * number. Near the axis r*dphi shrinks to nothing and with it the stable time step, so azimuthal differences never take a
 * radius below `hub_cm`; this does not affect rotationally symmetric flow.
 *
 * Every result is bitwise the same on any number of ranks: the over-relaxation is red-black, maxima are exact in any
 * order, and sums are taken over columns of constant phi and z (r is not distributed), which rank 0 adds in grid order.
 *
 *   mpicc -std=c99 -O3 crucible.c -o crucible -lm
 *   mpiexec -n 4 ./crucible crucible.par [key=value ...]
 */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crucible_parameters.h"

/* ---- grid, distribution, fields ---------------------------------------------------------------------------------- */

static MPI_Comm cart;
static int dims[2], coords[2];
static int left, right, below, above; /* neighbours along phi and z, MPI_PROC_NULL at the ends */
static int wrap_partner;              /* the rank at the other end of the phi axis, for the ends only */
static int nr, nj, nk, j0, k0;        /* own elements of phi and z, and the global index of the first, minus one */
static int row, plane;                /* array strides of phi and z */
static size_t cells;                  /* of one local array with its boundary planes */
static MPI_Datatype phi_plane, z_plane;
static double dr, dphi, dz;
static double *u, *v, *w, *T, *p, *un, *vn, *wn, *Tn, *rhs;
static double *rc, *rf, *re_c, *re_f; /* radius of cell centres and faces; the same, at least the hub, for d/dphi */
static double flops;

#define AT(i, j, k) ((size_t)(i) + (size_t)row * (size_t)(j) + (size_t)plane * (size_t)(k))
#define FOR_OWN(j, k) for (int k = 1; k <= nk; k++) for (int j = 1; j <= nj; j++)

/* Block distribution of `n` elements over `parts`: the first n % parts blocks hold one more. */
static void block(int n, int parts, int index, int *first, int *count) {
    int small = n / parts, extra = n % parts;
    *count = small + (index < extra);
    *first = index * small + (index < extra ? index : extra);
}

static double *new_array(size_t n) {
    double *a = calloc(n, sizeof *a);
    if (!a) {
        fprintf(stderr, "crucible: rank %d: no memory for an array of %zu elements\n", rank, n);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return a;
}

static void distribute(char *error) {
    dims[0] = par.px;
    dims[1] = par.py;
    int fixed = (dims[0] ? dims[0] : 1) * (dims[1] ? dims[1] : 1);
    if ((dims[0] && dims[1]) ? fixed != ranks : ranks % fixed != 0) {
        say(error, "px = %d and py = %d do not fit %d ranks; px*py must be the number of ranks (0: chosen)", par.px,
            par.py, ranks);
        return;
    }
    MPI_Dims_create(ranks, 2, dims);
    if (dims[0] > par.nphi || dims[1] > par.nz)
        say(error, "a grid of %d x %d ranks leaves ranks without elements of nphi = %d, nz = %d; use fewer ranks", dims[0],
            dims[1], par.nphi, par.nz);
}

static void make_grid(void) {
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, (int[]){0, 0}, 0, &cart);
    MPI_Cart_coords(cart, rank, 2, coords);
    MPI_Cart_shift(cart, 0, 1, &left, &right);
    MPI_Cart_shift(cart, 1, 1, &below, &above);
    wrap_partner = MPI_PROC_NULL;
    if (dims[0] > 1 && coords[0] == 0) MPI_Cart_rank(cart, (int[]){dims[0] - 1, coords[1]}, &wrap_partner);
    if (dims[0] > 1 && coords[0] == dims[0] - 1) MPI_Cart_rank(cart, (int[]){0, coords[1]}, &wrap_partner);

    nr = par.nr;
    block(par.nphi, dims[0], coords[0], &j0, &nj);
    block(par.nz, dims[1], coords[1], &k0, &nk);
    row = nr + 2;
    plane = row * (nj + 2);
    cells = (size_t)plane * (size_t)(nk + 2);
    MPI_Type_vector(nk + 2, row, plane, MPI_DOUBLE, &phi_plane);
    MPI_Type_contiguous(plane, MPI_DOUBLE, &z_plane);
    MPI_Type_commit(&phi_plane);
    MPI_Type_commit(&z_plane);

    double **fields[] = {&u, &v, &w, &T, &p, &un, &vn, &wn, &Tn, &rhs};
    for (size_t n = 0; n < sizeof fields / sizeof fields[0]; n++) *fields[n] = new_array(cells);
    double **radii[] = {&rc, &rf, &re_c, &re_f};
    for (int n = 0; n < 4; n++) *radii[n] = new_array((size_t)row);
    dr = par.radius_cm * 0.01 / nr;
    dz = par.height_cm * 0.01 / par.nz;
    dphi = 2 * acos(-1.0) / par.nphi;
    for (int i = 0; i < row; i++) {
        rc[i] = (i - 0.5) * dr;
        rf[i] = i * dr;
        re_c[i] = fmax(rc[i], fmax(par.hub_cm * 0.01, 0.5 * dr));
        re_f[i] = fmax(rf[i], fmax(par.hub_cm * 0.01, 0.5 * dr));
    }
}

/*
 * Overlap update of `n` fields: first the planes of constant phi, the wrap-around copy among them, then the planes of
 * constant z with the phi planes just received, so that the edges between both are right as well.
 */
static void update_overlap(int n, double **fields) {
    MPI_Request requests[4 * 4];
    int open = 0;
    for (int f = 0; f < n; f++) {
        double *a = fields[f];
        MPI_Irecv(a, 1, phi_plane, left, f, cart, &requests[open++]);
        MPI_Irecv(a + AT(0, nj + 1, 0), 1, phi_plane, right, f, cart, &requests[open++]);
        MPI_Isend(a + AT(0, 1, 0), 1, phi_plane, left, f, cart, &requests[open++]);
        MPI_Isend(a + AT(0, nj, 0), 1, phi_plane, right, f, cart, &requests[open++]);
    }
    for (int f = 0; f < n; f++) {
        double *a = fields[f], *first = a + AT(0, 1, 0), *last = a + AT(0, nj, 0), *beyond = a + AT(0, nj + 1, 0);
        if (dims[0] == 1) {
            for (int k = 0; k <= nk + 1; k++) {
                memcpy(a + AT(0, 0, k), last + AT(0, 0, k), (size_t)row * sizeof *a);
                memcpy(beyond + AT(0, 0, k), first + AT(0, 0, k), (size_t)row * sizeof *a);
            }
        } else if (coords[0] == 0) {
            MPI_Sendrecv(first, 1, phi_plane, wrap_partner, 8, a, 1, phi_plane, wrap_partner, 8, cart, MPI_STATUS_IGNORE);
        } else if (coords[0] == dims[0] - 1) {
            MPI_Sendrecv(last, 1, phi_plane, wrap_partner, 8, beyond, 1, phi_plane, wrap_partner, 8, cart,
                         MPI_STATUS_IGNORE);
        }
    }
    MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
    open = 0;
    for (int f = 0; f < n; f++) {
        double *a = fields[f];
        MPI_Irecv(a, 1, z_plane, below, f, cart, &requests[open++]);
        MPI_Irecv(a + AT(0, 0, nk + 1), 1, z_plane, above, f, cart, &requests[open++]);
        MPI_Isend(a + AT(0, 0, 1), 1, z_plane, below, f, cart, &requests[open++]);
        MPI_Isend(a + AT(0, 0, nk), 1, z_plane, above, f, cart, &requests[open++]);
    }
    MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
}

/* ---- physics ----------------------------------------------------------------------------------------------------- */

static double omega_crucible, omega_crystal; /* rad/s */

/* Sets walls, crystal, free surface and axis, then the overlap: everything that a step needs beside the elements. */
static void apply_boundary(void) {
    for (int k = 1; k <= nk; k++) {
        for (int j = 1; j <= nj; j++) {
            double t_wall = par.t_wall + par.heater_ripple * cos(par.heaters * (j0 + j - 0.5) * dphi);
            size_t in = AT(1, j, k), wall = AT(nr, j, k);
            u[in - 1] = u[wall] = 0;
            v[in - 1] = -v[in], v[wall + 1] = 2 * omega_crucible * rf[nr] - v[wall];
            w[in - 1] = w[in], w[wall + 1] = -w[wall];
            T[in - 1] = T[in], T[wall + 1] = 2 * t_wall - T[wall];
        }
    }
    if (coords[1] == 0) {
        for (int j = 1; j <= nj; j++)
            for (int i = 0; i < row; i++) {
                size_t out = AT(i, j, 0), in = AT(i, j, 1);
                u[out] = -u[in], v[out] = 2 * omega_crucible * rc[i] - v[in], w[out] = 0;
                T[out] = 2 * par.t_bottom - T[in];
            }
    }
    if (coords[1] == dims[1] - 1) {
        for (int j = 1; j <= nj; j++)
            for (int i = 0; i < row; i++) {
                size_t out = AT(i, j, nk + 1), in = AT(i, j, nk);
                int crystal = rc[i] < par.crystal_cm * 0.01;
                u[out] = crystal ? -u[in] : u[in];
                v[out] = crystal ? 2 * omega_crystal * rc[i] - v[in] : v[in];
                T[out] = crystal ? 2 * par.t_crystal - T[in] : T[in];
                w[in] = 0;
            }
    }
    update_overlap(4, (double *[]){u, v, w, T});
}

/*
 * Flux from a to b through a face: `vel` carries, `d` conducts (diffusivity / spacing). Blend of central and upwind.
 * 8 floating-point operations; fabs is not counted.
 */
#define FLUX(vel, a, b, d) (0.5 * (vel) * ((a) + (b)) - (half_upwind * fabs(vel) + (d)) * ((b) - (a)))

/* New temperature: 6 fluxes of 8, and 14 more: 62 operations an element. */
static void step_temperature(double dt) {
    const double half_upwind = 0.5 * par.upwind, kr = par.diffusivity / dr, kz = par.diffusivity / dz;
    FOR_OWN(j, k) {
        const size_t o = AT(0, j, k);
        const double *t = T + o, *uu = u + o, *vv = v + o, *ww = w + o;
        double *out = Tn + o;
        for (int i = 1; i <= nr; i++) {
            double h = 1 / (re_c[i] * dphi), kp = par.diffusivity * h;
            double fr = rf[i] * FLUX(uu[i], t[i], t[i + 1], kr) - rf[i - 1] * FLUX(uu[i - 1], t[i - 1], t[i], kr);
            double fp = FLUX(vv[i], t[i], t[i + row], kp) - FLUX(vv[i - row], t[i - row], t[i], kp);
            double fz = FLUX(ww[i], t[i], t[i + plane], kz) - FLUX(ww[i - plane], t[i - plane], t[i], kz);
            out[i] = t[i] - dt * (fr / (rc[i] * dr) + fp * h + fz / dz);
        }
    }
    flops += 62.0 * nr * nj * nk;
}

/*
 * Velocity before the pressure acts. u: 6 fluxes of 8, 9 for the carrying velocities, 36 more = 96; v: 48 + 12 + 40 =
 * 100; w: 48 + 12 + 21 = 81. Constants of a row (1/(r dphi) and the like) are not counted.
 */
static void step_velocity(double dt, double t_mean) {
    const double half_upwind = 0.5 * par.upwind, nu = par.viscosity, nz_ = nu / dz, lift = par.gravity * par.expansion;
    FOR_OWN(j, k) {
        const size_t o = AT(0, j, k);
        const double *t = T + o, *uu = u + o, *vv = v + o, *ww = w + o;
        double *uo = un + o, *vo = vn + o, *wo = wn + o;
        for (int i = 1; i < nr; i++) {
            double h = 1 / (re_f[i] * dphi), np = nu * h, r = rf[i];
            double c = uu[i];
            double fr = rc[i + 1] * FLUX(0.5 * (c + uu[i + 1]), c, uu[i + 1], 0.0)
                      - rc[i] * FLUX(0.5 * (uu[i - 1] + c), uu[i - 1], c, 0.0);
            double fp = FLUX(0.5 * (vv[i] + vv[i + 1]), c, uu[i + row], np)
                      - FLUX(0.5 * (vv[i - row] + vv[i + 1 - row]), uu[i - row], c, np);
            double fz = FLUX(0.5 * (ww[i] + ww[i + 1]), c, uu[i + plane], nz_)
                      - FLUX(0.5 * (ww[i - plane] + ww[i + 1 - plane]), uu[i - plane], c, nz_);
            double vr = 0.25 * (vv[i] + vv[i + 1] + vv[i - row] + vv[i + 1 - row]);
            double dv = 0.5 * (vv[i] + vv[i + 1] - vv[i - row] - vv[i + 1 - row]) * h;
            double shear = ((rf[i + 1] * uu[i + 1] - r * c) / rc[i + 1] - (r * c - rf[i - 1] * uu[i - 1]) / rc[i])
                         / (dr * dr);
            uo[i] = c - dt * (fr / (r * dr) + fp * h + fz / dz - vr * vr / r - nu * (shear - 2 / r * dv));
        }
        uo[nr] = 0;
        for (int i = 1; i <= nr; i++) {
            double h = 1 / (re_c[i] * dphi), np = nu * h, r = rc[i];
            double c = vv[i];
            double fr = rf[i] * FLUX(0.5 * (uu[i] + uu[i + row]), c, vv[i + 1], 0.0)
                      - rf[i - 1] * FLUX(0.5 * (uu[i - 1] + uu[i - 1 + row]), vv[i - 1], c, 0.0);
            double fp = FLUX(0.5 * (c + vv[i + row]), c, vv[i + row], np)
                      - FLUX(0.5 * (vv[i - row] + c), vv[i - row], c, np);
            double fz = FLUX(0.5 * (ww[i] + ww[i + row]), c, vv[i + plane], nz_)
                      - FLUX(0.5 * (ww[i - plane] + ww[i + row - plane]), vv[i - plane], c, nz_);
            double ur = 0.25 * (uu[i] + uu[i - 1] + uu[i + row] + uu[i + row - 1]);
            double du = 0.5 * (uu[i + row] + uu[i + row - 1] - uu[i] - uu[i - 1]) * h;
            /* (1/r) d(rv)/dr on the faces; on the axis its limit for rigid rotation, 2v/r. */
            double inner = i > 1 ? (r * c - rc[i - 1] * vv[i - 1]) / (rf[i - 1] * dr) : 2 * c / r;
            double shear = ((rc[i + 1] * vv[i + 1] - r * c) / (rf[i] * dr) - inner) / dr;
            vo[i] = c - dt * (fr / (r * dr) + fp * h + fz / dz + ur * c / r - nu * (shear + 2 / r * du));
        }
        if (k0 + k == par.nz) {
            memset(wo, 0, (size_t)row * sizeof *wo);
            continue;
        }
        for (int i = 1; i <= nr; i++) {
            double h = 1 / (re_c[i] * dphi), np = nu * h;
            double c = ww[i];
            double fr = rf[i] * FLUX(0.5 * (uu[i] + uu[i + plane]), c, ww[i + 1], nu / dr)
                      - rf[i - 1] * FLUX(0.5 * (uu[i - 1] + uu[i - 1 + plane]), ww[i - 1], c, nu / dr);
            double fp = FLUX(0.5 * (vv[i] + vv[i + plane]), c, ww[i + row], np)
                      - FLUX(0.5 * (vv[i - row] + vv[i - row + plane]), ww[i - row], c, np);
            double fz = FLUX(0.5 * (c + ww[i + plane]), c, ww[i + plane], nz_)
                      - FLUX(0.5 * (ww[i - plane] + c), ww[i - plane], c, nz_);
            double warm = 0.5 * (t[i] + t[i + plane]) - t_mean;
            wo[i] = c - dt * (fr / (rc[i] * dr) + fp * h + fz / dz - lift * warm);
        }
    }
    flops += (double)nj * nk * (96.0 * (nr - 1) + 100.0 * nr) + 81.0 * nr * nj * (nk - (k0 + nk == par.nz));
}

static double divergence(const double *a, const double *b, const double *c, size_t o, int i) {
    return (rf[i] * a[o] - rf[i - 1] * a[o - 1]) / (rc[i] * dr) + (b[o] - b[o - (size_t)row]) / (re_c[i] * dphi)
         + (c[o] - c[o - (size_t)plane]) / dz;
}

static double max_over_ranks(double x) {
    double most;
    MPI_Allreduce(&x, &most, 1, MPI_DOUBLE, MPI_MAX, cart);
    return most;
}

/* Coefficients of the pressure equation. No flow through a wall: the coefficient towards it is zero. */
static double *east, *west, *north, *centre[4];

static void make_pressure(void) {
    east = new_array((size_t)row), west = new_array((size_t)row), north = new_array((size_t)row);
    for (int i = 1; i <= nr; i++) {
        east[i] = i < nr ? rf[i] / (rc[i] * dr * dr) : 0;
        west[i] = rf[i - 1] / (rc[i] * dr * dr);
        north[i] = 1 / (re_c[i] * dphi * re_c[i] * dphi);
    }
    for (int edge = 0; edge < 4; edge++) { /* bit 0: lowest layer, bit 1: highest layer */
        centre[edge] = new_array((size_t)row);
        int layers = 2 - (edge & 1) - (edge >> 1);
        for (int i = 1; i <= nr; i++) centre[edge][i] = east[i] + west[i] + 2 * north[i] + layers / (dz * dz);
    }
}

#define RESIDUAL(q, i) \
    (east[i] * (q)[i + 1] + west[i] * (q)[i - 1] + north[i] * ((q)[i + row] + (q)[i - row]) + up * (q)[i + plane] \
     + down * (q)[i - plane] - mid[i] * (q)[i] - f[i])

/*
 * div grad p = div(u*) / dt by red-black successive over-relaxation, starting from the last step's pressure. 13 operations
 * for the residual and 3 for the update; the check every 5 sweeps counts 13. Returns the number of sweeps.
 */
static int solve_pressure(double dt) {
    double largest = 0;
    update_overlap(2, (double *[]){vn, wn});
    FOR_OWN(j, k)
        for (int i = 1; i <= nr; i++) {
            double f = divergence(un, vn, wn, AT(i, j, k), i) / dt;
            rhs[AT(i, j, k)] = f;
            largest = fmax(largest, fabs(f));
        }
    flops += 14.0 * nr * nj * nk;
    const double tolerance = par.sor_tolerance * max_over_ranks(largest);
    int sweep = 0;
    while (sweep < par.sor_max) {
        for (int colour = 0; colour < 2; colour++) {
            FOR_OWN(j, k) {
                const double *mid = centre[(k0 + k == 1) | (k0 + k == par.nz) << 1], *f = rhs + AT(0, j, k);
                const double up = k0 + k < par.nz ? 1 / (dz * dz) : 0, down = k0 + k > 1 ? 1 / (dz * dz) : 0;
                double *q = p + AT(0, j, k);
                for (int i = 1 + (j0 + j + k0 + k + colour) % 2; i <= nr; i += 2)
                    q[i] += par.omega / mid[i] * RESIDUAL(q, i);
            }
            update_overlap(1, &p);
        }
        flops += 16.0 * nr * nj * nk;
        if (++sweep % 5 != 0) continue;
        double worst = 0;
        FOR_OWN(j, k) {
            const double *mid = centre[(k0 + k == 1) | (k0 + k == par.nz) << 1], *f = rhs + AT(0, j, k);
            const double up = k0 + k < par.nz ? 1 / (dz * dz) : 0, down = k0 + k > 1 ? 1 / (dz * dz) : 0;
            const double *q = p + AT(0, j, k);
            for (int i = 1; i <= nr; i++) {
                double residual = fabs(RESIDUAL(q, i));
                worst = residual > worst ? residual : worst;
            }
        }
        flops += 13.0 * nr * nj * nk;
        if (max_over_ranks(worst) <= tolerance) break;
    }
    return sweep;
}

/* Subtracts the pressure gradient, which makes the velocity divergence-free: 3 operations each for u, v and w. */
static void correct_velocity(double dt) {
    FOR_OWN(j, k) {
        const size_t o = AT(0, j, k);
        const double *q = p + o;
        for (int i = 1; i < nr; i++) un[o + i] -= dt / dr * (q[i + 1] - q[i]);
        for (int i = 1; i <= nr; i++) vn[o + i] -= dt / (re_c[i] * dphi) * (q[i + row] - q[i]);
        if (k0 + k < par.nz)
            for (int i = 1; i <= nr; i++) wn[o + i] -= dt / dz * (q[i + plane] - q[i]);
    }
    flops += 9.0 * nr * nj * nk;
}

/* Largest stable step; infinite rates (a run that blew up) give 0. 11 operations an element. */
static double choose_step(double *fastest) {
    double rate = 0, speed2 = 0, sum = 0;
    FOR_OWN(j, k)
        for (int i = 1; i <= nr; i++) {
            size_t o = AT(i, j, k);
            double here = fabs(u[o]) / dr + fabs(v[o]) / (re_c[i] * dphi) + fabs(w[o]) / dz;
            double s2 = u[o] * u[o] + v[o] * v[o] + w[o] * w[o];
            rate = here > rate ? here : rate;
            speed2 = s2 > speed2 ? s2 : speed2;
            sum += here;
        }
    flops += 11.0 * nr * nj * nk;
    double local[2] = {isfinite(sum) ? rate : DBL_MAX, speed2}, global[2];
    MPI_Allreduce(local, global, 2, MPI_DOUBLE, MPI_MAX, cart);
    *fastest = sqrt(global[1]);
    if (global[0] == DBL_MAX) return 0;
    double spread = 1 / (dr * dr) + 1 / (re_c[1] * dphi * re_c[1] * dphi) + 1 / (dz * dz);
    double dt = par.cfl / (global[0] + 2 * fmax(par.viscosity, par.diffusivity) * spread);
    return fmin(dt, par.dt_max);
}

static void swap(double **a, double **b) {
    double *t = *a;
    *a = *b;
    *b = t;
}

/* Melt at rest relative to the crucible, between the temperatures of its walls, with a small fixed disturbance. */
static void initial_state(void) {
    FOR_OWN(j, k)
        for (int i = 1; i <= nr; i++) {
            uint64_t h = (uint64_t)i + 4099 * ((uint64_t)(j0 + j) + 4099 * (uint64_t)(k0 + k));
            h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
            double noise = (double)(h >> 40) / (1 << 24) - 0.5, depth = (k0 + k - 0.5) / par.nz;
            T[AT(i, j, k)] = par.t_bottom + 0.5 * depth * (par.t_crystal - par.t_bottom) + 0.2 * noise;
            v[AT(i, j, k)] = omega_crucible * rc[i];
        }
}

/* ---- results that do not depend on the distribution -------------------------------------------------------------- */

/* This rank's elements of a local array, and its part of the whole grid, as datatypes. */
static MPI_Datatype own_elements(void) {
    MPI_Datatype type;
    MPI_Type_create_subarray(3, (int[]){nk + 2, nj + 2, row}, (int[]){nk, nj, nr}, (int[]){1, 1, 1}, MPI_ORDER_C,
                             MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

static MPI_Datatype part_of(int other) {
    int at[2], first[2], count[2];
    MPI_Datatype type;
    MPI_Cart_coords(cart, other, 2, at);
    block(par.nphi, dims[0], at[0], &first[0], &count[0]);
    block(par.nz, dims[1], at[1], &first[1], &count[1]);
    MPI_Type_create_subarray(3, (int[]){par.nz, par.nphi, nr}, (int[]){count[1], count[0], nr},
                             (int[]){first[1], first[0], 0}, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Moves a field between the local arrays and `whole` on rank 0 (nr fastest, then nphi, nz); collective. */
static void move_field(double *local, double *whole, int gather) {
    MPI_Datatype own = own_elements();
    MPI_Request mine;
    if (gather) MPI_Isend(local, 1, own, 0, 9, cart, &mine);
    else MPI_Irecv(local, 1, own, 0, 9, cart, &mine);
    for (int other = 0; rank == 0 && other < ranks; other++) {
        MPI_Datatype part = part_of(other);
        if (gather) MPI_Recv(whole, 1, part, other, 9, cart, MPI_STATUS_IGNORE);
        else MPI_Send(whole, 1, part, other, 9, cart);
        MPI_Type_free(&part);
    }
    MPI_Wait(&mine, MPI_STATUS_IGNORE);
    MPI_Type_free(&own);
}

static size_t all_elements(void) { return (size_t)nr * (size_t)par.nphi * (size_t)par.nz; }

static uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes) {
    for (const unsigned char *b = data; bytes--; b++) hash = (hash ^ *b) * 0x100000001b3u;
    return hash;
}

typedef struct { double mean_temperature, kinetic_energy, divergence; } Norms;

/* Volume means; each rank sums columns along r, rank 0 adds the columns in grid order. Valid on rank 0; collective. */
static Norms compute_norms(double *whole) {
    Norms n = {0, 0, 0};
    double volume = 0, *sums[2] = {&n.mean_temperature, &n.kinetic_energy}, worst = 0;
    for (int which = 0; which < 2; which++) {
        FOR_OWN(j, k) {
            double sum = 0;
            for (int i = 1; i <= nr; i++) {
                size_t o = AT(i, j, k);
                sum += rc[i] * (which ? 0.5 * (u[o] * u[o] + v[o] * v[o] + w[o] * w[o]) : T[o]);
            }
            Tn[AT(1, j, k)] = sum;
        }
        move_field(Tn, whole, 1);
        for (size_t c = 0; rank == 0 && c < all_elements(); c += (size_t)nr) *sums[which] += whole[c];
    }
    for (int i = 1; i <= nr; i++) volume += rc[i] * par.nphi * par.nz;
    n.mean_temperature /= volume;
    n.kinetic_energy /= volume;
    FOR_OWN(j, k)
        for (int i = 1; i <= nr; i++) worst = fmax(worst, fabs(divergence(u, v, w, AT(i, j, k), i)));
    n.divergence = max_over_ranks(worst);
    return n;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A restart file is this header, then u, v, w, T, p in whole-grid order: the same bytes from any number of ranks. */
typedef struct {
    char magic[8];
    uint32_t byte_order, version;
    int32_t nr, nphi, nz, step;
    double time, radius_cm, height_cm;
    uint64_t checksum; /* FNV-1a of the five fields */
} Header;
static const char MAGIC[8] = "CRUCIBLE";

static Header make_header(int step, double time) {
    Header h = {.byte_order = 0x01020304, .version = 1, .nr = nr, .nphi = par.nphi, .nz = par.nz, .step = step,
                .time = time, .radius_cm = par.radius_cm, .height_cm = par.height_cm, .checksum = 0xcbf29ce484222325u};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    return h;
}

/* Writes the restart file (to a neighbour that is renamed when complete) and returns the checksum of the state. */
static uint64_t write_restart(int step, double time, double *whole, char *error) {
    const char *path = par.restart_out;
    char partial[PATH_BYTES + 16];
    FILE *file = NULL;
    Header header = make_header(step, time);
    snprintf(partial, sizeof partial, "%s.partial", path);
    if (rank == 0 && path[0] && (!(file = fopen(partial, "wb")) || fseek(file, sizeof header, SEEK_SET)))
        say(error, "restart_out: %s: cannot be written: %s", partial, strerror(errno));
    double *fields[] = {u, v, w, T, p};
    for (int f = 0; f < 5; f++) {
        move_field(fields[f], whole, 1);
        if (rank != 0) continue;
        header.checksum = fnv1a(header.checksum, whole, all_elements() * sizeof *whole);
        if (file && fwrite(whole, sizeof *whole, all_elements(), file) != all_elements())
            say(error, "restart_out: %s: cannot be written: %s", partial, strerror(errno));
    }
    if (file) {
        rewind(file);
        if (fwrite(&header, sizeof header, 1, file) != 1 || fflush(file) || ferror(file))
            say(error, "restart_out: %s: cannot be written: %s", partial, strerror(errno));
        if (fclose(file) != 0 && !error[0]) say(error, "restart_out: %s: %s", partial, strerror(errno));
        if (!error[0] && rename(partial, path) != 0) say(error, "restart_out: %s: %s", path, strerror(errno));
    }
    return header.checksum;
}

/* Reads the restart file into the local arrays; the file must fit the grid and match its checksum. */
static void read_restart(int *step, double *time, double *whole, char *error) {
    Header header = {.step = 0}, expected = make_header(0, 0);
    uint64_t checksum = expected.checksum;
    FILE *file = rank == 0 ? fopen(par.restart_in, "rb") : NULL;
    if (rank == 0) {
        if (!file || fread(&header, sizeof header, 1, file) != 1)
            say(error, "restart_in: %s: cannot be read: %s", par.restart_in, errno ? strerror(errno) : "too short");
        else if (memcmp(header.magic, MAGIC, sizeof MAGIC) != 0 || header.byte_order != expected.byte_order
                 || header.version != expected.version)
            say(error, "restart_in: %s: not a restart file of this program and byte order", par.restart_in);
        else if (header.nr != nr || header.nphi != par.nphi || header.nz != par.nz
                 || header.radius_cm != par.radius_cm || header.height_cm != par.height_cm)
            say(error, "restart_in: %s: holds %d x %d x %d elements of a crucible of %g cm x %g cm, the parameters say "
                "%d x %d x %d and %g cm x %g cm", par.restart_in, header.nr, header.nphi, header.nz, header.radius_cm,
                header.height_cm, nr, par.nphi, par.nz, par.radius_cm, par.height_cm);
    }
    stop_on_error(error);
    double *fields[] = {u, v, w, T, p};
    for (int f = 0; f < 5; f++) {
        if (rank == 0 && fread(whole, sizeof *whole, all_elements(), file) != all_elements())
            say(error, "restart_in: %s: cut short", par.restart_in);
        stop_on_error(error);
        if (rank == 0) checksum = fnv1a(checksum, whole, all_elements() * sizeof *whole);
        move_field(fields[f], whole, 0);
    }
    if (file) fclose(file);
    if (rank == 0 && checksum != header.checksum)
        say(error, "restart_in: %s: damaged: its checksum is not that of its contents", par.restart_in);
    stop_on_error(error);
    *step = header.step;
    *time = header.time;
    MPI_Bcast(step, 1, MPI_INT, 0, cart);
    MPI_Bcast(time, 1, MPI_DOUBLE, 0, cart);
}

/* The temperature in kelvin for a picture: one line of JSON, then nr x nphi x nz doubles, nr fastest. */
static void write_field(double time, double *whole, char *error) {
    move_field(T, whole, 1);
    if (rank != 0) return;
    FILE *file = fopen(par.field_out, "wb");
    int bad = !file;
    if (file) {
        bad |= fprintf(file, "{\"quantity\":\"temperature\",\"unit\":\"K\",\"nr\":%d,\"nphi\":%d,\"nz\":%d,\"radius_cm\":%g,"
                       "\"height_cm\":%g,\"time_s\":%.6g}\n", nr, par.nphi, par.nz, par.radius_cm, par.height_cm, time) < 0;
        bad |= fwrite(whole, sizeof *whole, all_elements(), file) != all_elements();
        bad |= fclose(file) != 0;
    }
    if (bad) say(error, "field_out: %s: cannot be written: %s", par.field_out, strerror(errno));
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* Prints one line that is updated on a terminal; elsewhere one line for each twentieth of the run. */
static void show_progress(int done, double time, double fastest, int sweeps, const char *note) {
    static double last_s = -1;
    static int last_part = -1;
    int terminal = isatty(STDERR_FILENO), part = (int)(20.0 * done / par.steps);
    double now_s = MPI_Wtime();
    if (rank != 0 || (terminal ? now_s - last_s < 0.1 && done < par.steps : part == last_part)) return;
    last_s = now_s;
    last_part = part;
    fprintf(stderr, "%sstep %d/%d  %3.0f %%  t = %.3f s  fastest %.2f cm/s  %d sweeps%s%s", terminal ? "\r" : "", done,
            par.steps, 100.0 * done / par.steps, time, 100 * fastest, sweeps, note,
            terminal && done < par.steps ? "  " : "\n");
    fflush(stderr);
}

int main(int argc, char **argv) {
    static char error[ERROR_BYTES];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0) read_parameters(argc, argv, error);
    stop_on_error(error);
    MPI_Bcast(&par, sizeof par, MPI_BYTE, 0, MPI_COMM_WORLD);
    distribute(error);
    stop_on_error(error);
    make_grid();
    make_pressure();
    omega_crucible = par.crucible_rpm * 2 * acos(-1.0) / 60;
    omega_crystal = par.crystal_rpm * 2 * acos(-1.0) / 60;
    double *whole = new_array(rank == 0 ? all_elements() : 1);

    int first = 0;
    double time = 0, fastest = 0;
    if (par.restart_in[0]) read_restart(&first, &time, whole, error);
    else initial_state();
    apply_boundary();
    update_overlap(1, &p);

    const double t_mean = 0.5 * (par.t_wall + par.t_crystal);
    long sweeps = 0;
    MPI_Barrier(cart);
    double start_s = MPI_Wtime();
    for (int n = 0; n < par.steps; n++) {
        double dt = choose_step(&fastest);
        if (dt == 0) {
            if (rank == 0) say(error, "step %d: the velocity is no longer finite; lower cfl or raise viscosity", first + n);
            stop_on_error(error);
        }
        step_temperature(dt);
        step_velocity(dt, t_mean);
        int now = solve_pressure(dt);
        correct_velocity(dt);
        swap(&u, &un), swap(&v, &vn), swap(&w, &wn), swap(&T, &Tn);
        apply_boundary();
        time += dt;
        sweeps += now;
        show_progress(n + 1, time, fastest, now, "");
    }
    double seconds = max_over_ranks(MPI_Wtime() - start_s), total_flops;
    MPI_Reduce(&flops, &total_flops, 1, MPI_DOUBLE, MPI_SUM, 0, cart);

    Norms norms = compute_norms(whole);
    uint64_t checksum = write_restart(first + par.steps, time, whole, error);
    if (par.field_out[0]) write_field(time, whole, error);
    stop_on_error(error);
    if (rank == 0) {
        double mflops = seconds > 0 ? total_flops / seconds / 1e6 : 0;
        char json[1024];
        snprintf(json, sizeof json, "{\"px\":%d,\"py\":%d,\"ranks\":%d,\"steps\":%d,\"step\":%d,\"time_s\":%.17g,"
                 "\"seconds\":%.6f,\"mflops\":%.1f,\"sweeps\":%ld,\"mean_temperature_k\":%.17g,"
                 "\"kinetic_energy_j_per_kg\":%.17g,\"divergence_per_s\":%.17g,\"checksum\":\"%016llx\"}", dims[0],
                 dims[1], ranks, par.steps, first + par.steps, time, seconds, mflops, sweeps, norms.mean_temperature,
                 norms.kinetic_energy, norms.divergence, (unsigned long long)checksum);
        printf("%d x %d ranks, steps %d to %d, t = %.3f s: %.2f s, %.1f MFLOPS, %.1f sweeps a step\n"
               "mean temperature %.6f K, kinetic energy %.6e J/kg, divergence at most %.2e /s, checksum %016llx\n",
               dims[0], dims[1], first, first + par.steps, time, seconds, mflops,
               par.steps ? (double)sweeps / par.steps : 0, norms.mean_temperature, norms.kinetic_energy,
               norms.divergence, (unsigned long long)checksum);
        FILE *file = par.result_out[0] ? fopen(par.result_out, "w") : NULL;
        if (par.result_out[0] && (!file || fprintf(file, "%s\n", json) < 0 || fclose(file) != 0))
            say(error, "result_out: %s: cannot be written: %s", par.result_out, strerror(errno));
    }
    stop_on_error(error);
    finish(0);
}
