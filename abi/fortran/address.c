/* Addresses as INTEGER.
 *
 * An address does not fit an INTEGER, a distance within the program's own data does. So MPI_ADDRESS gives the distance
 * from MPI_BOTTOM, which is a common block of the program, and the library knows of datatypes with such addresses what
 * they are distances from. Differences of two addresses are right in any case, since both are cut to 32 bits alike; an
 * address far away, as that of a variable on the stack, is of use for differences only. Those are remembered, so that an
 * attempt to use one as an address becomes an error.
 */
#include "glue.h"

#include <stdatomic.h>

/* The latest distances that were cut; 0 is none, since MPI_BOTTOM is not far from itself. */
#define REMEMBERED 256
static _Atomic MPI_Fint cut[REMEMBERED];
static atomic_uint cuts;

MPI_Fint margay_distance(MPI_Aint address)
{
    MPI_Aint distance = address - (MPI_Aint)BOTTOM;
    MPI_Fint value = (MPI_Fint)distance;
    if (distance == value) return value;
    unsigned place = atomic_fetch_add_explicit(&cuts, 1, memory_order_relaxed) % REMEMBERED;
    atomic_store_explicit(&cut[place], value, memory_order_relaxed);
    return value;
}

static int was_cut(MPI_Fint value)
{
    unsigned n = atomic_load_explicit(&cuts, memory_order_relaxed);
    for (unsigned i = 0; i < (n < REMEMBERED ? n : REMEMBERED); i++)
        if (value && atomic_load_explicit(&cut[i], memory_order_relaxed) == value) return 1;
    return 0;
}

const void *margay_bottom(const MPI_Fint *displacements, MPI_Fint n)
{
    for (MPI_Fint i = 0; i < n; i++)
        if (was_cut(displacements[i])) return (const void *)-1;
    return BOTTOM;
}
