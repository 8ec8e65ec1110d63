/* The Mandelbrot set by nested loops of OpenMP. */
#include "../mandelbrot.h"
#include "../openmp.h"

static void body(void) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int row = 0; row < MANDELBROT_ROWS; row++) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
        for (int column = 0; column < MANDELBROT_COLUMNS; column++) mandelbrot_point(row, column);
    }
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "mandelbrot", openmp_symbol);
    mandelbrot_expect();
    threads_measure("nested", "ms", 1e3, mandelbrot_prepare, body, mandelbrot_wrong);
    return suite_failed;
}
