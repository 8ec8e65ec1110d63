/* Every collective against a plain computation, with random sizes, in every form, on communicators of every size. */
#include "check.h"

enum { MAX = 4000 };

static int rank, size;
static MPI_Comm comm;
static unsigned seed; /* the same on all ranks of `comm` */

/* What rank r contributes at place i. */
static int value(int r, int i)
{
    return r * 1000003 + i * 17 + 5;
}

/* The three forms of a call: blocking, nonblocking and persistent (started twice). */
#define FORMS(form, name, call)                                                                                \
    do {                                                                                                       \
        MPI_Request request_;                                                                                  \
        if (form == 0) {                                                                                       \
            MPI_##name call;                                                                                   \
        } else if (form == 1) {                                                                                \
            I##name call;                                                                                      \
            MPI_Wait(&request_, MPI_STATUS_IGNORE);                                                            \
        } else {                                                                                               \
            P##name call;                                                                                      \
            MPI_Start(&request_);                                                                              \
            MPI_Wait(&request_, MPI_STATUS_IGNORE);                                                            \
            MPI_Request_free(&request_);                                                                       \
        }                                                                                                      \
    } while (0)
#define IBcast(...) MPI_Ibcast(__VA_ARGS__, &request_)
#define PBcast(...) MPI_Bcast_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IBarrier(...) MPI_Ibarrier(__VA_ARGS__, &request_)
#define PBarrier(...) MPI_Barrier_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IGather(...) MPI_Igather(__VA_ARGS__, &request_)
#define PGather(...) MPI_Gather_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IGatherv(...) MPI_Igatherv(__VA_ARGS__, &request_)
#define PGatherv(...) MPI_Gatherv_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IScatter(...) MPI_Iscatter(__VA_ARGS__, &request_)
#define PScatter(...) MPI_Scatter_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IScatterv(...) MPI_Iscatterv(__VA_ARGS__, &request_)
#define PScatterv(...) MPI_Scatterv_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IAllgather(...) MPI_Iallgather(__VA_ARGS__, &request_)
#define PAllgather(...) MPI_Allgather_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IAllgatherv(...) MPI_Iallgatherv(__VA_ARGS__, &request_)
#define PAllgatherv(...) MPI_Allgatherv_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IAlltoall(...) MPI_Ialltoall(__VA_ARGS__, &request_)
#define PAlltoall(...) MPI_Alltoall_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IAlltoallv(...) MPI_Ialltoallv(__VA_ARGS__, &request_)
#define PAlltoallv(...) MPI_Alltoallv_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IAlltoallw(...) MPI_Ialltoallw(__VA_ARGS__, &request_)
#define PAlltoallw(...) MPI_Alltoallw_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IReduce(...) MPI_Ireduce(__VA_ARGS__, &request_)
#define PReduce(...) MPI_Reduce_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IAllreduce(...) MPI_Iallreduce(__VA_ARGS__, &request_)
#define PAllreduce(...) MPI_Allreduce_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IReduce_scatter(...) MPI_Ireduce_scatter(__VA_ARGS__, &request_)
#define PReduce_scatter(...) MPI_Reduce_scatter_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IReduce_scatter_block(...) MPI_Ireduce_scatter_block(__VA_ARGS__, &request_)
#define PReduce_scatter_block(...) MPI_Reduce_scatter_block_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IScan(...) MPI_Iscan(__VA_ARGS__, &request_)
#define PScan(...) MPI_Scan_init(__VA_ARGS__, MPI_INFO_NULL, &request_)
#define IExscan(...) MPI_Iexscan(__VA_ARGS__, &request_)
#define PExscan(...) MPI_Exscan_init(__VA_ARGS__, MPI_INFO_NULL, &request_)

static int *room(long n)
{
    int *data = malloc(sizeof(int) * (n + 1));
    for (long i = 0; i < n; i++)
        data[i] = -1;
    return data;
}

static void movements(int form, int n, int root)
{
    int *one = room(n), *all = room((long)n * size), *got = room((long)n * size);
    FORMS(form, Barrier, (comm));
    for (int i = 0; i < n; i++)
        one[i] = rank == root ? value(root, i) : -1;
    FORMS(form, Bcast, (one, n, MPI_INT, root, comm));
    for (int i = 0; i < n; i++)
        CHECK(one[i] == value(root, i));
    for (int i = 0; i < n; i++)
        one[i] = value(rank, i);
    FORMS(form, Gather, (one, n, MPI_INT, got, n, MPI_INT, root, comm));
    if (rank == root)
        for (int r = 0; r < size; r++)
            for (int i = 0; i < n; i++)
                CHECK(got[r * n + i] == value(r, i));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < n; i++)
            all[r * n + i] = value(r + 7, i);
    FORMS(form, Scatter, (all, n, MPI_INT, one, n, MPI_INT, root, comm));
    for (int i = 0; i < n; i++)
        CHECK(one[i] == value(rank + 7, i));
    for (int i = 0; i < n; i++)
        one[i] = value(rank, i);
    FORMS(form, Allgather, (one, n, MPI_INT, got, n, MPI_INT, comm));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < n; i++)
            CHECK(got[r * n + i] == value(r, i));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < n; i++)
            all[r * n + i] = value(rank * 64 + r, i);
    FORMS(form, Alltoall, (all, n, MPI_INT, got, n, MPI_INT, comm));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < n; i++)
            CHECK(got[r * n + i] == value(r * 64 + rank, i));
    /* In place. */
    for (int i = 0; i < n; i++)
        got[(long)rank * n + i] = value(rank + 3, i);
    FORMS(form, Allgather, (MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, got, n, MPI_INT, comm));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < n; i++)
            CHECK(got[r * n + i] == value(r + 3, i));
    memcpy(got, all, sizeof(int) * n * size);
    FORMS(form, Alltoall, (MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, got, n, MPI_INT, comm));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < n; i++)
            CHECK(got[r * n + i] == value(r * 64 + rank, i));
    if (rank == root) {
        for (int i = 0; i < n; i++)
            got[(long)root * n + i] = value(root, i);
        FORMS(form, Gather, (MPI_IN_PLACE, 0, MPI_INT, got, n, MPI_INT, root, comm));
        for (int r = 0; r < size; r++)
            for (int i = 0; i < n; i++)
                CHECK(got[r * n + i] == value(r, i));
        FORMS(form, Scatter, (all, n, MPI_INT, MPI_IN_PLACE, 0, MPI_INT, root, comm));
    } else {
        for (int i = 0; i < n; i++)
            one[i] = value(rank, i);
        FORMS(form, Gather, (one, n, MPI_INT, NULL, 0, MPI_INT, root, comm));
        FORMS(form, Scatter, (NULL, 0, MPI_INT, one, n, MPI_INT, root, comm));
        for (int i = 0; i < n; i++)
            CHECK(one[i] == value(root * 64 + rank, i));
    }
    free(one);
    free(all);
    free(got);
}

/* Blocks of different sizes with gaps between them. */
static void vectors(int form, int n, int root)
{
    int counts[size], displs[size], sendcounts[size], senddispls[size], bytes[size], sendbytes[size], total = 0;
    MPI_Datatype types[size];
    for (int r = 0; r < size; r++) {
        counts[r] = next_random(&seed) % (n + 1);
        displs[r] = total;
        total += counts[r] + 3;
        types[r] = MPI_INT;
    }
    int *one = room(MAX + n), *all = room(total), *got = room(total);
    for (int i = 0; i < counts[rank]; i++)
        one[i] = value(rank, i);
    FORMS(form, Gatherv, (one, counts[rank], MPI_INT, got, counts, displs, MPI_INT, root, comm));
    if (rank == root)
        for (int r = 0; r < size; r++) {
            for (int i = 0; i < counts[r]; i++)
                CHECK(got[displs[r] + i] == value(r, i));
            CHECK(got[displs[r] + counts[r]] == -1);
        }
    for (int r = 0; r < size; r++)
        for (int i = 0; i < counts[r]; i++)
            all[displs[r] + i] = value(r + 9, i);
    FORMS(form, Scatterv, (all, counts, displs, MPI_INT, one, counts[rank], MPI_INT, root, comm));
    for (int i = 0; i < counts[rank]; i++)
        CHECK(one[i] == value(rank + 9, i));
    for (int i = 0; i < counts[rank]; i++)
        one[i] = value(rank, i);
    FORMS(form, Allgatherv, (one, counts[rank], MPI_INT, got, counts, displs, MPI_INT, comm));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < counts[r]; i++)
            CHECK(got[displs[r] + i] == value(r, i));
    free(all);
    free(got);
    /* Rank a sends (a * 5 + b * 3) % (n + 1) to rank b. */
    int sent = 0, received = 0;
    for (int r = 0; r < size; r++) {
        sendcounts[r] = (rank * 5 + r * 3) % (n + 1);
        senddispls[r] = sent;
        sent += sendcounts[r] + 1;
        counts[r] = (r * 5 + rank * 3) % (n + 1);
        displs[r] = received;
        received += counts[r] + 1;
    }
    all = room(sent);
    got = room(received);
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < sendcounts[r]; i++)
            all[senddispls[r] + i] = value(rank * 64 + r, i);
        bytes[r] = displs[r] * (int)sizeof(int);
        sendbytes[r] = senddispls[r] * (int)sizeof(int);
    }
    for (int w = 0; w < 2; w++) {
        for (int i = 0; i < received; i++)
            got[i] = -1;
        if (w)
            FORMS(form, Alltoallw, (all, sendcounts, sendbytes, types, got, counts, bytes, types, comm));
        else
            FORMS(form, Alltoallv, (all, sendcounts, senddispls, MPI_INT, got, counts, displs, MPI_INT, comm));
        for (int r = 0; r < size; r++) {
            for (int i = 0; i < counts[r]; i++)
                CHECK(got[displs[r] + i] == value(r * 64 + rank, i));
            CHECK(got[displs[r] + counts[r]] == -1);
        }
    }
    free(one);
    free(all);
    free(got);
}

/* 2 x 2 matrices modulo a prime: associative, not commutative. Asks the library about the datatype meanwhile. */
static void multiply(void *in, void *inout, int *count, MPI_Datatype *type)
{
    int *a = in, *b = inout, bytes;
    MPI_Type_size(*type, &bytes);
    CHECK(bytes == 4 * (int)sizeof(int));
    for (int i = 0; i < *count; i++, a += 4, b += 4) {
        long c[4] = {a[0] * (long)b[0] + a[1] * (long)b[2], a[0] * (long)b[1] + a[1] * (long)b[3],
                     a[2] * (long)b[0] + a[3] * (long)b[2], a[2] * (long)b[1] + a[3] * (long)b[3]};
        for (int j = 0; j < 4; j++)
            b[j] = c[j] % 9973;
    }
}

static void matrix(int r, int i, int m[4])
{
    m[0] = r + 1;
    m[1] = i % 7;
    m[2] = 3;
    m[3] = r * i % 11 + 1;
}

static void reductions(int form, int n, int root)
{
    int *in = room(n), *out = room(n), expected;
    for (int i = 0; i < n; i++)
        in[i] = value(rank, i);
    FORMS(form, Reduce, (in, out, n, MPI_INT, MPI_SUM, root, comm));
    if (rank == root)
        for (int i = 0; i < n; i++) {
            expected = 0;
            for (int r = 0; r < size; r++)
                expected += value(r, i);
            CHECK(out[i] == expected);
        }
    FORMS(form, Allreduce, (in, out, n, MPI_INT, MPI_MAX, comm));
    for (int i = 0; i < n; i++)
        CHECK(out[i] == value(size - 1, i));
    memcpy(out, in, sizeof(int) * n);
    FORMS(form, Allreduce, (MPI_IN_PLACE, out, n, MPI_INT, MPI_BXOR, comm));
    for (int i = 0; i < n; i++) {
        expected = 0;
        for (int r = 0; r < size; r++)
            expected ^= value(r, i);
        CHECK(out[i] == expected);
    }
    FORMS(form, Scan, (in, out, n, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < n; i++) {
        expected = 0;
        for (int r = 0; r <= rank; r++)
            expected += value(r, i);
        CHECK(out[i] == expected);
    }
    FORMS(form, Exscan, (in, out, n, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < n && rank > 0; i++) {
        expected = 0;
        for (int r = 0; r < rank; r++)
            expected += value(r, i);
        CHECK(out[i] == expected);
    }
    free(in);
    free(out);

    int counts[size], before = 0, total = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = (n + r * 5) % (n + 1);
        before += r < rank ? counts[r] : 0;
        total += counts[r];
    }
    in = room(total + n * size);
    out = room(n);
    for (int i = 0; i < total; i++)
        in[i] = value(rank, i);
    FORMS(form, Reduce_scatter, (in, out, counts, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < counts[rank]; i++) {
        expected = 0;
        for (int r = 0; r < size; r++)
            expected += value(r, before + i);
        CHECK(out[i] == expected);
    }
    for (int i = 0; i < n * size; i++)
        in[i] = value(rank, i);
    FORMS(form, Reduce_scatter_block, (in, out, n, MPI_INT, MPI_MIN, comm));
    for (int i = 0; i < n; i++)
        CHECK(out[i] == value(0, rank * n + i));
    free(in);
    free(out);

    MPI_Op op;
    MPI_Datatype type;
    MPI_Op_create(multiply, 0, &op);
    MPI_Type_contiguous(4, MPI_INT, &type);
    MPI_Type_commit(&type);
    in = room(4 * n);
    out = room(4 * n);
    for (int i = 0; i < n; i++)
        matrix(rank, i, in + 4 * i);
    for (int which = 0; which < 3; which++) {
        if (which == 0)
            FORMS(form, Allreduce, (in, out, n, type, op, comm));
        if (which == 1)
            FORMS(form, Reduce, (in, out, n, type, op, root, comm));
        if (which == 2)
            FORMS(form, Scan, (in, out, n, type, op, comm));
        if (which == 1 && rank != root)
            continue;
        for (int i = 0; i < n; i++) {
            int product[4] = {1, 0, 0, 1}, next[4], one = 1, good = 1;
            for (int r = 0; r <= (which == 2 ? rank : size - 1); r++) {
                matrix(r, i, next);
                multiply(product, next, &one, &type);
                memcpy(product, next, sizeof product);
            }
            for (int j = 0; j < 4; j++)
                good &= product[j] % 9973 == out[4 * i + j] % 9973;
            CHECK(good);
        }
    }
    free(in);
    free(out);
    MPI_Op_free(&op);
    CHECK(op == MPI_OP_NULL);
    MPI_Type_free(&type);
}

static void values(void)
{
    struct {
        double value;
        int index;
    } pair = {(rank * 7) % 5, rank}, best;
    MPI_Allreduce(&pair, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
    for (int r = 0; r < size; r++)
        CHECK((r * 7) % 5 < best.value || ((r * 7) % 5 == best.value && r >= best.index));
    double one = 0.1 * (rank + 1), sum, again;
    MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < 10; i++) {
        MPI_Allreduce(&one, &again, 1, MPI_DOUBLE, MPI_SUM, comm);
        CHECK(memcmp(&sum, &again, sizeof sum) == 0);
    }
    unsigned char bits = 1 << rank % 8, all;
    MPI_Allreduce(&bits, &all, 1, MPI_BYTE, MPI_BOR, comm);
    CHECK(all == (size >= 8 ? 255 : (1 << size) - 1));
    float inout[3] = {1, 2, 3}, in[3] = {10, 20, 30};
    MPI_Reduce_local(in, inout, 3, MPI_FLOAT, MPI_SUM);
    CHECK(inout[0] == 11 && inout[2] == 33);
    int commutes;
    MPI_Op_commutative(MPI_SUM, &commutes);
    CHECK(commutes);
}

/* Many nonblocking ones at once, completed in another order; point-to-point messages in between. */
static void overlap(void)
{
    enum { N = 20 };
    MPI_Request requests[N];
    int in[N], out[N], x = -1;
    for (int i = 0; i < N; i++) {
        in[i] = rank + i;
        MPI_Iallreduce(&in[i], &out[i], 1, MPI_INT, MPI_SUM, comm, &requests[i]);
    }
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &x, 1, MPI_INT, (rank + size - 1) % size, 0, comm,
                 MPI_STATUS_IGNORE);
    CHECK(x == (rank + size - 1) % size);
    for (int i = N - 1; i >= 0; i--)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    for (int i = 0; i < N; i++)
        CHECK(out[i] == size * (size - 1) / 2 + size * i);
}

/* A column of a matrix as the datatype of a collective. */
static void strided(void)
{
    MPI_Datatype column;
    int matrix[6][5], dense[6 * 16];
    MPI_Type_vector(6, 1, 5, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < 30; i++)
        matrix[i / 5][i % 5] = value(rank, i);
    MPI_Allgather(&matrix[0][2], 1, column, dense, 6, MPI_INT, comm);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < 6; i++)
            CHECK(dense[6 * r + i] == value(r, 5 * i + 2));
    for (int i = 0; i < 30; i++)
        matrix[i / 5][i % 5] = rank == 0 ? i : -1;
    MPI_Bcast(&matrix[0][1], 1, column, 0, comm);
    for (int i = 0; i < 6; i++)
        CHECK(matrix[i][1] == 5 * i + 1 && (rank == 0 || matrix[i][0] == -1));
    MPI_Type_free(&column);
}

int main(int argc, char **argv)
{
    int world, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    for (int part = 1; part <= all; part++) {
        seed = 12345 * part;
        MPI_Comm_split(MPI_COMM_WORLD, world < part ? 0 : MPI_UNDEFINED, -world, &comm);
        if (comm == MPI_COMM_NULL)
            continue;
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
        CHECK(rank == part - 1 - world);
        for (int form = 0; form < 3; form++) {
            int sizes[] = {0, 1, (int)(next_random(&seed) % 50), (int)(next_random(&seed) % MAX), 40000};
            for (int s = 0; s < 5; s++) {
                int root = next_random(&seed) % size;
                if (s < 4 || form == 0) {
                    movements(form, sizes[s], root);
                    vectors(form, sizes[s], root);
                    reductions(form, sizes[s], root);
                }
            }
        }
        if (size <= 16) {
            values();
            overlap();
            strided();
        }
        MPI_Comm_free(&comm);
    }
    return finish();
}
