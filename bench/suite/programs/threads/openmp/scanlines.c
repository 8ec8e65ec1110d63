/* Lines of a picture by a loop of OpenMP. */
#include "../scanlines.h"
#include "../openmp.h"

static void body(void) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int line = 0; line < SCANLINES_HEIGHT; line++) scanlines_line(line);
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "scanlines", openmp_symbol);
    scanlines_expect();
    threads_measure("lines", "ms", 1e3, scanlines_prepare, body, scanlines_wrong);
    return suite_failed;
}
