/* Random programs: threads of every rank mix messages of all kinds, collective operations on several communicators and
 * partitioned communication; what must come out follows from the seed alone.
 * Usage: programs <first seed> <programs> <steps> <threads>
 * A seed is a program. Draws that all ranks must make alike come from `shared`, what a rank decides for itself from `own`. */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 8, COMMS = 4, MOST_MESSAGES = 14, MOST_OPERATIONS = 4 };

typedef struct {
    int thread, step, steps;
    unsigned seed, shared, own;
    MPI_Comm comms[COMMS]; /* the last one is the same for all threads and has messages only */
    int rank[COMMS], size[COMMS];
} Player;

static unsigned draw(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static int value(const Player *p, int from, int to, int k)
{
    unsigned v = p->seed * 31u + (unsigned)p->step * 7919u + (unsigned)p->thread * 611953u + (unsigned)from * 104729u +
                 (unsigned)to * 1299709u + (unsigned)k * 15485863u;
    return (int)((v ^ v >> 13) & 0xfffff);
}

static void wrong(const Player *p, const char *what, int a, int b)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "seed %u, rank %d, thread %d, step %d: %s (%d, %d)\n", p->seed, rank, p->thread, p->step, what, a, b);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static int *ints(int n)
{
    int *memory = malloc(sizeof(int) * (size_t)(n + 1));
    memset(memory, 0x5a, sizeof(int) * (size_t)(n + 1));
    return memory;
}

static int length(unsigned *state)
{
    static const int lengths[] = {0, 1, 2, 10, 11, 100, 1000, 1023, 1025, 5000, 16384, 17000, 60000, 140000};
    return lengths[draw(state, draw(state, 3) ? 8 : 14)];
}

/* Ends requests in one of the ways that there are. */
static void complete(Player *p, int n, MPI_Request *requests, MPI_Status *statuses)
{
    int index, count, flag, left, indices[4 * MOST_MESSAGES];
    MPI_Status some[4 * MOST_MESSAGES];
    switch (draw(&p->own, 5)) {
    case 0:
        MPI_Waitall(n, requests, statuses);
        return;
    case 1:
        for (left = 0; left < n; left++) {
            MPI_Waitany(n, requests, &index, &some[0]);
            statuses[index] = some[0];
        }
        return;
    case 2:
        for (left = n; left > 0; left -= count) {
            MPI_Testsome(n, requests, &count, indices, some);
            for (int i = 0; i < count; i++) statuses[indices[i]] = some[i];
        }
        return;
    case 3:
        for (index = n - 1; index >= 0; index--) MPI_Wait(&requests[index], &statuses[index]);
        return;
    default:
        for (index = 0; index < n; index++)
            for (flag = 0; !flag;) MPI_Test(&requests[index], &flag, &statuses[index]);
    }
}

typedef struct {
    int from, to, count, tag, strided, mode, way;
    int *data;
    MPI_Request request;
    int persistent;
} Message;

static void check_message(const Player *p, const Message *m, const MPI_Status *status)
{
    int count, stride = m->strided ? 2 : 1;
    MPI_Get_count(status, MPI_INT, &count);
    if (count != m->count || status->MPI_SOURCE != m->from || status->MPI_TAG != m->tag) wrong(p, "status", count, m->count);
    for (int k = 0; k < m->count; k++)
        if (m->data[k * stride] != value(p, m->from, m->to, k)) wrong(p, "message", k, m->count);
}

/* Messages between any two, all under way at the same time. */
static void messages(Player *p, MPI_Datatype every_second)
{
    int c = (int)draw(&p->shared, COMMS), n = 1 + (int)draw(&p->shared, MOST_MESSAGES), mine = 0, me = p->rank[c];
    MPI_Comm comm = p->comms[c];
    Message list[2 * MOST_MESSAGES], *m;
    MPI_Request requests[2 * MOST_MESSAGES];
    MPI_Status statuses[2 * MOST_MESSAGES];
    int slot[2 * MOST_MESSAGES], waiting = 0;
    for (int i = 0; i < n; i++) {
        Message drawn = {.from = (int)draw(&p->shared, (unsigned)p->size[c]), .to = (int)draw(&p->shared, (unsigned)p->size[c])};
        drawn.count = length(&p->shared);
        drawn.tag = (p->thread * 1000 + p->step % 1000) * 16 + i;
        drawn.mode = (int)draw(&p->shared, 4);
        for (int side = 0; side < 2; side++) {
            if ((side ? drawn.to : drawn.from) != me) continue;
            m = &list[mine++];
            *m = drawn;
            m->way = side ? 1 + (int)draw(&p->own, 4) : 0;
            m->strided = (int)draw(&p->own, 2);
            int stride = m->strided ? 2 : 1;
            m->data = ints(m->count * stride);
            if (!side)
                for (int k = 0; k < m->count; k++) m->data[k * stride] = value(p, m->from, m->to, k);
        }
    }
    for (int i = mine - 1; i > 0; i--) {
        int other = (int)draw(&p->own, (unsigned)i + 1);
        Message kept = list[i];
        list[i] = list[other];
        list[other] = kept;
    }
    for (int i = 0; i < mine; i++) {
        m = &list[i];
        MPI_Datatype type = m->strided ? every_second : MPI_INT;
        m->persistent = 0;
        if (m->way == 0) {
            if (m->mode == 0)
                MPI_Isend(m->data, m->count, type, m->to, m->tag, comm, &m->request);
            else if (m->mode == 1)
                MPI_Issend(m->data, m->count, type, m->to, m->tag, comm, &m->request);
            else if (m->mode == 2)
                MPI_Ibsend(m->data, m->count, type, m->to, m->tag, comm, &m->request);
            else {
                MPI_Send_init(m->data, m->count, type, m->to, m->tag, comm, &m->request);
                MPI_Start(&m->request);
                m->persistent = 1;
            }
        } else if (m->way == 1) {
            MPI_Irecv(m->data, m->count, type, m->from, m->tag, comm, &m->request);
        } else if (m->way == 2) {
            MPI_Irecv(m->data, m->count, type, MPI_ANY_SOURCE, m->tag, comm, &m->request);
        } else if (m->way == 3) {
            MPI_Recv_init(m->data, m->count, type, m->from, m->tag, comm, &m->request);
            MPI_Start(&m->request);
            m->persistent = 1;
        } else
            continue;
        slot[waiting] = i;
        requests[waiting++] = m->request;
    }
    for (int i = 0; i < mine; i++) {
        m = &list[i];
        if (m->way != 4) continue;
        MPI_Message found;
        MPI_Status status;
        int count;
        MPI_Mprobe(draw(&p->own, 2) ? m->from : MPI_ANY_SOURCE, m->tag, comm, &found, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        if (count != m->count) wrong(p, "probe", count, m->count);
        MPI_Mrecv(m->data, m->count, m->strided ? every_second : MPI_INT, &found, &status);
        check_message(p, m, &status);
    }
    complete(p, waiting, requests, statuses);
    for (int i = 0; i < waiting; i++) {
        m = &list[slot[i]];
        if (m->way) check_message(p, m, &statuses[i]);
        if (m->persistent) MPI_Request_free(&m->request);
    }
    for (int i = 0; i < mine; i++) free(list[i].data);
}

/* Everybody sends some messages to one rank, which takes them as they come: those of one sender in
 * their order. */
static void funnel(Player *p)
{
    int c = (int)draw(&p->shared, COMMS - 1), root = (int)draw(&p->shared, (unsigned)p->size[c]),
        each = 1 + (int)draw(&p->shared, 40), count = (int)draw(&p->shared, 2) ? 3 : 700, any = (int)draw(&p->shared, 2),
        tag = 1000000 + p->step;
    if (p->rank[c] != root) {
        int *out = ints(count);
        for (int i = 0; i < each; i++) {
            for (int k = 0; k < count; k++) out[k] = value(p, p->rank[c], root, k + i);
            MPI_Send(out, count, MPI_INT, root, tag, p->comms[c]);
        }
        free(out);
        /* A receive of any tag would also take what comes after. */
        if (any) MPI_Barrier(p->comms[c]);
        return;
    }
    int *seen = calloc((size_t)p->size[c], sizeof *seen), *in = ints(count);
    for (int i = 0; i < each * (p->size[c] - 1); i++) {
        MPI_Status status;
        MPI_Recv(in, count, MPI_INT, MPI_ANY_SOURCE, any ? MPI_ANY_TAG : tag, p->comms[c], &status);
        int from = status.MPI_SOURCE, number = seen[from]++;
        if (status.MPI_TAG != tag) wrong(p, "tag of the funnel", status.MPI_TAG, tag);
        for (int k = 0; k < count; k++)
            if (in[k] != value(p, from, root, k + number)) wrong(p, "order of the funnel", from, number);
    }
    free(seen);
    free(in);
    if (any) MPI_Barrier(p->comms[c]);
}

static void partitions(Player *p)
{
    int c = (int)draw(&p->shared, COMMS - 1), me = p->rank[c], size = p->size[c], right = (me + 1) % size,
        left = (me + size - 1) % size, count = 60 * (1 + (int)draw(&p->shared, 200)),
        mine = (int[]){1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60}[draw(&p->own, 12)],
        theirs = (int[]){1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60}[draw(&p->own, 12)], rounds = 1 + (int)draw(&p->shared, 3);
    int *out = ints(count), *in = ints(count);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Psend_init(out, mine, count / mine, MPI_INT, right, 1, p->comms[c], MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(in, theirs, count / theirs, MPI_INT, left, 1, p->comms[c], MPI_INFO_NULL, &requests[1]);
    for (int round = 0; round < rounds; round++) {
        for (int k = 0; k < count; k++) out[k] = value(p, me, right, k + round);
        MPI_Startall(2, requests);
        int first = (int)draw(&p->own, (unsigned)mine);
        for (int i = 0; i < mine; i++) MPI_Pready((first + i) % mine, requests[0]);
        if (draw(&p->own, 2)) {
            int part = (int)draw(&p->own, (unsigned)theirs), each = count / theirs;
            for (int flag = 0; !flag;) MPI_Parrived(requests[1], part, &flag);
            for (int k = part * each; k < (part + 1) * each; k++)
                if (in[k] != value(p, left, me, k + round)) wrong(p, "partition", part, k);
        }
        complete(p, 2, (MPI_Request[]){requests[0], requests[1]}, statuses);
        for (int k = 0; k < count; k++)
            if (in[k] != value(p, left, me, k + round)) wrong(p, "partitions", round, k);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    free(out);
    free(in);
}

enum { BARRIER, BCAST, REDUCE, ALLREDUCE, GATHER, SCATTER, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, SCAN, EXSCAN, RSB, KINDS };

typedef struct {
    int kind, c, root, n, form, *in, *out, *counts, *displs, number;
    MPI_Request request;
} Operation;

static int of(const Player *p, const Operation *o, int from, int to, int k) { return value(p, from + o->number * 64, to, k); }

static int share(const Operation *o, int rank) { return o->kind == ALLGATHERV || o->kind == ALLTOALLV ? (o->n + rank * 7) % (o->n + 1) : o->n; }

/* Starts it, or does all of it when it is blocking. */
static void begin(Player *p, Operation *o)
{
    int size = p->size[o->c], me = p->rank[o->c], n = o->n, form = o->form, at = 0;
    MPI_Comm comm = p->comms[o->c];
    o->in = ints(n * size);
    o->out = ints(n * size);
    o->counts = ints(size);
    o->displs = ints(size);
    o->request = MPI_REQUEST_NULL;
    for (int r = 0; r < size; r++) {
        /* To all alike in ALLTOALLV: how much depends on both, so that what r sends to me is what I expect. */
        o->counts[r] = o->kind == ALLTOALLV ? share(o, r + me) : share(o, r);
        o->displs[r] = at;
        at += o->counts[r];
    }
    int own = o->kind == ALLGATHERV ? share(o, me) : n;
    for (int k = 0; k < own; k++) o->in[k] = of(p, o, me, 0, k);
    if (o->kind == SCATTER || o->kind == ALLTOALL || o->kind == RSB)
        for (int r = 0; r < size; r++)
            for (int k = 0; k < n; k++) o->in[r * n + k] = of(p, o, me, r, k);
    if (o->kind == ALLTOALLV)
        for (int r = 0; r < size; r++)
            for (int k = 0; k < o->counts[r]; k++) o->in[o->displs[r] + k] = of(p, o, me, r, k);
    if (o->kind == BCAST && me == o->root) memcpy(o->out, o->in, sizeof(int) * (size_t)n);
#define THREE(name, ...)                                                                                       \
    do {                                                                                                       \
        if (form == 0) MPI_##name(__VA_ARGS__);                                                                \
        else if (form == 1) MPI_I##name(__VA_ARGS__, &o->request);                                             \
        else MPI_##name##_init(__VA_ARGS__, MPI_INFO_NULL, &o->request);                                       \
    } while (0)
#define MPI_IBarrier MPI_Ibarrier
#define MPI_IBcast MPI_Ibcast
#define MPI_IReduce MPI_Ireduce
#define MPI_IAllreduce MPI_Iallreduce
#define MPI_IGather MPI_Igather
#define MPI_IScatter MPI_Iscatter
#define MPI_IAllgather MPI_Iallgather
#define MPI_IAllgatherv MPI_Iallgatherv
#define MPI_IAlltoall MPI_Ialltoall
#define MPI_IAlltoallv MPI_Ialltoallv
#define MPI_IScan MPI_Iscan
#define MPI_IExscan MPI_Iexscan
#define MPI_IReduce_scatter_block MPI_Ireduce_scatter_block
    switch (o->kind) {
    case BARRIER: THREE(Barrier, comm); break;
    case BCAST: THREE(Bcast, o->out, n, MPI_INT, o->root, comm); break;
    case REDUCE: THREE(Reduce, o->in, o->out, n, MPI_INT, MPI_SUM, o->root, comm); break;
    case ALLREDUCE: THREE(Allreduce, o->in, o->out, n, MPI_INT, MPI_SUM, comm); break;
    case GATHER: THREE(Gather, o->in, n, MPI_INT, o->out, n, MPI_INT, o->root, comm); break;
    case SCATTER: THREE(Scatter, o->in, n, MPI_INT, o->out, n, MPI_INT, o->root, comm); break;
    case ALLGATHER: THREE(Allgather, o->in, n, MPI_INT, o->out, n, MPI_INT, comm); break;
    case ALLGATHERV: THREE(Allgatherv, o->in, own, MPI_INT, o->out, o->counts, o->displs, MPI_INT, comm); break;
    case ALLTOALL: THREE(Alltoall, o->in, n, MPI_INT, o->out, n, MPI_INT, comm); break;
    case ALLTOALLV:
        THREE(Alltoallv, o->in, o->counts, o->displs, MPI_INT, o->out, o->counts, o->displs, MPI_INT, comm);
        break;
    case SCAN: THREE(Scan, o->in, o->out, n, MPI_INT, MPI_SUM, comm); break;
    case EXSCAN: THREE(Exscan, o->in, o->out, n, MPI_INT, MPI_SUM, comm); break;
    default: THREE(Reduce_scatter_block, o->in, o->out, n, MPI_INT, MPI_SUM, comm);
    }
    if (form == 2) MPI_Start(&o->request);
}

static int sum(const Player *p, const Operation *o, int ranks, int to, int k)
{
    int all = 0;
    for (int r = 0; r < ranks; r++) all += of(p, o, r, to, k);
    return all;
}

static void check_operation(const Player *p, Operation *o)
{
    int size = p->size[o->c], me = p->rank[o->c], n = o->n, blocks = 1, is_here = 1;
    if (o->kind == GATHER || o->kind == ALLGATHER || o->kind == ALLGATHERV || o->kind == ALLTOALL || o->kind == ALLTOALLV) blocks = size;
    if (o->kind == GATHER || o->kind == REDUCE) is_here = me == o->root;
    if (o->kind == EXSCAN) is_here = me > 0;
    if (o->kind == BARRIER) is_here = 0;
    for (int r = 0; is_here && r < blocks; r++) {
        int ragged = o->kind == ALLGATHERV || o->kind == ALLTOALLV, many = ragged ? o->counts[r] : n;
        for (int k = 0; k < many; k++) {
            int got = o->out[(ragged ? o->displs[r] : r * n) + k], expected;
            switch (o->kind) {
            case BCAST: expected = of(p, o, o->root, 0, k); break;
            case REDUCE:
            case ALLREDUCE: expected = sum(p, o, size, 0, k); break;
            case SCATTER: expected = of(p, o, o->root, me, k); break;
            case ALLTOALL:
            case ALLTOALLV: expected = of(p, o, r, me, k); break;
            case SCAN: expected = sum(p, o, me + 1, 0, k); break;
            case EXSCAN: expected = sum(p, o, me, 0, k); break;
            case RSB: expected = sum(p, o, size, me, k); break;
            default: expected = of(p, o, r, 0, k);
            }
            if (got != expected) wrong(p, "collective operation", o->kind * 1000 + o->form, k);
        }
    }
    if (o->form == 2) MPI_Request_free(&o->request);
    free(o->in);
    free(o->out);
    free(o->counts);
    free(o->displs);
}

/* Several operations at a time, on the same communicator and on others. */
static void operations(Player *p)
{
    int n = 1 + (int)draw(&p->shared, MOST_OPERATIONS);
    Operation list[MOST_OPERATIONS];
    MPI_Request requests[MOST_OPERATIONS];
    MPI_Status statuses[MOST_OPERATIONS];
    for (int i = 0; i < n; i++) {
        Operation *o = &list[i];
        memset(o, 0, sizeof *o);
        o->number = i;
        o->c = (int)draw(&p->shared, COMMS - 1);
        o->kind = (int)draw(&p->shared, KINDS);
        o->n = length(&p->shared) % 20001;
        o->form = (int)draw(&p->shared, 3);
        /* The root is drawn in the world, since the groups of a split have different sizes. */
        o->root = (int)draw(&p->shared, 1000) % p->size[o->c];
        begin(p, o);
        requests[i] = o->request;
    }
    /* Not all ways of waiting take requests that are null beside others, so each gets its own. */
    for (int i = n - 1; i >= 0; i--) complete(p, requests[i] != MPI_REQUEST_NULL, &requests[i], &statuses[i]);
    for (int i = 0; i < n; i++) check_operation(p, &list[i]);
}

/* Communicators come and go. */
static void renew(Player *p)
{
    int color = (int)draw(&p->shared, 1000), parts = 1 + (int)draw(&p->shared, 3), world, rank;
    MPI_Comm_rank(p->comms[0], &rank);
    MPI_Comm_size(p->comms[0], &world);
    if (p->comms[1] != MPI_COMM_NULL) MPI_Comm_free(&p->comms[1]);
    MPI_Comm_split(p->comms[0], (rank * 7 + color) % parts, rank, &p->comms[1]);
    if (p->comms[2] != MPI_COMM_NULL) MPI_Comm_free(&p->comms[2]);
    MPI_Comm_split(p->comms[0], 0, world - rank, &p->comms[2]);
    for (int c = 0; c < COMMS; c++) {
        MPI_Comm_rank(p->comms[c], &p->rank[c]);
        MPI_Comm_size(p->comms[c], &p->size[c]);
    }
}

static void *play(void *argument)
{
    Player *p = argument;
    MPI_Datatype every_second;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &every_second);
    MPI_Type_commit(&every_second);
    for (p->step = 0; p->step < p->steps; p->step++) {
        unsigned what = p->step == 0 ? 19 : draw(&p->shared, 20);
        if (what < 8)
            messages(p, every_second);
        else if (what < 15)
            operations(p);
        else if (what < 17)
            funnel(p);
        else if (what < 19)
            partitions(p);
        else
            renew(p);
    }
    MPI_Type_free(&every_second);
    MPI_Comm_free(&p->comms[1]);
    MPI_Comm_free(&p->comms[2]);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned first = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1, programs = argc > 2 ? (unsigned)atoi(argv[2]) : 10;
    int steps = argc > 3 ? atoi(argv[3]) : 20, threads = argc > 4 ? atoi(argv[4]) : 2, provided, rank;
    static Player players[MOST_THREADS];
    MPI_Comm own[MOST_THREADS], shared;
    MPI_Init_thread(&argc, &argv, threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0);
    MPI_Comm_dup(MPI_COMM_WORLD, &shared);
    for (int t = 0; t < threads; t++) MPI_Comm_dup(MPI_COMM_WORLD, &own[t]);
    for (unsigned seed = first; seed < first + programs; seed++) {
        pthread_t running[MOST_THREADS];
        for (int t = 0; t < threads; t++) {
            Player *p = &players[t];
            *p = (Player){.thread = t, .steps = steps, .seed = seed, .shared = seed * 2654435761u + (unsigned)t * 97u,
                          .own = seed * 40503u + (unsigned)(t * 1000 + rank) * 2246822519u};
            p->comms[0] = own[t];
            p->comms[1] = p->comms[2] = MPI_COMM_NULL;
            p->comms[3] = shared;
            if (t > 0) pthread_create(&running[t], NULL, play, p);
        }
        play(&players[0]);
        for (int t = 1; t < threads; t++) pthread_join(running[t], NULL);
    }
    for (int t = 0; t < threads; t++) MPI_Comm_free(&own[t]);
    MPI_Comm_free(&shared);
    void *none;
    int nothing;
    MPI_Buffer_detach(&none, &nothing);
    MPI_Finalize();
    return 0;
}
