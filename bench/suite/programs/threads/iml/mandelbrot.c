/* The Mandelbrot set by nested loops of IML. */
#include "../mandelbrot.h"
#include "../by_iml.h"

static int rows = MANDELBROT_ROWS, columns = MANDELBROT_COLUMNS, schedule = IML_SELF, chunk = 1, none = 0, one = 1;

static void points(int *start, int *iterations, int *row) {
    for (int column = *start; column < *start + *iterations; column++) mandelbrot_point(*row, column);
}

static void lines(int *start, int *iterations) {
    for (int row = *start; row < *start + *iterations; row++) iml_DOALL(points, &columns, &schedule, &chunk, &one, &row);
}

static void body(void) { iml_DOALL(lines, &rows, &schedule, &chunk, &none); }

int main(int argc, char **argv) {
    iml_start(argc, argv, "mandelbrot");
    mandelbrot_expect();
    threads_measure("nested", "ms", 1e3, mandelbrot_prepare, body, mandelbrot_wrong);
    return suite_failed;
}
