/*
 * Collective operations on all ranks: microseconds of one call, averaged over calls in a row, of the slowest rank.
 * The root of Bcast and Reduce moves on by one each call, so that no root runs ahead. For Allgather and Alltoall `bytes`
 * is what one rank gives to one other. Buffers come from malloc.
 * Usage: coll [--batch-ms 10] [--max-bytes 1048576]
 */
#include "bench.h"

typedef struct { char *send, *receive; int bytes; } Data;

static void barrier(void *context, int calls) {
    (void)context;
    for (int n = 0; n < calls; n++) MPI_Barrier(MPI_COMM_WORLD);
}
static void bcast(void *context, int calls) {
    Data *d = context;
    for (int n = 0; n < calls; n++) MPI_Bcast(d->receive, d->bytes, MPI_BYTE, n % bench_ranks, MPI_COMM_WORLD);
}
static void reduce(void *context, int calls) {
    Data *d = context;
    for (int n = 0; n < calls; n++)
        MPI_Reduce(d->send, d->receive, d->bytes / 8, MPI_DOUBLE, MPI_SUM, n % bench_ranks, MPI_COMM_WORLD);
}
static void allreduce(void *context, int calls) {
    Data *d = context;
    for (int n = 0; n < calls; n++)
        MPI_Allreduce(d->send, d->receive, d->bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
static void allgather(void *context, int calls) {
    Data *d = context;
    for (int n = 0; n < calls; n++)
        MPI_Allgather(d->send, d->bytes, MPI_BYTE, d->receive, d->bytes, MPI_BYTE, MPI_COMM_WORLD);
}
static void alltoall(void *context, int calls) {
    Data *d = context;
    for (int n = 0; n < calls; n++)
        MPI_Alltoall(d->send, d->bytes, MPI_BYTE, d->receive, d->bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void fill_numbers(Data *d) {
    for (int n = 0; n < d->bytes / 8; n++) ((double *)d->send)[n] = bench_rank + n % 100;
}

static void check_sums(const Data *d, const char *what) {
    for (int n = 0; n < d->bytes / 8; n++)
        if (((double *)d->receive)[n] != bench_ranks * (bench_ranks - 1) / 2 + (double)bench_ranks * (n % 100))
            bench_fail(what);
}

/* One untimed call (for Bcast and Reduce one from each of four roots) with contents of its own, checked whole. */
static void verify(void (*body)(void *, int), Data *d) {
    size_t bytes = (size_t)d->bytes;
    int stride = (bench_ranks + 3) / 4;
    if (body == bcast) {
        for (int root = 0; root < bench_ranks; root += stride) {
            bench_fill(d->receive, bytes, (unsigned)(bench_rank == root ? 200 + root : bench_rank));
            MPI_Bcast(d->receive, d->bytes, MPI_BYTE, root, MPI_COMM_WORLD);
            bench_check(d->receive, bytes, (unsigned)(200 + root), "Bcast brought wrong data");
        }
    } else if (body == reduce) {
        fill_numbers(d);
        for (int root = 0; root < bench_ranks; root += stride) {
            MPI_Reduce(d->send, d->receive, d->bytes / 8, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
            if (root == bench_rank) check_sums(d, "Reduce brought wrong sums");
        }
    } else if (body == allreduce) {
        fill_numbers(d);
        allreduce(d, 1);
        check_sums(d, "Allreduce brought wrong sums");
    } else if (body == allgather) {
        bench_fill(d->send, bytes, (unsigned)bench_rank);
        allgather(d, 1);
        for (int r = 0; r < bench_ranks; r++)
            bench_check(d->receive + bytes * (size_t)r, bytes, (unsigned)r, "Allgather brought wrong data");
    } else if (body == alltoall) {
        for (int r = 0; r < bench_ranks; r++) bench_fill(d->send + bytes * (size_t)r, bytes, (unsigned)(bench_rank * 64 + r));
        alltoall(d, 1);
        for (int r = 0; r < bench_ranks; r++)
            bench_check(d->receive + bytes * (size_t)r, bytes, (unsigned)(r * 64 + bench_rank),
                        "Alltoall brought wrong data");
    }
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*body)(void *, int); int blocks_send, blocks_receive; } operations[] = {
        {"barrier", barrier, 0, 0}, {"bcast", bcast, 0, 0}, {"reduce", reduce, 0, 0}, {"allreduce", allreduce, 0, 0},
        {"allgather", allgather, 0, 1}, {"alltoall", alltoall, 1, 1}
    };
    static const int sizes[] = {8, 4096, 65536, 1048576};
    bench_start(&argc, &argv, MPI_THREAD_SINGLE);
    const int largest = atoi(bench_option(argc, argv, "--max-bytes", "1048576"));
    for (size_t o = 0; o < sizeof operations / sizeof operations[0]; o++) {
        for (size_t n = 0; n < sizeof sizes / sizeof sizes[0] && sizes[n] <= largest; n++) {
            /* All ranks together stay below 64 MiB of blocks, so that small machines run the same list. */
            size_t blocks = (size_t)bench_ranks, all = blocks * blocks * (size_t)sizes[n];
            if (operations[o].blocks_receive && all > (size_t)64 << 20) continue;
            Data d = {bench_buffer((size_t)sizes[n] * (operations[o].blocks_send ? blocks : 1), 0),
                      bench_buffer((size_t)sizes[n] * (operations[o].blocks_receive ? blocks : 1), 0), sizes[n]};
            double median, best;
            verify(operations[o].body, &d);
            bench_measure(operations[o].body, &d, 1, &median, &best);
            size_t bytes = operations[o].body == barrier ? 0 : (size_t)sizes[n];
            bench_report(operations[o].name, "malloc", bytes, "us", median * 1e6, best * 1e6);
            bench_free(d.send, 0);
            bench_free(d.receive, 0);
            if (operations[o].body == barrier) break;
        }
    }
    MPI_Finalize();
    return 0;
}
