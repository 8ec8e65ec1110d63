/* The descriptors of arrays of the Fortran standard, as far as the glue uses them. Compilers have a header of this name, but not
 * all systems have a Fortran compiler; here nothing but our own functions sees them. */
#ifndef MARGAY_FACE_DESCRIPTORS_H
#define MARGAY_FACE_DESCRIPTORS_H

#include <stddef.h>

#define CFI_MAX_RANK 15

typedef ptrdiff_t CFI_index_t;
typedef signed char CFI_rank_t;

typedef struct {
    CFI_index_t lower_bound;
    CFI_index_t extent;
    CFI_index_t sm;
} CFI_dim_t;

typedef struct {
    void *base_addr;
    size_t elem_len;
    CFI_rank_t rank;
    CFI_dim_t dim[CFI_MAX_RANK];
} CFI_cdesc_t;

#endif
