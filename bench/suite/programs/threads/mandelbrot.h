/*
 * The Mandelbrot set, 400 by 100 points, at most 500 iterations. Rows are a parallel loop, and so are the points of each row; both
 * take what is next. Every point is compared with that of a sequential computation.
 */
#ifndef THREADS_MANDELBROT_H
#define THREADS_MANDELBROT_H
#include "threads.h"

enum { MANDELBROT_COLUMNS = 400, MANDELBROT_ROWS = 100, MANDELBROT_MOST = 500 };

static int mandelbrot_steps[MANDELBROT_ROWS][MANDELBROT_COLUMNS], mandelbrot_expected[MANDELBROT_ROWS][MANDELBROT_COLUMNS];

static void __attribute__((noinline)) mandelbrot_point(int row, int column) {
    const double a = -2.0 + 3.0 * column / MANDELBROT_COLUMNS, b = -1.0 + 2.0 * row / MANDELBROT_ROWS;
    double x = 0, y = 0;
    int steps = 0;
    for (; steps < MANDELBROT_MOST && x * x + y * y <= 4; steps++) {
        const double next = x * x - y * y + a;
        y = 2 * x * y + b;
        x = next;
    }
    mandelbrot_steps[row][column] = steps;
}

static inline void mandelbrot_expect(void) {
    for (int row = 0; row < MANDELBROT_ROWS; row++)
        for (int column = 0; column < MANDELBROT_COLUMNS; column++) mandelbrot_point(row, column);
    memcpy(mandelbrot_expected, mandelbrot_steps, sizeof mandelbrot_steps);
}

static void mandelbrot_prepare(void) { memset(mandelbrot_steps, 255, sizeof mandelbrot_steps); }

static long mandelbrot_wrong(void) {
    long wrong = 0;
    for (int row = 0; row < MANDELBROT_ROWS; row++)
        for (int column = 0; column < MANDELBROT_COLUMNS; column++)
            wrong += mandelbrot_steps[row][column] != mandelbrot_expected[row][column];
    return wrong;
}
#endif
