// Empty parallel loops of as many iterations as threads, by oneTBB.
#include <tbb/parallel_for.h>

#include "../fork.h"
#include "../tbb.h"

static const tbb::simple_partitioner each;

static void flat() {
    tbb::parallel_for(tbb::blocked_range<long>(0, threads, 1), [](const tbb::blocked_range<long> &range) {
        for (long member = range.begin(); member < range.end(); member++) fork_member(member);
    }, each);
}

static void nested() {
    tbb::parallel_for(tbb::blocked_range<long>(0, threads, 1), [](const tbb::blocked_range<long> &outer) {
        for (long row = outer.begin(); row < outer.end(); row++)
            tbb::parallel_for(tbb::blocked_range<long>(0, threads, 1), [row](const tbb::blocked_range<long> &inner) {
                for (long member = inner.begin(); member < inner.end(); member++) fork_member(row * threads + member);
            }, each);
    }, each);
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "fork", tbb_symbol);
    fork_verify("members-flat", flat, threads);
    tbb_measure("flat", "us", 1e6, nullptr, flat, nullptr);
    fork_verify("members-nested", nested, (long)threads * threads);
    tbb_measure("nested", "us", 1e6, nullptr, nested, nullptr);
    return suite_failed;
}
