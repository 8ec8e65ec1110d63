/* Functions whose C form takes the command line, a result, or lengths that count the final zero. */
#include "glue.h"

void FN(init)(MPI_Fint *ierror)
{
    int e = CALL(Init)(NULL, NULL);
    if (e == MPI_SUCCESS) margay_initialized();
    margay_done(ierror, e);
}
SAME_IN_F08(init, (MPI_Fint *ierror))

void FN(init_thread)(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierror)
{
    int e = CALL(Init_thread)(NULL, NULL, *required, provided);
    if (e == MPI_SUCCESS) margay_initialized();
    margay_done(ierror, e);
}
SAME_IN_F08(init_thread, (MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierror))

void FN(pcontrol)(MPI_Fint *level, MPI_Fint *ierror)
{
    margay_done(ierror, CALL(Pcontrol)(*level));
}
SAME_IN_F08(pcontrol, (MPI_Fint *level, MPI_Fint *ierror))

double FN(wtime)(void)
{
    return CALL(Wtime)();
}
double FN(wtime_f08)(void) __attribute__((alias(GLUE_TEXT(FN(wtime)))));

double FN(wtick)(void)
{
    return CALL(Wtick)();
}
double FN(wtick_f08)(void) __attribute__((alias(GLUE_TEXT(FN(wtick)))));

MPI_Aint FN(aint_add)(MPI_Aint *base, MPI_Aint *disp)
{
    return CALL(Aint_add)(*base, *disp);
}
MPI_Aint FN(aint_add_f08)(MPI_Aint *base, MPI_Aint *disp) __attribute__((alias(GLUE_TEXT(FN(aint_add)))));

MPI_Aint FN(aint_diff)(MPI_Aint *addr1, MPI_Aint *addr2)
{
    return CALL(Aint_diff)(*addr1, *addr2);
}
MPI_Aint FN(aint_diff_f08)(MPI_Aint *addr1, MPI_Aint *addr2) __attribute__((alias(GLUE_TEXT(FN(aint_diff)))));

/* Does nothing but be called: the compiler cannot move accesses to the buffer across it. */
void FN(f_sync_reg)(void *buf)
{
    (void)buf;
}
void FN(f_sync_reg_f08ts)(CFI_cdesc_t *buf)
{
    (void)buf;
}

void FN(info_create_env)(MPI_Fint *info, MPI_Fint *ierror)
{
    MPI_Info c = MPI_INFO_NULL;
    int e = CALL(Info_create_env)(0, NULL, &c);
    *info = TO_INT(Info, c);
    margay_done(ierror, e);
}
SAME_IN_F08(info_create_env, (MPI_Fint *info, MPI_Fint *ierror))

/* Fortran's lengths do not count the final zero. */
void FN(info_get)(MPI_Fint *info, char *key, MPI_Fint *valuelen, char *value, MPI_Fint *flag, MPI_Fint *ierror,
                  size_t key_len, size_t value_len)
{
    char *c_key = margay_text(key, key_len, 1);
    size_t length = *valuelen > 0 ? (size_t)*valuelen : 0;
    char *c_value = margay_allocate(length + 1, 1);
    int found = 0, e = CALL(Info_get)(FROM_INT(Info, *info), c_key, *valuelen, c_value, &found);
    if (e == MPI_SUCCESS && found) margay_text_out(value, value_len, c_value);
    *flag = margay_logical(found);
    free(c_value);
    free(c_key);
    margay_done(ierror, e);
}
SAME_IN_F08(info_get, (MPI_Fint *info, char *key, MPI_Fint *valuelen, char *value, MPI_Fint *flag, MPI_Fint *ierror,
                       size_t key_len, size_t value_len))

void FN(info_get_string)(MPI_Fint *info, char *key, MPI_Fint *buflen, char *value, MPI_Fint *flag, MPI_Fint *ierror,
                         size_t key_len, size_t value_len)
{
    char *c_key = margay_text(key, key_len, 1);
    int length = *buflen > 0 ? *buflen + 1 : 0, found = 0;
    char *c_value = margay_allocate((size_t)length, 1);
    int e = CALL(Info_get_string)(FROM_INT(Info, *info), c_key, &length, c_value, &found);
    if (e == MPI_SUCCESS && found) {
        if (*buflen > 0) margay_text_out(value, value_len, c_value);
        *buflen = length - 1;
    }
    *flag = margay_logical(found);
    free(c_value);
    free(c_key);
    margay_done(ierror, e);
}
SAME_IN_F08(info_get_string, (MPI_Fint *info, char *key, MPI_Fint *buflen, char *value, MPI_Fint *flag,
                              MPI_Fint *ierror, size_t key_len, size_t value_len))

void FN(session_init)(MPI_Fint *info, MPI_Fint *errhandler, MPI_Fint *session, MPI_Fint *ierror)
{
    MPI_Session c = MPI_SESSION_NULL;
    int e = CALL(Session_init)(FROM_INT(Info, *info), FROM_INT(Errhandler, *errhandler), &c);
    *session = TO_INT(Session, c);
    if (e == MPI_SUCCESS) margay_initialized();
    margay_done(ierror, e);
}
SAME_IN_F08(session_init, (MPI_Fint *info, MPI_Fint *errhandler, MPI_Fint *session, MPI_Fint *ierror))

void FN(session_get_nth_pset)(MPI_Fint *session, MPI_Fint *info, MPI_Fint *n, MPI_Fint *pset_len, char *pset_name,
                              MPI_Fint *ierror, size_t pset_name_len)
{
    int length = *pset_len > 0 ? *pset_len + 1 : 0;
    char *name = margay_allocate((size_t)length, 1);
    int e = CALL(Session_get_nth_pset)(FROM_INT(Session, *session), FROM_INT(Info, *info), *n, &length, name);
    if (e == MPI_SUCCESS) {
        if (*pset_len > 0) margay_text_out(pset_name, pset_name_len, name);
        *pset_len = length - 1;
    }
    free(name);
    margay_done(ierror, e);
}
SAME_IN_F08(session_get_nth_pset, (MPI_Fint *session, MPI_Fint *info, MPI_Fint *n, MPI_Fint *pset_len,
                                   char *pset_name, MPI_Fint *ierror, size_t pset_name_len))

/* Before mpi_f08 there was no pointer to put a detached buffer's address into. mpi_f08 gets it, and for the library's own
 * buffer the address of the mark. */
static void put(void **buffer_addr, void *address, int e)
{
    if (e == MPI_SUCCESS) *buffer_addr = address == MPI_BUFFER_AUTOMATIC ? FORTRAN_BUFFER_AUTOMATIC : address;
}

void FN(buffer_detach)(void *buffer_addr, MPI_Fint *size, MPI_Fint *ierror)
{
    void *address;
    (void)buffer_addr;
    margay_done(ierror, CALL(Buffer_detach)(&address, size));
}

void FN(buffer_detach_f08)(void **buffer_addr, MPI_Fint *size, MPI_Fint *ierror)
{
    void *address;
    int e = CALL(Buffer_detach)(&address, size);
    put(buffer_addr, address, e);
    margay_done(ierror, e);
}

void FN(buffer_detach_c_f08)(void **buffer_addr, MPI_Count *size, MPI_Fint *ierror)
{
    void *address;
    int e = CALL(Buffer_detach_c)(&address, size);
    put(buffer_addr, address, e);
    margay_done(ierror, e);
}

#define DETACH(kind, lower)                                                                                          \
    void FN(lower##_detach_buffer)(MPI_Fint *object, void *buffer_addr, MPI_Fint *size, MPI_Fint *ierror)            \
    {                                                                                                                \
        void *address;                                                                                               \
        (void)buffer_addr;                                                                                           \
        margay_done(ierror, CALL(kind##_detach_buffer)(FROM_INT(kind, *object), &address, size));                    \
    }                                                                                                                \
    void FN(lower##_detach_buffer_f08)(MPI_Fint *object, void **buffer_addr, MPI_Fint *size, MPI_Fint *ierror)       \
    {                                                                                                                \
        void *address;                                                                                               \
        int e = CALL(kind##_detach_buffer)(FROM_INT(kind, *object), &address, size);                                 \
        put(buffer_addr, address, e);                                                                                \
        margay_done(ierror, e);                                                                                      \
    }                                                                                                                \
    void FN(lower##_detach_buffer_c_f08)(MPI_Fint *object, void **buffer_addr, MPI_Count *size, MPI_Fint *ierror)    \
    {                                                                                                                \
        void *address;                                                                                               \
        int e = CALL(kind##_detach_buffer_c)(FROM_INT(kind, *object), &address, size);                               \
        put(buffer_addr, address, e);                                                                                \
        margay_done(ierror, e);                                                                                      \
    }

DETACH(Comm, comm)
DETACH(Session, session)
