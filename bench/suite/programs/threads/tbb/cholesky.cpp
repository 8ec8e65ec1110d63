// Cholesky factorization by oneTBB's flow graph; as with OpenMP, building the graph is part of the time.
#include <tbb/flow_graph.h>

#include <list>

#include "../cholesky.h"
#include "../tbb.h"

using Node = tbb::flow::continue_node<tbb::flow::continue_msg>;
using Message = tbb::flow::continue_msg;

static void body() {
    tbb::flow::graph graph;
    std::list<Node> nodes;
    Node *last[CHOLESKY_TILES][CHOLESKY_TILES] = {}; // the task that wrote a tile last
    std::list<Node *> first;
    // A task that writes tile (i, j) after all tasks that did, and after the writers of the tiles
    // that it reads.
    auto task = [&](int i, int j, std::initializer_list<Node *> reads, auto work) {
        Node &node = nodes.emplace_back(graph, [work](const Message &) { work(); });
        if (last[i][j]) tbb::flow::make_edge(*last[i][j], node);
        for (Node *read : reads) tbb::flow::make_edge(*read, node);
        if (!last[i][j] && reads.size() == 0) first.push_back(&node);
        last[i][j] = &node;
    };
    for (int k = 0; k < CHOLESKY_TILES; k++) {
        task(k, k, {}, [k] { cholesky_factor(cholesky[k][k]); });
        for (int i = k + 1; i < CHOLESKY_TILES; i++)
            task(i, k, {last[k][k]}, [i, k] { cholesky_solve(cholesky[k][k], cholesky[i][k]); });
        for (int i = k + 1; i < CHOLESKY_TILES; i++)
            for (int j = k + 1; j < i; j++)
                task(i, j, {last[i][k], last[j][k]}, [i, j, k] { cholesky_update(cholesky[i][k], cholesky[j][k], cholesky[i][j]); });
        for (int i = k + 1; i < CHOLESKY_TILES; i++)
            task(i, i, {last[i][k]}, [i, k] { cholesky_update(cholesky[i][k], cholesky[i][k], cholesky[i][i]); });
    }
    for (Node *node : first) node->try_put(Message());
    graph.wait_for_all();
}

int main(int argc, char **argv) {
    threads_start(argc, argv, "cholesky", tbb_symbol);
    cholesky_expect();
    tbb_measure("tasks", "ms", 1e3, cholesky_prepare, body, cholesky_wrong);
    return suite_failed;
}
