/* The process sets of a job of two programs: psets OWN of ALL. */
#include "check.h"

int main(int argc, char **argv)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    char name[64];
    int size, n, app, own = atoi(argv[1]), all = atoi(argv[argc - 1]), total;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Session_get_num_psets(session, MPI_INFO_NULL, &n);
    CHECK(n == 5);
    for (app = 0; app < 2; app++) {
        int rank;
        snprintf(name, sizeof name, "margay://app/%d", app);
        MPI_Group_from_session_pset(session, name, &group);
        MPI_Group_size(group, &size);
        MPI_Group_rank(group, &rank);
        CHECK(size == app + 1);
        CHECK((rank != MPI_UNDEFINED) == (size == own));
        if (rank != MPI_UNDEFINED) {
            MPI_Comm_create_from_group(group, "own", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
            int one = 1;
            MPI_Allreduce(&one, &total, 1, MPI_INT, MPI_SUM, comm);
            CHECK(total == own);
            MPI_Comm_free(&comm);
        }
        MPI_Group_free(&group);
    }
    MPI_Group_from_session_pset(session, "mpi://world", &group);
    MPI_Comm_create_from_group(group, "all", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    MPI_Comm_size(comm, &size);
    CHECK(size == all);
    int rank, bad;
    MPI_Comm_rank(comm, &rank);
    MPI_Reduce(&failures, &bad, 1, MPI_INT, MPI_SUM, 0, comm);
    if (rank == 0 && bad == 0)
        printf("ok\n");
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    return 0;
}
