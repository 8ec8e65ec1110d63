/* Uses enough of the header to see that it stands alone, in C and in C++. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, flag;
    void *value;
    MPI_Status status;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Datatype type = MPI_LONG_LONG_INT;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag);
    MPI_Wait(&request, &status);
    MPI_Waitall(0, &request, MPI_STATUSES_IGNORE);
    MPI_Pcontrol(0);
    PMPI_Type_size(type, &flag);
    return MPI_Finalize() == MPI_SUCCESS && MPI_VERSION == 5 ? 0 : 1;
}
