/* Random collectives between two groups against a plain model; every rank computes from the seed alone what must come.
 * Usage: inter <seed> <rounds>
 * The world is parted at random, sometimes with ranks left out; intercommunicators are made, duplicated, split and merged. */
#include "shapes.h"

enum { MOST_RANKS = 32 };
enum {
    BARRIER, BCAST, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, REDUCE, ALLREDUCE,
    REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, MESSAGES, OPERATIONS
};
static const char *const names[OPERATIONS] = {
    "barrier",   "bcast",    "gather",    "gatherv", "scatter",   "scatterv",       "allgather",           "allgatherv",
    "alltoall", "alltoallv", "reduce", "allreduce", "reduce_scatter", "reduce_scatter_block", "messages"};

static int world_rank, world_size, round_now, what_now;
static uint64_t seed;

typedef struct {
    MPI_Comm comm;
    int side, rank, size, others; /* side 0 or 1; ranks of the two groups */
} Inter;

static void require(int holds, const char *what, long a, long b)
{
    if (holds) return;
    fprintf(stderr, "seed %llu, round %d, rank %d of %d: %s: %s (%ld, %ld)\n", (unsigned long long)seed, round_now,
            world_rank, world_size, names[what_now], what, a, b);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* The number at place k of what a rank of a side sends to another. */
static int value(uint64_t id, int side, int from, int to, long k)
{
    return (int)((hash(id, (uint64_t)(side * MOST_RANKS + from), (uint64_t)to, 0) + (uint64_t)k * 2654435761u) >> 9 & 1023);
}

static int length(uint64_t id, int side, int from, int to)
{
    static const int most[] = {0, 3, 50, 1000, 20000, 40000};
    uint64_t h = hash(id, (uint64_t)(side * MOST_RANKS + from), (uint64_t)to, 1);
    return (int)(h % (uint64_t)(most[hash(id, 2, 0, 0) % 6] + 1));
}

static void play(const Inter *c, uint64_t id, int what, int start)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int root_side = (int)(hash(id, 3, 0, 0) % 2), sizes[2];
    sizes[c->side] = c->size, sizes[!c->side] = c->others;
    int root = (int)(hash(id, 4, 0, 0) % (uint64_t)sizes[root_side]), at_root = c->side == root_side;
    int here = at_root ? (c->rank == root ? MPI_ROOT : MPI_PROC_NULL) : root;
    int v = what == GATHERV || what == SCATTERV || what == ALLGATHERV || what == ALLTOALLV;
    int distinct = what == SCATTER || what == SCATTERV || what == ALLTOALL || what == ALLTOALLV;
    int one = length(id, 0, 0, 0), parts[2] = {one, one};
    int counts[2][MOST_RANKS], displs[2][MOST_RANKS];
    long total[2] = {0, 0};
    /* Per remote rank: what it gets from this rank [0] and sends to it [1]. */
    for (int r = 0; r < c->others; r++)
        for (int way = 0; way < 2; way++) {
            int side = way ? !c->side : c->side, from = way ? r : c->rank, to = way ? c->rank : r;
            if (what == GATHERV || what == ALLGATHERV) to = 0;
            if (what == SCATTERV) from = 0;
            counts[way][r] = v ? length(id, side, from, to) : one;
            displs[way][r] = (int)total[way] + 1;
            total[way] += counts[way][r] + 2 * v;
        }
    if (!v)
        for (int r = 0; r < c->others; r++) displs[0][r] = displs[1][r] = r * one;
    if (what == REDUCE_SCATTER_BLOCK) {
        /* Both sides reduce vectors of one length. */
        parts[c->side] = one / 64 * c->others, parts[!c->side] = one / 64 * c->size;
        total[0] = (long)parts[c->side] * c->size;
    }
    long room = total[0] + total[1] + one + 2L * MOST_RANKS + 4;
    int *out = malloc(sizeof(int) * (size_t)room), *in = malloc(sizeof(int) * (size_t)room);
    int reduced = what >= REDUCE && what <= REDUCE_SCATTER_BLOCK;
    int scattered[MOST_RANKS], first = 0;
    if (what == REDUCE_SCATTER)
        for (int r = 0; r < c->size; r++) {
            scattered[r] = one / c->size + (r < one % c->size);
            if (r < c->rank) first += scattered[r];
        }
    if (what == REDUCE_SCATTER_BLOCK) first = parts[c->side] * c->rank;
    long n = what == REDUCE_SCATTER_BLOCK ? total[0] : one;
    for (long k = 0; k < room; k++) out[k] = in[k] = -1;
    if (reduced)
        for (long k = 0; k < n; k++) out[k] = value(id, c->side, c->rank, 0, k);
    else if (distinct)
        for (int r = 0; r < c->others; r++)
            for (int k = 0; k < counts[0][r]; k++) out[displs[0][r] + k] = value(id, c->side, c->rank, r, k);
    else
        for (int k = 0; k < counts[0][0]; k++) out[k] = value(id, c->side, c->rank, 0, k);

#define CALL(Name, name, ...) (start ? MPI_I##name(__VA_ARGS__, &request) : MPI_##Name(__VA_ARGS__))
    int *buffer = at_root ? out : in, mine = counts[0][0];
    switch (what) {
    case BARRIER: CALL(Barrier, barrier, c->comm); break;
    case BCAST: CALL(Bcast, bcast, buffer, one, MPI_INT, here, c->comm); break;
    case GATHER: CALL(Gather, gather, out, one, MPI_INT, in, one, MPI_INT, here, c->comm); break;
    case GATHERV: CALL(Gatherv, gatherv, out, mine, MPI_INT, in, counts[1], displs[1], MPI_INT, here, c->comm); break;
    case SCATTER: CALL(Scatter, scatter, out, one, MPI_INT, in, one, MPI_INT, here, c->comm); break;
    case SCATTERV:
        CALL(Scatterv, scatterv, out, counts[0], displs[0], MPI_INT, in, at_root ? 0 : counts[1][root], MPI_INT, here,
             c->comm);
        break;
    case ALLGATHER: CALL(Allgather, allgather, out, one, MPI_INT, in, one, MPI_INT, c->comm); break;
    case ALLGATHERV: CALL(Allgatherv, allgatherv, out, mine, MPI_INT, in, counts[1], displs[1], MPI_INT, c->comm); break;
    case ALLTOALL: CALL(Alltoall, alltoall, out, one, MPI_INT, in, one, MPI_INT, c->comm); break;
    case ALLTOALLV:
        CALL(Alltoallv, alltoallv, out, counts[0], displs[0], MPI_INT, in, counts[1], displs[1], MPI_INT, c->comm);
        break;
    case REDUCE: CALL(Reduce, reduce, out, in, one, MPI_INT, MPI_SUM, here, c->comm); break;
    case ALLREDUCE: CALL(Allreduce, allreduce, out, in, one, MPI_INT, MPI_SUM, c->comm); break;
    case REDUCE_SCATTER: CALL(Reduce_scatter, reduce_scatter, out, in, scattered, MPI_INT, MPI_SUM, c->comm); break;
    case REDUCE_SCATTER_BLOCK:
        CALL(Reduce_scatter_block, reduce_scatter_block, out, in, parts[c->side], MPI_INT, MPI_SUM, c->comm);
        break;
    default: {
        MPI_Status status;
        int got, pair = c->rank < c->others;
        if (pair) MPI_Irecv(in, one, MPI_INT, MPI_ANY_SOURCE, 5, c->comm, &request);
        if (pair) MPI_Send(out, one, MPI_INT, c->rank, 5, c->comm);
        if (pair) {
            MPI_Wait(&request, &status);
            MPI_Get_count(&status, MPI_INT, &got);
            require(got == one && status.MPI_SOURCE == c->rank, "count and source", got, status.MPI_SOURCE);
        }
        MPI_Barrier(c->comm);
    }
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);

    int reads = !(what == BARRIER || (what == BCAST && at_root) || (what == MESSAGES && c->rank >= c->others));
    if (what == GATHER || what == GATHERV || what == REDUCE) reads = here == MPI_ROOT;
    if (what == SCATTER || what == SCATTERV) reads = !at_root;
    long touched = 0;
    if (reads && reduced) {
        long results = what == REDUCE_SCATTER ? scattered[c->rank] : what == REDUCE_SCATTER_BLOCK ? parts[c->side] : one;
        for (long k = 0; k < results; k++) {
            int sum = 0;
            for (int r = 0; r < c->others; r++) sum += value(id, !c->side, r, 0, first + k);
            require(in[k] == sum, "wrong number (place, number)", k, in[k]);
        }
        touched = results;
    } else if (reads) {
        int whole = what == GATHER || what == GATHERV || what == ALLGATHER || what == ALLGATHERV || what == ALLTOALL ||
                    what == ALLTOALLV;
        for (int r = 0; r < c->others; r++) {
            int single = what == MESSAGES ? c->rank : root;
            if (!whole && r != single) continue;
            int count = whole || what == SCATTERV ? counts[1][r] : one, at = whole ? displs[1][r] : 0;
            for (int k = 0; k < count; k++)
                require(in[at + k] == value(id, !c->side, r, distinct ? c->rank : 0, k), "wrong number (place, number)", k,
                        in[at + k]);
            touched += count;
        }
    }
    long changed = 0;
    for (long k = 0; k < room; k++) changed += in[k] != -1;
    require(changed == touched, "numbers written beside the buffer (is, should be)", changed, touched);
    free(out), free(in);
}

/* An intercommunicator of two parts of the world. Returns 0 on ranks that are in neither. */
static int make(Inter *c, uint64_t id)
{
    MPI_Comm local, first;
    int left_out = (int)(hash(id, 1, 0, 0) % 3 == 0), leaders[2] = {-1, -1}, side = -1;
    for (int r = 0; r < world_size; r++) {
        uint64_t h = hash(id, 2, (uint64_t)r, 0);
        int s = r < 2 ? r : left_out && h % 4 == 0 ? -1 : (int)(h >> 8 & 1);
        if (s >= 0 && leaders[s] < 0) leaders[s] = r;
        if (r == world_rank) side = s;
    }
    MPI_Comm_split(MPI_COMM_WORLD, side < 0 ? MPI_UNDEFINED : side, world_rank, &local);
    if (side < 0) return 0;
    MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, leaders[!side], 9, &first);
    MPI_Comm_free(&local);
    MPI_Comm_dup(first, &c->comm);
    MPI_Comm_free(&first);
    if (hash(id, 3, 0, 0) % 2) {
        /* Reversed within each side. */
        MPI_Comm_split(c->comm, 0, -world_rank, &first);
        MPI_Comm_free(&c->comm);
        c->comm = first;
    }
    c->side = side;
    MPI_Comm_rank(c->comm, &c->rank), MPI_Comm_size(c->comm, &c->size), MPI_Comm_remote_size(c->comm, &c->others);
    return 1;
}

static void merge(const Inter *c)
{
    MPI_Comm both;
    int rank, size;
    MPI_Intercomm_merge(c->comm, c->side, &both);
    MPI_Comm_rank(both, &rank), MPI_Comm_size(both, &size);
    require(size == c->size + c->others && rank == c->rank + (c->side ? c->others : 0), "merged: rank, size", rank, size);
    MPI_Barrier(both);
    MPI_Comm_free(&both);
}

int main(int argc, char **argv)
{
    Inter c = {MPI_COMM_NULL, 0, 0, 0, 0};
    int member = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    require(argc == 3 && world_size > 1 && world_size <= MOST_RANKS, "usage: inter <seed> <rounds>, 2 to 32 ranks", 0, 0);
    seed = strtoull(argv[1], NULL, 10);
    int rounds = atoi(argv[2]);
    for (int round = 0; round < rounds; round++) {
        round_now = round;
        if (round % 20 == 0) {
            if (member) merge(&c), MPI_Comm_free(&c.comm);
            member = make(&c, hash(seed, (uint64_t)round, 20, 0));
        }
        uint64_t id = hash(seed, (uint64_t)round, 21, 0);
        what_now = (int)(hash(id, 22, 0, 0) % OPERATIONS);
        if (member) play(&c, id, what_now, (int)(hash(id, 23, 0, 0) % 2));
    }
    if (member) MPI_Comm_free(&c.comm);
    MPI_Finalize();
    return 0;
}
