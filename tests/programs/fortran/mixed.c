/* The C half of mixed.f90: handles, statuses and attributes that the two languages share. */
#include <mpi.h>
#include <stddef.h>

/* The communicator's size by a Fortran handle. */
int size_of_(MPI_Fint *comm)
{
    int size;
    MPI_Comm_size(MPI_Comm_f2c(*comm), &size);
    return size;
}

/* Makes a datatype for Fortran. */
void three_(MPI_Fint *type)
{
    MPI_Datatype three;
    MPI_Type_contiguous(3, MPI_INT, &three);
    MPI_Type_commit(&three);
    *type = MPI_Type_c2f(three);
}

/* Reads a status of Fortran and changes its tag; the answer is the old one. */
int retag_(MPI_F08_status *status)
{
    MPI_Status c;
    MPI_Fint f[MPI_F_STATUS_SIZE];
    if (MPI_Status_f2c(NULL, &c) == MPI_SUCCESS || MPI_F_STATUS_IGNORE == MPI_F_STATUSES_IGNORE) return -1;
    MPI_Status_f082c(status, &c);
    int old = c.MPI_TAG;
    c.MPI_TAG = 99;
    MPI_Status_c2f(&c, f);
    if (f[MPI_F_TAG] != 99) return -2;
    MPI_Status_f2f08(f, status);
    return old;
}

static int key = MPI_KEYVAL_INVALID;
static int cell = 7;

/* Puts an attribute from C; the key is for Fortran too. */
int put_(MPI_Fint *comm)
{
    MPI_Comm c = MPI_Comm_f2c(*comm);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(c, key, &cell);
    return key;
}

MPI_Aint where_(void)
{
    return (MPI_Aint)&cell;
}

/* What Fortran has put, as C sees it: by its address. */
MPI_Aint fetch_(MPI_Fint *comm, MPI_Fint *keyval)
{
    MPI_Aint *value;
    int flag;
    MPI_Comm_get_attr(MPI_Comm_f2c(*comm), *keyval, &value, &flag);
    return flag ? *value : -1;
}
