/* Errors in the use of MPI, one for each name; `right` has none. Marks name lines. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;
static char file[4096];

static void right(void)
{
    int sent = rank, got = -1, all[64];
    float part[4] = {0};
    MPI_Request requests[2];
    MPI_Comm half;
    MPI_Datatype row;
    MPI_Win win;
    MPI_Isend(&sent, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Allgather(&sent, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    MPI_Allreduce(MPI_IN_PLACE, &sent, 1, MPI_INT, MPI_MAX, half);
    MPI_Type_contiguous(4, MPI_FLOAT, &row);
    MPI_Type_commit(&row);
    MPI_Sendrecv(part, 1, row, (rank + 1) % size, 2, part + 0, 0, MPI_FLOAT, MPI_PROC_NULL, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Recv(part, 4, MPI_FLOAT, (rank + size - 1) % size, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Win_create(all, sizeof all, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(&sent, 1, MPI_INT, (rank + 1) % size, rank, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    MPI_Type_free(&row);
    MPI_Comm_free(&half);
}

static void type(void)
{
    int number = 1;
    float other;
    if (rank == 0) {
        MPI_Send(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD); /* LINE type sent */
    } else if (rank == 1) {
        MPI_Recv(&other, 1, MPI_FLOAT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE type received */
    }
}

static void order(void)
{
    int number = 1, sum;
    if (rank == 0) {
        MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); /* LINE order first */
    } else {
        MPI_Barrier(MPI_COMM_WORLD); /* LINE order second */
    }
}

static void operation(void)
{
    int number = 1, sum;
    MPI_Allreduce(&number, &sum, 1, MPI_INT, rank ? MPI_MAX : MPI_SUM, MPI_COMM_WORLD); /* LINE operation */
}

static void root(void)
{
    int number = 1;
    MPI_Bcast(&number, 1, MPI_INT, rank ? 1 : 0, MPI_COMM_WORLD); /* LINE root */
}

static void lost(void)
{
    static int number;
    MPI_Request request;
    if (rank == 0) {
        MPI_Isend(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &request); /* LINE lost */
    } else if (rank == 1) {
        MPI_Recv(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void leak(void)
{
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy); /* LINE leak */
}

static void written(void)
{
    int number = 1;
    MPI_Request request;
    if (rank == 0) {
        MPI_Isend(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &request); /* LINE written */
        number = 2;
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void overlap(void)
{
    int numbers[2];
    MPI_Request requests[2];
    if (rank == 0) {
        MPI_Irecv(numbers, 2, MPI_INT, 1, 3, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(&numbers[1], 1, MPI_INT, 1, 4, MPI_COMM_WORLD, &requests[1]); /* LINE overlap */
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    } else if (rank == 1) {
        memset(numbers, 0, sizeof numbers);
        MPI_Send(numbers, 2, MPI_INT, 0, 3, MPI_COMM_WORLD);
        MPI_Send(numbers, 1, MPI_INT, 0, 4, MPI_COMM_WORLD);
    }
}

static void argument(void)
{
    int number = 1;
    MPI_Send(&number, 1, MPI_INT, size + 7, 3, MPI_COMM_WORLD); /* LINE argument */
}

static void committed(void)
{
    MPI_Datatype pair;
    int numbers[2] = {0};
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Bcast(numbers, 1, pair, 0, MPI_COMM_WORLD); /* LINE committed */
    MPI_Type_free(&pair);
}

static void epoch(void)
{
    int memory[4] = {0}, number = 1;
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Put(&number, 1, MPI_INT, 0, 0, 1, MPI_INT, win); /* LINE epoch */
    MPI_Win_free(&win);
}

static void conflict(void)
{
    int memory[4] = {0}, number = 1;
    MPI_Win win;
    MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(&number, 1, MPI_INT, 0, 0, 1, MPI_INT, win); /* LINE conflict */
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
}

static void race(void)
{
    int number = rank;
    if (rank == 1) {
        MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE race */
        MPI_Recv(&number, 1, MPI_INT, number == 0 ? 2 : 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 0 || rank == 2) {
        MPI_Send(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
    }
}

/* The same with the order that hangs: the message of rank 0 is sent when that of rank 2 has been taken, which only a file says. */
static void taken(void)
{
    int number = rank;
    if (rank == 1) {
        MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE taken first */
        fclose(fopen(file, "w"));
        MPI_Recv(&number, 1, MPI_INT, 2, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE taken wanted */
    } else if (rank == 0 || rank == 2) {
        while (rank == 0 && access(file, F_OK) != 0) {
        }
        MPI_Send(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
    }
}

static void unmatched(void)
{
    int number = 1;
    if (rank == 0) {
        MPI_Send(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD); /* LINE unmatched */
    }
}

static void tag(void)
{
    int number = 1;
    if (rank == 0) {
        MPI_Send(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD); /* LINE tag sent */
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        MPI_Recv(&number, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE tag received */
    }
}

static void start(void)
{
    int number = 1;
    MPI_Request request;
    MPI_Send_init(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE); /* LINE start */
    MPI_Request_free(&request);
    if (rank == 0) {
        MPI_Recv(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* A message comes for a receive that is never started, while the wait for it ends at once. */
static void received(void)
{
    int number = 1;
    MPI_Request request;
    if (rank == 0) {
        MPI_Recv_init(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE); /* LINE received */
        MPI_Request_free(&request);
    } else if (rank == 1) {
        MPI_Send(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    }
}

/* The datatypes of which another one is made are new handles, which the program frees; their numbers come again. */
static void parts(void)
{
    MPI_Datatype pair, pairs;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_contiguous(3, pair, &pairs);
    for (int round = 0; round < 300; round++) {
        int count;
        MPI_Datatype part, again;
        MPI_Type_get_contents(pairs, 1, 0, 1, &count, NULL, &part);
        MPI_Type_contiguous(count, part, &again);
        MPI_Type_free(&part);
        MPI_Type_free(&again);
    }
    MPI_Type_free(&pairs);
    MPI_Type_free(&pair);
}

/* An inactive request that nobody misses: its wait ends at once, as the standard says. */
static void inactive(void)
{
    int number = 1;
    MPI_Request request;
    MPI_Recv_init(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}

/* A right program by its calls alone, of which two ranks can never go on. */
/* Two ranks come to a barrier of one communicator, and the third to that of another one. */
static void apart(void)
{
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    if (rank == 0) {
        MPI_Barrier(copy); /* LINE apart copy */
    } else {
        MPI_Barrier(MPI_COMM_WORLD); /* LINE apart world */
    }
    MPI_Comm_free(&copy);
}

/* A master that takes messages in any order; if it wants one order, it is wrong. */
static void collect(void)
{
    for (int i = 1; rank == 0 && i < size; i++) {
        int number;
        MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE wanted */
    }
    if (rank != 0) {
        MPI_Send(&rank, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
    }
}

static void wanted(void)
{
    collect();
    if (rank == 0) {
        abort();
    }
}

/* Rank 1 ends without a word, as is right for a program without MPI. */
static void early(void)
{
    int number = 1;
    if (rank == 0) {
        MPI_Send(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
    }
    if (rank == 1) {
        MPI_Recv(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE early */
        exit(0);
    }
}

static void endless(void)
{
    printf("begun\n");
    fflush(stdout);
    for (;;) {
        pause();
    }
}

static void crossed(void)
{
    int number = 1;
    if (rank < 2) {
        MPI_Recv(&number, 1, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE crossed */
        MPI_Send(&number, 1, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*does)(void);
    } all[] = {{"right", right},       {"type", type},           {"order", order},       {"operation", operation},
               {"root", root},         {"lost", lost},           {"leak", leak},         {"written", written},
               {"overlap", overlap},   {"argument", argument},   {"committed", committed}, {"epoch", epoch},
               {"conflict", conflict}, {"race", race},           {"unmatched", unmatched}, {"tag", tag},
               {"start", start},       {"crossed", crossed},     {"apart", apart},         {"wanted", wanted},
               {"collect", collect},   {"taken", taken},         {"received", received},   {"inactive", inactive},
               {"early", early},       {"endless", endless},     {"parts", parts}};
    snprintf(file, sizeof file, "%s.taken", argv[0]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (argc > 1 && strcmp(argv[1], all[i].name) == 0) {
            all[i].does();
        }
    }
    MPI_Finalize();
    return 0;
}
