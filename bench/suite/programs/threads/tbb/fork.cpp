// Empty parallel loops of as many iterations as threads, and tasks, by oneTBB.
#include <tbb/parallel_for.h>
#include <tbb/task_group.h>

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

static void parts() {
    tbb::parallel_for(tbb::blocked_range<long>(0, FORK_TASKS, 1), [](const tbb::blocked_range<long> &range) {
        for (long member = range.begin(); member < range.end(); member++) fork_member(member);
    }, each);
}

static tbb::task_group group;

static void enqueue() {
    for (long n = 0; n < FORK_TASKS; n++) group.run([n] { fork_member(n); });
}

static void wait() { group.wait(); }

static void tasks() {
    enqueue();
    wait();
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "fork", tbb_symbol);
    fork_verify("members-flat", flat, threads);
    tbb_measure("flat", "us", 1e6, nullptr, flat, nullptr);
    fork_nested(nested, tbb_measure);
    fork_verify("members-task", tasks, FORK_TASKS);
    tbb_measure("task", "ns", 1e9 / FORK_TASKS, nullptr, tasks, nullptr);
    if (threads == 1) {
        fork_verify("members-doall", parts, FORK_TASKS);
        tbb_measure("doall", "ns", 1e9 / FORK_TASKS, nullptr, parts, nullptr);
        tbb_within([] {
            threads_measure("enq", "ns", 1e9 / FORK_TASKS, wait, enqueue, nullptr);
            // Those of the last round are in the queue of this arena, which goes with it.
            wait();
        });
    }
    return suite_failed;
}
