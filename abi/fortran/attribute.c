/* Keys, cells, and the functions that call Fortran's copy and delete functions. */
#include "attribute.h"

#include <pthread.h>

/* Cells are known by a hash table of their addresses. */
typedef struct cell {
    MPI_Aint value; /* first, because C gets the cell's address as that of the integer */
    struct cell *next;
} cell;

enum { BUCKETS = 1024 };
static cell *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static cell **bucket(const void *attribute)
{
    return &buckets[((size_t)attribute >> 4) % BUCKETS];
}

static cell **find(const void *attribute)
{
    cell **link = bucket(attribute);
    while (*link && *link != attribute) link = &(*link)->next;
    return link;
}

void *margay_attribute_cell(MPI_Aint value)
{
    cell *new = margay_allocate(1, sizeof *new);
    new->value = value;
    pthread_mutex_lock(&lock);
    new->next = *bucket(new);
    *bucket(new) = new;
    pthread_mutex_unlock(&lock);
    return new;
}

static int is_cell(const void *attribute)
{
    pthread_mutex_lock(&lock);
    int known = *find(attribute) != NULL;
    pthread_mutex_unlock(&lock);
    return known;
}

MPI_Aint margay_attribute_value(void *attribute)
{
    return is_cell(attribute) ? ((cell *)attribute)->value : (MPI_Aint)attribute;
}

void margay_attribute_drop(void *attribute)
{
    pthread_mutex_lock(&lock);
    cell **link = find(attribute), *old = *link;
    if (old) *link = old->next;
    pthread_mutex_unlock(&lock);
    free(old);
}

margay_key *margay_key_new(void *copy, void *delete, MPI_Aint extra_state, int integers)
{
    margay_key *key = margay_allocate(1, sizeof *key);
    *key = (margay_key){copy, delete, extra_state, integers};
    return key;
}

typedef void address_copy(MPI_Fint *object, MPI_Fint *keyval, MPI_Aint *extra_state, MPI_Aint *in, MPI_Aint *out,
                          MPI_Fint *flag, MPI_Fint *ierror);
typedef void integer_copy(MPI_Fint *object, MPI_Fint *keyval, MPI_Fint *extra_state, MPI_Fint *in, MPI_Fint *out,
                          MPI_Fint *flag, MPI_Fint *ierror);
typedef void address_delete(MPI_Fint *object, MPI_Fint *keyval, MPI_Aint *value, MPI_Aint *extra_state,
                            MPI_Fint *ierror);
typedef void integer_delete(MPI_Fint *object, MPI_Fint *keyval, MPI_Fint *value, MPI_Fint *extra_state,
                            MPI_Fint *ierror);

static int copy(MPI_Fint object, MPI_Fint keyval, const margay_key *key, void *in, void **out, int *flag)
{
    MPI_Fint ierror = MPI_SUCCESS, copied = margay_logical_false;
    MPI_Aint value = margay_attribute_value(in), new = 0, state = key->extra_state;
    if (key->integers) {
        MPI_Fint small = (MPI_Fint)value, small_new = 0, small_state = (MPI_Fint)state;
        ((integer_copy *)key->copy)(&object, &keyval, &small_state, &small, &small_new, &copied, &ierror);
        new = small_new;
    } else {
        ((address_copy *)key->copy)(&object, &keyval, &state, &value, &new, &copied, &ierror);
    }
    *flag = ierror == MPI_SUCCESS && margay_is_true(copied);
    /* What C put stays what C can read. */
    if (*flag) *out = is_cell(in) ? margay_attribute_cell(new) : (void *)new;
    return ierror;
}

static int delete(MPI_Fint object, MPI_Fint keyval, void *attribute, const margay_key *key)
{
    MPI_Fint ierror = MPI_SUCCESS;
    MPI_Aint value = margay_attribute_value(attribute), state = key->extra_state;
    if (key->integers) {
        MPI_Fint small = (MPI_Fint)value, small_state = (MPI_Fint)state;
        ((integer_delete *)key->delete)(&object, &keyval, &small, &small_state, &ierror);
    } else {
        ((address_delete *)key->delete)(&object, &keyval, &value, &state, &ierror);
    }
    if (ierror == MPI_SUCCESS) margay_attribute_drop(attribute);
    return ierror;
}

#define CALLBACKS(name, type, kind)                                                                                  \
    int margay_copy_##name(type object, int keyval, void *key, void *in, void *out, int *flag)                       \
    {                                                                                                                \
        return copy(TO_INT(kind, object), keyval, key, in, out, flag);                                               \
    }                                                                                                                \
    int margay_delete_##name(type object, int keyval, void *attribute, void *key)                                    \
    {                                                                                                                \
        return delete(TO_INT(kind, object), keyval, attribute, key);                                                 \
    }

CALLBACKS(comm, MPI_Comm, Comm)
CALLBACKS(type, MPI_Datatype, Type)
CALLBACKS(win, MPI_Win, Win)

/* The standard's own functions, as Fortran passes or calls them. */
#define PREDEFINED(name)                                                                                             \
    void mpi_##name##_null_copy_fn_(MPI_Fint *object, MPI_Fint *keyval, MPI_Aint *extra_state, MPI_Aint *in,         \
                                    MPI_Aint *out, MPI_Fint *flag, MPI_Fint *ierror)                                 \
    {                                                                                                                \
        (void)object, (void)keyval, (void)extra_state, (void)in, (void)out;                                          \
        *flag = margay_logical_false;                                                                                \
        *ierror = MPI_SUCCESS;                                                                                       \
    }                                                                                                                \
    void mpi_##name##_dup_fn_(MPI_Fint *object, MPI_Fint *keyval, MPI_Aint *extra_state, MPI_Aint *in, MPI_Aint *out, \
                              MPI_Fint *flag, MPI_Fint *ierror)                                                      \
    {                                                                                                                \
        (void)object, (void)keyval, (void)extra_state;                                                               \
        *out = *in;                                                                                                  \
        *flag = margay_logical_true;                                                                                 \
        *ierror = MPI_SUCCESS;                                                                                       \
    }                                                                                                                \
    void mpi_##name##_null_delete_fn_(MPI_Fint *object, MPI_Fint *keyval, MPI_Aint *value, MPI_Aint *extra_state,    \
                                      MPI_Fint *ierror)                                                              \
    {                                                                                                                \
        (void)object, (void)keyval, (void)value, (void)extra_state;                                                  \
        *ierror = MPI_SUCCESS;                                                                                       \
    }

PREDEFINED(comm)
PREDEFINED(type)
PREDEFINED(win)

void mpi_null_copy_fn_(MPI_Fint *comm, MPI_Fint *keyval, MPI_Fint *extra_state, MPI_Fint *in, MPI_Fint *out,
                       MPI_Fint *flag, MPI_Fint *ierror)
{
    (void)comm, (void)keyval, (void)extra_state, (void)in, (void)out;
    *flag = margay_logical_false;
    *ierror = MPI_SUCCESS;
}

void mpi_dup_fn_(MPI_Fint *comm, MPI_Fint *keyval, MPI_Fint *extra_state, MPI_Fint *in, MPI_Fint *out, MPI_Fint *flag,
                 MPI_Fint *ierror)
{
    (void)comm, (void)keyval, (void)extra_state;
    *out = *in;
    *flag = margay_logical_true;
    *ierror = MPI_SUCCESS;
}

void mpi_null_delete_fn_(MPI_Fint *comm, MPI_Fint *keyval, MPI_Fint *value, MPI_Fint *extra_state, MPI_Fint *ierror)
{
    (void)comm, (void)keyval, (void)value, (void)extra_state;
    *ierror = MPI_SUCCESS;
}
