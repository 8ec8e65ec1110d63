/* Between Fortran's conventions and C's.
 *
 * Files whose names begin with mpi_ are compiled twice: as mpi_x_, which call MPI_x, and with MARGAY_PROFILED as
 * pmpi_x_, which call PMPI_x. So a tool may put its own functions in front in either language. The other files call PMPI_x
 * only.
 */
#ifndef MARGAY_FORTRAN_GLUE_H
#define MARGAY_FORTRAN_GLUE_H

/* Fortran has what MPI-3 removed, too. */
#define MARGAY_MPI1
#include <ISO_Fortran_binding.h>
#include <mpi.h>
#include <mpi_ext.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifdef MARGAY_FACE
/* The same functions for programs of another ABI, over that ABI's mpi.h (see abi/faces). */
#include "marks.h"
#else
#include "mpi_fortran.h"

#define FROM_INT(kind, value) PMPI_##kind##_fromint(value)
#define TO_INT(kind, handle) PMPI_##kind##_toint(handle)
/* The key in C. */
#define KEY_FROM_INT(key) (key)

/* Common blocks whose addresses are the marks. */
extern MPI_Fint mpi_fort_bottom_[], mpi_fort_in_place_[], mpi_fort_buffer_automatic_[], mpi_fort_errcodes_ignore_[],
    mpi_fort_unweighted_[], mpi_fort_weights_empty_[];
extern char mpi_fort_argv_null_[], mpi_fort_argvs_null_[];

/* The address of MPI_BOTTOM. */
#define BOTTOM mpi_fort_bottom_
#define IS_BOTTOM(address) ((const void *)(address) == mpi_fort_bottom_)
#define IS_IN_PLACE(address) ((const void *)(address) == mpi_fort_in_place_)
#define IS_BUFFER_AUTOMATIC(address) ((const void *)(address) == mpi_fort_buffer_automatic_)
#define IS_STATUS_IGNORE(address) ((const void *)(address) == mpi_fort_status_ignore_)
#define IS_STATUSES_IGNORE(address) ((const void *)(address) == mpi_fort_statuses_ignore_)
#define IS_ERRCODES_IGNORE(address) ((const void *)(address) == mpi_fort_errcodes_ignore_)
#define IS_UNWEIGHTED(address) ((const void *)(address) == mpi_fort_unweighted_)
#define IS_WEIGHTS_EMPTY(address) ((const void *)(address) == mpi_fort_weights_empty_)
#define IS_ARGV_NULL(address) ((const void *)(address) == mpi_fort_argv_null_)
#define IS_ARGVS_NULL(address) ((const void *)(address) == mpi_fort_argvs_null_)
#define FORTRAN_BUFFER_AUTOMATIC ((void *)mpi_fort_buffer_automatic_)
#endif

_Static_assert(sizeof(MPI_Fint) == sizeof(int), "INTEGER has the size of int");
_Static_assert(sizeof(MPI_Aint) == 8 && sizeof(MPI_Count) == 8 && sizeof(MPI_Offset) == 8, "64 bits");
/* Fortran functions of users are called with addresses of C handles, of which they read the low half. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian");

#define GLUE_TEXT_(x) #x
#define GLUE_TEXT(x) GLUE_TEXT_(x)

/* What is recorded or reported of a call has the line of the Fortran program, which is known here alone. */
#ifdef MARGAY_FACE
#define FROM(function) function
#else
void margay_called_from(const void *address);
#define FROM(function) (margay_called_from(__builtin_return_address(0)), function)
#endif

#ifdef MARGAY_PROFILED
#define FN(name) pmpi_##name##_
#define CALL(name) FROM(PMPI_##name)
#define CALLX(name) FROM(PMPIX_##name)
#elif defined(MARGAY_FACE_PROFILED)
#define FN(name) mpi_##name##_
#define CALL(name) PMPI_##name
#define CALLX(name) PMPIX_##name
#else
#define FN(name) mpi_##name##_
#define CALL(name) FROM(MPI_##name)
#define CALLX(name) FROM(MPIX_##name)
#endif

/* The same function serves mpi_f08: types of handles and statuses have the form of the integers that they replace. */
#define SAME_IN_F08(name, signature) void FN(name##_f08) signature __attribute__((alias(GLUE_TEXT(FN(name)))));

/* Where mpi has a generic name for an address as an integer and as a C pointer. */
#define SAME_WITH_POINTER(name, signature)                                                                           \
    void FN(name##_cptr) signature __attribute__((alias(GLUE_TEXT(FN(name)))));

static inline void *margay_buffer(void *address)
{
    if (IS_BOTTOM(address)) return MPI_BOTTOM;
    if (IS_IN_PLACE(address)) return MPI_IN_PLACE;
    if (IS_BUFFER_AUTOMATIC(address)) return MPI_BUFFER_AUTOMATIC;
    return address;
}

static inline int margay_in_place(const void *address)
{
    return IS_IN_PLACE(address);
}

static inline MPI_Status *margay_status(MPI_Status *status)
{
    return IS_STATUS_IGNORE(status) ? MPI_STATUS_IGNORE : status;
}

static inline MPI_Status *margay_statuses(MPI_Status *statuses)
{
    return IS_STATUSES_IGNORE(statuses) ? MPI_STATUSES_IGNORE : statuses;
}

static inline MPI_Fint *margay_weights(MPI_Fint *weights)
{
    if (IS_UNWEIGHTED(weights)) return MPI_UNWEIGHTED;
    if (IS_WEIGHTS_EMPTY(weights)) return MPI_WEIGHTS_EMPTY;
    return weights;
}

/* The compiler's .TRUE. and .FALSE. */
extern MPI_Fint margay_logical_true, margay_logical_false;

static inline int margay_is_true(MPI_Fint logical)
{
    return logical != margay_logical_false;
}

static inline MPI_Fint margay_logical(int value)
{
    return value ? margay_logical_true : margay_logical_false;
}

/* ierror is optional in mpi_f08. */
static inline void margay_done(MPI_Fint *ierror, int error)
{
    if (ierror) *ierror = error;
}

/* Tells the C library what Fortran's types are; after every function that initializes. */
void margay_initialized(void);

/* Memory for a call's arguments; never null. */
void *margay_allocate(size_t count, size_t size);

int *margay_logicals(const MPI_Fint *logicals, int n);
void margay_logicals_out(MPI_Fint *logicals, int *values, int n);

/* A C string of a Fortran one, without the blanks that pad it; to be freed. */
char *margay_text(const char *text, size_t length, int strip_leading);
/* A Fortran string of a C one, padded or cut. */
void margay_text_out(char *text, size_t length, const char *value);

MPI_Datatype *margay_datatype_in(const MPI_Fint *handles, int n);
void margay_datatype_out(MPI_Fint *handles, const MPI_Datatype *values, int n);
MPI_Request *margay_request_in(const MPI_Fint *handles, int n);
void margay_request_out(MPI_Fint *handles, const MPI_Request *values, int n);
MPI_Info *margay_info_in(const MPI_Fint *handles, int n);

/* Lengths of arrays that the communicator decides; 0 when it is not valid, which C then says. */
int margay_dimensions(MPI_Fint comm);
int margay_peers(MPI_Fint comm);
int margay_neighbors(MPI_Fint comm, int out);

/* address.c: an address as INTEGER, and what it is a distance from, for types with these displacements. */
MPI_Fint margay_distance(MPI_Aint address);
const void *margay_bottom(const MPI_Fint *displacements, MPI_Fint n);

/* section.c: sections of arrays with gaps. */

/* `count` elements of `type` at `base`; `made`: the type is to be freed. */
typedef struct {
    void *base;
    MPI_Count count;
    MPI_Datatype type;
    int made;
} margay_section;

margay_section margay_section_of(CFI_cdesc_t *buffer, MPI_Count count, MPI_Datatype type, int *error);
void margay_section_end(margay_section *section);

/* A copy without gaps at `base`, or the array itself where that has none. */
typedef struct {
    void *base;
    void *array;
    size_t element;
    int rank;
    int write_back;
    CFI_dim_t dim[CFI_MAX_RANK];
} margay_scratch;

margay_scratch margay_scratch_of(CFI_cdesc_t *buffer, int write_back, int *error);
void margay_scratch_read(margay_scratch *scratch);
void margay_scratch_write(const margay_scratch *scratch);
void margay_scratch_end(margay_scratch *scratch);
int margay_has_gaps(const CFI_cdesc_t *buffer);
void margay_no_gaps(const CFI_cdesc_t *buffer, int *error);

/* pending.c: copies that live until a request is complete. */
void margay_scratch_keep(int error, MPI_Fint request, int persistent, margay_scratch *first, margay_scratch *second);
/* Whether there are any, so that functions that complete requests need to ask. */
int margay_any_pending(void);
void margay_pending_start(MPI_Fint request);
void margay_pending_complete(MPI_Fint request);
void margay_pending_free(MPI_Fint request);

#endif
