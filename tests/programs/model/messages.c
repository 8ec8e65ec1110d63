/* Random point-to-point messages against a plain model: every rank computes from the seed alone which
 * rank sends what.
 * Usage: messages <seed> <rounds>
 * All modes, blocking, nonblocking and persistent; receives by name and with wildcards, posted early or late, and after
 * each kind of probe; lengths from nothing to 1 MiB; datatypes that differ between the two sides; partly filled receive
 * buffers; cancelled receives. Messages with the same envelope must arrive in the order in which they were sent. */
#include "shapes.h"

enum { MOST_MESSAGES = 48, COMMS = 5, TAGS = 3, MOST_SENDS = 64, CANCELLED_TAG = 4000 };
enum { STANDARD, SYNCHRONOUS, BUFFERED, READY, MODES };
enum { BY_NAME, ANY_SENDER, ANY_TAG, ANYTHING, CLASSES };

typedef struct {
    int source, target, tag, elements, mode, blocking, persistent, taken;
} Message;

typedef struct {
    MPI_Comm comm;
    int size, rank;
    uint64_t colour;
    MPI_Request behind; /* the end of the last round on this communicator */
} Comm;

typedef struct {
    MPI_Request request;
    Buffer data, before;
    int persistent;
} Sending;

typedef struct {
    MPI_Request request;
    MPI_Status status;
    Buffer data;
    const Shape *shape;
    int source, tag, room, persistent, done;
} Receiving;

static int world_rank, world_size;
static uint64_t seed;
static Random local;
static Sending sends[MOST_SENDS];
static int send_count;
static int round_now;

static void fail(const char *what, long a, long b)
{
    fprintf(stderr, "seed %llu, round %d, rank %d of %d: %s (%ld, %ld)\n", (unsigned long long)seed, round_now,
            world_rank, world_size, what, a, b);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static long value(uint64_t id, int message, long k)
{
    return (long)((hash(id, (uint64_t)message, 0, 0) + (uint64_t)k * 2654435761u) >> 11 & 63);
}

static void sent(Sending *s)
{
    long where;
    if (s->persistent) MPI_Request_free(&s->request);
    if (differs(&s->data, &s->before, &where)) fail("send buffer changed at byte", where, 0);
    free(s->data.memory), free(s->before.memory);
    *s = sends[--send_count];
}

/* Ends sends until at most `left` are under way. */
static void finish_sends(int left)
{
    while (send_count > left) {
        MPI_Request requests[MOST_SENDS];
        int indices[MOST_SENDS], n, done[MOST_SENDS] = {0};
        for (int i = 0; i < send_count; i++) requests[i] = sends[i].request;
        if (below(&local, 2)) {
            MPI_Waitany(send_count, requests, &indices[0], MPI_STATUS_IGNORE);
            n = 1;
        } else if (below(&local, 2)) MPI_Waitsome(send_count, requests, &n, indices, MPI_STATUSES_IGNORE);
        else MPI_Testsome(send_count, requests, &n, indices, MPI_STATUSES_IGNORE);
        for (int i = 0; i < n; i++) done[indices[i]] = 1;
        for (int i = send_count - 1; i >= 0; i--) {
            sends[i].request = requests[i];
            if (done[i]) sent(&sends[i]);
        }
    }
}

static void send(const Comm *c, uint64_t id, int index, const Message *m, int kind)
{
    const Shape *s = &shapes[kind][m->elements % UNIT ? BASIC : below(&local, SHAPES)];
    int n = m->elements / s->elements, to = m->target, tag = m->tag;
    Buffer data = buffer((size_t)(n * s->extent));
    for (long k = 0; k < m->elements; k++) put(element(data.base, s, k), kind, value(id, index, k));
    Buffer before = copy_of(&data);
    if (m->blocking) {
        int (*const call[MODES])(const void *, int, MPI_Datatype, int, int, MPI_Comm) = {MPI_Send, MPI_Ssend, MPI_Bsend,
                                                                                        MPI_Rsend};
        long where;
        call[m->mode](data.base, n, s->type, to, tag, c->comm);
        if (differs(&data, &before, &where)) fail("send buffer changed at byte", where, 0);
        free(data.memory), free(before.memory);
        return;
    }
    finish_sends(MOST_SENDS - 1);
    Sending *sending = &sends[send_count++];
    *sending = (Sending){MPI_REQUEST_NULL, data, before, m->persistent};
    typedef int (*Begin)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    const Begin begin[2][MODES] = {{MPI_Isend, MPI_Issend, MPI_Ibsend, MPI_Irsend},
                                   {MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init, MPI_Rsend_init}};
    begin[m->persistent][m->mode](data.base, n, s->type, to, tag, c->comm, &sending->request);
    if (m->persistent) MPI_Start(&sending->request);
}

/* Begins or does a receive; one that is posted early may not block. */
static void receive(const Comm *c, Receiving *r, int kind, int early)
{
    MPI_Message message;
    MPI_Status status;
    int found = 0, n;
    r->shape = &shapes[kind][r->room % UNIT ? BASIC : below(&local, SHAPES)];
    r->data = buffer((size_t)(r->room / r->shape->elements * r->shape->extent));
    n = r->room / r->shape->elements;
    void *to = r->data.base;
    MPI_Datatype type = r->shape->type;
    r->request = MPI_REQUEST_NULL;
    switch (below(&local, early ? 2 : 8)) {
    case 0: MPI_Irecv(to, n, type, r->source, r->tag, c->comm, &r->request); return;
    case 1:
        MPI_Recv_init(to, n, type, r->source, r->tag, c->comm, &r->request);
        r->persistent = 1;
        MPI_Start(&r->request);
        return;
    case 2: MPI_Recv(to, n, type, r->source, r->tag, c->comm, &r->status); break;
    case 3:
        MPI_Probe(r->source, r->tag, c->comm, &status);
        MPI_Recv(to, n, type, status.MPI_SOURCE, status.MPI_TAG, c->comm, &r->status);
        break;
    case 4:
        while (!found) MPI_Iprobe(r->source, r->tag, c->comm, &found, &status);
        MPI_Recv(to, n, type, status.MPI_SOURCE, status.MPI_TAG, c->comm, &r->status);
        break;
    case 5:
        MPI_Mprobe(r->source, r->tag, c->comm, &message, &status);
        MPI_Mrecv(to, n, type, &message, &r->status);
        break;
    case 6:
        while (!found) MPI_Improbe(r->source, r->tag, c->comm, &found, &message, &status);
        MPI_Imrecv(to, n, type, &message, &r->request);
        return;
    default:
        MPI_Sendrecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, to, n, type, r->source, r->tag, c->comm, &r->status);
    }
    r->done = 1;
}

static void check(uint64_t id, int kind, const Receiving *r, int me, Message *messages, int n)
{
    int i = 0, count, elements;
    long where;
    while (i < n && (messages[i].target != me || messages[i].taken || messages[i].source != r->status.MPI_SOURCE ||
                     messages[i].tag != r->status.MPI_TAG))
        i++;
    if (i == n) fail("a message that nobody sent, source and tag", r->status.MPI_SOURCE, r->status.MPI_TAG);
    const Message *m = &messages[i];
    messages[i].taken = 1;
    MPI_Get_elements(&r->status, r->shape->type, &elements);
    MPI_Get_count(&r->status, r->shape->type, &count);
    if (elements != m->elements) fail("elements: is, should be", elements, m->elements);
    if (count != (m->elements % r->shape->elements ? MPI_UNDEFINED : m->elements / r->shape->elements))
        fail("count: is, elements are", count, m->elements);
    Buffer expected = copy_of(&r->data);
    memset(expected.memory, FILL, expected.total);
    for (long k = 0; k < m->elements; k++) put(element(expected.base, r->shape, k), kind, value(id, i, k));
    if (differs(&r->data, &expected, &where)) fail("wrong data at byte, elements", where, m->elements);
    free(expected.memory);
}

static void finish_receives(Receiving *r, int n)
{
    MPI_Request requests[MOST_MESSAGES];
    MPI_Status statuses[MOST_MESSAGES];
    int index, all = 0;
    for (int i = 0; i < n; i++) requests[i] = r[i].request;
    switch (below(&local, 3)) {
    case 0:
        MPI_Waitall(n, requests, statuses);
        for (int i = 0; i < n; i++)
            if (!r[i].done) r[i].status = statuses[i];
        break;
    case 1:
        while (!all) MPI_Testall(n, requests, &all, statuses);
        for (int i = 0; i < n; i++)
            if (!r[i].done) r[i].status = statuses[i];
        break;
    default:
        for (;;) {
            MPI_Status status;
            MPI_Waitany(n, requests, &index, &status);
            if (index == MPI_UNDEFINED) break;
            r[index].status = status;
        }
    }
    for (int i = 0; i < n; i++)
        if (r[i].persistent) MPI_Request_free(&requests[i]);
}

static void cancel_one(const Comm *c)
{
    MPI_Request request;
    MPI_Status status;
    int cancelled, got;
    MPI_Irecv(&got, 1, MPI_INT, below(&local, c->size), CANCELLED_TAG, c->comm, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    if (!cancelled) fail("a receive that nobody serves was not cancelled", 0, 0);
}

static void play(Comm *c, uint64_t id)
{
    static const int most_bytes[] = {200, 200, 5000, 70000, 300000, 1 << 20};
    int scale = (int)(hash(id, 1, 0, 0) % 6), most_messages = scale == 5 ? 6 : scale == 4 ? 12 : MOST_MESSAGES;
    int barrier = (int)(hash(id, 2, 0, 0) % 2), kind = (int)(hash(id, 3, 0, 0) % KINDS), me = c->rank;
    Message messages[MOST_MESSAGES];
    Receiving receives[MOST_MESSAGES];
    int n = 1 + (int)(hash(id, 4, 0, 0) % (uint64_t)(most_messages)), mine = 0, room = 0, order[MOST_MESSAGES];
    memset(receives, 0, sizeof receives);
    for (int i = 0; i < n; i++) {
        Random r = {hash(id, 5, (uint64_t)i, 0)};
        Message *m = &messages[i];
        memset(m, 0, sizeof *m);
        m->source = below(&r, c->size), m->target = below(&r, c->size), m->tag = below(&r, TAGS);
        m->elements = random_units(next(&r), kind, most_bytes[scale]) * UNIT;
        if (m->elements && below(&r, 3) == 0) m->elements -= below(&r, UNIT);
        uint64_t class = hash(id, 6, (uint64_t)m->target, 0);
        int early = (int)(class >> 4 & 1);
        m->mode = below(&r, early && barrier ? MODES : READY);
        if (m->mode == BUFFERED && m->elements * kind_bytes[kind] > 4096) m->mode = STANDARD;
        m->blocking = (early || m->mode == BUFFERED) && m->source != m->target && below(&r, 2);
        m->persistent = below(&r, 3) == 0;
        if (m->target == me) {
            order[mine++] = i;
            if (m->elements > room) room = m->elements;
        }
    }

    /* Receives in a random order; a class has no receives by name beside wildcards that could take their messages. */
    uint64_t class = hash(id, 6, (uint64_t)me, 0);
    int early = (int)(class >> 4 & 1), how = (int)(class >> 8 & 3);
    for (int i = mine - 1; i > 0; i--) {
        int j = below(&local, i + 1), o = order[i];
        order[i] = order[j], order[j] = o;
    }
    for (int i = 0; i < mine; i++) {
        const Message *m = &messages[order[i]];
        receives[i].source = how == BY_NAME || how == ANY_TAG ? m->source : MPI_ANY_SOURCE;
        receives[i].tag = how == BY_NAME || how == ANY_SENDER ? m->tag : MPI_ANY_TAG;
        receives[i].room = room + below(&local, 9);
        if (early) receive(c, &receives[i], kind, 1);
    }
    if (barrier) MPI_Barrier(c->comm);
    if (below(&local, 4) == 0) cancel_one(c);
    for (int i = 0; i < n; i++)
        if (messages[i].source == me) send(c, id, i, &messages[i], kind);
    for (int i = 0; i < mine && !early; i++) receive(c, &receives[i], kind, 0);
    finish_receives(receives, mine);
    for (int i = 0; i < mine; i++) {
        check(id, kind, &receives[i], me, messages, n);
        free(receives[i].data.memory);
    }
    MPI_Ibarrier(c->comm, &c->behind);
}

/* Everybody passes a buffer on to the next rank, in place. */
static void rotate(MPI_Comm comm, uint64_t id)
{
    int kind = (int)(hash(id, 1, 0, 0) % KINDS), n = random_units(hash(id, 2, 0, 0), kind, 300000);
    int from = (world_rank + world_size - 1) % world_size;
    const Shape *s = &shapes[kind][ROW + below(&local, SHAPES - ROW)];
    long where;
    Buffer data = buffer((size_t)(n * s->extent)), expected = copy_of(&data);
    for (long k = 0; k < (long)n * UNIT; k++) {
        put(element(data.base, s, k), kind, value(id, world_rank, k));
        put(element(expected.base, s, k), kind, value(id, from, k));
    }
    MPI_Sendrecv_replace(data.base, n, s->type, (world_rank + 1) % world_size, 1, from, 1, comm, MPI_STATUS_IGNORE);
    if (differs(&data, &expected, &where)) fail("MPI_Sendrecv_replace: wrong data at byte", where, 0);
    free(data.memory), free(expected.memory);
}

int main(int argc, char **argv)
{
    Comm comms[COMMS];
    MPI_Comm side;
    int attached;
    MPI_Init(&argc, &argv);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    seed = strtoull(argv[1], NULL, 10);
    int rounds = atoi(argv[2]);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    local.state = hash(seed, 8, (uint64_t)world_rank, 0);
    make_shapes();
    void *room = malloc(4 << 20);
    MPI_Buffer_attach(room, 4 << 20);
    MPI_Comm_dup(MPI_COMM_WORLD, &side);
    for (int i = 0; i < COMMS; i++) {
        Comm *c = &comms[i];
        int colour = i == 3 ? world_rank % 2 : i == 4 ? world_rank / 3 : 0;
        if (i == 0) c->comm = MPI_COMM_WORLD;
        else MPI_Comm_split(MPI_COMM_WORLD, colour, i == 2 ? -world_rank : world_rank, &c->comm);
        MPI_Comm_size(c->comm, &c->size), MPI_Comm_rank(c->comm, &c->rank);
        c->colour = hash(seed, (uint64_t)i, (uint64_t)colour, 0);
        c->behind = MPI_REQUEST_NULL;
    }
    for (int round = 0; round < rounds; round++) {
        Comm *c = &comms[round % COMMS];
        round_now = round;
        MPI_Wait(&c->behind, MPI_STATUS_IGNORE);
        play(c, hash(c->colour, (uint64_t)round, 10, 0));
        if (round % 7 == 0) rotate(side, hash(seed, (uint64_t)round, 11, 0));
    }
    finish_sends(0);
    for (int i = 0; i < COMMS; i++) {
        MPI_Wait(&comms[i].behind, MPI_STATUS_IGNORE);
        if (i > 0) MPI_Comm_free(&comms[i].comm);
    }
    MPI_Comm_free(&side);
    MPI_Buffer_detach(&room, &attached);
    free(room);
    free_shapes();
    MPI_Finalize();
    return 0;
}
