/* Programs that are slow for one cause each, which the word names. Work is time that passes without
   a call, the same whatever else the machine does. A unit of it is 3 ms: beside twenty busy programs
   the starts of ranks are up to 240 ms apart, which is a cause as well, and shall not be the first. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MANY 300000
static int rank, ranks, value;
static double *large;

static void work(int units) {
    struct timespec time = {units * 3 / 1000, units * 3 % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

static void receive(int from, int tag) {
    MPI_Recv(&value, 1, MPI_INT, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void late_sender(void) {
    if (rank == 1) {
        work(200);
        MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD); /* LINE late-sender */
    } else if (rank == 0) {
        receive(1, 1);
    }
}

static void late_isend(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 2) {
        work(200);
        MPI_Isend(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &request); /* LINE late-isend */
    } else if (rank == 0) {
        MPI_Irecv(&value, 1, MPI_INT, 2, 1, MPI_COMM_WORLD, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void late_receiver(void) {
    if (rank == 1) {
        MPI_Ssend(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    } else if (rank == 0) {
        work(200);
        MPI_Recv(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE late-receiver */
    }
}

static void large_message(void) {
    if (rank == 3) {
        MPI_Send(large, MANY, MPI_DOUBLE, 2, 1, MPI_COMM_WORLD);
    } else if (rank == 2) {
        work(200);
        MPI_Recv(large, MANY, MPI_DOUBLE, 3, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE large-message */
    }
}

static void barrier(void) {
    work(rank == 2 ? 200 : 20);
    MPI_Barrier(MPI_COMM_WORLD); /* LINE barrier */
}

static void allreduce(void) {
    for (int i = 0; i < 5; i++) {
        int sum;
        work(rank == 1 ? 50 : 5);
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); /* LINE allreduce */
    }
}

static void alltoall(void) {
    int all[64];
    work(rank == 3 ? 200 : 20);
    MPI_Alltoall(large, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD); /* LINE alltoall */
}

static void iallreduce(void) {
    int sum;
    MPI_Request request;
    work(rank == 3 ? 200 : 20);
    MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request); /* LINE iallreduce */
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void late_root(void) {
    work(rank == 0 ? 200 : 0);
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD); /* LINE late-root */
}

static void scatter(void) {
    int all[64] = {0};
    work(rank == 1 ? 200 : 0);
    MPI_Scatter(all, 1, MPI_INT, &value, 1, MPI_INT, 1, MPI_COMM_WORLD); /* LINE scatter */
}

static void early_reduce(void) {
    int sum;
    work(rank == 3 ? 200 : 0);
    MPI_Reduce(&value, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD); /* LINE early-reduce */
}

static void gather(void) {
    int all[64];
    work(rank == 2 ? 200 : 0);
    MPI_Gather(&value, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD); /* LINE gather */
}

/* Each waits for the one before it, and works then. */
static void chain(void) {
    if (rank > 0)
        receive(rank - 1, 1);
    work(80);
    if (rank + 1 < ranks)
        MPI_Send(&value, 1, MPI_INT, rank + 1, 1, MPI_COMM_WORLD); /* LINE chain */
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 answers all others, one by one, with work between. */
static void server(void) {
    if (rank == 0) {
        for (int i = 1; i < ranks; i++) {
            receive(i, 1);
            work(80);
            MPI_Send(&value, 1, MPI_INT, i, 2, MPI_COMM_WORLD); /* LINE server */
        }
    } else {
        MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        receive(0, 2);
    }
}

/* Rank 0 waits for rank 1 first, while messages of the others are there, and works on each. */
static void order(void) {
    if (rank == 0) {
        for (int i = 1; i < ranks; i++) {
            MPI_Recv(&value, 1, MPI_INT, i, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE order */
            work(60);
        }
    } else {
        work(rank == 1 ? 200 : 10);
        MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        work(rank == 1 ? 180 : 370); /* So that all end together. */
    }
}

/* Who has a lock of rank 0's window works meanwhile. */
static void lock(void) {
    MPI_Win window;
    MPI_Win_create(&value, sizeof value, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank > 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        work(80);
        MPI_Win_unlock(0, window); /* LINE lock */
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&window);
}

/* Rank 1 is late with its window. */
static void post(void) {
    MPI_Win window;
    MPI_Group all, one;
    int other = 1 - rank;
    MPI_Win_create(&value, sizeof value, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    if (rank < 2) {
        MPI_Group_incl(all, 1, &other, &one);
        if (rank == 0) {
            MPI_Win_start(one, 0, window);
            MPI_Put(&rank, 1, MPI_INT, 1, 0, 1, MPI_INT, window);
            MPI_Win_complete(window);
        } else {
            work(200);
            MPI_Win_post(one, 0, window); /* LINE post */
            MPI_Win_wait(window);
        }
    }
    MPI_Win_free(&window);
}

/* Rank 2 writes a file, the others do not. */
static void file(void) {
    MPI_File file;
    MPI_File_open(MPI_COMM_SELF, rank == 2 ? "file" : "other", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2)
        for (int i = 0; i < 40; i++) {
            MPI_File_write_at(file, 0, large, MANY, MPI_DOUBLE, MPI_STATUS_IGNORE);
            MPI_File_sync(file); /* LINE file */
        }
    MPI_Barrier(MPI_COMM_WORLD); /* LINE after-file */
    MPI_File_close(&file);
}

/* Rank 1 takes new memory all the time. */
static void faults(void) {
    for (int i = 0; i < 10; i++) {
        size_t length = rank == 1 ? 32 << 20 : 4096;
        volatile char *memory = malloc(length);
        for (size_t at = 0; at < length; at += 4096)
            memory[at] = 1;
        free((void *)memory);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* LINE faults */
}

/* All send to rank 0 at once, and wait until each is taken, which takes a while. */
static void flood(void) {
    if (rank == 0) {
        for (int i = 1; i < ranks; i++) {
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* LINE flood */
            work(80);
        }
    } else {
        MPI_Ssend(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    large = calloc(MANY, sizeof *large);
    const struct { const char *name; void (*run)(void); } all[] = {
        {"late-sender", late_sender}, {"late-isend", late_isend}, {"late-receiver", late_receiver},
        {"large-message", large_message}, {"barrier", barrier}, {"allreduce", allreduce},
        {"alltoall", alltoall}, {"iallreduce", iallreduce}, {"late-root", late_root},
        {"scatter", scatter}, {"early-reduce", early_reduce}, {"gather", gather}, {"chain", chain},
        {"server", server}, {"order", order}, {"lock", lock}, {"post", post}, {"file", file},
        {"faults", faults}, {"flood", flood},
    };
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(argv[1], all[i].name) == 0)
            all[i].run();
    free(large);
    MPI_Finalize();
    return 0;
}
