/* Texts, logicals and arrays of handles. */
#include "glue.h"

#include <stdio.h>

void *margay_allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory) {
        fprintf(stderr, "MPI for Fortran: no memory for %zu arguments of %zu bytes; the job ends\n", count, size);
        PMPI_Abort(MPI_COMM_WORLD, MPI_ERR_NO_MEM);
        abort();
    }
    return memory;
}

int *margay_logicals(const MPI_Fint *logicals, int n)
{
    int *values = margay_allocate(n > 0 ? (size_t)n : 0, sizeof *values);
    for (int i = 0; i < n; i++) values[i] = margay_is_true(logicals[i]);
    return values;
}

void margay_logicals_out(MPI_Fint *logicals, int *values, int n)
{
    for (int i = 0; i < n; i++) logicals[i] = margay_logical(values[i]);
    free(values);
}

char *margay_text(const char *text, size_t length, int strip_leading)
{
    while (length > 0 && text[length - 1] == ' ') length--;
    while (strip_leading && length > 0 && *text == ' ') {
        text++;
        length--;
    }
    char *copy = margay_allocate(length + 1, 1);
    memcpy(copy, text, length);
    return copy;
}

void margay_text_out(char *text, size_t length, const char *value)
{
    size_t n = strlen(value);
    if (n > length) n = length;
    memcpy(text, value, n);
    memset(text + n, ' ', length - n);
}

#define HANDLES_IN(name, type, kind)                                                                                 \
    type *margay_##name##_in(const MPI_Fint *handles, int n)                                                         \
    {                                                                                                                \
        type *values = margay_allocate(n > 0 ? (size_t)n : 0, sizeof *values);                                       \
        for (int i = 0; i < n; i++) values[i] = FROM_INT(kind, handles[i]);                                          \
        return values;                                                                                               \
    }
#define HANDLES_OUT(name, type, kind)                                                                                \
    void margay_##name##_out(MPI_Fint *handles, const type *values, int n)                                           \
    {                                                                                                                \
        for (int i = 0; i < n; i++) handles[i] = TO_INT(kind, values[i]);                                            \
    }

HANDLES_IN(datatype, MPI_Datatype, Type)
HANDLES_OUT(datatype, MPI_Datatype, Type)
HANDLES_IN(request, MPI_Request, Request)
HANDLES_OUT(request, MPI_Request, Request)
HANDLES_IN(info, MPI_Info, Info)

int margay_dimensions(MPI_Fint comm)
{
    int n = 0;
    MPI_Comm c = FROM_INT(Comm, comm);
    int topology = MPI_UNDEFINED;
    if (PMPI_Topo_test(c, &topology) == MPI_SUCCESS && topology == MPI_CART) PMPI_Cartdim_get(c, &n);
    return n;
}

int margay_peers(MPI_Fint comm)
{
    int n = 0, inter = 0;
    MPI_Comm c = FROM_INT(Comm, comm);
    if (PMPI_Comm_test_inter(c, &inter) != MPI_SUCCESS) return 0;
    if (inter)
        PMPI_Comm_remote_size(c, &n);
    else
        PMPI_Comm_size(c, &n);
    return n;
}

int margay_neighbors(MPI_Fint comm, int out)
{
    MPI_Comm c = FROM_INT(Comm, comm);
    int topology = MPI_UNDEFINED, n = 0, in = 0, weighted, rank;
    if (PMPI_Topo_test(c, &topology) != MPI_SUCCESS) return 0;
    switch (topology) {
    case MPI_CART: PMPI_Cartdim_get(c, &n); return 2 * n;
    case MPI_GRAPH:
        PMPI_Comm_rank(c, &rank);
        PMPI_Graph_neighbors_count(c, rank, &n);
        return n;
    case MPI_DIST_GRAPH: PMPI_Dist_graph_neighbors_count(c, &in, &n, &weighted); return out ? n : in;
    default: return 0;
    }
}
