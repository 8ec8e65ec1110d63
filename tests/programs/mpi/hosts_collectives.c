/* Collective operations that are divided by hosts, on communicators whose ranks lie on the hosts in many
 * ways: every root, data of all lengths, in place, types with gaps, operations of the program, blocking,
 * nonblocking and persistent. Every rank computes what must come out. */
#include "check.h"

static int rank, size;
static MPI_Comm comm;
static MPI_Op affine;
static MPI_Datatype pair;

enum { MOST = 300000 };
static int out[MOST], in[MOST], gaps[2 * MOST];

static int value(int from, int at)
{
    return from * 1000 + at % 997;
}

static int sum(int at)
{
    int total = 0;
    for (int from = 0; from < size; from++)
        total += value(from, at);
    return total;
}

static void fill(int *to, int count)
{
    for (int at = 0; at < count; at++)
        to[at] = value(rank, at);
}

/* x -> a x + b, one after another: the order matters. Modulo a prime, so that nothing overflows. */
static void compose(void *left, void *right, int *count, MPI_Datatype *type)
{
    const long *a = left;
    long *b = right;
    (void)type;
    for (int i = 0; i < *count; i++) {
        long scale = a[2 * i] * b[2 * i] % 10007, shift = (a[2 * i + 1] * b[2 * i] + b[2 * i + 1]) % 10007;
        b[2 * i] = scale;
        b[2 * i + 1] = shift;
    }
}

static void completed(MPI_Request *request, int persistent)
{
    if (persistent)
        MPI_Start(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
    if (persistent)
        MPI_Request_free(request);
}

static void bcasts(int count)
{
    for (int way = 0; way < 4; way++)
        for (int root = 0; root < size; root++) {
            MPI_Request request;
            /* Some have the data in one piece, others not. */
            int apart = way == 3 && (rank + root) % 2, step = apart ? 2 : 1, *data = apart ? gaps : in;
            MPI_Datatype type = MPI_INT;
            if (apart) {
                MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &type);
                MPI_Type_commit(&type);
            }
            memset(data, 0xff, step * count * sizeof *data);
            for (int at = 0; rank == root && at < count; at++)
                data[at * step] = value(root, at);
            if (way == 1)
                MPI_Ibcast(data, count, type, root, comm, &request);
            else if (way == 2)
                MPI_Bcast_init(data, count, type, root, comm, MPI_INFO_NULL, &request);
            else
                MPI_Bcast(data, count, type, root, comm);
            if (way == 1 || way == 2)
                completed(&request, way == 2);
            for (int at = 0; at < count; at++)
                if (data[at * step] != value(root, at)) {
                    CHECK(!"the data of the root");
                    break;
                }
            CHECK(!apart || count == 0 || gaps[1] == -1);
            if (apart)
                MPI_Type_free(&type);
        }
}

static void sums(int count, int in_place, int way)
{
    MPI_Request request;
    for (int root = -1; root < size; root++) {
        int has = root < 0 || root == rank;
        const void *from = in_place && has ? MPI_IN_PLACE : out;
        fill(out, count);
        memset(in, 0, count * sizeof *in);
        if (in_place)
            fill(in, count);
        if (root < 0 && way == 0)
            MPI_Allreduce(from, in, count, MPI_INT, MPI_SUM, comm);
        else if (root < 0 && way == 1)
            MPI_Iallreduce(from, in, count, MPI_INT, MPI_SUM, comm, &request);
        else if (root < 0)
            MPI_Allreduce_init(from, in, count, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
        else if (way == 0)
            MPI_Reduce(from, has ? in : NULL, count, MPI_INT, MPI_SUM, root, comm);
        else if (way == 1)
            MPI_Ireduce(from, has ? in : NULL, count, MPI_INT, MPI_SUM, root, comm, &request);
        else
            MPI_Reduce_init(from, has ? in : NULL, count, MPI_INT, MPI_SUM, root, comm, MPI_INFO_NULL, &request);
        if (way > 0)
            completed(&request, way == 2);
        for (int at = 0; has && at < count; at++)
            if (in[at] != sum(at)) {
                CHECK(!"the sum");
                break;
            }
        fill(out, count > 3 ? 3 : count);
        CHECK(count == 0 || out[0] == value(rank, 0));
    }
}

/* Operations of the program, in rank order, on a type of the program. */
static void orders(int count)
{
    long *mine = malloc(2 * sizeof(long) * (count + 1)), *got = malloc(2 * sizeof(long) * (count + 1));
    for (int way = 0; way < 3; way++)
        for (int root = -1; root < size; root++) {
            MPI_Request request;
            for (int i = 0; i < count; i++) {
                mine[2 * i] = 2 + (rank + i) % 5;
                mine[2 * i + 1] = rank * 3 + i % 11;
            }
            if (root < 0 && way == 0)
                MPI_Allreduce(mine, got, count, pair, affine, comm);
            else if (root < 0)
                MPI_Iallreduce(mine, got, count, pair, affine, comm, &request);
            else if (way == 0)
                MPI_Reduce(mine, got, count, pair, affine, root, comm);
            else
                MPI_Ireduce(mine, got, count, pair, affine, root, comm, &request);
            if (way > 0)
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            for (int i = 0; (root < 0 || root == rank) && i < count; i++) {
                long scale = 1, shift = 0;
                for (int from = 0; from < size; from++) {
                    long a = 2 + (from + i) % 5, b = from * 3 + i % 11;
                    shift = (shift * a + b) % 10007;
                    scale = scale * a % 10007;
                }
                if (got[2 * i] != scale || got[2 * i + 1] != shift) {
                    CHECK(!"the composition in rank order");
                    break;
                }
            }
        }
    free(mine);
    free(got);
}

static void extremes(int count)
{
    struct {
        double value;
        int at;
    } *mine = calloc(count + 1, sizeof *mine), *got = calloc(count + 1, sizeof *got);
    for (int i = 0; i < count; i++) {
        mine[i].value = (rank * 7 + i) % size;
        mine[i].at = rank;
    }
    for (int way = 0; way < 2; way++) {
        if (way == 0)
            MPI_Allreduce(mine, got, count, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
        else
            MPI_Reduce(mine, got, count, MPI_DOUBLE_INT, MPI_MAXLOC, size - 1, comm);
        for (int i = 0; (way == 0 || rank == size - 1) && i < count; i++) {
            int best = 0;
            for (int from = 0; from < size; from++)
                if ((from * 7 + i) % size > (best * 7 + i) % size)
                    best = from;
            if (got[i].at != best || got[i].value != (best * 7 + i) % size) {
                CHECK(!"the largest and where it is");
                break;
            }
        }
    }
    free(mine);
    free(got);
}

static void gathers(int count)
{
    for (int way = 0; way < 4; way++) {
        MPI_Request request;
        int in_place = way == 3;
        const void *from = in_place ? MPI_IN_PLACE : out;
        fill(out, count);
        memset(in, 0xff, sizeof *in * count * size);
        if (in_place)
            fill(in + rank * count, count);
        if (way == 1)
            MPI_Iallgather(from, count, MPI_INT, in, count, MPI_INT, comm, &request);
        else if (way == 2)
            MPI_Allgather_init(from, count, MPI_INT, in, count, MPI_INT, comm, MPI_INFO_NULL, &request);
        else
            MPI_Allgather(from, count, MPI_INT, in, count, MPI_INT, comm);
        if (way == 1 || way == 2)
            completed(&request, way == 2);
        for (int at = 0; at < count * size; at++)
            if (in[at] != value(at / count, at % count)) {
                CHECK(!"the blocks of all");
                break;
            }
    }
}

static int between(int from, int to, int at)
{
    return from * 10007 + to * 101 + at % 97;
}

/* `ints` has each integer followed by one that nobody may touch, if `step` is 2. */
static void expect(const int *ints, int step, int from, int to, int count)
{
    for (int at = 0; at < count; at++)
        if (ints[at * step] != between(from, to, at) || (step == 2 && ints[at * step + 1] != -1)) {
            CHECK(!"the block of one rank for another");
            return;
        }
}

static void put(int *ints, int step, int from, int to, int count)
{
    for (int at = 0; at < count; at++)
        ints[at * step] = between(from, to, at);
}

/* A block for each rank: 0 to 2 as in sums(), in place, and into a type with gaps. */
static void blocks(int count)
{
    MPI_Datatype sparse;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &sparse);
    MPI_Type_commit(&sparse);
    for (int way = 0; way < 5; way++) {
        MPI_Request request;
        int step = way == 4 ? 2 : 1, in_place = way == 3, wait = way == 1 || way == 2;
        MPI_Datatype type = step == 2 ? sparse : MPI_INT;
        int *got = step == 2 ? gaps : in;
        size_t block = (size_t)count * step;
        for (int root = 0; root < size; root++) {
            int is_root = rank == root;
            const void *from = in_place && is_root ? MPI_IN_PLACE : out;
            int *all = is_root ? got : NULL;
            put(out, 1, rank, root, count);
            memset(got, 0xff, sizeof *got * block * size);
            if (in_place && is_root)
                put(got + rank * block, 1, rank, root, count);
            if (way == 1)
                MPI_Igather(from, count, MPI_INT, all, count, type, root, comm, &request);
            else if (way == 2)
                MPI_Gather_init(from, count, MPI_INT, all, count, type, root, comm, MPI_INFO_NULL, &request);
            else
                MPI_Gather(from, count, MPI_INT, all, count, type, root, comm);
            if (wait)
                completed(&request, way == 2);
            for (int other = 0; is_root && other < size; other++)
                expect(got + other * block, step, other, root, count);

            void *to = in_place && is_root ? MPI_IN_PLACE : got;
            for (int other = 0; is_root && other < size; other++)
                put(out + other * count, 1, root, other, count);
            memset(got, 0xff, sizeof *got * block);
            if (way == 1)
                MPI_Iscatter(out, count, MPI_INT, to, count, type, root, comm, &request);
            else if (way == 2)
                MPI_Scatter_init(out, count, MPI_INT, to, count, type, root, comm, MPI_INFO_NULL, &request);
            else
                MPI_Scatter(out, count, MPI_INT, to, count, type, root, comm);
            if (wait)
                completed(&request, way == 2);
            if (!(in_place && is_root))
                expect(got, step, root, rank, count);
        }
        const void *from = in_place ? MPI_IN_PLACE : out;
        memset(got, 0xff, sizeof *got * block * size);
        for (int other = 0; other < size; other++)
            put((in_place ? got : out) + other * count, 1, rank, other, count);
        if (way == 1)
            MPI_Ialltoall(from, count, MPI_INT, got, count, type, comm, &request);
        else if (way == 2)
            MPI_Alltoall_init(from, count, MPI_INT, got, count, type, comm, MPI_INFO_NULL, &request);
        else
            MPI_Alltoall(from, count, MPI_INT, got, count, type, comm);
        if (wait)
            completed(&request, way == 2);
        for (int other = 0; other < size; other++)
            expect(got + other * block, step, other, rank, count);
    }
    MPI_Type_free(&sparse);
}

/* A block of another length for each rank, one behind the other, or from behind with room between, and into a
 * type with gaps. */
static void gathers_of_lengths(int count)
{
    MPI_Datatype sparse;
    int counts[64], places[64], end = 0;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &sparse);
    MPI_Type_commit(&sparse);
    for (int way = 0; way < 6; way++) {
        MPI_Request request;
        int step = way == 4 ? 2 : 1, in_place = way == 3, backwards = (way + rank) % 2;
        int *got = step == 2 ? gaps : in;
        const void *from = in_place ? MPI_IN_PLACE : out;
        end = 0;
        for (int i = 0; i < size; i++) {
            int of = backwards ? size - 1 - i : i;
            counts[of] = count + of % 3;
            places[of] = end;
            end += counts[of] + backwards;
        }
        memset(got, 0xff, sizeof *got * end * step);
        put(in_place ? got + places[rank] : out, 1, rank, 7, counts[rank]);
        MPI_Datatype type = step == 2 ? sparse : MPI_INT;
        if (way == 1)
            MPI_Iallgatherv(from, counts[rank], MPI_INT, got, counts, places, type, comm, &request);
        else if (way == 2)
            MPI_Allgatherv_init(from, counts[rank], MPI_INT, got, counts, places, type, comm, MPI_INFO_NULL, &request);
        else
            MPI_Allgatherv(from, counts[rank], MPI_INT, got, counts, places, type, comm);
        if (way == 1 || way == 2)
            completed(&request, way == 2);
        for (int of = 0; of < size; of++) {
            expect(got + places[of] * step, step, of, 7, counts[of]);
            CHECK(!backwards || got[(places[of] + counts[of]) * step] == -1);
        }
    }
    MPI_Type_free(&sparse);
}

static int sum_to(int last, int at)
{
    int total = 0;
    for (int from = 0; from <= last; from++)
        total += value(from, at);
    return total;
}

/* Parts of sums: of one length or another for each rank, and of the ranks so far. */
static void parts_of_sums(int count, int in_place, int way)
{
    MPI_Request request;
    int counts[64], start = 0, total = 0, own = 0;
    const void *from = in_place ? MPI_IN_PLACE : out;
    for (int kind = 0; kind < 4; kind++) {
        total = 0;
        for (int of = 0; of < size; of++) {
            counts[of] = count + (kind == 0 ? of % 3 : 0);
            if (of == rank)
                start = total;
            total += counts[of];
        }
        own = counts[rank];
        int operands = kind < 2 ? total : count;
        fill(out, operands);
        memset(in, 0xff, sizeof *in * (operands + 1));
        if (in_place)
            fill(in, operands);
        switch (kind) {
        case 0:
            if (way == 1)
                MPI_Ireduce_scatter(from, in, counts, MPI_INT, MPI_SUM, comm, &request);
            else if (way == 0)
                MPI_Reduce_scatter(from, in, counts, MPI_INT, MPI_SUM, comm);
            else
                MPI_Reduce_scatter_init(from, in, counts, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
            break;
        case 1:
            if (way == 1)
                MPI_Ireduce_scatter_block(from, in, count, MPI_INT, MPI_SUM, comm, &request);
            else if (way == 0)
                MPI_Reduce_scatter_block(from, in, count, MPI_INT, MPI_SUM, comm);
            else
                MPI_Reduce_scatter_block_init(from, in, count, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
            break;
        case 2:
            if (way == 1)
                MPI_Iscan(from, in, count, MPI_INT, MPI_SUM, comm, &request);
            else if (way == 0)
                MPI_Scan(from, in, count, MPI_INT, MPI_SUM, comm);
            else
                MPI_Scan_init(from, in, count, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
            break;
        default:
            if (way == 1)
                MPI_Iexscan(from, in, count, MPI_INT, MPI_SUM, comm, &request);
            else if (way == 0)
                MPI_Exscan(from, in, count, MPI_INT, MPI_SUM, comm);
            else
                MPI_Exscan_init(from, in, count, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
        }
        if (way > 0)
            completed(&request, way == 2);
        for (int at = 0; at < own; at++) {
            int wanted = kind < 2 ? sum(start + at) : sum_to(kind == 2 ? rank : rank - 1, at);
            if (kind == 3 && rank == 0)
                wanted = in_place ? value(0, at) : -1;
            if (in[at] != wanted) {
                CHECK(!"the part of the sum");
                break;
            }
        }
        CHECK(in[operands] == -1);
        fill(out, operands > 3 ? 3 : operands);
        CHECK(operands == 0 || out[0] == value(rank, 0));
    }
}

/* The same of an operation of the program: the ranks so far, in their order. */
static void orders_so_far(int count)
{
    long *mine = malloc(2 * sizeof(long) * (count + 1)), *got = malloc(2 * sizeof(long) * (count + 1));
    for (int way = 0; way < 2; way++) {
        MPI_Request request;
        for (int i = 0; i < count; i++) {
            mine[2 * i] = 2 + (rank + i) % 5;
            mine[2 * i + 1] = rank * 3 + i % 11;
        }
        if (way == 0)
            MPI_Scan(mine, got, count, pair, affine, comm);
        else {
            MPI_Iscan(mine, got, count, pair, affine, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        for (int i = 0; i < count; i++) {
            long scale = 1, shift = 0;
            for (int from = 0; from <= rank; from++) {
                long a = 2 + (from + i) % 5, b = from * 3 + i % 11;
                shift = (shift * a + b) % 10007;
                scale = scale * a % 10007;
            }
            if (got[2 * i] != scale || got[2 * i + 1] != shift) {
                CHECK(!"the composition of the ranks so far");
                break;
            }
        }
    }
    free(mine);
    free(got);
}

/* Nobody leaves before all have come, and operations that are under way together do not mix. */
static void together(void)
{
    enum { N = 40 };
    MPI_Request requests[3 * N];
    int sums[N], data[N], one = 1;
    for (int i = 0; i < N; i++) {
        data[i] = rank == i % size ? i : -1;
        MPI_Iallreduce(&one, &sums[i], 1, MPI_INT, MPI_SUM, comm, &requests[3 * i]);
        MPI_Ibcast(&data[i], 1, MPI_INT, i % size, comm, &requests[3 * i + 1]);
        MPI_Ibarrier(comm, &requests[3 * i + 2]);
        if (i % 8 == 0)
            MPI_Barrier(comm);
    }
    MPI_Waitall(3 * N, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < N; i++)
        CHECK(sums[i] == size && data[i] == i);
}

static void all(MPI_Comm of)
{
    static const int counts[] = {0, 1, 5, 300, 5000, 33000, 150000};
    comm = of;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int count = counts[i];
        bcasts(count);
        for (int kind = 0; kind < 6; kind++)
            sums(count, kind % 2, kind / 2);
        if (count <= 5000) {
            orders(count);
            orders_so_far(count);
            extremes(count);
        }
        if (count > 0 && count * size <= MOST)
            gathers(count);
        if (count * size <= MOST)
            blocks(count);
        if ((count + 3) * size < MOST) {
            gathers_of_lengths(count);
            for (int kind = 0; kind < 6; kind++)
                parts_of_sums(count, kind % 2, kind / 2);
        }
    }
    together();
}

int main(int argc, char **argv)
{
    MPI_Comm part;
    int me, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Op_create(compose, 0, &affine);
    MPI_Type_contiguous(2, MPI_LONG, &pair);
    MPI_Type_commit(&pair);
    all(MPI_COMM_WORLD);
    /* From behind; mixed; without one; the halves; and one after another. */
    int keys[] = {-me, me * 3 % ranks, me, me, me};
    int colours[] = {0, 0, me == ranks - 1 ? MPI_UNDEFINED : 0, me % 2, 0};
    for (int i = 0; i < 5; i++) {
        MPI_Comm_split(MPI_COMM_WORLD, colours[i], keys[i], &part);
        if (part != MPI_COMM_NULL) {
            all(part);
            MPI_Comm_free(&part);
        }
    }
    MPI_Type_free(&pair);
    MPI_Op_free(&affine);
    return finish();
}
