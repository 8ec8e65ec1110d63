/* Marks, and what the library knows of the compiler. */
#include "glue.h"

#include <stdio.h>

/* Aligned as compilers align common blocks. */
#define MARK(type, name, length) type mpi_fort_##name##_[length] __attribute__((aligned(32)));

MARK(MPI_Fint, bottom, 1)
MARK(MPI_Fint, in_place, 1)
MARK(MPI_Fint, buffer_automatic, 1)
MARK(MPI_Fint, status_ignore, 8)
MARK(MPI_Fint, statuses_ignore, 8)
MARK(MPI_Fint, errcodes_ignore, 1)
MARK(MPI_Fint, unweighted, 1)
MARK(MPI_Fint, weights_empty, 1)
MARK(char, argv_null, 1)
MARK(char, argvs_null, 1)

/* What facts.f90 finds out about its compiler. */
void margay_fortran_facts_(MPI_Fint *logical_true, MPI_Fint *logical_false, MPI_Fint sizes[4]);

MPI_Fint margay_logical_true = 1, margay_logical_false = 0;

__attribute__((constructor)) static void ask_the_compiler(void)
{
    MPI_Fint sizes[4];
    margay_fortran_facts_(&margay_logical_true, &margay_logical_false, sizes);
}

void margay_initialized(void)
{
    static const char *const keys[4] = {"mpi_logical_size", "mpi_integer_size", "mpi_real_size",
                                        "mpi_double_precision_size"};
    MPI_Fint yes, no, sizes[4], known_yes, known_no;
    int is_set = 0;
    margay_fortran_facts_(&yes, &no, sizes);
    if (PMPI_Abi_get_fortran_booleans(sizeof yes, &known_yes, &known_no, &is_set) != MPI_SUCCESS || is_set) return;
    PMPI_Abi_set_fortran_booleans(sizeof yes, &yes, &no);
    MPI_Info info;
    PMPI_Abi_get_fortran_info(&info);
    if (info != MPI_INFO_NULL) {
        PMPI_Info_free(&info);
        return;
    }
    PMPI_Info_create(&info);
    for (int i = 0; i < 4; i++) {
        char value[16];
        snprintf(value, sizeof value, "%d", sizes[i]);
        PMPI_Info_set(info, keys[i], value);
    }
    PMPI_Abi_set_fortran_info(info);
    PMPI_Info_free(&info);
}
