/* Between the types and values of another ABI and those of the standard's, in which libmpi_abi takes its arguments. The
 * conversions of handles and enumerations are printed (tables.h); those of pointers and statuses are here. */
#ifndef MARGAY_FACE_CONVERT_H
#define MARGAY_FACE_CONVERT_H

#include <stdlib.h>
#include <string.h>

#include "mpi.h"

/* Any handle of the standard ABI: a number below 8192 for a predefined object, of 31 bits for another. */
typedef struct margay_handle *abi_handle;
typedef void (*abi_function)(void);

/* The status of the standard ABI, with Margay's use of its inner words. */
typedef struct {
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
    int low, high, cancelled, unused[2];
} abi_status;

#define ABI_STATUS_IGNORE ((abi_status *)0)
#define ABI_IN_PLACE ((void *)1)
#define ABI_BUFFER_AUTOMATIC ((void *)2)
#define ABI_UNWEIGHTED ((int *)10)
#define ABI_WEIGHTS_EMPTY ((int *)11)
#define ABI_T_PVAR_ALL_HANDLES ((MPI_T_pvar_handle)1)

/* What is no handle of this ABI becomes one that the library does not know, so that its error names it. */
#define NO_HANDLE ((abi_handle)0xffffffffu)
#define PREDEFINED 8192
#define ABI_ERR_LASTCODE 16383

/* The field of a status that the library has not written. */
#define UNTOUCHED 0x7ffffff1

#define unlikely(x) __builtin_expect(!!(x), 0)

/* Elements of a converted array; longer ones come from the heap. */
#define FEW 32

#include "tables.h"

static inline const void *to_buffer(const void *buffer)
{
    return buffer == MPI_IN_PLACE ? ABI_IN_PLACE : buffer;
}

static inline void *to_room(const void *buffer)
{
    return buffer == MPI_BUFFER_AUTOMATIC ? ABI_BUFFER_AUTOMATIC : (void *)buffer;
}

static inline void put_room(void *place)
{
    void **buffer = place;
    if (*buffer == ABI_BUFFER_AUTOMATIC) *buffer = MPI_BUFFER_AUTOMATIC;
}

static inline int *to_weights(const int *weights)
{
    if (weights == MPI_UNWEIGHTED) return ABI_UNWEIGHTED;
    return weights == MPI_WEIGHTS_EMPTY ? ABI_WEIGHTS_EMPTY : (int *)weights;
}

static inline MPI_Offset to_displacement(MPI_Offset displacement)
{
    return displacement == MPI_DISPLACEMENT_CURRENT ? -1 : displacement;
}

static inline MPI_T_pvar_handle to_pvar(MPI_T_pvar_handle handle)
{
    return handle == MPI_T_PVAR_ALL_HANDLES ? ABI_T_PVAR_ALL_HANDLES : handle;
}

static inline uint64_t status_count(const MPI_Status *status);
static inline int status_cancelled(const MPI_Status *status);
static inline void set_status(MPI_Status *status, uint64_t count, int cancelled);

/* The status that the library shall fill, or its mark that nobody wants it. */
static inline abi_status *place_of(const MPI_Status *status, abi_status *place)
{
    if (status == MPI_STATUS_IGNORE) return ABI_STATUS_IGNORE;
    place->MPI_SOURCE = UNTOUCHED;
    place->MPI_ERROR = UNTOUCHED;
    return place;
}

/* What the library wrote, and nothing else. */
static inline void put_status(MPI_Status *status, const abi_status *from)
{
    if (status == MPI_STATUS_IGNORE) return;
    if (from->MPI_SOURCE != UNTOUCHED) {
        status->MPI_SOURCE = from_rank(from->MPI_SOURCE);
        status->MPI_TAG = from_tag(from->MPI_TAG);
        set_status(status, (uint32_t)from->low | (uint64_t)(uint32_t)from->high << 32, from->cancelled != 0);
    }
    if (from->MPI_ERROR != UNTOUCHED) status->MPI_ERROR = from_error(from->MPI_ERROR);
}

/* A status of the program as the library has it. */
static inline void take_status(const MPI_Status *status, abi_status *to)
{
    uint64_t count = status_count(status);
    *to = (abi_status){to_rank(status->MPI_SOURCE), to_tag(status->MPI_TAG), to_error(status->MPI_ERROR),
                       (int)(uint32_t)count, (int)(uint32_t)(count >> 32), status_cancelled(status), {0, 0}};
}

static inline void *allocate(size_t n, size_t size)
{
    void *memory = malloc(n * size);
    if (!memory) abort();
    return memory;
}

/* A text of the library in the room that this ABI's callers have. */
static inline void put_text(char *text, const char *value, size_t room, int *length)
{
    if (!text) return;
    size_t n = strnlen(value, room - 1);
    memcpy(text, value, n);
    text[n] = 0;
    if (length) *length = (int)n;
}

/* Defines a function with its two names. */
#define FACE(result, name, parameters)                                                                                 \
    result name parameters __attribute__((alias("P" #name)));                                                          \
    result P##name parameters

/* First in each function that calls one of the library: says from where the program has called, which that one cannot see
 * behind this one. Traces and reports name the line. */
void margay_entered_from(const void *address);
#define FROM_PROGRAM margay_entered_from(__builtin_return_address(0))

/* Lengths of arrays with an element for each process, which the communicator knows; 0 when it is not valid. */
__attribute__((visibility("hidden"))) int margay_face_peers(abi_handle comm);
__attribute__((visibility("hidden"))) int margay_face_neighbors(abi_handle comm, int out);

/* Says that the operation that was made last is a function of a language that is called through `language`, and that it is
 * `function`, if not that with which it was made. */
typedef void margay_face_language(const void *in, void *inout, int count, MPI_Datatype datatype, abi_function function);
__attribute__((visibility("hidden"))) void margay_face_op_language(MPI_Op op, margay_face_language *language,
                                                                       abi_function function);

#include "face.h"

#endif
