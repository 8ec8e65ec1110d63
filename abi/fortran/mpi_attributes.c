/* Attributes: integers in Fortran, pointers in C.
 *
 * As the standard has it, C gets the address of the integer that Fortran put, and Fortran gets the address that C put as
 * an integer. So what Fortran puts is kept in a cell of memory whose address is the attribute in C, and the cells are
 * known, so that Fortran gets its integer back. Functions of the user are called through functions of ours, which know
 * them from their extra state.
 */
#include "glue.h"

#include "attribute.h"

static MPI_Aint predefined_comm(int key, void *value)
{
    switch (key) {
    case MPI_TAG_UB:
    case MPI_IO:
    case MPI_HOST:
    case MPI_WTIME_IS_GLOBAL:
    case MPI_APPNUM:
    case MPI_LASTUSEDCODE:
    case MPI_UNIVERSE_SIZE: return *(int *)value;
    default: return margay_attribute_value(value);
    }
}

void FN(comm_create_keyval)(void *copy_fn, void *delete_fn, MPI_Fint *keyval, MPI_Aint *extra_state, MPI_Fint *ierror)
{
    margay_key *key = margay_key_new(copy_fn, delete_fn, *extra_state, 0);
    int e = CALL(Comm_create_keyval)(margay_copy_comm, margay_delete_comm, keyval, key);
    margay_done(ierror, e);
}
SAME_IN_F08(comm_create_keyval,
            (void *copy_fn, void *delete_fn, MPI_Fint *keyval, MPI_Aint *extra_state, MPI_Fint *ierror))

void FN(keyval_create)(void *copy_fn, void *delete_fn, MPI_Fint *keyval, MPI_Fint *extra_state, MPI_Fint *ierror)
{
    margay_key *key = margay_key_new(copy_fn, delete_fn, *extra_state, 1);
    int e = CALL(Keyval_create)(margay_copy_comm, margay_delete_comm, keyval, key);
    margay_done(ierror, e);
}

void FN(comm_set_attr)(MPI_Fint *comm, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *ierror)
{
    void *cell = margay_attribute_cell(*value);
    int e = CALL(Comm_set_attr)(FROM_INT(Comm, *comm), *keyval, cell);
    if (e != MPI_SUCCESS) margay_attribute_drop(cell);
    margay_done(ierror, e);
}
SAME_IN_F08(comm_set_attr, (MPI_Fint *comm, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *ierror))

void FN(attr_put)(MPI_Fint *comm, MPI_Fint *keyval, MPI_Fint *value, MPI_Fint *ierror)
{
    void *cell = margay_attribute_cell(*value);
    int e = CALL(Attr_put)(FROM_INT(Comm, *comm), *keyval, cell);
    if (e != MPI_SUCCESS) margay_attribute_drop(cell);
    margay_done(ierror, e);
}

void FN(comm_get_attr)(MPI_Fint *comm, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *flag, MPI_Fint *ierror)
{
    void *found = NULL;
    int is_set = 0, key = KEY_FROM_INT(*keyval);
    int e = CALL(Comm_get_attr)(FROM_INT(Comm, *comm), key, &found, &is_set);
    if (e == MPI_SUCCESS && is_set) *value = predefined_comm(key, found);
    *flag = margay_logical(is_set);
    margay_done(ierror, e);
}
SAME_IN_F08(comm_get_attr, (MPI_Fint *comm, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *flag, MPI_Fint *ierror))

void FN(attr_get)(MPI_Fint *comm, MPI_Fint *keyval, MPI_Fint *value, MPI_Fint *flag, MPI_Fint *ierror)
{
    void *found = NULL;
    int is_set = 0, key = KEY_FROM_INT(*keyval);
    int e = CALL(Attr_get)(FROM_INT(Comm, *comm), key, &found, &is_set);
    if (e == MPI_SUCCESS && is_set) *value = (MPI_Fint)predefined_comm(key, found);
    *flag = margay_logical(is_set);
    margay_done(ierror, e);
}

void FN(type_create_keyval)(void *copy_fn, void *delete_fn, MPI_Fint *keyval, MPI_Aint *extra_state, MPI_Fint *ierror)
{
    margay_key *key = margay_key_new(copy_fn, delete_fn, *extra_state, 0);
    int e = CALL(Type_create_keyval)(margay_copy_type, margay_delete_type, keyval, key);
    margay_done(ierror, e);
}
SAME_IN_F08(type_create_keyval,
            (void *copy_fn, void *delete_fn, MPI_Fint *keyval, MPI_Aint *extra_state, MPI_Fint *ierror))

void FN(type_set_attr)(MPI_Fint *datatype, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *ierror)
{
    void *cell = margay_attribute_cell(*value);
    int e = CALL(Type_set_attr)(FROM_INT(Type, *datatype), *keyval, cell);
    if (e != MPI_SUCCESS) margay_attribute_drop(cell);
    margay_done(ierror, e);
}
SAME_IN_F08(type_set_attr, (MPI_Fint *datatype, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *ierror))

void FN(type_get_attr)(MPI_Fint *datatype, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *flag, MPI_Fint *ierror)
{
    void *found = NULL;
    int is_set = 0, e = CALL(Type_get_attr)(FROM_INT(Type, *datatype), *keyval, &found, &is_set);
    if (e == MPI_SUCCESS && is_set) *value = margay_attribute_value(found);
    *flag = margay_logical(is_set);
    margay_done(ierror, e);
}
SAME_IN_F08(type_get_attr, (MPI_Fint *datatype, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *flag, MPI_Fint *ierror))

void FN(win_create_keyval)(void *copy_fn, void *delete_fn, MPI_Fint *keyval, MPI_Aint *extra_state, MPI_Fint *ierror)
{
    margay_key *key = margay_key_new(copy_fn, delete_fn, *extra_state, 0);
    int e = CALL(Win_create_keyval)(margay_copy_win, margay_delete_win, keyval, key);
    margay_done(ierror, e);
}
SAME_IN_F08(win_create_keyval,
            (void *copy_fn, void *delete_fn, MPI_Fint *keyval, MPI_Aint *extra_state, MPI_Fint *ierror))

void FN(win_set_attr)(MPI_Fint *win, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *ierror)
{
    void *cell = margay_attribute_cell(*value);
    int e = CALL(Win_set_attr)(FROM_INT(Win, *win), *keyval, cell);
    if (e != MPI_SUCCESS) margay_attribute_drop(cell);
    margay_done(ierror, e);
}
SAME_IN_F08(win_set_attr, (MPI_Fint *win, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *ierror))

static MPI_Aint predefined_win(int key, void *value)
{
    switch (key) {
    case MPI_WIN_BASE: return (MPI_Aint)value;
    case MPI_WIN_SIZE: return *(MPI_Aint *)value;
    case MPI_WIN_DISP_UNIT:
    case MPI_WIN_CREATE_FLAVOR:
    case MPI_WIN_MODEL: return *(int *)value;
    default: return margay_attribute_value(value);
    }
}

void FN(win_get_attr)(MPI_Fint *win, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *flag, MPI_Fint *ierror)
{
    void *found = NULL;
    int is_set = 0, key = KEY_FROM_INT(*keyval);
    int e = CALL(Win_get_attr)(FROM_INT(Win, *win), key, &found, &is_set);
    if (e == MPI_SUCCESS && is_set) *value = predefined_win(key, found);
    *flag = margay_logical(is_set);
    margay_done(ierror, e);
}
SAME_IN_F08(win_get_attr, (MPI_Fint *win, MPI_Fint *keyval, MPI_Aint *value, MPI_Fint *flag, MPI_Fint *ierror))
