/* Memory that several calls use, right in those whose names end so. Marks name lines. */
#include <mpi.h>
#include <string.h>

static int rank, size, left, right;
static int given[64], got[64];

/* Nothing but MPI_Request_get_status says that these are complete before their memory is used again. */
static void complete_right(void)
{
    MPI_Request requests[2];
    for (int of_send = 0; of_send < 2; of_send++) {
        MPI_Isend(given, 4, MPI_INT, right, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(got, 4, MPI_INT, left, 1, MPI_COMM_WORLD, &requests[1]);
        for (int i = 0, is_complete = 0; i < 2; i += is_complete) {
            MPI_Request_get_status(requests[i], &is_complete, MPI_STATUS_IGNORE);
        }
        given[0] = got[0] = 7;
        MPI_Sendrecv(of_send ? got : given, 4, MPI_INT, right, 2, of_send ? given : got, 4, MPI_INT, left, 2,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}

/* What goes to nobody and comes from nobody uses no memory. */
static void nobody_right(void)
{
    MPI_Request requests[3];
    MPI_Irecv(got, 4, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(given, 4, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Isendrecv(given, 4, MPI_INT, MPI_PROC_NULL, 1, got, 4, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[2]);
    MPI_Sendrecv(got, 4, MPI_INT, right, 2, given, 4, MPI_INT, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
}

static void put(int what, int at, MPI_Win win)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
    MPI_Put(&what, 1, MPI_INT, 1, at, 1, MPI_INT, win);
    MPI_Win_unlock(1, win);
}

/* Rank 1 knows by a value in its window that the others are there, and sends them. */
static void polled_right(void)
{
    MPI_Win win;
    MPI_Win_create(got, sizeof got, sizeof *got, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    if (rank == 0) {
        put(5, 1, win);
        put(1, 0, win);
    }
    for (int is_there = rank != 1; !is_there;) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        is_there = *(volatile int *)got;
        MPI_Win_unlock(1, win);
    }
    if (rank == 1) {
        MPI_Send(got + 1, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    } else if (rank == 0) {
        MPI_Recv(given, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Bcast(rank == 1 ? got + 1 : given, 1, MPI_INT, 1, MPI_COMM_WORLD);
    MPI_Win_free(&win);
}

/* Side by side, in place, and what means nothing on this rank. */
static void apart_right(void)
{
    int counts[16], places[16], is_root = rank == 0, n = 0;
    int *none = NULL;
    MPI_Request requests[8];
    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        places[i] = 2 * i;
    }
    MPI_Iallgatherv(given, 1, MPI_INT, got, counts, places, MPI_INT, MPI_COMM_WORLD, &requests[n++]);
    MPI_Iallreduce(given, got + 1, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[n++]);
    MPI_Igather(is_root ? MPI_IN_PLACE : given, 1, MPI_INT, is_root ? got + 10 : none, 1, MPI_INT, 0, MPI_COMM_WORLD,
                &requests[n++]);
    MPI_Iscatter(is_root ? given : none, 1, MPI_INT, is_root ? MPI_IN_PLACE : got + 20, 1, MPI_INT, 0, MPI_COMM_WORLD,
                 &requests[n++]);
    MPI_Ireduce(given, is_root ? got + 21 : got, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, &requests[n++]);
    MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, got + 30, 1, MPI_INT, MPI_COMM_WORLD, &requests[n++]);
    MPI_Iexscan(given, rank == 0 ? got : got + 22, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[n++]);
    MPI_Sendrecv(given, 1, MPI_INT, right, 2, got + 40, 1, MPI_INT, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
}

static void probe(MPI_Message *message)
{
    MPI_Send(given, 1, MPI_INT, right, 1, MPI_COMM_WORLD); /* LINE probed sent */
    MPI_Mprobe(left, 1, MPI_COMM_WORLD, message, MPI_STATUS_IGNORE);
}

static void probed_right(void)
{
    MPI_Message message;
    MPI_Request request;
    for (int i = 0; i < 2; i++) {
        probe(&message);
        MPI_Imrecv(got, 1, MPI_INT, &message, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Mprobe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        MPI_Imrecv(got, 1, MPI_FLOAT, &message, &request);
        got[0] = 1;
        MPI_Bcast(got, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void receive_into(int *buffer)
{
    MPI_Sendrecv(given + 60, 1, MPI_INT, right, 2, buffer, 1, MPI_INT, left, 2, MPI_COMM_WORLD, /* LINE used */
                 MPI_STATUS_IGNORE);
}

static void reduced(void)
{
    MPI_Request request;
    MPI_Iallreduce(given, got, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request); /* LINE reduced */
    receive_into(got + 3);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void started(void)
{
    MPI_Request request;
    MPI_Bcast_init(got, 4, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request); /* LINE started */
    MPI_Start(&request);
    receive_into(got + 3);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}

static void gathered(void)
{
    int counts[16], places[16];
    MPI_Request request;
    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        places[i] = 2 * i;
    }
    MPI_Iallgatherv(given, 1, MPI_INT, got, counts, places, MPI_INT, MPI_COMM_WORLD, &request); /* LINE gathered */
    receive_into(got + 4);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void exchanged(void)
{
    MPI_Request request;
    MPI_Isendrecv(given, 4, MPI_INT, right, 1, got, 4, MPI_INT, left, 1, MPI_COMM_WORLD, &request); /* LINE exchanged */
    receive_into(got + 3);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void sent(void)
{
    MPI_Request request;
    MPI_Irecv(got, 4, MPI_INT, left, 1, MPI_COMM_WORLD, &request); /* LINE sent */
    MPI_Allreduce(got, given, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); /* LINE used in sum */
    MPI_Send(given, 4, MPI_INT, right, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void probed(void)
{
    float other;
    MPI_Message message;
    probe(&message);
    MPI_Mrecv(&other, 1, MPI_FLOAT, &message, MPI_STATUS_IGNORE); /* LINE probed */
}

static void lost(void)
{
    MPI_Message message;
    MPI_Request request;
    probe(&message);
    MPI_Imrecv(got, 1, MPI_INT, &message, &request); /* LINE lost */
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*does)(void);
    } all[] = {{"complete_right", complete_right}, {"nobody_right", nobody_right}, {"polled_right", polled_right},
               {"apart_right", apart_right},       {"probed_right", probed_right}, {"reduced", reduced},
               {"started", started},               {"gathered", gathered},         {"exchanged", exchanged},
               {"sent", sent},                     {"probed", probed},             {"lost", lost}};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    left = (rank + size - 1) % size;
    right = (rank + 1) % size;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (argc > 1 && strcmp(argv[1], all[i].name) == 0) {
            all[i].does();
        }
    }
    MPI_Finalize();
    return 0;
}
