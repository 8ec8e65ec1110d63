// Lines of a picture by a loop of oneTBB.
#include <tbb/parallel_for.h>

#include "../scanlines.h"
#include "../tbb.h"

static void body() {
    tbb::parallel_for(0, (int)SCANLINES_HEIGHT, [](int line) { scanlines_line(line); }, tbb::simple_partitioner());
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "scanlines", tbb_symbol);
    scanlines_expect();
    tbb_measure("lines", "ms", 1e3, scanlines_prepare, body, scanlines_wrong);
    return suite_failed;
}
