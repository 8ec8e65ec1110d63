/* Ranks die at moments that a seed chooses, alone or several at once, in whatever call they are in;
   the others recover and finish. All live ranks must have seen the same agreements: flags, errors
   and groups. Arguments: seed, deaths, steps, and "spawn" when processes may be spawned too. */
#include "check.h"

#include <mpi_ext.h>
#include <signal.h>
#include <stdint.h>
#include <sys/time.h>
#include <unistd.h>

enum { LONG = 50000, MOST = 8 };

enum { BARRIER, SUM, LONG_BROADCAST, LONG_MAXIMUM, RING, LONG_RING, LATER_SUM, GATHER, AGREE, LATER_AGREE, SHRINK, REVOKE, DUP,
       SPAWN, KINDS };

static MPI_Comm comm;
static int in[LONG], out[LONG];
/* What was agreed upon, all of it. */
static uint64_t history = 14695981039346656037u;

static void note(unsigned value)
{
    history = (history ^ value) * 1099511628211u;
}

static void die(int signal)
{
    (void)signal;
    kill(getpid(), SIGKILL);
}

/* Dies after that time, wherever it is then. */
static void die_after(int microseconds)
{
    struct itimerval when = {.it_value = {.tv_usec = microseconds + 1}};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &when, NULL);
}

/* An error that is due to a failure, which the agreements that follow do not hide. */
static int expected(int code)
{
    int class = class_of(code);
    return class == MPI_SUCCESS || class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_REVOKED;
}

static int agree(int *flag, int later)
{
    int code;
    if (later) {
        MPI_Request request;
        code = MPIX_Comm_iagree(comm, flag, &request);
        if (!code)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        code = MPIX_Comm_agree(comm, flag);
    }
    CHECK(class_of(code) == MPI_SUCCESS || class_of(code) == MPIX_ERR_PROC_FAILED);
    note((unsigned)*flag);
    note((unsigned)class_of(code));
    return code;
}

static void shrink(int later)
{
    MPI_Comm smaller;
    MPI_Group world, group;
    int size, here[MOST], there[MOST];
    if (later) {
        MPI_Request request;
        CHECK(MPIX_Comm_ishrink(comm, &smaller, &request) == MPI_SUCCESS);
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    } else {
        CHECK(MPIX_Comm_shrink(comm, &smaller) == MPI_SUCCESS);
    }
    if (comm != MPI_COMM_WORLD)
        MPI_Comm_free(&comm);
    comm = smaller;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(comm, &group);
    MPI_Group_size(group, &size);
    for (int i = 0; i < size; i++)
        here[i] = i;
    MPI_Group_translate_ranks(group, size, here, world, there);
    note((unsigned)size);
    for (int i = 0; i < size; i++)
        note((unsigned)there[i]);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
}

static int ring(int rank, int size, int count)
{
    MPI_Request requests[2];
    MPI_Irecv(in, count, MPI_INT, (rank + size - 1) % size, 4, comm, &requests[0]);
    MPI_Isend(out, count, MPI_INT, (rank + 1) % size, 4, comm, &requests[1]);
    int first = MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    /* So that the next one does not wait for this rank. */
    if (first)
        MPIX_Comm_revoke(comm);
    int second = MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    return first ? first : second;
}

static int spawn(const char *program)
{
    MPI_Comm children;
    char *arguments[] = {"child", NULL};
    int one = 1, all = 0;
    int code = MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, comm, &children, MPI_ERRCODES_IGNORE);
    if (code)
        return code;
    MPI_Comm_set_errhandler(children, MPI_ERRORS_RETURN);
    code = MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, children);
    if (!code)
        CHECK(all == 2);
    if (code)
        MPIX_Comm_revoke(children);
    MPI_Comm_free(&children);
    return code;
}

/* The spawned processes do one thing with the processes that spawned them. */
static void child(MPI_Comm parents)
{
    int one = 1, all;
    MPI_Comm_set_errhandler(parents, MPI_ERRORS_RETURN);
    if (MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, parents))
        MPIX_Comm_revoke(parents);
    MPI_Comm_free(&parents);
}

/* One step, whose result is checked when there is one. Returns the error. */
static int step(int kind, unsigned number, const char *program)
{
    int rank, size, code = 0, one = 1, all = 0, flag = (int)(number | 1), revoked;
    MPI_Comm other;
    MPI_Request request;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < LONG; i++)
        out[i] = i + rank;
    switch (kind) {
    case BARRIER:
        return MPI_Barrier(comm);
    case SUM:
        code = MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm);
        break;
    case LONG_BROADCAST:
        return MPI_Bcast(out, LONG, MPI_INT, (int)(number % (unsigned)size), comm);
    case LONG_MAXIMUM:
        code = MPI_Allreduce(out, in, LONG, MPI_INT, MPI_MAX, comm);
        if (!code)
            CHECK(in[LONG - 1] == LONG - 1 + size - 1);
        return code;
    case RING:
        return ring(rank, size, 10);
    case LONG_RING:
        return ring(rank, size, LONG);
    case LATER_SUM:
        code = MPI_Iallreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm, &request);
        if (!code)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    case GATHER:
        return MPI_Allgather(out, 1000, MPI_INT, in, 1000, MPI_INT, comm);
    case AGREE:
    case LATER_AGREE:
        code = agree(&flag, kind == LATER_AGREE);
        CHECK(flag == (int)(number | 1));
        return code;
    case SHRINK:
        shrink((int)(number % 2));
        return 0;
    case REVOKE:
        MPIX_Comm_revoke(comm);
        CHECK(MPIX_Comm_is_revoked(comm, &revoked) == MPI_SUCCESS && revoked);
        return MPIX_ERR_REVOKED;
    case DUP:
        code = MPI_Comm_dup(comm, &other);
        if (code)
            return code;
        code = MPI_Barrier(other);
        /* Releases the ranks that wait in it for this one. */
        if (code)
            MPIX_Comm_revoke(other);
        MPI_Comm_free(&other);
        return code;
    default:
        return spawn(program);
    }
    if (!code)
        CHECK(all == size);
    return code;
}

int main(int argc, char **argv)
{
    MPI_Comm parents;
    int world_rank, world_size;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parents);
    if (parents != MPI_COMM_NULL) {
        child(parents);
        MPI_Finalize();
        return 0;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    unsigned state = (unsigned)atoi(argv[1]) * 2654435761u + 1;
    int deaths = atoi(argv[2]), steps = atoi(argv[3]), kinds = argc > 4 ? KINDS : SPAWN;
    int when = -1, delay = 0, moment = 0;
    for (int i = 0; i < deaths; i++) {
        /* Rank 0 dies too; the last one stays. */
        int who = (int)(next_random(&state) % (unsigned)(world_size - 1));
        /* Every second one dies in the step of the one before. */
        if (i % 2 == 0 || next_random(&state) % 2)
            moment = (int)(next_random(&state) % (unsigned)steps);
        int after = (int)(next_random(&state) % (next_random(&state) % 2 ? 100 : 3000));
        if (who == world_rank && when < 0) {
            when = moment;
            delay = after;
        }
    }
    comm = MPI_COMM_WORLD;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < steps; i++) {
        unsigned number = next_random(&state);
        int kind = (int)(next_random(&state) % (unsigned)kinds);
        if (i == when)
            die_after(delay);
        int code = step(kind, number, argv[0]), flag = code == MPI_SUCCESS;
        CHECK(expected(code));
        if (code)
            MPIX_Comm_revoke(comm);
        int agreed = agree(&flag, (int)(number / 2 % 2));
        if (agreed || !flag)
            shrink((int)(number / 4 % 2));
    }
    /* A death may still come, so this is tried until all live ranks have come through. */
    int size = 0, all = 0, flag = 0;
    uint64_t least = 0, most = 0;
    while (!flag) {
        uint64_t seen = history;
        int code = MPI_Allreduce(&seen, &least, 1, MPI_UINT64_T, MPI_MIN, comm);
        if (!code)
            code = MPI_Allreduce(&seen, &most, 1, MPI_UINT64_T, MPI_MAX, comm);
        if (!code)
            code = MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, comm);
        if (code)
            MPIX_Comm_revoke(comm);
        flag = code == MPI_SUCCESS;
        if (agree(&flag, 0) || !flag) {
            flag = 0;
            shrink(0);
        }
    }
    MPI_Comm_size(comm, &size);
    CHECK(least == most);
    if (world_rank == world_size - 1 && all == 0 && failures == 0)
        printf("%d of %d\n", size, world_size);
    MPI_Finalize();
    return 0;
}
