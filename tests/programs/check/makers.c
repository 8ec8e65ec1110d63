/* A program without errors that makes handles by calls of all kinds, frees them, and makes others that may be the same. Its
 * ranks also meet in jobs of their own: rank 1 connects to rank 0, and both start a child that does nothing. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUNDS 150 /* the library uses the number of a handle again after 128 others */

static int rank, size;

static void datatypes(void)
{
    int lengths[2] = {1, 2};
    MPI_Aint at[2] = {0, 16};
    double space[16] = {0};
    MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, made, f90;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Type_struct(2, lengths, at, types, &made);
        MPI_Type_commit(&made);
        MPI_Sendrecv(space, 1, made, rank, 0, space + 8, 1, made, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Type_free(&made);
        MPI_Type_hvector(2, 1, 8, MPI_INT, &made);
        MPI_Type_commit(&made);
        MPI_Sendrecv(space, 1, made, rank, 0, space + 8, 1, made, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Type_free(&made);
        MPI_Type_hindexed(2, lengths, at, MPI_INT, &made);
        MPI_Type_commit(&made);
        MPI_Sendrecv(space, 1, made, rank, 0, space + 8, 1, made, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Type_free(&made);
        MPI_Type_create_f90_real(6, 30, &f90);
        MPI_Sendrecv(space, 1, f90, rank, 0, space + 8, 1, f90, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &f90);
        MPI_Sendrecv(space, 1, f90, rank, 0, space + 8, 1, f90, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void views(const char *name)
{
    MPI_File file;
    MPI_Offset begin;
    int space[16] = {0};
    MPI_Datatype element, tiles, got[2];
    char how[MPI_MAX_DATAREP_STRING];
    MPI_Type_contiguous(2, MPI_INT, &element);
    MPI_Type_commit(&element);
    MPI_Type_vector(2, 1, 2, element, &tiles);
    MPI_Type_commit(&tiles);
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_set_view(file, 0, element, tiles, "native", MPI_INFO_NULL);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_File_get_view(file, &begin, &got[0], &got[1], how);
        MPI_Sendrecv(space, 1, got[0], rank, 0, space + 8, 1, got[0], rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Type_free(&got[0]);
        MPI_Type_free(&got[1]);
    }
    MPI_File_close(&file);
    MPI_Type_free(&tiles);
    MPI_Type_free(&element);
}

static void duplicates(void)
{
    MPI_Comm comm;
    MPI_Request request;
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 2)
            MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
        else
            MPI_Comm_idup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(comm);
        MPI_Comm_free(&comm);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_free(&comm);
    }
}

static void sessions(void)
{
    MPI_Session session;
    MPI_Group all, mine, theirs;
    MPI_Comm comm;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    for (int i = 0; i < ROUNDS; i++) {
        int zero = 0;
        MPI_Group_from_session_pset(session, "mpi://WORLD", &all);
        MPI_Group_incl(all, 1, &zero, &mine);
        MPI_Group_excl(all, 1, &zero, &theirs);
        if (rank == 0)
            MPI_Intercomm_create_from_groups(mine, 0, theirs, 0, "makers", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
        else
            MPI_Intercomm_create_from_groups(theirs, 0, mine, 0, "makers", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
        MPI_Barrier(comm);
        MPI_Comm_free(&comm);
        MPI_Group_free(&mine);
        MPI_Group_free(&theirs);
        MPI_Group_free(&all);
    }
    MPI_Session_finalize(&session);
}

static void ports(void)
{
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm comm;
    for (int i = 0; i < ROUNDS; i++) {
        if (rank == 0) {
            MPI_Open_port(MPI_INFO_NULL, port);
            MPI_Send(port, MPI_MAX_PORT_NAME, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &comm);
            MPI_Close_port(port);
        } else {
            MPI_Recv(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &comm);
        }
        int got = 0;
        MPI_Allreduce(&rank, &got, 1, MPI_INT, MPI_SUM, comm);
        MPI_Comm_disconnect(&comm);
    }
}

static void children(char *program)
{
    MPI_Comm child;
    for (int i = 0; i < 2; i++) {
        int *no_array = MPI_ERRCODES_IGNORE;
        char *child_too[] = {"child", NULL}, **arguments[] = {child_too};
        int one = 1;
        MPI_Info info = MPI_INFO_NULL;
        if (i == 0)
            MPI_Comm_spawn(program, child_too, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child, no_array);
        else
            MPI_Comm_spawn_multiple(1, &program, arguments, &one, &info, 0, MPI_COMM_WORLD, &child, no_array);
        MPI_Comm_disconnect(&child);
    }
}

static int free_copy(MPI_Comm comm, int key, void *copy, void *unused)
{
    (void)comm, (void)key, (void)unused;
    return MPI_Comm_free((MPI_Comm *)copy);
}

/* What an attribute holds is freed within the call that frees its communicator. */
static void attributes(void)
{
    int key;
    MPI_Comm comm, copy;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_copy, &key, NULL);
    for (int i = 0; i < 3; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_dup(comm, &copy);
        MPI_Comm_set_attr(comm, key, &copy);
        MPI_Comm_free(&comm);
    }
    MPI_Comm_free_keyval(&key);
}

static void partitioned(void)
{
    int sent[2] = {1, 2}, got[2];
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request requests[2];
        MPI_Precv_init_c(got, 2, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
        MPI_Psend_init_c(sent, 2, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
        MPI_Startall(2, requests);
        MPI_Pready_range(0, 1, requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
    }
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return 0;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    datatypes();
    views(argv[1]);
    duplicates();
    sessions();
    ports();
    partitioned();
    attributes();
    children(argv[0]);
    MPI_Finalize();
    if (rank == 0)
        puts("done");
    return 0;
}
