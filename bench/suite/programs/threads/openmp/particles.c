/*
 * Steps of molecular dynamics: forces between neighbours with sums of energy and virial by a reduction, a loop of 20 to 100
 * microseconds, then two short loops that move the particles, of which one has a reduction, too. Positions are those of the sequential
 * program bit by bit, sums up to the order of additions. The figure is for a step.
 */
#include "../kernels.h"

enum { PARTICLES = 600, NEIGHBOURS = 24, STEPS = 10 };

typedef struct {
    double at[3], velocity[3], force[3];
} Particle;

static Particle particles[PARTICLES], original[PARTICLES], expected[PARTICLES];
static int neighbours[PARTICLES][NEIGHBOURS];
static double sums[STEPS][3], expected_sums[STEPS][3];

static inline void __attribute__((always_inline)) force(int i, double *energy, double *virial) {
    Particle *p = &particles[i];
    double total[3] = {0, 0, 0};
    for (int n = 0; n < NEIGHBOURS; n++) {
        const Particle *other = &particles[neighbours[i][n]];
        double apart[3], square = 0.5;
        for (int axis = 0; axis < 3; axis++) {
            apart[axis] = p->at[axis] - other->at[axis];
            square += apart[axis] * apart[axis];
        }
        const double inverse = 1 / square, sixth = inverse * inverse * inverse, strength = inverse * sixth * (sixth - 0.5);
        *energy += sixth * (sixth - 1);
        *virial += strength * square;
        for (int axis = 0; axis < 3; axis++) total[axis] += strength * apart[axis];
    }
    memcpy(p->force, total, sizeof total);
}

static inline void __attribute__((always_inline)) push(int i, double *kinetic) {
    for (int axis = 0; axis < 3; axis++) {
        particles[i].velocity[axis] += 1e-4 * particles[i].force[axis];
        *kinetic += particles[i].velocity[axis] * particles[i].velocity[axis];
    }
}

static inline void __attribute__((always_inline)) drift(int i) {
    for (int axis = 0; axis < 3; axis++) particles[i].at[axis] += 1e-4 * particles[i].velocity[axis];
}

static void sequential(void) {
    for (int step = 0; step < STEPS; step++) {
        double energy = 0, virial = 0, kinetic = 0;
        for (int i = 0; i < PARTICLES; i++) force(i, &energy, &virial);
        for (int i = 0; i < PARTICLES; i++) push(i, &kinetic);
        for (int i = 0; i < PARTICLES; i++) drift(i);
        sums[step][0] = energy, sums[step][1] = virial, sums[step][2] = kinetic;
    }
}

static void body(void) {
    for (int step = 0; step < STEPS; step++) {
        double energy = 0, virial = 0, kinetic = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : energy, virial)
        for (int i = 0; i < PARTICLES; i++) force(i, &energy, &virial);
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : kinetic)
        for (int i = 0; i < PARTICLES; i++) push(i, &kinetic);
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int i = 0; i < PARTICLES; i++) drift(i);
        sums[step][0] = energy, sums[step][1] = virial, sums[step][2] = kinetic;
    }
}

static void prepare(void) {
    memcpy(particles, original, sizeof particles);
    memset(sums, 0, sizeof sums);
}

static long wrong(void) {
    long differ = kernels_differ(particles, expected, sizeof particles);
    for (int step = 0; step < STEPS; step++)
        for (int n = 0; n < 3; n++) differ += !(fabs(sums[step][n] - expected_sums[step][n]) <= 1e-10 * (1 + fabs(expected_sums[step][n])));
    return differ;
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "particles", openmp_symbol);
    for (int i = 0; i < PARTICLES; i++) {
        for (int axis = 0; axis < 3; axis++) original[i].at[axis] = 8 * threads_random((uint64_t)(3 * i + axis));
        for (int n = 0; n < NEIGHBOURS; n++) neighbours[i][n] = (i + 1 + (int)(threads_mix((uint64_t)(i * NEIGHBOURS + n)) % 100)) % PARTICLES;
    }
    prepare();
    sequential();
    memcpy(expected, particles, sizeof particles);
    memcpy(expected_sums, sums, sizeof sums);
    threads_measure("step", "us", 1e6 / STEPS, prepare, body, wrong);
    return suite_failed;
}
