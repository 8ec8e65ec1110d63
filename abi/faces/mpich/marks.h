/* MPICH's Fortran: handles and marks. Included by glue.h. */
#ifndef MARGAY_FACE_MARKS_H
#define MARGAY_FACE_MARKS_H

#include "fortran.h"

/* Handles are integers in C, too, but those of files. */
#define FROM_INT(kind, value) FROM_INT_##kind(value)
#define TO_INT(kind, handle) ((MPI_Fint)(long)(handle))
#define FROM_INT_Comm(value) (value)
#define FROM_INT_Errhandler(value) (value)
#define FROM_INT_File(value) ((MPI_File)(long)(value))
#define FROM_INT_Group(value) (value)
#define FROM_INT_Info(value) (value)
#define FROM_INT_Message(value) (value)
#define FROM_INT_Op(value) (value)
#define FROM_INT_Request(value) (value)
#define FROM_INT_Session(value) (value)
#define FROM_INT_Type(value) (value)
#define FROM_INT_Win(value) (value)

/* Predefined keys of Fortran are those of C plus one, so that MPICH knows who asks. */
#define KEY_FROM_INT(key) ((key) >> 24 == 0x64 || (key) >> 24 == 0x66 ? (key)-1 : (key))

/* The common blocks of mpif.h, by their order. */
struct margay_common_1 {
    MPI_Fint bottom, in_place, status_ignore[5];
};
struct margay_common_2 {
    MPI_Fint statuses_ignore[5], errcodes_ignore[1];
};
struct margay_common_c {
    char argvs_null[1], argv_null[1];
};
extern struct margay_common_1 mpipriv1_;
extern struct margay_common_2 mpipriv2_;
extern struct margay_common_c mpiprivc_;
extern MPI_Fint mpifcmb5_[], mpifcmb9_[];

/* Those of mpi_f08. */
extern int MPIR_F08_MPI_BOTTOM, MPIR_F08_MPI_IN_PLACE;
extern MPI_F08_status MPIR_F08_MPI_STATUS_IGNORE_OBJ, MPIR_F08_MPI_STATUSES_IGNORE_OBJ[1];
extern MPI_Fint __mpi_f08_link_constants_MOD_mpi_errcodes_ignore[], __mpi_f08_link_constants_MOD_mpi_unweighted[],
    __mpi_f08_link_constants_MOD_mpi_weights_empty[];
extern char __mpi_f08_link_constants_MOD_mpi_argv_null[], __mpi_f08_link_constants_MOD_mpi_argvs_null[];

#define BOTTOM (&mpipriv1_.bottom)
#define IS_BOTTOM(address) (SAME_ADDRESS(address, &mpipriv1_.bottom) || SAME_ADDRESS(address, &MPIR_F08_MPI_BOTTOM))
#define IS_IN_PLACE(address) (SAME_ADDRESS(address, &mpipriv1_.in_place) || SAME_ADDRESS(address, &MPIR_F08_MPI_IN_PLACE))
#define IS_STATUS_IGNORE(address)                                                                                      \
    (SAME_ADDRESS(address, mpipriv1_.status_ignore) || SAME_ADDRESS(address, &MPIR_F08_MPI_STATUS_IGNORE_OBJ))
#define IS_STATUSES_IGNORE(address)                                                                                    \
    (SAME_ADDRESS(address, mpipriv2_.statuses_ignore) || SAME_ADDRESS(address, MPIR_F08_MPI_STATUSES_IGNORE_OBJ))
#define IS_ERRCODES_IGNORE(address)                                                                                    \
    (SAME_ADDRESS(address, mpipriv2_.errcodes_ignore) ||                                                               \
     SAME_ADDRESS(address, __mpi_f08_link_constants_MOD_mpi_errcodes_ignore))
#define IS_UNWEIGHTED(address)                                                                                         \
    (SAME_ADDRESS(address, mpifcmb5_) || SAME_ADDRESS(address, __mpi_f08_link_constants_MOD_mpi_unweighted))
#define IS_WEIGHTS_EMPTY(address)                                                                                      \
    (SAME_ADDRESS(address, mpifcmb9_) || SAME_ADDRESS(address, __mpi_f08_link_constants_MOD_mpi_weights_empty))
#define IS_ARGV_NULL(address)                                                                                          \
    (SAME_ADDRESS(address, mpiprivc_.argv_null) || SAME_ADDRESS(address, __mpi_f08_link_constants_MOD_mpi_argv_null))
#define IS_ARGVS_NULL(address)                                                                                         \
    (SAME_ADDRESS(address, mpiprivc_.argvs_null) || SAME_ADDRESS(address, __mpi_f08_link_constants_MOD_mpi_argvs_null))

/* An array of gfortran: what mpi_f08 passes for a buffer of assumed rank. */
typedef struct {
    char *base_addr;
    size_t offset;
    size_t elem_len;
    int version;
    signed char rank;
    signed char type;
    short attribute;
    ptrdiff_t span;
    struct {
        ptrdiff_t stride, lower_bound, upper_bound;
    } dim[15];
} gfortran_array;

/* The descriptor that the glue takes. */
CFI_cdesc_t margay_descriptor(const gfortran_array *array);
#define DESCRIPTOR(name)                                                                                               \
    CFI_cdesc_t d_##name = margay_descriptor(g_##name);                                                                \
    CFI_cdesc_t *name = &d_##name;

#endif
