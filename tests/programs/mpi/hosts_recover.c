/* Sums over all ranks again and again; when a host is lost, its ranks fail, and those of the others go on
 * among themselves for a while. */
#include "check.h"

#include <mpi_ext.h>
#include <unistd.h>

enum { AFTER = 200 };

int main(int argc, char **argv)
{
    MPI_Comm comm, smaller;
    int me, size, one = 1, sum, left = -1, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    printf("running\n");
    fflush(stdout);
    while (left != 0) {
        int flag = 1;
        int code = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        MPI_Comm_size(comm, &size);
        if (code == MPI_SUCCESS) {
            CHECK(sum == size);
            usleep(1000);
            if (left > 0)
                left--;
            continue;
        }
        CHECK(class_of(code) == MPIX_ERR_PROC_FAILED || class_of(code) == MPIX_ERR_REVOKED);
        MPIX_Comm_revoke(comm);
        CHECK(MPIX_Comm_shrink(comm, &smaller) == MPI_SUCCESS);
        MPI_Comm_free(&comm);
        comm = smaller;
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag == 1);
        left = AFTER;
    }
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (rank == 0 && failures == 0) {
        printf("%d are left\n", size);
        fflush(stdout);
    }
    MPI_Finalize();
    return failures != 0;
}
