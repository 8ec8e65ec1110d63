/* What classic.f asks of C: its handles and a status of its own, by the other MPI's header. */
#include <mpi.h>

int seen_by_c_(MPI_Fint *comm, MPI_Fint *type, MPI_Fint *status)
{
    MPI_Comm c_comm = MPI_Comm_f2c(*comm);
    MPI_Datatype c_type = MPI_Type_f2c(*type);
    MPI_Status c_status;
    int ranks = 0, size = 0, count = 0;
    MPI_Comm_size(c_comm, &ranks);
    MPI_Type_size(c_type, &size);
    MPI_Status_f2c(status, &c_status);
    MPI_Get_count(&c_status, MPI_INT, &count);
    if (count != 1 || c_status.MPI_TAG != 7) return -1;
    if (MPI_Comm_c2f(c_comm) != *comm || MPI_Type_c2f(c_type) != *type) return -2;
    if (MPI_Comm_c2f(MPI_COMM_NULL) == *comm || MPI_Op_f2c(MPI_Op_c2f(MPI_SUM)) != MPI_SUM) return -3;
    if (MPI_Status_c2f(MPI_STATUS_IGNORE, status) == MPI_SUCCESS || !MPI_F_STATUS_IGNORE || !MPI_F_STATUSES_IGNORE) return -4;
    return ranks * 1000 + size;
}
