/*
 * The random matrix of ScaLAPACK's pdmatgen: element (i, j) of an m-row matrix is number j*m + i of one stream of a linear
 * congruential generator, so that every process makes its part of the global matrix alone, whatever the distribution.
 * The numbers are those of ScaLAPACK's LU driver: multiplier 1103515245, increment 12345, modulus 2^31, values in (-1, 1].
 */
#ifndef MATGEN_H
#define MATGEN_H
#include <stdint.h>

enum { MATGEN_SEED_MATRIX = 100, MATGEN_SEED_RIGHT = 200 };

/* x -> factor x + term modulo 2^31; steps compose to one of the same form. */
typedef struct { uint32_t factor, term; } Step;

static const Step matgen_one = {1103515245u, 12345u};

static inline uint32_t matgen_go(Step step, uint32_t state) { return (step.factor * state + step.term) & 0x7fffffffu; }

/* First `a`, then `b`. */
static inline Step matgen_then(Step a, Step b) {
    Step both = {(b.factor * a.factor) & 0x7fffffffu, (b.factor * a.term + b.term) & 0x7fffffffu};
    return both;
}

/* `count` steps in one. */
static inline Step matgen_steps(uint64_t count) {
    Step whole = {1, 0}, power = matgen_one;
    for (; count; count >>= 1) {
        if (count & 1) whole = matgen_then(whole, power);
        power = matgen_then(power, power);
    }
    return whole;
}

static inline double matgen_value(uint32_t state) { return 1.0 - 2.0 * ((double)state / 2147483648.0); }

/*
 * One local column: rows of the global column `column` of a matrix with `rows` rows that process `me` of `processes` has in
 * a cyclic distribution of blocks of `block` rows. `local` is how many these are.
 */
static inline void matgen_column(uint32_t seed, uint64_t rows, uint64_t column, int block, int me, int processes, int local,
                                 double *values) {
    const Step jump = matgen_steps((uint64_t)block * (uint64_t)(processes - 1));
    uint32_t state = matgen_go(matgen_steps(1 + column * rows + (uint64_t)me * (uint64_t)block), seed);
    for (int start = 0; start < local; start += block) {
        int end = start + block < local ? start + block : local;
        for (int n = start; n < end; n++) {
            values[n] = matgen_value(state);
            state = matgen_go(matgen_one, state);
        }
        state = matgen_go(jump, state);
    }
}
#endif
