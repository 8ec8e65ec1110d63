/* What C++ programs need that include the C++ bindings of Open MPI 4 and do not use them: the functions that its headers name in
 * inline parts and in tables of virtual functions. By the names that C++ compilers give them, so that none is needed here. */
#include "margay.h"

#include <stdio.h>

/* An object of a class with virtual functions and a handle. */
struct object {
    const void *functions;
    void *handle;
};

/* MPI::Comm::Comm(): whatever is derived from it sets the functions itself. */
void _ZN3MPI4CommC2Ev(struct object *comm)
{
    comm->handle = MPI_COMM_NULL;
}
void _ZN3MPI4CommC1Ev(struct object *comm) __attribute__((alias("_ZN3MPI4CommC2Ev")));

/* MPI::Win::Free() */
void _ZN3MPI3Win4FreeEv(struct object *win)
{
    PMPI_Win_free((MPI_Win *)&win->handle);
}

/* MPI::Datatype::Free() */
void _ZN3MPI8Datatype4FreeEv(struct object *datatype)
{
    PMPI_Type_free((MPI_Datatype *)&datatype->handle);
}

static void refuse(const char *what)
{
    fprintf(stderr, "MPI's C++ bindings: %s not supported here; use the functions of C\n", what);
    PMPI_Abort(MPI_COMM_WORLD, MPI_ERR_UNSUPPORTED_OPERATION);
    abort();
}

/* What Open MPI's own library for C++ asks of its libraries for C. Where the system has it, the loader takes its symbols in place
 * of those above and below, so that programs that use MPI's C++ bindings find them. */

/* MPI::InitializeIntercepts(), which MPI::Init calls. */
void _ZN3MPI20InitializeInterceptsEv(void)
{
    refuse("the system has no libmpi_cxx.so.40, and without it they are");
}

void ompi_mpi_cxx_op_intercept(void *in, void *inout, int *count, MPI_Datatype *datatype, MPI_User_function *function)
{
    (void)in, (void)inout, (void)count, (void)datatype, (void)function;
    refuse("reductions of the program are");
}

static void call_cxx(const void *in, void *inout, int count, MPI_Datatype datatype, abi_function function)
{
    ompi_mpi_cxx_op_intercept((void *)in, inout, &count, &datatype, (MPI_User_function *)function);
}

void ompi_op_set_cxx_callback(MPI_Op op, MPI_User_function *function)
{
    margay_face_op_language(op, call_cxx, (abi_function)function);
}

#define REFUSED(name, what)                                                                                            \
    void name(void)                                                                                                    \
    {                                                                                                                  \
        refuse(what);                                                                                                  \
    }
REFUSED(ompi_attr_create_keyval, "keys of attributes of the program are")
REFUSED(ompi_errhandler_create, "error handlers of the program are")
REFUSED(ompi_errhandler_invoke, "data representations of the program are")
REFUSED(opal_class_initialize, "data representations of the program are")

/* MPI::ERRORS_THROW_EXCEPTIONS, into which that library writes behind the handle; no handle of the standard. */
union {
    uintptr_t handle;
    char room[512];
} ompi_mpi_errors_throw_exceptions = {.handle = 0xffffffffu};

/* Known to nobody who is not refused. */
int ompi_errcode_intern_lastused, opal_class_init_epoch;
char opal_uses_threads, ompi_errcodes_intern[256], ompi_registered_datareps[256], opal_list_item_t_class[256];
