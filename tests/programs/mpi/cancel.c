/* MPI_Cancel: a message is received or cancelled, never both, and a cancelled send ends without a receive. */
#include "check.h"
#include <pthread.h>

enum { STANDARD, SYNCHRONOUS, BUFFERED, READY, MODES, TOKEN = 9999, NAMES = 127 };
static const int sizes[] = {0, 1, 10, 500, 1024, 9000, 30000, 400000};
enum { SIZES = sizeof sizes / sizeof *sizes, LONGEST = 400002 };
static MPI_Datatype every_second;

/* Two ranks that send to each other; `first` does what is to be done first. */
typedef struct {
    MPI_Comm comm;
    int peer, first;
} Pair;

static MPI_Request begin(int mode, int persistent, const int *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    typedef int Begin(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    static Begin *const once[] = {MPI_Isend, MPI_Issend, MPI_Ibsend, MPI_Irsend},
                        *const again[] = {MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init, MPI_Rsend_init};
    MPI_Request request;
    (persistent ? again : once)[mode](data, n, type, to, tag, comm, &request);
    if (persistent)
        MPI_Start(&request);
    return request;
}

/* Ends a request in one of all ways. Returns whether it was cancelled. */
static int end(MPI_Request *request, int way, int persistent)
{
    MPI_Status status, kept;
    int flag = 0, index, n, cancelled;
    MPI_Request two[2] = {MPI_REQUEST_NULL, *request};
    switch (way % 8) {
    case 0: MPI_Wait(request, &status); break;
    case 1:
        while (!flag) MPI_Test(request, &flag, &status);
        break;
    case 2:
        MPI_Waitall(1, request, &status);
        break;
    case 3:
        while (!flag) MPI_Testall(1, request, &flag, &status);
        break;
    case 4:
        MPI_Waitany(2, two, &index, &status);
        CHECK(index == 1);
        *request = two[1];
        break;
    case 5:
        MPI_Waitsome(2, two, &n, &index, &status);
        CHECK(n == 1 && index == 1);
        *request = two[1];
        break;
    case 6:
        while (!flag) MPI_Testany(2, two, &index, &flag, &status);
        CHECK(index == 1);
        *request = two[1];
        break;
    default:
        while (!flag) MPI_Request_get_status(*request, &flag, &kept);
        MPI_Cancel(request);
        MPI_Wait(request, &status);
        MPI_Test_cancelled(&kept, &flag);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK(flag == cancelled);
    }
    MPI_Test_cancelled(&status, &cancelled);
    if (persistent)
        MPI_Request_free(request);
    CHECK(*request == MPI_REQUEST_NULL);
    return cancelled;
}

static void tell(Pair pair) { MPI_Send(NULL, 0, MPI_INT, pair.peer, TOKEN, pair.comm); }
static void hear(Pair pair) { MPI_Recv(NULL, 0, MPI_INT, pair.peer, TOKEN, pair.comm, MPI_STATUS_IGNORE); }

static void nothing_is_here(MPI_Comm comm)
{
    int flag;
    for (int i = 0; i < 3; i++) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE);
        CHECK(!flag);
    }
}

/* The receiver has received all; the sender goes on when that is so. */
static void all_is_received(Pair pair)
{
    if (pair.first) {
        hear(pair);
    } else {
        nothing_is_here(pair.comm);
        tell(pair);
    }
}

static int *filled(int n, int seed)
{
    int *data = malloc(sizeof(int) * (size_t)(2 * n + 1));
    for (int i = 0; i < 2 * n + 1; i++) data[i] = seed + i;
    return data;
}

/* What nobody receives is cancelled while the receiver waits for something else. */
static void unmatched(Pair pair)
{
    for (int s = 0, way = 0; s < SIZES; s++)
        for (int variant = 0; variant < 12; variant++) {
            int mode = variant % 3, persistent = variant / 3 % 2, strided = variant / 6, n = sizes[s];
            if (!pair.first) {
                hear(pair);
                all_is_received(pair);
                continue;
            }
            int *data = filled(n, s);
            MPI_Request request =
                begin(mode, persistent, data, n, strided ? every_second : MPI_INT, pair.peer, variant, pair.comm);
            MPI_Cancel(&request);
            if (way % 3 == 0)
                MPI_Cancel(&request);
            CHECK(end(&request, way++, persistent));
            free(data);
            tell(pair);
            all_is_received(pair);
        }
}

/* What a receive or a matched probe has taken is not cancelled. */
static void matched(Pair pair)
{
    for (int s = 0; s < SIZES; s++)
        for (int mode = 0; mode < MODES; mode++)
            for (int probed = 0; probed < 2; probed++) {
                int n = sizes[s], *data = filled(n, mode);
                MPI_Request request;
                MPI_Message message;
                MPI_Status status;
                if (probed && mode == READY) {
                    free(data);
                    continue;
                }
                if (pair.first) {
                    if (!probed)
                        hear(pair);
                    request = begin(mode, s % 2, data, n, MPI_INT, pair.peer, mode, pair.comm);
                    if (probed)
                        hear(pair);
                    MPI_Cancel(&request);
                    tell(pair);
                    CHECK(!end(&request, s + mode, s % 2));
                } else {
                    memset(data, 0xff, sizeof(int) * (size_t)n);
                    if (probed) {
                        MPI_Mprobe(pair.peer, mode, pair.comm, &message, &status);
                        tell(pair);
                        hear(pair);
                        MPI_Mrecv(data, n, MPI_INT, &message, &status);
                    } else {
                        MPI_Irecv(data, n, MPI_INT, pair.peer, mode, pair.comm, &request);
                        tell(pair);
                        hear(pair);
                        MPI_Wait(&request, &status);
                    }
                    int count, wrong = 0;
                    MPI_Get_count(&status, MPI_INT, &count);
                    for (int i = 0; i < n; i++) wrong += data[i] != mode + i;
                    CHECK(count == n && wrong == 0);
                }
                free(data);
            }
}

/* The one that is meant is cancelled among several that look alike; the others keep their order. */
static void alike(Pair pair)
{
    enum { N = 5 };
    for (int s = 1; s < SIZES; s++)
        for (int mode = 0; mode < 3; mode++)
            for (int which = 0; which < N; which++) {
                int n = sizes[s], *data[N];
                MPI_Request requests[N];
                for (int i = 0; i < N; i++) data[i] = filled(n, 100 * i);
                if (pair.first) {
                    for (int i = 0; i < N; i++)
                        requests[i] = begin(mode, 0, data[i], n, MPI_INT, pair.peer, 3, pair.comm);
                    MPI_Cancel(&requests[which]);
                    CHECK(end(&requests[which], which, 0));
                    tell(pair);
                    for (int i = 0; i < N; i++)
                        if (i != which)
                            CHECK(!end(&requests[i], i, 0));
                } else {
                    hear(pair);
                    for (int i = 0; i < N; i++)
                        if (i != which) {
                            MPI_Recv(data[0], n, MPI_INT, pair.peer, 3, pair.comm, MPI_STATUS_IGNORE);
                            CHECK(data[0][0] == 100 * i && data[0][n - 1] == 100 * i + n - 1);
                        }
                }
                all_is_received(pair);
                for (int i = 0; i < N; i++) free(data[i]);
            }
}

/* A cancelled request may be freed at once. */
static void freed(Pair pair)
{
    for (int s = 0; s < SIZES; s++)
        for (int mode = 0; mode < 3; mode++) {
            int *data = filled(sizes[s], 0), flag = 1;
            if (pair.first) {
                MPI_Request request = begin(mode, 0, data, sizes[s], MPI_INT, pair.peer, 4, pair.comm);
                MPI_Cancel(&request);
                MPI_Request_free(&request);
                tell(pair);
                hear(pair);
            } else {
                hear(pair);
                while (flag) MPI_Iprobe(pair.peer, 4, pair.comm, &flag, MPI_STATUS_IGNORE);
                tell(pair);
            }
            free(data);
        }
}

/* More requests than can be distinguished: those that cannot are sent. */
static void many(Pair pair)
{
    enum { N = 300 };
    MPI_Request requests[N];
    int cancelled[N], values[N];
    for (int round = 0; round < 2; round++) {
        if (pair.first) {
            for (int i = 0; i < N; i++) {
                values[i] = i;
                MPI_Isend(&values[i], 1, MPI_INT, pair.peer, 5, pair.comm, &requests[i]);
            }
            for (int i = N - 1; i >= 0; i--) MPI_Cancel(&requests[i]);
            for (int i = 0; i < N; i++) cancelled[i] = end(&requests[i], i, 0);
            for (int i = 0; i < NAMES; i++) CHECK(cancelled[i]);
            MPI_Send(cancelled, N, MPI_INT, pair.peer, TOKEN, pair.comm);
        } else {
            MPI_Recv(cancelled, N, MPI_INT, pair.peer, TOKEN, pair.comm, MPI_STATUS_IGNORE);
            for (int i = 0; i < N; i++)
                if (!cancelled[i]) {
                    MPI_Recv(values, 1, MPI_INT, pair.peer, 5, pair.comm, MPI_STATUS_IGNORE);
                    CHECK(values[0] == i);
                }
        }
        all_is_received(pair);
    }
}

static void both_ways(Pair pair)
{
    for (int turn = 0; turn < 2; turn++, pair.first = !pair.first) {
        unmatched(pair);
        matched(pair);
        alike(pair);
        freed(pair);
        many(pair);
    }
}

/* Messages of a process to itself. */
static void alone(void)
{
    for (int s = 0; s < SIZES; s++)
        for (int mode = 0; mode < 3; mode++) {
            int *data = filled(sizes[s], 0), flag;
            MPI_Request request = begin(mode, s % 2, data, sizes[s], MPI_INT, 0, 1, MPI_COMM_SELF);
            if (mode == 1)
                MPI_Probe(0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
            MPI_Cancel(&request);
            /* What concerns nobody else is known at once. */
            MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
            CHECK(flag);
            CHECK(end(&request, s + mode, s % 2));
            nothing_is_here(MPI_COMM_SELF);
            MPI_Issend(data, sizes[s], MPI_INT, 0, 1, MPI_COMM_SELF, &request);
            MPI_Recv(data, sizes[s], MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
            MPI_Cancel(&request);
            CHECK(!end(&request, s, 0));
            MPI_Iprobe(0, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
            CHECK(!flag);
            free(data);
        }
}

/* What is cancelled leaves the attached buffer. */
static void room(Pair pair)
{
    enum { N = 100000 };
    int *data = filled(N, 0), size = (int)sizeof(int) * N + MPI_BSEND_OVERHEAD, old;
    void *buffer = malloc((size_t)size);
    MPI_Buffer_detach(&buffer, &old);
    buffer = malloc((size_t)size);
    MPI_Buffer_attach(buffer, size);
    for (int i = 0; i < 20; i++) {
        if (pair.first) {
            MPI_Request request = begin(BUFFERED, i % 2, data, N, MPI_INT, pair.peer, 6, pair.comm);
            MPI_Cancel(&request);
            CHECK(end(&request, i, i % 2));
            tell(pair);
        } else
            hear(pair);
        all_is_received(pair);
    }
    MPI_Buffer_detach(&buffer, &old);
    CHECK(old == size);
    free(buffer);
    free(data);
    MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0);
}

/* Random sends, cancels and receives of all at once, on a communicator of each thread. */
typedef struct {
    MPI_Comm comm;
    unsigned seed;
    int messages;
    int sent, cancelled;
} Storm;

typedef struct {
    MPI_Request request;
    int *data, to, number, persistent;
} Outgoing;

static void *storm(void *argument)
{
    enum { OUT = 12, IN = 3, DATA = 1, END = 2 };
    Storm *s = argument;
    int rank, size, begun = 0, out = 0, ends = 0, reported = 0, got = 0, expected = 0;
    MPI_Comm_rank(s->comm, &rank);
    MPI_Comm_size(s->comm, &size);
    Outgoing outgoing[OUT];
    MPI_Request *requests = malloc(sizeof *requests * (size_t)size);
    struct {
        MPI_Request request;
        int *data;
    } in[IN];
    /* `alive` of each receiver: whether the message went there and was not cancelled. */
    int *alive = calloc((size_t)(size * s->messages), sizeof *alive),
        *received = calloc((size_t)(size * s->messages), sizeof *received),
        *verdict = malloc(sizeof(int) * (size_t)s->messages), *buffer = malloc(sizeof(int) * LONGEST);
    for (int i = 0; i < IN; i++) {
        in[i].request = MPI_REQUEST_NULL;
        in[i].data = malloc(sizeof(int) * LONGEST);
    }
    while (ends < size || got < expected || begun < s->messages || out > 0 || !reported) {
        unsigned dice = next_random(&s->seed) % 8;
        int *news = NULL, count = 0;
        MPI_Status status, last;
        if (dice < 2 && begun < s->messages && out < OUT) {
            Outgoing *o = &outgoing[out++];
            int n = 2 + sizes[next_random(&s->seed) % SIZES] / (next_random(&s->seed) % 8 == 0 ? 1 : 8);
            o->to = (int)(next_random(&s->seed) % (unsigned)size);
            o->number = begun++;
            o->persistent = next_random(&s->seed) % 4 == 0;
            o->data = malloc(sizeof(int) * (size_t)n);
            for (int i = 0; i < n; i++) o->data[i] = o->number + i;
            o->data[1] = n;
            o->request = begin((int)(next_random(&s->seed) % 3), o->persistent, o->data, n, MPI_INT, o->to, DATA, s->comm);
        } else if (dice < 4 && out > 0) {
            Outgoing *o = &outgoing[next_random(&s->seed) % (unsigned)out];
            MPI_Cancel(&o->request);
        } else if (dice < 6 && out > 0) {
            Outgoing *o = &outgoing[next_random(&s->seed) % (unsigned)out];
            int flag, cancelled;
            MPI_Test(&o->request, &flag, &status);
            if (flag) {
                MPI_Test_cancelled(&status, &cancelled);
                s->sent += !cancelled;
                s->cancelled += cancelled;
                alive[o->to * s->messages + o->number] = !cancelled;
                if (o->persistent)
                    MPI_Request_free(&o->request);
                free(o->data);
                *o = outgoing[--out];
            }
        } else if (dice == 6) {
            unsigned which = next_random(&s->seed) % IN;
            int flag, cancelled;
            if (in[which].request == MPI_REQUEST_NULL)
                MPI_Irecv(in[which].data, LONGEST, MPI_INT, MPI_ANY_SOURCE, DATA, s->comm, &in[which].request);
            else {
                if (next_random(&s->seed) % 4 == 0)
                    MPI_Cancel(&in[which].request);
                MPI_Test(&in[which].request, &flag, &status);
                if (flag) {
                    MPI_Test_cancelled(&status, &cancelled);
                    if (!cancelled)
                        news = in[which].data;
                }
            }
        } else {
            int flag;
            MPI_Message message;
            MPI_Improbe(MPI_ANY_SOURCE, DATA, s->comm, &flag, &message, &status);
            if (flag) {
                MPI_Mrecv(buffer, LONGEST, MPI_INT, &message, &status);
                news = buffer;
            }
            MPI_Iprobe(MPI_ANY_SOURCE, END, s->comm, &flag, &last);
            if (flag) {
                int from = last.MPI_SOURCE;
                MPI_Recv(verdict, s->messages, MPI_INT, from, END, s->comm, &last);
                for (int i = 0; i < s->messages; i++) {
                    expected += verdict[i];
                    received[from * s->messages + i] -= verdict[i];
                }
                ends++;
            }
        }
        if (news) {
            int wrong = 0;
            MPI_Get_count(&status, MPI_INT, &count);
            wrong += count != news[1] || news[0] < 0 || news[0] >= s->messages;
            for (int i = 2; i < count; i++) wrong += news[i] != news[0] + i;
            CHECK(!wrong);
            if (!wrong)
                received[status.MPI_SOURCE * s->messages + news[0]]++;
            got++;
        }
        if (!reported && begun == s->messages && out == 0) {
            for (int to = 0; to < size; to++)
                MPI_Isend(alive + to * s->messages, s->messages, MPI_INT, to, END, s->comm, &requests[to]);
            reported = 1;
        }
    }
    MPI_Waitall(size, requests, MPI_STATUSES_IGNORE);
    free(requests);
    int different = 0, flag;
    for (int i = 0; i < size * s->messages; i++) different += received[i] != 0;
    CHECK(different == 0);
    for (int i = 0; i < IN; i++) {
        if (in[i].request != MPI_REQUEST_NULL) {
            MPI_Status status;
            MPI_Cancel(&in[i].request);
            MPI_Wait(&in[i].request, &status);
            MPI_Test_cancelled(&status, &flag);
            CHECK(flag);
        }
        free(in[i].data);
    }
    nothing_is_here(s->comm);
    free(alive);
    free(received);
    free(verdict);
    free(buffer);
    return NULL;
}

static void storms(unsigned seed, int threads, int messages)
{
    enum { MOST = 8 };
    pthread_t ids[MOST];
    Storm all[MOST];
    int rank, counts[2] = {0, 0}, sums[2];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int t = 0; t < threads; t++) {
        all[t] = (Storm){.seed = seed * 31u + (unsigned)(rank * MOST + t), .messages = messages};
        MPI_Comm_dup(MPI_COMM_WORLD, &all[t].comm);
    }
    for (int t = 0; t < threads; t++)
        if (threads == 1)
            storm(&all[t]);
        else
            pthread_create(&ids[t], NULL, storm, &all[t]);
    for (int t = 0; t < threads; t++) {
        if (threads > 1)
            pthread_join(ids[t], NULL);
        counts[0] += all[t].sent;
        counts[1] += all[t].cancelled;
        MPI_Comm_free(&all[t].comm);
    }
    MPI_Allreduce(counts, sums, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    /* Both happen, or it was no test. */
    CHECK(sums[0] > 0 && sums[1] > 0);
}

int main(int argc, char **argv)
{
    int rank, size, provided;
    const char *what = argc > 1 ? argv[1] : "";
    int threads = argc > 3 ? atoi(argv[3]) : 1;
    MPI_Init_thread(&argc, &argv, threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &every_second);
    MPI_Type_commit(&every_second);
    MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0);
    MPI_Comm parent, children;
    MPI_Comm_get_parent(&parent);
    int spawned = parent != MPI_COMM_NULL;
    if (spawned) {
        both_ways((Pair){parent, rank, 0});
        MPI_Comm_disconnect(&parent);
    } else if (!strcmp(what, "spawn")) {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, size, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
        both_ways((Pair){children, rank, 1});
        MPI_Comm_disconnect(&children);
    } else if (!strcmp(what, "storm")) {
        storms((unsigned)atoi(argv[2]), threads, argc > 4 ? atoi(argv[4]) : 300);
    } else {
        Pair pair = {MPI_COMM_WORLD, rank ^ 1, rank % 2 == 0};
        alone();
        if (pair.peer < size) {
            both_ways(pair);
            room(pair);
        }
        /* As an intercommunicator: those with even ranks and those with odd ones. */
        MPI_Comm half, between;
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
        if (size > 1) {
            MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 7, &between);
            if (pair.peer < size)
                both_ways((Pair){between, rank / 2, pair.first});
            MPI_Comm_free(&between);
        }
        MPI_Comm_free(&half);
    }
    void *buffer;
    int old;
    MPI_Buffer_detach(&buffer, &old);
    MPI_Type_free(&every_second);
    if (!spawned)
        return finish();
    MPI_Finalize();
    return failures != 0;
}
