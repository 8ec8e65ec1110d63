/* The constants of mpi_f08 that modern.F90 needs: data of the library, which Fortran cannot name. */
#ifdef MPICH
#define CONSTANT(name) __mpi_f08_compile_constants_MOD_mpi_##name
#else
#define CONSTANT(name) __mpi_f08_types_MOD_mpi_##name
#endif

extern const int CONSTANT(comm_world), CONSTANT(integer);

void constants_(int *comm, int *datatype)
{
    *comm = CONSTANT(comm_world);
    *datatype = CONSTANT(integer);
}
