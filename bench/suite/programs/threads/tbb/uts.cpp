// Unbalanced tree search by oneTBB's tasks.
#include <tbb/task_group.h>

#include "../uts.h"
#include "../tbb.h"

static long walk(uint64_t state, int children) {
    long nodes[UTS_CHILDREN], sum = 1;
    if (children == 0) return sum;
    tbb::task_group tasks;
    for (int n = 0; n < children; n++)
        tasks.run([&nodes, n, state] {
            const uint64_t child = uts_child(state, n);
            nodes[n] = walk(child, uts_children(child));
        });
    tasks.wait();
    for (int n = 0; n < children; n++) sum += nodes[n];
    return sum;
}

static void body() {
    static long nodes[UTS_ROOTS];
    tbb::task_group tasks;
    for (int n = 0; n < UTS_ROOTS; n++)
        tasks.run([n] {
            const uint64_t child = uts_child(0, n);
            nodes[n] = walk(child, uts_children(child));
        });
    tasks.wait();
    uts_nodes = 1;
    for (long part : nodes) uts_nodes += part;
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "uts", tbb_symbol);
    uts_expect();
    tbb_measure("node", "ns", 1e9 / (double)uts_expected, uts_prepare, body, uts_wrong);
    return suite_failed;
}
