/* Ranks die, the others recover: revoke, shrink, agree, again and again. Arguments: what, seed, how many die. */
#include "check.h"

#include <mpi_ext.h>
#include <signal.h>
#include <unistd.h>

enum { MANY = 60000 };

static MPI_Comm comm;
static int dead_ends, rounds;

/* One round of work in which everything is checked that can be. Returns the first error. */
static int work(int round, int *sink)
{
    int rank, size, code;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int *data = malloc(MANY * sizeof *data), *got = malloc(MANY * sizeof *got), one = 1, all = 0;
    MPI_Request requests[2];
    for (int i = 0; i < MANY; i++)
        data[i] = i + rank;
    code = MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm);
    if (!code)
        CHECK(all == size);
    if (!code)
        code = MPI_Bcast(data, round % 2 ? 10 : MANY, MPI_INT, round % size, comm);
    if (!code)
        code = MPI_Allreduce(data, got, MANY, MPI_INT, MPI_MAX, comm);
    if (!code) {
        int length = round % 3 ? 10 : MANY;
        MPI_Irecv(got, length, MPI_INT, (rank + size - 1) % size, 4, comm, &requests[0]);
        MPI_Isend(data, length, MPI_INT, (rank + 1) % size, 4, comm, &requests[1]);
        int first = MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        if (first)
            MPIX_Comm_revoke(comm);
        int second = MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        code = first ? first : second;
    }
    if (!code) {
        MPI_Iallreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm, &requests[0]);
        code = MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        if (!code)
            CHECK(all == size);
    }
    if (!code)
        code = MPI_Barrier(comm);
    *sink += data[0];
    free(data);
    free(got);
    return code;
}

static void recover(void)
{
    MPI_Comm smaller;
    int revoked = 0, before, after;
    CHECK(MPIX_Comm_revoke(comm) == MPI_SUCCESS);
    CHECK(MPIX_Comm_is_revoked(comm, &revoked) == MPI_SUCCESS && revoked);
    CHECK(class_of(MPI_Barrier(comm)) == MPIX_ERR_REVOKED);
    CHECK(class_of(MPI_Send(&revoked, 1, MPI_INT, 0, 0, comm)) == MPIX_ERR_REVOKED);
    MPI_Comm_size(comm, &before);
    if (rounds % 2) {
        CHECK(MPIX_Comm_shrink(comm, &smaller) == MPI_SUCCESS);
    } else {
        MPI_Request request;
        CHECK(MPIX_Comm_ishrink(comm, &smaller, &request) == MPI_SUCCESS);
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    MPI_Comm_size(smaller, &after);
    CHECK(after <= before);
    dead_ends += before - after;
    if (comm != MPI_COMM_WORLD)
        MPI_Comm_free(&comm);
    comm = smaller;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

/* Seeds say which ranks die; a child of each of them does it, at a moment that nothing in here can
 * foresee. */
static void random_deaths(unsigned seed, int deaths)
{
    int world_rank, world_size, sink = 0;
    unsigned state = seed * 2654435761u + 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    for (int i = 0; i < deaths; i++) {
        int who = 1 + (int)(next_random(&state) % (unsigned)(world_size - 1));
        int when = 500 + (int)(next_random(&state) % 60000);
        pid_t own = getpid();
        if (who == world_rank && fork() == 0) {
            usleep((unsigned)when);
            if (getppid() == own)
                kill(own, SIGKILL);
            _exit(0);
        }
    }
    comm = MPI_COMM_WORLD;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    double end = MPI_Wtime() + 0.4;
    for (int done = 0; !done; rounds++) {
        int code = work(rounds, &sink), ok = code == MPI_SUCCESS && MPI_Wtime() < end, flag = ok;
        if (code)
            CHECK(class_of(code) == MPIX_ERR_PROC_FAILED || class_of(code) == MPIX_ERR_REVOKED);
        /* Revoked first, so that nobody stays behind in the work. */
        if (code)
            MPIX_Comm_revoke(comm);
        int agreed = MPIX_Comm_agree(comm, &flag);
        CHECK(agreed == MPI_SUCCESS || class_of(agreed) == MPIX_ERR_PROC_FAILED);
        if (code || agreed || !flag) {
            done = MPI_Wtime() >= end;
            flag = done;
            recover();
            MPIX_Comm_agree(comm, &flag);
            done = flag;
        }
    }
    int rank, size, all;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, comm);
    if (rank == 0 && all == 0)
        printf("%d of %d\n", size, world_size);
}

/* What is reported to the live ranks when rank 1 has died. */
static void report(void)
{
    int rank, size, x = 0, flag, code, *large = calloc(MANY, sizeof *large);
    MPI_Request request, any;
    MPI_Status status;
    MPI_Group failed, group;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm copy;
    MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request);
    MPI_Wait(&request, &status);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        MPI_Send(&rank, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
        raise(SIGKILL);
    }
    /* Nobody sends this, but somebody might have; it goes on after the failure is acknowledged. */
    MPI_Irecv(&x, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &any);
    code = MPI_Recv(&x, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(class_of(code) == MPIX_ERR_PROC_FAILED);
    if (rank == 0)
        CHECK(MPI_Recv(&x, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS && x == 1);
    CHECK(class_of(MPI_Wait(&any, &status)) == MPIX_ERR_PROC_FAILED_PENDING && any != MPI_REQUEST_NULL);
    CHECK(class_of(MPI_Recv(&x, 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &status)) == MPIX_ERR_PROC_FAILED);
    CHECK(class_of(MPI_Recv(&x, 1, MPI_INT, MPI_ANY_SOURCE, 8, copy, &status)) == MPIX_ERR_PROC_FAILED);
    CHECK(class_of(MPI_Probe(1, 3, MPI_COMM_WORLD, &status)) == MPIX_ERR_PROC_FAILED);
    CHECK(class_of(MPI_Iprobe(1, 3, MPI_COMM_WORLD, &flag, &status)) == MPIX_ERR_PROC_FAILED);
    CHECK(class_of(MPI_Send(&x, 1, MPI_INT, 1, 0, MPI_COMM_WORLD)) == MPIX_ERR_PROC_FAILED);
    CHECK(class_of(MPI_Ssend(large, MANY, MPI_INT, 1, 0, MPI_COMM_WORLD)) == MPIX_ERR_PROC_FAILED);
    CHECK(class_of(MPI_Barrier(MPI_COMM_WORLD)) == MPIX_ERR_PROC_FAILED);
    code = MPI_Ibcast(large, MANY, MPI_INT, 0, MPI_COMM_WORLD, &request);
    if (!code)
        code = MPI_Wait(&request, &status);
    CHECK(class_of(code) == MPIX_ERR_PROC_FAILED);
    CHECK(MPIX_Comm_get_failed(MPI_COMM_WORLD, &failed) == MPI_SUCCESS);
    MPI_Group_size(failed, &x);
    CHECK(x == 1);
    MPI_Group_free(&failed);
    flag = 7;
    CHECK(class_of(MPIX_Comm_agree(MPI_COMM_WORLD, &flag)) == MPIX_ERR_PROC_FAILED && flag == 7);
    CHECK(MPIX_Comm_failure_ack(MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPIX_Comm_failure_get_acked(MPI_COMM_WORLD, &failed) == MPI_SUCCESS);
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    int zero = 0, who = -1;
    MPI_Group_translate_ranks(failed, 1, &zero, group, &who);
    CHECK(who == 1);
    MPI_Group_free(&failed);
    MPI_Group_free(&group);
    MPIX_Comm_ack_failed(MPI_COMM_WORLD, 5, &x);
    CHECK(x == 1);
    flag = 6 + (rank == 0);
    MPIX_Comm_iagree(MPI_COMM_WORLD, &flag, &request);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(flag == 6);
    /* The live ranks go on communicating, from any source too. */
    int next = (rank + 1) % size == 1 ? 2 % size : (rank + 1) % size;
    MPI_Send(&rank, 1, MPI_INT, next, 1, MPI_COMM_WORLD);
    CHECK(MPI_Wait(&any, &status) == MPI_SUCCESS && status.MPI_SOURCE != 1 && x == status.MPI_SOURCE);
    CHECK(MPIX_Comm_shrink(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
    int total, one = 1;
    CHECK(MPI_Allreduce(&one, &total, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS && total == size - 1);
    MPI_Allreduce(&failures, &total, 1, MPI_INT, MPI_SUM, comm);
    if (rank == 0 && total == 0)
        printf("ok\n");
    free(large);
}

/* Ranks 0 and 1 wait for partitions of each other that never come, one for a sender that never introduced itself. */
static void partitions_of_revoked(void)
{
    int rank, out[4] = {0}, in[4];
    MPI_Comm left;
    MPI_Request requests[3];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &left);
    MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
    if (rank < 2) {
        MPI_Psend_init(out, 4, 1, MPI_INT, 1 - rank, 5, left, MPI_INFO_NULL, &requests[0]);
        MPI_Precv_init(in, 4, 1, MPI_INT, 1 - rank, 5, left, MPI_INFO_NULL, &requests[1]);
        MPI_Precv_init(in, 4, 1, MPI_INT, 1 - rank, 6, left, MPI_INFO_NULL, &requests[2]);
        MPI_Startall(3, requests);
        CHECK(MPI_Pready_range(0, 2, requests[0]) == MPI_SUCCESS);
        for (int here = 0; !here;)
            MPI_Parrived(requests[1], 2, &here);
        if (rank == 0)
            MPIX_Comm_revoke(left);
        for (int i = 0; i < 3; i++)
            CHECK(class_of(MPI_Wait(&requests[i], MPI_STATUS_IGNORE)) == MPIX_ERR_REVOKED);
        CHECK(class_of(MPI_Pready(3, requests[0])) == MPIX_ERR_REVOKED);
        MPI_Start(&requests[0]);
        CHECK(class_of(MPI_Wait(&requests[0], MPI_STATUS_IGNORE)) == MPIX_ERR_REVOKED);
        for (int i = 0; i < 3; i++)
            MPI_Request_free(&requests[i]);
    }
    MPI_Comm_free(&left);
}

/* Revoking without any failure: a rank that waits is released. */
static void revoked(void)
{
    int rank, x;
    MPI_Request requests[2];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (rank == 0) {
        usleep(50000);
        MPIX_Comm_revoke(comm);
    } else if (rank == 1) {
        CHECK(class_of(MPI_Recv(&x, 1, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE)) == MPIX_ERR_REVOKED);
    } else if (rank == 2) {
        CHECK(class_of(MPI_Barrier(comm)) == MPIX_ERR_REVOKED);
    } else {
        int *large = calloc(MANY, sizeof *large);
        MPI_Issend(large, MANY, MPI_INT, 0, 3, comm, &requests[0]);
        MPI_Issend(&rank, 1, MPI_INT, 0, 3, comm, &requests[1]);
        CHECK(class_of(MPI_Wait(&requests[0], MPI_STATUS_IGNORE)) == MPIX_ERR_REVOKED);
        CHECK(class_of(MPI_Wait(&requests[1], MPI_STATUS_IGNORE)) == MPIX_ERR_REVOKED);
        free(large);
    }
    CHECK(class_of(MPI_Bcast(&x, 1, MPI_INT, 0, comm)) == MPIX_ERR_REVOKED);
    partitions_of_revoked();
    int flag = 1;
    CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag == 1);
    MPI_Comm copy;
    CHECK(MPIX_Comm_shrink(comm, &copy) == MPI_SUCCESS);
    MPI_Barrier(copy);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&comm);
    int all;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("ok\n");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (!strcmp(argv[1], "random"))
        random_deaths((unsigned)atoi(argv[2]), atoi(argv[3]));
    else if (!strcmp(argv[1], "report"))
        report();
    else if (!strcmp(argv[1], "revoked"))
        revoked();
    else
        CHECK(!"a mode that this program has");
    MPI_Finalize();
    return 0;
}
