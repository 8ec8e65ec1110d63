/* Random collectives against a plain model: every rank computes from the seed alone what must be in its buffers.
 * Usage: collectives <seed> <rounds>
 * Random communicators, roots, counts with zeros, datatypes that differ between ranks, predefined and own operations,
 * in-place forms, blocking, persistent, and several nonblocking ones in flight; whole buffers are compared, holes and guards too. */
#include "shapes.h"

enum { MOST_RANKS = 16, MOST_PENDING = 6, COMMS = 7, ROUNDS_PER_SET = 40 };
enum {
    BARRIER, BCAST, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW,
    REDUCE, ALLREDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, OPERATIONS
};
static const char *const names[OPERATIONS] = {
    "barrier",   "bcast",     "gather",    "gatherv", "scatter",   "scatterv",       "allgather",            "allgatherv",
    "alltoall",  "alltoallv", "alltoallw", "reduce",  "allreduce", "reduce_scatter", "reduce_scatter_block", "scan",
    "exscan"};

typedef struct {
    MPI_Comm comm;
    int size, rank;
    uint64_t colour;
} Comm;

typedef struct {
    int peer, units;
    long offset;
    const Shape *shape;
} Block;

typedef struct {
    MPI_Request request;
    char text[256];
    Buffer send, send_before, recv, expected;
    int persistent, unspecified;
    size_t compared; /* this much of the receive buffer is, or all when 0 */
    long padded; /* this many results end with four bytes of padding, which reductions may write */
    int counts[2][MOST_RANKS], displs[2][MOST_RANKS];
    MPI_Datatype types[2][MOST_RANKS];
} Op;

static int world_rank, world_size;
static uint64_t seed;
static Random local; /* differs between ranks */

static void fail(const Op *op, const char *what, long where)
{
    fprintf(stderr, "seed %llu, rank %d of %d: %s: %s at byte %ld\n", (unsigned long long)seed, world_rank, world_size,
            op->text, what, where);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void compare(Op *op)
{
    long where;
    Buffer recv = op->recv, expected = op->expected;
    if (op->compared) recv.total = expected.total = op->compared;
    if (op->send.memory && differs(&op->send, &op->send_before, &where)) fail(op, "send buffer changed", where);
    for (long k = 1; k <= op->padded; k++) memcpy(op->expected.base + 16 * k - 4, op->recv.base + 16 * k - 4, 4);
    if (op->recv.memory && !op->unspecified && differs(&recv, &expected, &where))
        fail(op, "wrong data", where);
}

static void check(Op *op)
{
    compare(op);
    if (op->persistent) MPI_Request_free(&op->request);
    free(op->send.memory), free(op->send_before.memory), free(op->recv.memory), free(op->expected.memory);
    free(op);
}

/* ---- Data that moves unchanged ---- */

static long value(uint64_t id, int from, int to, long k)
{
    return (long)((hash(id, (uint64_t)from, (uint64_t)to, 0) + (uint64_t)k * 2654435761u) >> 11 & 63);
}

static void fill(char *base, const Block *b, int kind, uint64_t id, int from, int to)
{
    for (long k = 0; k < (long)b->units * UNIT; k++)
        put(element(base + b->offset, b->shape, k), kind, value(id, from, to, k));
}

static int count_of(const Shape *s, int units) { return units * (UNIT / s->elements); }

/* Places blocks one after the other, for the v-forms in a random order and with gaps. Returns their size in bytes. */
static long lay_out(Block *blocks, int n, int scattered, int *counts, int *displs, MPI_Datatype *types, int in_bytes)
{
    int order[MOST_RANKS];
    long end = 0;
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; scattered && i > 0; i--) {
        int j = below(&local, i + 1), o = order[i];
        order[i] = order[j], order[j] = o;
    }
    for (int i = 0; i < n; i++) {
        Block *b = &blocks[order[i]];
        long extent = b->shape->extent;
        if (scattered) end = (end + extent - 1) / extent * extent + extent * below(&local, 3);
        if (in_bytes) end += GUARD_BYTES; /* neighbours of different shapes may reach over their ends */
        b->offset = end;
        counts[order[i]] = count_of(b->shape, b->units);
        displs[order[i]] = (int)(in_bytes ? end : end / extent);
        types[order[i]] = b->shape->type;
        end += counts[order[i]] * extent + (in_bytes ? GUARD_BYTES : 0);
    }
    return end;
}

/* How an operation is called. */
enum { BLOCKING, NONBLOCKING, PERSISTENT, WAYS };
static const char *const ways[WAYS] = {"", "nonblocking ", "persistent "};
#define CALL(Name, name, ...)                                                                   \
    (way == PERSISTENT ? MPI_##Name##_init(__VA_ARGS__, MPI_INFO_NULL, &op->request)            \
     : way == NONBLOCKING ? MPI_I##name(__VA_ARGS__, &op->request)                              \
                          : MPI_##Name(__VA_ARGS__))

/* A persistent operation is done once; then it is started again, with the buffer as it was in the beginning. */
static Op *restart(Op *op, int way)
{
    if (way != PERSISTENT) return op;
    Buffer initial = {0};
    if (op->recv.memory) initial = copy_of(&op->recv);
    op->persistent = 1;
    MPI_Start(&op->request);
    MPI_Wait(&op->request, MPI_STATUS_IGNORE);
    compare(op);
    if (op->recv.memory) memcpy(op->recv.memory, initial.memory, initial.total);
    free(initial.memory);
    MPI_Start(&op->request);
    return op;
}

static Op *movement(const Comm *c, int what, int way, uint64_t id)
{
    Op *op = calloc(1, sizeof *op);
    int p = c->size, me = c->rank, root = (int)(hash(id, 1, 0, 0) % (uint64_t)p), kind = (int)(hash(id, 2, 0, 0) % KINDS);
    int in_place = (int)(hash(id, 3, 0, 0) % 3 == 0), w = what == ALLTOALLW;
    int v = what == GATHERV || what == SCATTERV || what == ALLGATHERV || what == ALLTOALLV || w;
    int rooted = what >= BCAST && what <= SCATTERV, scatters = what == SCATTER || what == SCATTERV;
    int all_to_all = what == ALLTOALL || what == ALLTOALLV || w, distinct = scatters || all_to_all;
    int collects = what == GATHER || what == GATHERV || what == ALLGATHER || what == ALLGATHERV;
    long most = what == BCAST ? 1 << 20 : (2 << 20) / (p * (all_to_all ? 2 : 1));
    Block from_me[MOST_RANKS], to_me[MOST_RANKS];
    const Shape *send_shape = &shapes[kind][below(&local, SHAPES)], *recv_shape = &shapes[kind][below(&local, SHAPES)];
    int sends = 0, recvs = 0;

    op->request = MPI_REQUEST_NULL;
    snprintf(op->text, sizeof op->text, "%s%s, %s, %s to %s, root %d, rank %d of %d%s", ways[way], names[what],
             kind_names[kind], shape_names[send_shape - shapes[kind]], shape_names[recv_shape - shapes[kind]], root, me,
             p, in_place ? ", in place" : "");

    /* How many blocks each rank sends and receives. */
    if (all_to_all) sends = in_place ? 0 : p, recvs = p;
    else if (what == BCAST) recvs = 1;
    else if (scatters) sends = me == root ? p : 0, recvs = me == root && in_place ? 0 : 1;
    else if (collects) {
        int receiver = !rooted || me == root;
        sends = receiver && in_place ? 0 : 1, recvs = receiver ? p : 0;
    }
    for (int i = 0; i < p; i++) {
        int other_from = recvs == 1 && rooted ? root : i, other_to = sends == 1 ? root : i;
        uint64_t a = 0, b = 0; /* what the sizes of the blocks to and from me depend on */
        if (collects && v) a = (uint64_t)me, b = (uint64_t)other_from;
        else if (scatters && v) a = (uint64_t)other_to, b = (uint64_t)me;
        else if (all_to_all && v) {
            uint64_t x = (uint64_t)me, y = (uint64_t)i;
            a = x * MOST_RANKS + y, b = y * MOST_RANKS + x;
            if (in_place && y < x) a = b;
            else if (in_place) b = a;
        }
        from_me[i] = (Block){other_to, random_units(hash(id, 5, a, 0), kind, most), 0,
                             w ? &shapes[kind][below(&local, SHAPES)] : send_shape};
        to_me[i] = (Block){other_from, random_units(hash(id, 5, b, 0), kind, most), 0,
                           w ? &shapes[kind][below(&local, SHAPES)] : recv_shape};
    }

    /* The buffers, and what must be in them afterwards. */
    if (sends) {
        op->send = buffer((size_t)lay_out(from_me, sends, v && distinct, op->counts[0], op->displs[0], op->types[0], w));
        for (int i = 0; i < sends; i++)
            fill(op->send.base, &from_me[i], kind, id, me, distinct ? from_me[i].peer : 0);
        op->send_before = copy_of(&op->send);
    }
    if (recvs) {
        op->recv = buffer((size_t)lay_out(to_me, recvs, v && !scatters, op->counts[1], op->displs[1], op->types[1], w));
        if (what == BCAST && me == root) fill(op->recv.base, &to_me[0], kind, id, root, 0);
        if (in_place && collects) fill(op->recv.base, &to_me[me], kind, id, me, 0);
        for (int i = 0; in_place && all_to_all && i < p; i++) fill(op->recv.base, &to_me[i], kind, id, me, i);
        op->expected = copy_of(&op->recv);
        for (int i = 0; i < recvs; i++) fill(op->expected.base, &to_me[i], kind, id, to_me[i].peer, distinct ? me : 0);
    }

    void *send = sends ? op->send.base : in_place ? MPI_IN_PLACE : NULL;
    void *recv = recvs ? op->recv.base : in_place && scatters ? MPI_IN_PLACE : NULL;
    if (scatters && me != root) send = NULL;
    int n = op->counts[0][0], m = op->counts[1][0];
    MPI_Datatype st = send_shape->type, rt = recv_shape->type;
    switch (what) {
    case BARRIER: CALL(Barrier, barrier, c->comm); break;
    case BCAST: CALL(Bcast, bcast, recv, m, rt, root, c->comm); break;
    case GATHER: CALL(Gather, gather, send, n, st, recv, m, rt, root, c->comm); break;
    case GATHERV:
        CALL(Gatherv, gatherv, send, n, st, recv, op->counts[1], op->displs[1], rt, root, c->comm);
        break;
    case SCATTER: CALL(Scatter, scatter, send, n, st, recv, m, rt, root, c->comm); break;
    case SCATTERV:
        CALL(Scatterv, scatterv, send, op->counts[0], op->displs[0], st, recv, m, rt, root, c->comm);
        break;
    case ALLGATHER: CALL(Allgather, allgather, send, n, st, recv, m, rt, c->comm); break;
    case ALLGATHERV:
        CALL(Allgatherv, allgatherv, send, n, st, recv, op->counts[1], op->displs[1], rt, c->comm);
        break;
    case ALLTOALL: CALL(Alltoall, alltoall, send, n, st, recv, m, rt, c->comm); break;
    case ALLTOALLV:
        CALL(Alltoallv, alltoallv, send, op->counts[0], op->displs[0], st, recv, op->counts[1],
             op->displs[1], rt, c->comm);
        break;
    default:
        CALL(Alltoallw, alltoallw, send, op->counts[0], op->displs[0], op->types[0], recv, op->counts[1],
             op->displs[1], op->types[1], c->comm);
    }
    return restart(op, way);
}

/* ---- Reductions: an item has up to four components ---- */

enum { MATRIX = KINDS, TWO_INTS, DOUBLE_AND_INT, ITEMS };
enum { SUM, PRODUCT, LEAST, MOST, LAND, LOR, LXOR, BAND, BOR, BXOR, OWN_SUM, OWN_MATRIX, LEAST_AT, MOST_AT, FUNCTIONS };
static const char *const function_names[FUNCTIONS] = {
    "sum",  "product",         "min",    "max",   "and", "or", "xor", "bit and", "bit or", "bit xor", "own commutative",
    "own, not commutative", "minloc", "maxloc"};
enum { MODULUS = 9973 };
static MPI_Op functions[FUNCTIONS];
static MPI_Datatype matrix;
static const long matrix_at[4] = {0, 4, 12, 16};
enum { MATRIX_BYTES = 24 };

typedef struct {
    long part[4];
} Item;

static Item combine(int function, Item a, Item b)
{
    Item r = a;
    long x = a.part[0], y = b.part[0];
    switch (function) {
    case SUM: r.part[0] = x + y; break;
    case PRODUCT: r.part[0] = x * y; break;
    case LEAST: r.part[0] = x < y ? x : y; break;
    case MOST: r.part[0] = x > y ? x : y; break;
    case LAND: r.part[0] = x && y; break;
    case LOR: r.part[0] = x || y; break;
    case LXOR: r.part[0] = !x != !y; break;
    case BAND: r.part[0] = x & y; break;
    case BOR: r.part[0] = x | y; break;
    case BXOR: r.part[0] = x ^ y; break;
    case OWN_SUM: r.part[0] = (x + y) % MODULUS; break;
    case OWN_MATRIX:
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++)
                r.part[2 * i + j] = (a.part[2 * i] * b.part[j] + a.part[2 * i + 1] * b.part[2 + j]) % MODULUS;
        break;
    default: /* the first position of the extreme value */
        if (x == y) r.part[1] = a.part[1] < b.part[1] ? a.part[1] : b.part[1];
        else if ((function == LEAST_AT) == (y < x)) r = b;
    }
    return r;
}

static void own_sum(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *n; i++) {
        int64_t *to = (int64_t *)inout + i;
        *to = (((int64_t *)in)[i] + *to) % MODULUS;
    }
}

static void own_matrix(void *in, void *inout, int *n, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *n; i++) {
        char *a = (char *)in + (long)i * MATRIX_BYTES, *b = (char *)inout + (long)i * MATRIX_BYTES;
        Item x, y, r;
        for (int k = 0; k < 4; k++) {
            int32_t u, v;
            memcpy(&u, a + matrix_at[k], 4), memcpy(&v, b + matrix_at[k], 4);
            x.part[k] = u, y.part[k] = v;
        }
        r = combine(OWN_MATRIX, x, y);
        for (int k = 0; k < 4; k++) put(b + matrix_at[k], INT, r.part[k]);
    }
}

static void make_functions(void)
{
    MPI_Op predefined[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR};
    int lengths[2] = {2, 2};
    MPI_Aint places[2] = {0, 12};
    MPI_Datatype two;
    for (int i = 0; i < 10; i++) functions[i] = predefined[i];
    MPI_Op_create(own_sum, 1, &functions[OWN_SUM]);
    MPI_Op_create(own_matrix, 0, &functions[OWN_MATRIX]);
    functions[LEAST_AT] = MPI_MINLOC, functions[MOST_AT] = MPI_MAXLOC;
    MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &two);
    MPI_Type_create_resized(two, 0, MATRIX_BYTES, &matrix);
    MPI_Type_free(&two);
    MPI_Type_commit(&matrix);
}

static void free_functions(void)
{
    MPI_Op_free(&functions[OWN_SUM]);
    MPI_Op_free(&functions[OWN_MATRIX]);
    MPI_Type_free(&matrix);
}

static int item_bytes(int kind)
{
    return kind < KINDS ? kind_bytes[kind] : kind == MATRIX ? MATRIX_BYTES : kind == TWO_INTS ? 8 : 16;
}

static void put_item(char *at, int kind, Item item)
{
    if (kind < KINDS) put(at, kind, item.part[0]);
    else if (kind == MATRIX)
        for (int k = 0; k < 4; k++) put(at + matrix_at[k], INT, item.part[k]);
    else put(at, kind == TWO_INTS ? INT : DOUBLE, item.part[0]), put(at + (kind == TWO_INTS ? 4 : 8), INT, item.part[1]);
}

static Item item_of(uint64_t id, int rank, long k, int function)
{
    uint64_t h = (hash(id, (uint64_t)rank, 99, 0) ^ ((uint64_t)k * 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u >> 17;
    Item item = {{(long)(h & 7), (long)(h >> 3 & 7), (long)(h >> 6 & 7), (long)(h >> 9 & 7)}};
    if (function == PRODUCT) item.part[0] = 1 + (item.part[0] & 1);
    if (function == LAND || function == LOR || function == LXOR) item.part[0] &= 1;
    return item;
}

static Op *reduction(const Comm *c, int what, int way, uint64_t id)
{
    Op *op = calloc(1, sizeof *op);
    int p = c->size, me = c->rank, root = (int)(hash(id, 1, 0, 0) % (uint64_t)p);
    int in_place = (int)(hash(id, 3, 0, 0) % 3 == 0), function = (int)(hash(id, 4, 0, 0) % FUNCTIONS), kind;
    int receives = what != REDUCE || me == root, scattering = what == REDUCE_SCATTER || what == REDUCE_SCATTER_BLOCK;
    uint64_t any = hash(id, 6, 0, 0);
    if (function >= LEAST_AT) kind = any % 2 ? TWO_INTS : DOUBLE_AND_INT;
    else if (function == OWN_MATRIX) kind = MATRIX;
    else if (function == OWN_SUM) kind = LONG;
    else if (function >= LAND) kind = (int)(any % FLOAT);
    else kind = (int)(any % KINDS);
    int bytes = item_bytes(kind);
    MPI_Datatype type = kind < KINDS ? kind_types[kind] : kind == MATRIX ? matrix : kind == TWO_INTS ? MPI_2INT : MPI_DOUBLE_INT;

    long total = 0, first = 0;
    for (int i = 0; i < p; i++) {
        uint64_t h = hash(id, 5, what == REDUCE_SCATTER ? (uint64_t)i : 0, 0);
        op->counts[0][i] = random_units(h, DOUBLE, (1 << 20) / (scattering ? p : 1)) * UNIT * 8 / bytes;
        if (op->counts[0][i] > 1) op->counts[0][i] -= (int)(h >> 40 & 1);
        if (i == me && scattering) first = total;
        total += op->counts[0][i];
    }
    if (!scattering) total = op->counts[0][0];
    long results = scattering ? op->counts[0][me] : total;

    op->request = MPI_REQUEST_NULL;
    snprintf(op->text, sizeof op->text, "%s%s, %s of kind %d, %ld items, %ld results, root %d, rank %d of %d%s",
             ways[way], names[what], function_names[function], kind, total, results, root, me, p,
             in_place ? ", in place" : "");
    int own_send = !(in_place && receives);
    Buffer *input = own_send ? &op->send : &op->recv;
    if (own_send) op->send = buffer((size_t)(total * bytes));
    if (receives) op->recv = buffer((size_t)((own_send ? results : total) * bytes));
    for (long k = 0; k < total; k++) put_item(input->base + k * bytes, kind, item_of(id, me, k, function));
    if (own_send) op->send_before = copy_of(&op->send);
    if (receives) {
        int last = what == SCAN ? me : what == EXSCAN ? me - 1 : p - 1;
        op->expected = copy_of(&op->recv);
        op->unspecified = last < 0;
        if (kind == DOUBLE_AND_INT) op->padded = results;
        for (long k = 0; k < results && last >= 0; k++) {
            Item result = item_of(id, 0, first + k, function);
            for (int r = 1; r <= last; r++) result = combine(function, result, item_of(id, r, first + k, function));
            put_item(op->expected.base + k * bytes, kind, result);
        }
        /* What lies behind the result of an in-place reduce-scatter is the library's to use. */
        if (in_place && scattering) op->compared = GUARD_BYTES + (size_t)(results * bytes);
    }

    void *send = own_send ? op->send.base : MPI_IN_PLACE, *recv = receives ? op->recv.base : NULL;
    MPI_Op f = functions[function];
    int n = op->counts[0][0];
    switch (what) {
    case REDUCE: CALL(Reduce, reduce, send, recv, n, type, f, root, c->comm); break;
    case ALLREDUCE: CALL(Allreduce, allreduce, send, recv, n, type, f, c->comm); break;
    case REDUCE_SCATTER: CALL(Reduce_scatter, reduce_scatter, send, recv, op->counts[0], type, f, c->comm); break;
    case REDUCE_SCATTER_BLOCK:
        CALL(Reduce_scatter_block, reduce_scatter_block, send, recv, n, type, f, c->comm);
        break;
    case SCAN: CALL(Scan, scan, send, recv, n, type, f, c->comm); break;
    default: CALL(Exscan, exscan, send, recv, n, type, f, c->comm);
    }
    return restart(op, way);
}

/* ---- Communicators, and what is in flight ---- */

static void make_comms(Comm *comms, int set)
{
    for (int i = 0; i < COMMS; i++) {
        Comm *c = &comms[i];
        uint64_t h = hash(seed, 7, (uint64_t)set, (uint64_t)i), mine = hash(h, (uint64_t)world_rank, 0, 0);
        int colour = 0;
        switch (i) {
        case 0: c->comm = MPI_COMM_WORLD; break;
        case 1: MPI_Comm_dup(MPI_COMM_WORLD, &c->comm); break;
        case 2: MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &c->comm); break;
        case 3: MPI_Comm_split(MPI_COMM_WORLD, colour = world_rank % 2, (int)(mine % 100), &c->comm); break;
        case 4: MPI_Comm_split(MPI_COMM_WORLD, colour = (int)(mine % 3), world_rank, &c->comm); break;
        case 5:
            colour = mine % 4 == 0 ? MPI_UNDEFINED : (int)(mine >> 8 & 1);
            MPI_Comm_split(comms[2].comm, colour, (int)(mine >> 16 & 3), &c->comm);
            break;
        default: { /* a group of the world in a random order, some left out */
            MPI_Group world, group;
            int ranks[MOST_RANKS], n = 0;
            Random random = {h};
            for (int r = 0; r < world_size; r++)
                if (below(&random, 4)) ranks[n++] = r;
            for (int k = n - 1; k > 0; k--) {
                int j = below(&random, k + 1), r = ranks[k];
                ranks[k] = ranks[j], ranks[j] = r;
            }
            MPI_Comm_group(MPI_COMM_WORLD, &world);
            MPI_Group_incl(world, n, ranks, &group);
            MPI_Comm_create(MPI_COMM_WORLD, group, &c->comm);
            MPI_Group_free(&world), MPI_Group_free(&group);
        }
        }
        c->colour = hash(h, (uint64_t)colour, 1, 0);
        if (c->comm != MPI_COMM_NULL) MPI_Comm_size(c->comm, &c->size), MPI_Comm_rank(c->comm, &c->rank);
    }
}

static Op *pending[MOST_PENDING];
static int pendings;

static void take(int i)
{
    check(pending[i]);
    pending[i] = pending[--pendings];
}

/* Ends some of what is in flight, in one of the ways to do so; at least `least` of them. */
static void finish(int least)
{
    int goal = pendings - least;
    while (pendings > 0 && (pendings > goal || below(&local, 2))) {
        MPI_Request requests[MOST_PENDING];
        int n = pendings, index, done;
        for (int i = 0; i < n; i++) requests[i] = pending[i]->request;
        switch (below(&local, 4)) {
        case 0:
            index = below(&local, n);
            MPI_Wait(&pending[index]->request, MPI_STATUS_IGNORE);
            take(index);
            break;
        case 1:
            MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE);
            take(index);
            break;
        case 2:
            index = below(&local, n);
            MPI_Test(&pending[index]->request, &done, MPI_STATUS_IGNORE);
            if (done) take(index);
            break;
        default:
            MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
            while (pendings) take(0);
        }
    }
}

int main(int argc, char **argv)
{
    Comm comms[COMMS];
    MPI_Init(&argc, &argv);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    seed = strtoull(argv[1], NULL, 10);
    int rounds = atoi(argv[2]);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    local.state = hash(seed, 8, (uint64_t)world_rank, 0);
    make_shapes();
    make_functions();
    for (int round = 0; round < rounds; round++) {
        if (round % ROUNDS_PER_SET == 0) {
            /* Communicators may be freed while operations on them are in flight. */
            for (int i = 1; round > 0 && i < COMMS; i++)
                if (comms[i].comm != MPI_COMM_NULL) MPI_Comm_free(&comms[i].comm);
            make_comms(comms, round / ROUNDS_PER_SET);
        }
        const Comm *c = &comms[hash(seed, (uint64_t)round, 9, 0) % COMMS];
        if (c->comm == MPI_COMM_NULL) continue;
        uint64_t id = hash(c->colour, (uint64_t)round, 10, 0);
        int what = (int)(hash(id, 11, 0, 0) % OPERATIONS), way = (int)(hash(id, 12, 0, 0) % 5 / 2);
        Op *op = what >= REDUCE ? reduction(c, what, way, id) : movement(c, what, way, id);
        if (way == BLOCKING) check(op);
        else {
            pending[pendings++] = op;
            finish(pendings == MOST_PENDING);
        }
    }
    finish(pendings);
    for (int i = 1; i < COMMS; i++)
        if (comms[i].comm != MPI_COMM_NULL) MPI_Comm_free(&comms[i].comm);
    free_functions();
    free_shapes();
    MPI_Finalize();
    return 0;
}
