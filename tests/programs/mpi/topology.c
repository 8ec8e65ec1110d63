/* Virtual topologies and neighbourhood collectives. */
#include "check.h"

static int rank, size;

static void grids(void)
{
    MPI_Comm grid, row, copy;
    int dims[2] = {0, 0}, periods[2] = {1, 0}, got_dims[2], got_periods[2], coords[2], n, r, status, source, dest;
    MPI_Dims_create(size, 2, dims);
    CHECK(dims[0] * dims[1] == size && dims[0] >= dims[1]);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    MPI_Topo_test(grid, &status);
    CHECK(status == MPI_CART);
    MPI_Topo_test(MPI_COMM_WORLD, &status);
    CHECK(status == MPI_UNDEFINED);
    MPI_Cartdim_get(grid, &n);
    CHECK(n == 2);
    MPI_Cart_get(grid, 2, got_dims, got_periods, coords);
    CHECK(got_dims[0] == dims[0] && got_dims[1] == dims[1] && got_periods[0] && !got_periods[1]);
    CHECK(coords[0] == rank / dims[1] && coords[1] == rank % dims[1]);
    coords[0] -= dims[0];
    MPI_Cart_rank(grid, coords, &r);
    CHECK(r == rank);
    MPI_Cart_shift(grid, 0, 1, &source, &dest);
    CHECK(dest == (rank + dims[1]) % size && source == (rank + size - dims[1]) % size);
    MPI_Cart_shift(grid, 1, -1, &source, &dest);
    CHECK(dest == (rank % dims[1] == 0 ? MPI_PROC_NULL : rank - 1));
    MPI_Cart_map(grid, 2, dims, periods, &r);
    CHECK(r == rank);
    MPI_Comm_dup(grid, &copy);
    MPI_Topo_test(copy, &status);
    CHECK(status == MPI_CART);
    MPI_Comm_free(&copy);
    MPI_Cart_sub(grid, (int[]){0, 1}, &row);
    MPI_Comm_size(row, &n);
    MPI_Cart_coords(row, 0, 1, coords);
    CHECK(n == dims[1] && coords[0] == 0);
    MPI_Comm_free(&row);

    /* Neighbours: for each dimension the one before and the one after. */
    int in[4] = {-1, -1, -1, -1}, out[4];
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, in, 1, MPI_INT, grid);
    CHECK(in[0] == (rank + size - dims[1]) % size && in[1] == (rank + dims[1]) % size);
    CHECK(in[2] == (rank % dims[1] ? rank - 1 : -1) && in[3] == (rank % dims[1] < dims[1] - 1 ? rank + 1 : -1));
    for (int i = 0; i < 4; i++) {
        out[i] = 10 * rank + i;
        in[i] = -1;
    }
    MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, grid);
    /* What I sent to the one before arrives there as from the one after. */
    CHECK(in[0] == 10 * ((rank + size - dims[1]) % size) + 1 && in[1] == 10 * ((rank + dims[1]) % size));
    CHECK(in[2] == (rank % dims[1] ? 10 * (rank - 1) + 3 : -1));
    MPI_Comm_free(&grid);
    if (size > 1) {
        MPI_Cart_create(MPI_COMM_WORLD, 1, (int[]){size - 1}, (int[]){0}, 1, &grid);
        CHECK((grid == MPI_COMM_NULL) == (rank == size - 1));
        if (grid != MPI_COMM_NULL)
            MPI_Comm_free(&grid);
    }
    MPI_Cart_create(MPI_COMM_WORLD, 0, NULL, NULL, 0, &grid);
    CHECK((grid == MPI_COMM_NULL) == (rank > 0));
    if (grid != MPI_COMM_NULL)
        MPI_Comm_free(&grid);
}

/* A ring as a graph that all know. */
static void graphs(void)
{
    MPI_Comm graph;
    int index[64], edges[128], n, m, status, near[2], all[128];
    for (int i = 0; i < size; i++) {
        index[i] = 2 * (i + 1);
        edges[2 * i] = (i + size - 1) % size;
        edges[2 * i + 1] = (i + 1) % size;
    }
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &graph);
    MPI_Topo_test(graph, &status);
    CHECK(status == MPI_GRAPH);
    MPI_Graphdims_get(graph, &n, &m);
    CHECK(n == size && m == 2 * size);
    MPI_Graph_get(graph, 64, 128, index, all);
    CHECK(memcmp(all, edges, sizeof(int) * m) == 0);
    MPI_Graph_neighbors_count(graph, rank, &n);
    MPI_Graph_neighbors(graph, rank, 2, near);
    CHECK(n == 2 && near[0] == (rank + size - 1) % size && near[1] == (rank + 1) % size);
    int counts[2] = {1, 2}, displs[2] = {0, 3}, send[2] = {rank, -rank}, got[5] = {-9, -9, -9, -9, -9};
    if (size > 2) {
        /* One element to the left, two to the right, so two from the left and one from the right. */
        int recvcounts[2] = {2, 1}, senddispls[2] = {0, 0};
        MPI_Neighbor_alltoallv(send, counts, senddispls, MPI_INT, got, recvcounts, displs, MPI_INT, graph);
        CHECK(got[0] == near[0] && got[1] == -near[0] && got[2] == -9 && got[3] == near[1]);
    }
    MPI_Comm_free(&graph);
}

/* Everybody sends to the next two; each process names its own edges, or those of its neighbour. */
static void distributed(void)
{
    int to[2] = {(rank + 1) % size, (rank + 2) % size}, from[2] = {(rank + size - 1) % size, (rank + 2 * size - 2) % size};
    int weights[2] = {rank, 100 + rank}, in, out, weighted, sources[2], sw[2], dests[2], dw[2], got[2], status;
    MPI_Comm graph;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, (int[]){from[0], 100 + from[1]}, 2, to, weights,
                                   MPI_INFO_NULL, 0, &graph);
    for (int round = 0; round < 2; round++) {
        MPI_Topo_test(graph, &status);
        CHECK(status == MPI_DIST_GRAPH);
        MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted);
        CHECK(in == 2 && out == 2 && weighted == 1);
        MPI_Dist_graph_neighbors(graph, 2, sources, sw, 2, dests, dw);
        CHECK(dests[0] + dests[1] == to[0] + to[1] && dw[0] + dw[1] == 100 + 2 * rank);
        CHECK(sources[0] + sources[1] == from[0] + from[1]);
        MPI_Request request;
        got[0] = got[1] = -1;
        MPI_Ineighbor_allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, graph, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(got[0] == sources[0] && got[1] == sources[1]);
        MPI_Comm_free(&graph);
        if (round == 0) {
            int named = (rank + 1) % size;
            MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &named, (int[]){2},
                                  (int[]){(named + 1) % size, (named + 2) % size}, (int[]){named, 100 + named},
                                  MPI_INFO_NULL, 0, &graph);
        }
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_WEIGHTS_EMPTY, 0, NULL, MPI_WEIGHTS_EMPTY,
                                   MPI_INFO_NULL, 0, &graph);
    MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted);
    CHECK(in == 0 && out == 0);
    MPI_Comm_free(&graph);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    grids();
    graphs();
    distributed();
    return finish();
}
