// The Mandelbrot set by nested loops of oneTBB.
#include <tbb/parallel_for.h>

#include "../mandelbrot.h"
#include "../tbb.h"

static void body() {
    tbb::parallel_for(0, (int)MANDELBROT_ROWS, [](int row) {
        tbb::parallel_for(0, (int)MANDELBROT_COLUMNS, [row](int column) { mandelbrot_point(row, column); });
    });
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "mandelbrot", tbb_symbol);
    mandelbrot_expect();
    tbb_measure("nested", "ms", 1e3, mandelbrot_prepare, body, mandelbrot_wrong);
    return suite_failed;
}
