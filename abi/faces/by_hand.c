/* Functions of which no table says how their arguments are converted: those with functions of the program, attributes of the
 * library, arrays of mixed contents. The same for all ABIs. */
#define MARGAY_FACE_DATA
#include "margay.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

int PMPI_Pcontrol(const int level, ...)
{
    FROM_PROGRAM;
    return margay_MPI_Pcontrol(level);
}
int MPI_Pcontrol(const int level, ...) __attribute__((alias("PMPI_Pcontrol")));
extern __typeof(PMPI_Pcontrol) own_function __attribute__((alias("PMPI_Pcontrol"), visibility("hidden")));

/* A program with a library of MPI in front of this one calls that one's functions with this one's handles, or the other way
 * round. Nobody interposes PMPI's functions on purpose. */
__attribute__((constructor)) static void refuse_company(void)
{
    int (*volatile first)(const int, ...) = PMPI_Pcontrol;
    Dl_info other = {0}, own = {0};
    if (first == own_function || !dladdr((void *)first, &other) || !dladdr((void *)own_function, &own)) return;
    fprintf(stderr,
            "margay: this process has two libraries of MPI with different ABIs, %s and then %s; the program and all of its "
            "libraries must be compiled with one implementation of MPI (ldd shows which of them needs which)\n",
            other.dli_fname, own.dli_fname);
    _exit(1);
}

/* This ABI is not the standard's, which programs learn from versions below 0. */
FACE(int, MPI_Abi_get_version, (int *major, int *minor))
{
    *major = -1;
    *minor = -1;
    return MPI_SUCCESS;
}

int margay_face_peers(abi_handle comm)
{
    int between = 0, n = 0;
    if (margay_MPI_Comm_test_inter(comm, &between)) return 0;
    int e = between ? margay_MPI_Comm_remote_size(comm, &n) : margay_MPI_Comm_size(comm, &n);
    return e ? 0 : n;
}

int margay_face_neighbors(abi_handle comm, int out)
{
    int kind = 0, in_degree = 0, out_degree = 0, weighted, n = 0, rank = 0;
    if (margay_MPI_Topo_test(comm, &kind)) return 0;
    switch (from_topology(kind)) {
    case MPI_CART:
        return margay_MPI_Cartdim_get(comm, &n) ? 0 : 2 * n;
    case MPI_GRAPH:
        if (margay_MPI_Comm_rank(comm, &rank)) return 0;
        return margay_MPI_Graph_neighbors_count(comm, rank, &n) ? 0 : n;
    case MPI_DIST_GRAPH:
        if (margay_MPI_Dist_graph_neighbors_count(comm, &in_degree, &out_degree, &weighted)) return 0;
        return out ? out_degree : in_degree;
    default:
        return 0;
    }
}

/* Attributes: the library calls these with the key's functions as extra state. A key made again of the same functions has the
 * same record, so that a program that makes and frees keys in a loop does not fill memory. */
struct key {
    abi_function copy, delete;
    void *extra_state;
    struct key *next;
};

static struct key *key_of(abi_function copy, abi_function delete, void *extra_state)
{
    static _Atomic(struct key *) first;
    struct key *head = atomic_load(&first);
    for (struct key *k = head; k; k = k->next)
        if (k->copy == copy && k->delete == delete && k->extra_state == extra_state) return k;
    struct key *k = allocate(1, sizeof *k);
    *k = (struct key){copy, delete, extra_state, head};
    while (!atomic_compare_exchange_weak(&first, &k->next, k)) {
    }
    return k;
}

#define ATTRIBUTES(Kind, kind, Handle)                                                                                 \
    static int copy_##kind(abi_handle from, int keyval, void *key, void *in, void *out, int *flag)                     \
    {                                                                                                                  \
        struct key *k = key;                                                                                           \
        return to_error(((MPI_##Kind##_copy_attr_function *)k->copy)(from_##Handle(from), from_keyval(keyval),         \
                                                                     k->extra_state, in, out, flag));                  \
    }                                                                                                                  \
    static int delete_##kind(abi_handle from, int keyval, void *value, void *key)                                      \
    {                                                                                                                  \
        struct key *k = key;                                                                                           \
        return to_error(((MPI_##Kind##_delete_attr_function *)k->delete)(from_##Handle(from), from_keyval(keyval),     \
                                                                         value, k->extra_state));                      \
    }                                                                                                                  \
    FACE(int, MPI_##Kind##_create_keyval,                                                                              \
         (MPI_##Kind##_copy_attr_function * copy, MPI_##Kind##_delete_attr_function * delete, int *keyval,             \
          void *extra_state))                                                                                          \
    {                                                                                                                  \
        FROM_PROGRAM;                                                                                                  \
        int e = margay_MPI_##Kind##_create_keyval(                                                                     \
            copy ? (abi_function)copy_##kind : NULL, delete ? (abi_function)delete_##kind : NULL, keyval,              \
            key_of((abi_function)copy, (abi_function) delete, extra_state));                                           \
        return from_error(e);                                                                                          \
    }

ATTRIBUTES(Comm, comm, comm)
ATTRIBUTES(Type, type, datatype)
ATTRIBUTES(Win, win, win)

FACE(int, MPI_Keyval_create, (MPI_Copy_function * copy, MPI_Delete_function *delete, int *keyval, void *extra_state))
{
    FROM_PROGRAM;
    return PMPI_Comm_create_keyval(copy, delete, keyval, extra_state);
}

/* A predefined attribute is the address of a number. Where its values have other numbers in this ABI, it is one of these. */
static int *number(int keyval, int value)
{
    static int host, io, last_used;
    switch (keyval) {
    case MPI_HOST:
        host = from_rank(value);
        return &host;
    case MPI_IO:
        io = from_rank(value);
        return &io;
    default:
        last_used = value <= ABI_ERR_LASTCODE ? MPI_ERR_LASTCODE : from_error(value);
        return &last_used;
    }
}

FACE(int, MPI_Comm_get_attr, (MPI_Comm comm, int keyval, void *value, int *flag))
{
    FROM_PROGRAM;
    int e = margay_MPI_Comm_get_attr(to_comm(comm), to_keyval(keyval), value, flag);
    if (e) return from_error(e);
    if (*flag && (keyval == MPI_HOST || keyval == MPI_IO || keyval == MPI_LASTUSEDCODE))
        *(int **)value = number(keyval, **(int **)value);
    return MPI_SUCCESS;
}

FACE(int, MPI_Attr_get, (MPI_Comm comm, int keyval, void *value, int *flag))
{
    FROM_PROGRAM;
    return PMPI_Comm_get_attr(comm, keyval, value, flag);
}

FACE(int, MPI_Win_get_attr, (MPI_Win win, int keyval, void *value, int *flag))
{
    FROM_PROGRAM;
    static int flavors[5], models[3];
    int e = margay_MPI_Win_get_attr(to_win(win), to_keyval(keyval), value, flag);
    if (e) return from_error(e);
    if (*flag && keyval == MPI_WIN_CREATE_FLAVOR) {
        int flavor = from_flavor(**(int **)value), *place = &flavors[(unsigned)flavor % 5];
        *place = flavor;
        *(int **)value = place;
    } else if (*flag && keyval == MPI_WIN_MODEL) {
        int model = from_model(**(int **)value), *place = &models[(unsigned)model % 3];
        *place = model;
        *(int **)value = place;
    }
    return MPI_SUCCESS;
}

/* Reductions. A function of C++ is called through one of the library of that language. */
struct operation_of_user {
    abi_function function;
    margay_face_language *language;
};

static void call_small(void *in, void *inout, MPI_Count count, abi_handle datatype, void *operation)
{
    const struct operation_of_user *o = operation;
    MPI_Datatype type = from_datatype(datatype);
    MPI_Aint lower, extent = 0;
    if (count > INT_MAX) margay_MPI_Type_get_extent(datatype, &lower, &extent);
    for (MPI_Count done = 0; done < count; done += INT_MAX) {
        int n = count - done < INT_MAX ? (int)(count - done) : INT_MAX;
        void *from = (char *)in + done * extent, *to = (char *)inout + done * extent;
        if (o->language)
            o->language(from, to, n, type, o->function);
        else
            ((MPI_User_function *)o->function)(from, to, &n, &type);
    }
}

static void call_large(void *in, void *inout, MPI_Count count, abi_handle datatype, void *operation)
{
    const struct operation_of_user *o = operation;
    MPI_Datatype type = from_datatype(datatype);
    ((MPI_User_function_c *)o->function)(in, inout, &count, &type);
}

/* The newest operation of the thread, whose language is said after it is made. */
static _Thread_local struct {
    MPI_Op op;
    struct operation_of_user *operation;
} newest;

static int op_create(abi_function call, abi_function function, int commute, MPI_Op *op)
{
    abi_handle made = 0;
    struct operation_of_user *o = allocate(1, sizeof *o);
    *o = (struct operation_of_user){function, NULL};
    int e = margay_MPIX_Op_create_x(function ? call : NULL, (abi_function)free, commute, o, op ? &made : NULL);
    if (e) {
        free(o);
        return from_error(e);
    }
    *op = from_op(made);
    newest.op = *op;
    newest.operation = o;
    return MPI_SUCCESS;
}

void margay_face_op_language(MPI_Op op, margay_face_language *language, abi_function function)
{
    if (newest.operation && newest.op == op) {
        newest.operation->language = language;
        if (function) newest.operation->function = function;
    }
    newest.operation = NULL;
}

FACE(int, MPI_Op_create, (MPI_User_function * function, int commute, MPI_Op *op))
{
    FROM_PROGRAM;
    return op_create((abi_function)call_small, (abi_function)function, commute, op);
}

FACE(int, MPI_Op_create_c, (MPI_User_function_c * function, int commute, MPI_Op *op))
{
    FROM_PROGRAM;
    return op_create((abi_function)call_large, (abi_function)function, commute, op);
}

/* Functions with a word of the program. */
struct state {
    abi_function function;
    MPIX_Destructor_function *destructor;
    void *extra_state;
};

static struct state *state_of(abi_function function, MPIX_Destructor_function *destructor, void *extra_state)
{
    struct state *s = allocate(1, sizeof *s);
    *s = (struct state){function, destructor, extra_state};
    return s;
}

static void end_of_state(void *state)
{
    struct state *s = state;
    if (s->destructor) s->destructor(s->extra_state);
    free(s);
}

static void call_with_state(void *in, void *inout, MPI_Count count, abi_handle datatype, void *state)
{
    struct state *s = state;
    ((MPIX_User_function_x *)s->function)(in, inout, count, from_datatype(datatype), s->extra_state);
}

FACE(int, MPIX_Op_create_x,
     (MPIX_User_function_x * function, MPIX_Destructor_function *destructor, int commute, void *extra_state, MPI_Op *op))
{
    FROM_PROGRAM;
    abi_handle made = 0;
    struct state *s = function ? state_of((abi_function)function, destructor, extra_state) : NULL;
    int e = margay_MPIX_Op_create_x(s ? (abi_function)call_with_state : NULL, (abi_function)end_of_state, commute, s, op ? &made : NULL);
    if (!e) *op = from_op(made);
    return from_error(e);
}

/* Error handlers. */
#define ERROR_HANDLERS(Kind, kind)                                                                                     \
    static void raise_##kind(abi_handle on, int code, void *function)                                                  \
    {                                                                                                                  \
        MPI_##Kind handle = from_##kind(on);                                                                           \
        int error = from_error(code);                                                                                  \
        ((MPI_##Kind##_errhandler_function *)function)(&handle, &error);                                               \
    }                                                                                                                  \
    static void raise_##kind##_x(abi_handle on, int code, void *state)                                                 \
    {                                                                                                                  \
        struct state *s = state;                                                                                       \
        ((MPIX_##Kind##_errhandler_function_x *)s->function)(from_##kind(on), from_error(code), s->extra_state);       \
    }                                                                                                                  \
    FACE(int, MPI_##Kind##_create_errhandler, (MPI_##Kind##_errhandler_function * function, MPI_Errhandler *made))     \
    {                                                                                                                  \
        FROM_PROGRAM;                                                                                                  \
        abi_handle handle = 0;                                                                                         \
        int e = margay_MPIX_##Kind##_create_errhandler_x(function ? (abi_function)raise_##kind : NULL, NULL,           \
                                                         (void *)function, made ? &handle : NULL);                     \
        if (!e) *made = from_errhandler(handle);                                                                       \
        return from_error(e);                                                                                          \
    }                                                                                                                  \
    FACE(int, MPIX_##Kind##_create_errhandler_x,                                                                       \
         (MPIX_##Kind##_errhandler_function_x * function, MPIX_Destructor_function *destructor, void *extra_state,     \
          MPI_Errhandler *made))                                                                                       \
    {                                                                                                                  \
        FROM_PROGRAM;                                                                                                  \
        abi_handle handle = 0;                                                                                         \
        struct state *s = function ? state_of((abi_function)function, destructor, extra_state) : NULL;                 \
        int e = margay_MPIX_##Kind##_create_errhandler_x(s ? (abi_function)raise_##kind##_x : NULL,                     \
                                                         (abi_function)end_of_state, s, made ? &handle : NULL);        \
        if (!e) *made = from_errhandler(handle);                                                                       \
        return from_error(e);                                                                                          \
    }

ERROR_HANDLERS(Comm, comm)
ERROR_HANDLERS(Win, win)
ERROR_HANDLERS(File, file)
ERROR_HANDLERS(Session, session)

FACE(int, MPI_Errhandler_create, (MPI_Handler_function * function, MPI_Errhandler *made))
{
    FROM_PROGRAM;
    return PMPI_Comm_create_errhandler(function, made);
}

/* Operations of the program. */
struct operation {
    MPI_Grequest_query_function *query;
    MPI_Grequest_free_function *free;
    MPI_Grequest_cancel_function *cancel;
    void *extra_state;
};

static int query_operation(void *operation, abi_status *status)
{
    struct operation *o = operation;
    MPI_Status own;
    memset(&own, 0, sizeof own);
    int e = o->query(o->extra_state, &own);
    int error = status->MPI_ERROR;
    take_status(&own, status);
    status->MPI_ERROR = error;
    return to_error(e);
}

static int free_operation(void *operation)
{
    struct operation *o = operation;
    int e = o->free ? o->free(o->extra_state) : MPI_SUCCESS;
    free(o);
    return to_error(e);
}

static int cancel_operation(void *operation, int complete)
{
    struct operation *o = operation;
    return o->cancel ? to_error(o->cancel(o->extra_state, complete)) : MPI_SUCCESS;
}

FACE(int, MPI_Grequest_start,
     (MPI_Grequest_query_function * query, MPI_Grequest_free_function *free_fn, MPI_Grequest_cancel_function *cancel,
      void *extra_state, MPI_Request *request))
{
    FROM_PROGRAM;
    abi_handle made = 0;
    struct operation *o = allocate(1, sizeof *o);
    *o = (struct operation){query, free_fn, cancel, extra_state};
    int e = margay_MPI_Grequest_start(query ? (abi_function)query_operation : NULL, (abi_function)free_operation,
                                      (abi_function)cancel_operation, o, request ? &made : NULL);
    if (e)
        free(o);
    else
        *request = from_request(made);
    return from_error(e);
}

/* Data representations stay for the whole run. */
struct datarep {
    abi_function read, write;
    MPI_Datarep_extent_function *extent;
    void *extra_state;
};

static int datarep_extent(abi_handle datatype, MPI_Aint *extent, void *datarep)
{
    struct datarep *d = datarep;
    return to_error(d->extent(from_datatype(datatype), extent, d->extra_state));
}

#define CONVERSION(name, which, suffix, type)                                                                          \
    static int name(void *userbuf, abi_handle datatype, type count, void *filebuf, MPI_Offset position, void *datarep) \
    {                                                                                                                  \
        struct datarep *d = datarep;                                                                                   \
        return to_error(((MPI_Datarep_conversion_function##suffix *)d->which)(                                         \
            userbuf, from_datatype(datatype), count, filebuf, position, d->extra_state));                              \
    }
CONVERSION(datarep_read, read, , int)
CONVERSION(datarep_write, write, , int)
CONVERSION(datarep_read_c, read, _c, MPI_Count)
CONVERSION(datarep_write_c, write, _c, MPI_Count)

#define REGISTER(suffix)                                                                                               \
    FACE(int, MPI_Register_datarep##suffix,                                                                            \
         (const char *name, MPI_Datarep_conversion_function##suffix *read,                                             \
          MPI_Datarep_conversion_function##suffix *write, MPI_Datarep_extent_function *extent, void *extra_state))     \
    {                                                                                                                  \
        FROM_PROGRAM;                                                                                                  \
        struct datarep *d = allocate(1, sizeof *d);                                                                    \
        *d = (struct datarep){(abi_function)read, (abi_function)write, extent, extra_state};                           \
        int e = margay_MPI_Register_datarep##suffix(name, read ? (abi_function)datarep_read##suffix : NULL,            \
                                                    write ? (abi_function)datarep_write##suffix : NULL,                \
                                                    extent ? (abi_function)datarep_extent : NULL, d);                  \
        if (e) free(d);                                                                                                \
        return from_error(e);                                                                                          \
    }
REGISTER()
REGISTER(_c)

/* How a datatype was made: among the integers of arrays are names of the standard. `distribs`: where they begin. */
static void from_integers(int combiner, int integers[], int n, int distribs)
{
    if (n <= 0) return;
    if (combiner == MPI_COMBINER_SUBARRAY || combiner == MPI_COMBINER_DARRAY) integers[n - 1] = from_order(integers[n - 1]);
    if (combiner != MPI_COMBINER_DARRAY || n < 3) return;
    int dimensions = integers[2];
    for (int i = 0; i < dimensions && distribs + dimensions + i < n; i++) {
        integers[distribs + i] = from_distribution(integers[distribs + i]);
        integers[distribs + dimensions + i] = from_darg(integers[distribs + dimensions + i]);
    }
}

static void from_datatypes(MPI_Datatype to[], const abi_handle from[], MPI_Count n)
{
    for (MPI_Count i = 0; i < n; i++) to[i] = from_datatype(from[i]);
}

FACE(int, MPI_Type_get_contents,
     (MPI_Datatype datatype, int max_integers, int max_addresses, int max_datatypes, int integers[],
      MPI_Aint addresses[], MPI_Datatype datatypes[]))
{
    FROM_PROGRAM;
    int n = 0, n_addresses = 0, n_types = 0, combiner = 0;
    int e = margay_MPI_Type_get_envelope(to_datatype(datatype), &n, &n_addresses, &n_types, &combiner);
    if (e) return from_error(e);
    abi_handle *types = allocate(max_datatypes > 0 ? (size_t)max_datatypes : 1, sizeof *types);
    e = margay_MPI_Type_get_contents(to_datatype(datatype), max_integers, max_addresses, max_datatypes, integers, addresses,
                                     types);
    if (!e) {
        combiner = from_combiner(combiner);
        from_integers(combiner, integers, n, n > 2 && combiner == MPI_COMBINER_DARRAY ? 3 + integers[2] : 0);
        from_datatypes(datatypes, types, n_types);
    }
    free(types);
    return from_error(e);
}

FACE(int, MPI_Type_get_contents_c,
     (MPI_Datatype datatype, MPI_Count max_integers, MPI_Count max_addresses, MPI_Count max_large_counts,
      MPI_Count max_datatypes, int integers[], MPI_Aint addresses[], MPI_Count large_counts[], MPI_Datatype datatypes[]))
{
    FROM_PROGRAM;
    MPI_Count n = 0, n_addresses = 0, n_large = 0, n_types = 0;
    int combiner = 0;
    int e = margay_MPI_Type_get_envelope_c(to_datatype(datatype), &n, &n_addresses, &n_large, &n_types, &combiner);
    if (e) return from_error(e);
    abi_handle *types = allocate(max_datatypes > 0 ? (size_t)max_datatypes : 1, sizeof *types);
    e = margay_MPI_Type_get_contents_c(to_datatype(datatype), max_integers, max_addresses, max_large_counts, max_datatypes,
                                       integers, addresses, large_counts, types);
    if (!e) {
        combiner = from_combiner(combiner);
        int sizes = n > 2 && n_large == 0 && combiner == MPI_COMBINER_DARRAY ? integers[2] : 0;
        from_integers(combiner, integers, (int)n, 3 + sizes);
        from_datatypes(datatypes, types, n_types);
    }
    free(types);
    return from_error(e);
}

/* The handle would come with the completion of the request, in the form of the standard's ABI. So this one waits. */
FACE(int, MPIX_Comm_ishrink, (MPI_Comm comm, MPI_Comm *made, MPI_Request *request))
{
    FROM_PROGRAM;
    int e = PMPIX_Comm_shrink(comm, made);
    return e ? e : PMPI_Ibarrier(MPI_COMM_SELF, request);
}

/* Starting programs. */
static void from_codes(int e, abi_handle comm, int root, int codes[], int n)
{
    int rank = -1;
    if (e || !codes || margay_MPI_Comm_rank(comm, &rank) || rank != root) return;
    for (int i = 0; i < n; i++) codes[i] = from_error(codes[i]);
}

FACE(int, MPI_Comm_spawn,
     (const char *command, char *argv[], int maxprocs, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *intercomm,
      int codes[]))
{
    FROM_PROGRAM;
    abi_handle made = 0;
    int e = margay_MPI_Comm_spawn(command, argv, maxprocs, to_info(info), root, to_comm(comm), intercomm ? &made : NULL, codes);
    from_codes(e, to_comm(comm), root, codes, maxprocs);
    if (made) *intercomm = from_comm(made);
    return from_error(e);
}

FACE(int, MPI_Comm_spawn_multiple,
     (int count, char *commands[], char **argvs[], const int maxprocs[], const MPI_Info infos[], int root, MPI_Comm comm,
      MPI_Comm *intercomm, int codes[]))
{
    FROM_PROGRAM;
    abi_handle made = 0, *c_infos = NULL;
    int rank = -1, all = 0;
    margay_MPI_Comm_rank(to_comm(comm), &rank);
    if (rank == root && infos && count > 0) {
        c_infos = allocate((size_t)count, sizeof *c_infos);
        for (int i = 0; i < count; i++) c_infos[i] = to_info(infos[i]);
    }
    int e = margay_MPI_Comm_spawn_multiple(count, commands, argvs, maxprocs, c_infos, root, to_comm(comm),
                                           intercomm ? &made : NULL, codes);
    for (int i = 0; rank == root && maxprocs && i < count; i++) all += maxprocs[i];
    from_codes(e, to_comm(comm), root, codes, all);
    if (made) *intercomm = from_comm(made);
    free(c_infos);
    return from_error(e);
}

FACE(int, MPI_T_event_get_info,
     (int index, char *name, int *name_len, int *verbosity, MPI_Datatype datatypes[], MPI_Aint displacements[],
      int *num_elements, MPI_T_enum *enumtype, MPI_Info *info, char *desc, int *desc_len, int *bind))
{
    FROM_PROGRAM;
    int room = datatypes && num_elements && *num_elements > 0 ? *num_elements : 0;
    abi_handle *types = allocate((size_t)room + 1, sizeof *types), made = 0;
    int e = margay_MPI_T_event_get_info(index, name, name_len, verbosity, room ? types : NULL, displacements, num_elements,
                                        enumtype, info ? &made : NULL, desc, desc_len, bind);
    if (!e) {
        for (int i = 0; num_elements && i < room && i < *num_elements; i++) datatypes[i] = from_datatype(types[i]);
        if (verbosity) *verbosity = from_verbosity(*verbosity);
        if (bind) *bind = from_bind(*bind);
        if (made) *info = from_info(made);
    }
    free(types);
    return from_error(e);
}

/* Handles as integers, by the functions of MPI 5 and by those that Fortran's neighbours have always used. */
#define INTEGERS(kind, type)                                                                                           \
    FACE(int, MPI_##kind##_toint, (type handle))                                                                       \
    {                                                                                                                  \
        return PMPI_##kind##_c2f(handle);                                                                              \
    }                                                                                                                  \
    FACE(type, MPI_##kind##_fromint, (int integer))                                                                    \
    {                                                                                                                  \
        return PMPI_##kind##_f2c(integer);                                                                             \
    }
INTEGERS(Comm, MPI_Comm)
INTEGERS(Errhandler, MPI_Errhandler)
INTEGERS(File, MPI_File)
INTEGERS(Group, MPI_Group)
INTEGERS(Info, MPI_Info)
INTEGERS(Message, MPI_Message)
INTEGERS(Op, MPI_Op)
INTEGERS(Request, MPI_Request)
INTEGERS(Session, MPI_Session)
INTEGERS(Type, MPI_Datatype)
INTEGERS(Win, MPI_Win)
