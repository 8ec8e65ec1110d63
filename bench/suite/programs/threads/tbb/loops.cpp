// Loops by oneTBB's partitioners: static, simple with a grain of one in the place of dynamic, auto in the place of guided.
#include <tbb/parallel_for.h>

#include "../loops.h"
#include "../tbb.h"

template <typename Partitioner>
static void loop() {
    tbb::parallel_for(tbb::blocked_range<long>(0, LOOPS_COUNT, 1), [](const tbb::blocked_range<long> &range) {
        for (long i = range.begin(); i < range.end(); i++) loops_iteration(i);
    }, Partitioner());
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "loops", tbb_symbol);
    loops_expect();
    tbb_measure("static", "us", 1e6, loops_prepare, loop<tbb::static_partitioner>, loops_wrong);
    tbb_measure("dynamic", "us", 1e6, loops_prepare, loop<tbb::simple_partitioner>, loops_wrong);
    tbb_measure("guided", "us", 1e6, loops_prepare, loop<tbb::auto_partitioner>, loops_wrong);
    return suite_failed;
}
