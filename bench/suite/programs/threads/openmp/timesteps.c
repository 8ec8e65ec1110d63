/*
 * Time steps of many short regions, as of a hydrodynamics code on a staggered grid: six pieces of work on five materials of different
 * sizes, so 30 regions of 3 to 50 microseconds a step. The figure is for a step.
 */
#include "../kernels.h"

enum { MOST = 48000, MATERIALS = 5, STEPS = 4 };

static const long sizes[MATERIALS] = {8000, 12000, 20000, 32000, MOST};

typedef struct {
    double position[MOST + 1], velocity[MOST + 1], mass[MOST], energy[MOST], pressure[MOST], viscosity[MOST], volume[MOST];
} Material;

static Material materials[MATERIALS], original[MATERIALS], expected[MATERIALS];

static inline void volume(Material *m, long i) { m->volume[i] = 1e-3 + fabs(m->position[i + 1] - m->position[i]); }

static inline void viscosity(Material *m, long i) {
    const double jump = m->velocity[i + 1] - m->velocity[i];
    m->viscosity[i] = jump < 0 ? m->mass[i] / m->volume[i] * jump * jump : 0;
}

static inline void pressure(Material *m, long i) { m->pressure[i] = 0.4 * m->mass[i] / m->volume[i] * sqrt(m->energy[i] * m->energy[i] + 1e-6); }

static inline void acceleration(Material *m, long i) {
    const long last = i - 1;
    m->velocity[i] -= 1e-5 * (m->pressure[i] + m->viscosity[i] - m->pressure[last] - m->viscosity[last]) / (m->mass[i] + m->mass[last]);
}

static inline void movement(Material *m, long i) { m->position[i] += 1e-5 * m->velocity[i]; }

static inline void energy(Material *m, long i) {
    m->energy[i] -= 1e-5 * (m->pressure[i] + m->viscosity[i]) * (m->velocity[i + 1] - m->velocity[i]) / m->mass[i];
}

static void sequential(void) {
    for (int step = 0; step < STEPS; step++)
        for (int n = 0; n < MATERIALS; n++) {
            Material *m = &materials[n];
            const long cells = sizes[n];
            for (long i = 0; i < cells; i++) volume(m, i);
            for (long i = 0; i < cells; i++) viscosity(m, i);
            for (long i = 0; i < cells; i++) pressure(m, i);
            for (long i = 1; i < cells; i++) acceleration(m, i);
            for (long i = 0; i < cells; i++) energy(m, i);
            for (long i = 0; i <= cells; i++) movement(m, i);
        }
}

static void body(void) {
    for (int step = 0; step < STEPS; step++)
        for (int n = 0; n < MATERIALS; n++) {
            Material *m = &materials[n];
            const long cells = sizes[n];
#pragma omp parallel for num_threads(threads) schedule(static)
            for (long i = 0; i < cells; i++) volume(m, i);
#pragma omp parallel for num_threads(threads) schedule(static)
            for (long i = 0; i < cells; i++) viscosity(m, i);
#pragma omp parallel for num_threads(threads) schedule(static)
            for (long i = 0; i < cells; i++) pressure(m, i);
#pragma omp parallel for num_threads(threads) schedule(static)
            for (long i = 1; i < cells; i++) acceleration(m, i);
#pragma omp parallel for num_threads(threads) schedule(static)
            for (long i = 0; i < cells; i++) energy(m, i);
#pragma omp parallel for num_threads(threads) schedule(static)
            for (long i = 0; i <= cells; i++) movement(m, i);
        }
}

static void prepare(void) { memcpy(materials, original, sizeof materials); }

static long wrong(void) { return kernels_differ(materials, expected, sizeof materials); }

int main(int argc, char **argv) {
    threads_start(argc, argv, "timesteps", openmp_symbol);
    for (int n = 0; n < MATERIALS; n++) {
        Material *m = &original[n];
        kernels_fill(m->velocity, MOST + 1, 2);
        kernels_fill(m->energy, MOST, 3);
        for (long i = 0; i <= MOST; i++) m->position[i] = (double)i + 0.1 * threads_random((uint64_t)i);
        for (long i = 0; i < MOST; i++) m->mass[i] = 1 + threads_random((uint64_t)(i + n));
    }
    prepare();
    sequential();
    memcpy(expected, materials, sizeof materials);
    threads_measure("step", "us", 1e6 / STEPS, prepare, body, wrong);
    return suite_failed;
}
