/*
 * A collective operation for every size from 1 B to 4 MiB, blocking or nonblocking: microseconds of one call of the slowest
 * rank. `bytes` is what one rank contributes, or gives to one other rank. The root moves on by one each call.
 * With `--data written` each rank writes what it sends before each call, inside of the measured time, as a program does that
 * computes; with `untouched` the contents stay.
 * Usage: grid_coll --operation bcast --form blocking|nonblocking --data written|untouched [--batch-ms 3] [--step 4] [--max-bytes 4194304]
 */
#include "bench.h"

/* All ranks together stay below this many bytes of blocks, so that small machines run the same list. */
enum { BLOCKS_BYTES = 256 << 20, SMALLEST_SUM = 4 };

typedef struct Job Job;
typedef struct { const char *name; void (*call)(Job *, int root, MPI_Request *); int blocks_send, blocks_receive, sums, rooted; } Operation;
struct Job {
    const Operation *operation;
    char *send, *receive;
    int bytes, *counts, *places, nonblocking, written;
};

/* The operation as a blocking call, or begun when there is a request. */
#define CALL(operation, ...) \
    if (request) MPI_I##operation(__VA_ARGS__, MPI_COMM_WORLD, request); \
    else blocking_##operation(__VA_ARGS__, MPI_COMM_WORLD)
#define blocking_barrier MPI_Barrier
#define blocking_bcast MPI_Bcast
#define blocking_gather MPI_Gather
#define blocking_gatherv MPI_Gatherv
#define blocking_scatter MPI_Scatter
#define blocking_scatterv MPI_Scatterv
#define blocking_allgather MPI_Allgather
#define blocking_allgatherv MPI_Allgatherv
#define blocking_alltoall MPI_Alltoall
#define blocking_alltoallv MPI_Alltoallv
#define blocking_reduce MPI_Reduce
#define blocking_allreduce MPI_Allreduce
#define blocking_reduce_scatter MPI_Reduce_scatter
#define blocking_reduce_scatter_block MPI_Reduce_scatter_block
#define blocking_scan MPI_Scan
#define blocking_exscan MPI_Exscan

#define BYTES j->bytes, MPI_BYTE
#define MANY j->counts, j->places, MPI_BYTE
#define FLOATS (j->bytes / 4), MPI_FLOAT, MPI_SUM

static void barrier(Job *j, int root, MPI_Request *request) {
    (void)j, (void)root;
    if (request) MPI_Ibarrier(MPI_COMM_WORLD, request);
    else MPI_Barrier(MPI_COMM_WORLD);
}
static void bcast(Job *j, int root, MPI_Request *request) { CALL(bcast, bench_rank == root ? j->send : j->receive, BYTES, root); }
static void gather(Job *j, int root, MPI_Request *request) { CALL(gather, j->send, BYTES, j->receive, BYTES, root); }
static void gatherv(Job *j, int root, MPI_Request *request) { CALL(gatherv, j->send, BYTES, j->receive, MANY, root); }
static void scatter(Job *j, int root, MPI_Request *request) { CALL(scatter, j->send, BYTES, j->receive, BYTES, root); }
static void scatterv(Job *j, int root, MPI_Request *request) { CALL(scatterv, j->send, MANY, j->receive, BYTES, root); }
static void allgather(Job *j, int root, MPI_Request *request) { (void)root; CALL(allgather, j->send, BYTES, j->receive, BYTES); }
static void allgatherv(Job *j, int root, MPI_Request *request) { (void)root; CALL(allgatherv, j->send, BYTES, j->receive, MANY); }
static void alltoall(Job *j, int root, MPI_Request *request) { (void)root; CALL(alltoall, j->send, BYTES, j->receive, BYTES); }
static void alltoallv(Job *j, int root, MPI_Request *request) { (void)root; CALL(alltoallv, j->send, MANY, j->receive, MANY); }
static void reduce(Job *j, int root, MPI_Request *request) { CALL(reduce, j->send, j->receive, FLOATS, root); }
static void allreduce(Job *j, int root, MPI_Request *request) { (void)root; CALL(allreduce, j->send, j->receive, FLOATS); }
static void scan(Job *j, int root, MPI_Request *request) { (void)root; CALL(scan, j->send, j->receive, FLOATS); }
static void exscan(Job *j, int root, MPI_Request *request) { (void)root; CALL(exscan, j->send, j->receive, FLOATS); }
static void reduce_scatter_block(Job *j, int root, MPI_Request *request) {
    (void)root;
    CALL(reduce_scatter_block, j->send, j->receive, FLOATS);
}
static void reduce_scatter(Job *j, int root, MPI_Request *request) {
    (void)root;
    for (int r = 0; r < bench_ranks; r++) j->places[r] = j->bytes / 4;
    CALL(reduce_scatter, j->send, j->receive, j->places, MPI_FLOAT, MPI_SUM);
}

static const Operation operations[] = {
    {"barrier", barrier, 0, 0, 0, 0}, {"bcast", bcast, 0, 0, 0, 1}, {"gather", gather, 0, 1, 0, 1},
    {"gatherv", gatherv, 0, 1, 0, 1}, {"scatter", scatter, 1, 0, 0, 1}, {"scatterv", scatterv, 1, 0, 0, 1},
    {"allgather", allgather, 0, 1, 0, 0}, {"allgatherv", allgatherv, 0, 1, 0, 0}, {"alltoall", alltoall, 1, 1, 0, 0},
    {"alltoallv", alltoallv, 1, 1, 0, 0}, {"reduce", reduce, 0, 0, 1, 1}, {"allreduce", allreduce, 0, 0, 1, 0},
    {"reduce_scatter", reduce_scatter, 1, 0, 1, 0}, {"reduce_scatter_block", reduce_scatter_block, 1, 0, 1, 0},
    {"scan", scan, 0, 0, 1, 0}, {"exscan", exscan, 0, 0, 1, 0}
};

static size_t bytes_sent(const Job *j) { return (size_t)j->bytes * (j->operation->blocks_send ? (size_t)bench_ranks : 1); }

static void call(Job *j, int root) {
    MPI_Request request;
    j->operation->call(j, root, j->nonblocking ? &request : NULL);
    if (j->nonblocking) MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void calls_in_a_row(void *context, int calls) {
    Job *j = context;
    for (int n = 0; n < calls; n++) {
        int root = n % bench_ranks;
        int sends = !(j->operation->call == bcast || j->operation->call == scatter || j->operation->call == scatterv) || root == bench_rank;
        /* Zeros are as good as anything for moving, and sums of them stay what they are. */
        if (j->written && sends) memset(j->send, 0, bytes_sent(j));
        call(j, root);
    }
}

/* What rank `from` puts at element n of its block for rank `to`: small, so that sums of floats are exact. */
static float number(int from, int to, size_t n) { return (float)(from + 3 * to) + (float)(n % 61); }

static void check_sums(const Job *j, int from, int past, const char *what) {
    const float *sums = (const float *)(const void *)j->receive;
    int to = j->operation->blocks_send ? bench_rank : 0;
    for (size_t n = 0; n < (size_t)j->bytes / 4; n++) {
        float expected = 0;
        for (int r = from; r < past; r++) expected += number(r, to, n);
        if (sums[n] != expected) bench_fail(what);
    }
}

/* One untimed call with each of up to four roots, with contents of its own, checked whole. */
static void verify(Job *j) {
    const Operation *o = j->operation;
    size_t bytes = (size_t)j->bytes;
    int stride = (bench_ranks + 3) / 4;
    for (int root = 0; root < (o->rooted ? bench_ranks : 1); root += stride) {
        for (int to = 0; to < (o->blocks_send ? bench_ranks : 1); to++) {
            char *block = j->send + bytes * (size_t)to;
            for (size_t n = 0; o->sums && n < bytes / 4; n++) ((float *)(void *)block)[n] = number(bench_rank, to, n);
            if (!o->sums) bench_fill(block, bytes, (unsigned)(bench_rank * 64 + to));
        }
        call(j, root);
        int receives = !o->rooted || bench_rank == root;
        if (o->call == barrier) continue;
        if (o->call == bcast && bench_rank != root) bench_check(j->receive, bytes, (unsigned)(root * 64), o->name);
        if (o->call == scatter || o->call == scatterv) bench_check(j->receive, bytes, (unsigned)(root * 64 + bench_rank), o->name);
        for (int r = 0; o->blocks_receive && receives && r < bench_ranks; r++)
            bench_check(j->receive + bytes * (size_t)r, bytes, (unsigned)(r * 64 + (o->blocks_send ? bench_rank : 0)), o->name);
        if (o->call == exscan && bench_rank == 0) continue;
        int past = o->call == scan ? bench_rank + 1 : o->call == exscan ? bench_rank : bench_ranks;
        if (o->sums && receives) check_sums(j, 0, past, o->name);
    }
    memset(j->send, 0, bytes_sent(j));
}

int main(int argc, char **argv) {
    bench_start(&argc, &argv, MPI_THREAD_SINGLE);
    const char *name = bench_option(argc, argv, "--operation", "bcast"), *data = bench_option(argc, argv, "--data", "untouched");
    const int nonblocking = strcmp(bench_option(argc, argv, "--form", "blocking"), "nonblocking") == 0;
    const int largest = atoi(bench_option(argc, argv, "--max-bytes", "4194304")), step = atoi(bench_option(argc, argv, "--step", "4"));
    if (step < 2) bench_fail("--step takes 2 or more");
    int *counts = malloc(2 * (size_t)bench_ranks * sizeof *counts);
    if (!counts) bench_fail("no memory for counts");
    for (size_t o = 0; o < sizeof operations / sizeof operations[0]; o++) {
        const Operation *operation = &operations[o];
        if (strcmp(operation->name, name) != 0) continue;
        for (long size = 1; size <= largest; size *= step) {
            size_t blocks = (size_t)bench_ranks;
            if (operation->sums && size < SMALLEST_SUM) continue;
            if ((operation->blocks_send || operation->blocks_receive) && blocks * blocks * (size_t)size > BLOCKS_BYTES) continue;
            Job j = {.operation = operation, .bytes = (int)size, .counts = counts, .places = counts + bench_ranks,
                     .nonblocking = nonblocking, .written = strcmp(data, "written") == 0};
            j.send = bench_buffer((size_t)size * (operation->blocks_send ? blocks : 1), 0);
            j.receive = bench_buffer((size_t)size * (operation->blocks_receive ? blocks : 1), 0);
            for (int r = 0; r < bench_ranks; r++) {
                j.counts[r] = j.bytes;
                j.places[r] = r * j.bytes;
            }
            double median, best;
            verify(&j);
            bench_measure(calls_in_a_row, &j, 1, &median, &best);
            bench_report(operation->name, data, operation->call == barrier ? 0 : (size_t)size, "us", median * 1e6, best * 1e6);
            bench_free(j.send, 0);
            bench_free(j.receive, 0);
            if (operation->call == barrier) break;
        }
    }
    free(counts);
    MPI_Finalize();
    return 0;
}
