/* Many nonblocking collectives are under way on one communicator, of all kinds and of sizes that go all ways, with blocking ones
 * between them. They are completed in an order that differs between ranks, and their communicator is freed before. */
#include "check.h"

#include <stdint.h>

enum { MOST = 48, MOST_RANKS = 16, ROUNDS = 6 };
enum { BCAST, GATHER, SCATTER, ALLGATHER, ALLTOALL, REDUCE, ALLREDUCE, REDUCE_SCATTER, SCAN, EXSCAN, BARRIER, KINDS };

typedef struct {
    int kind, root, count;
    int *send, *recv;
} Operation;

static int rank, ranks;
static uint64_t state = 88172645463325252u; /* the same on all ranks */

static int below(int n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (int)((state >> 11) % (uint64_t)n);
}

/* What rank `from` has for rank `to` at place k. */
static int value(int number, int from, int to, int k) { return number * 7919 + from * 613 + to * 101 + k % 1009; }

static int sum(int number, int ranks_before, int place)
{
    int total = 0;
    for (int r = 0; r < ranks_before; r++) total += value(number, r, 0, place);
    return total;
}

static void begin(Operation *op, int number, MPI_Comm comm, MPI_Request *request)
{
    static const int counts[] = {0, 1, 3, 250, 1000, 1100, 3000, 5000, 9000, 17000, 40000};
    op->kind = below(KINDS), op->root = below(ranks);
    op->count = counts[below((int)(sizeof counts / sizeof *counts))];
    size_t room = sizeof(int) * ((size_t)op->count * (size_t)ranks + 1);
    op->send = malloc(room), op->recv = malloc(room);
    int n = op->count, per_rank = op->kind == SCATTER || op->kind == ALLTOALL;
    for (int to = 0; to < ranks; to++)
        for (int k = 0; k < n; k++)
            op->send[to * n + k] = value(number, rank, per_rank ? to : 0, per_rank ? k : to * n + k);
    memset(op->recv, 0xee, room);
    switch (op->kind) {
    case BCAST:
        if (rank == op->root) memcpy(op->recv, op->send, sizeof(int) * (size_t)n);
        MPI_Ibcast(op->recv, n, MPI_INT, op->root, comm, request);
        break;
    case GATHER: MPI_Igather(op->send, n, MPI_INT, op->recv, n, MPI_INT, op->root, comm, request); break;
    case SCATTER: MPI_Iscatter(op->send, n, MPI_INT, op->recv, n, MPI_INT, op->root, comm, request); break;
    case ALLGATHER: MPI_Iallgather(op->send, n, MPI_INT, op->recv, n, MPI_INT, comm, request); break;
    case ALLTOALL: MPI_Ialltoall(op->send, n, MPI_INT, op->recv, n, MPI_INT, comm, request); break;
    case REDUCE: MPI_Ireduce(op->send, op->recv, n, MPI_INT, MPI_SUM, op->root, comm, request); break;
    case ALLREDUCE: MPI_Iallreduce(op->send, op->recv, n, MPI_INT, MPI_SUM, comm, request); break;
    case REDUCE_SCATTER: MPI_Ireduce_scatter_block(op->send, op->recv, n, MPI_INT, MPI_SUM, comm, request); break;
    case SCAN: MPI_Iscan(op->send, op->recv, n, MPI_INT, MPI_SUM, comm, request); break;
    case EXSCAN: MPI_Iexscan(op->send, op->recv, n, MPI_INT, MPI_SUM, comm, request); break;
    default: MPI_Ibarrier(comm, request);
    }
}

static int is_right(const Operation *op, int number)
{
    int n = op->count, untouched;
    memset(&untouched, 0xee, sizeof untouched);
    for (int k = 0; k < n; k++) {
        int got = op->recv[k], at_root = rank == op->root;
        switch (op->kind) {
        case BCAST: if (got != value(number, op->root, 0, k)) return 0; break;
        case SCATTER: if (got != value(number, op->root, rank, k)) return 0; break;
        case REDUCE: if (got != (at_root ? sum(number, ranks, k) : untouched)) return 0; break;
        case ALLREDUCE: if (got != sum(number, ranks, k)) return 0; break;
        case REDUCE_SCATTER: if (got != sum(number, ranks, rank * n + k)) return 0; break;
        case SCAN: if (got != sum(number, rank + 1, k)) return 0; break;
        case EXSCAN: if (rank > 0 && got != sum(number, rank, k)) return 0; break;
        case GATHER: case ALLGATHER: case ALLTOALL:
            for (int from = 0; from < ranks; from++) {
                int expected = value(number, from, op->kind == ALLTOALL ? rank : 0, k);
                if (op->kind == GATHER && !at_root) expected = untouched;
                if (op->recv[from * n + k] != expected) return 0;
            }
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    uint64_t own = 977u + (uint64_t)rank;
    for (int round = 0; round < ROUNDS; round++) {
        Operation ops[MOST];
        MPI_Request requests[MOST];
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int i = 0; i < MOST; i++) {
            begin(&ops[i], round * MOST + i, comm, &requests[i]);
            if (below(8) == 0) {
                int one = 1, all;
                MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm);
                CHECK(all == ranks);
            }
        }
        if (round % 2) MPI_Comm_free(&comm);
        for (int left = MOST; left > 0;) {
            own = own * 6364136223846793005u + 1442695040888963407u;
            int i = (int)((own >> 33) % MOST), done = 1;
            if (requests[i] == MPI_REQUEST_NULL) continue;
            if (own >> 63) MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
            else MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
            left -= done;
        }
        for (int i = 0; i < MOST; i++) {
            if (!is_right(&ops[i], round * MOST + i))
                printf("rank %d: round %d, operation %d, kind %d, count %d\n", rank, round, i, ops[i].kind, ops[i].count);
            CHECK(is_right(&ops[i], round * MOST + i));
            free(ops[i].send), free(ops[i].recv);
        }
        if (round % 2 == 0) MPI_Comm_free(&comm);
    }
    return finish();
}
