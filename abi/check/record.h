/* What the hooks share: records of calls, and how they reach the checker. core/check/src/record.rs draws the bytes. */
#ifndef MARGAY_CHECK_RECORD_H
#define MARGAY_CHECK_RECORD_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

enum margay_check_phase { BEFORE = 'b', AFTER = 'a', SITE = 's', HELLO = 'h', CHANGED = 'c', TOUCHED = 't', UNWATCHED = 'u', MEMORY = 'm' };

/* Writes a record. The items follow as `items` says:
 *   h  a handle or an address        i  an int              l  a 64-bit number
 *   A  int n, const int *            B  int n, const MPI_Aint * or MPI_Count *
 *   H  int n, an array of handles    S  int n, const MPI_Status *: source, tag, bytes and cancelled of each
 *   G  an MPI_Comm: the world ranks of its group, those of its remote group, whether it has one
 *   g  an MPI_Group: the world ranks of its members
 *   t  a text
 *   D  int n, const int *: displacements, and E  int n, const MPI_Aint *: where the parts of a buffer begin
 * No item stands for nothing when the checker does not run. */
void margay_check_record(enum margay_check_phase phase, const char *name, void *site, int code, const char *items, ...);

/* Whether a checker listens. */
int margay_check_is_on(void);
/* Whether one listens and there is an MPI_COMM_WORLD. */
int margay_check_has_world(void);
void margay_check_goodbye(void);
/* The level that MPI_Init has provided. */
void margay_check_level(int level);

/* Buffers of requests: what a send sends must stay as it is while the request is open, and nobody but the library may
 * write where a receive puts its data. Persistent requests are open from their start. */
enum margay_check_use { SENDS, RECEIVES, COPIES, SENDS_LATER, RECEIVES_LATER };
void margay_check_begin(MPI_Request request, enum margay_check_use use, const void *buffer, MPI_Count count,
                        MPI_Datatype datatype);
void margay_check_begin_collective(const char *name, MPI_Request request, const char *items, ...);
void margay_check_restart(int count, const MPI_Request *requests);
/* Looks at the buffers of requests before the program waits for them or asks for them. */
void margay_check_look(void *site, int count, const MPI_Request *requests);
/* A use of memory that has been reported where it happened is not reported again. */
void margay_check_was_touched(MPI_Request request, const void *buffer);
/* The handles of requests after a call that may have completed some of them: `after` are those that are left. */
void margay_check_end(int count, const MPI_Request *before, const MPI_Request *after);

/* What a call puts or accumulates must stay as it is until a call that completes it. */
void margay_check_put(void *site, MPI_Win win, int rank, const void *buffer, MPI_Count count, MPI_Datatype datatype);
/* The program's own loads and stores are looked at: where an access to a window has its data, and where a window is. */
void margay_check_watch(enum margay_check_use use, const char *name, void *site, MPI_Request request, MPI_Win win, int rank,
                        const void *buffer, MPI_Count count, MPI_Datatype datatype);
MPI_Request margay_check_exchange(MPI_Request request, const void *sent, MPI_Count sent_count, MPI_Datatype sent_type, int dest,
                                  const void *received, MPI_Count received_count, MPI_Datatype received_type, int source);
MPI_Win margay_check_watch_window(MPI_Win win, void *base, int64_t bytes);
/* The program is about to complete its operations with a rank, or with all (-1); -2: with none. */
void margay_check_synchronize(void *site, MPI_Win win, int rank);

/* The communicators that the program has: an invalid one must be refused by the call that got it, not by a hook. */
void margay_check_keep(MPI_Comm comm);
void margay_check_forget(MPI_Comm comm);
/* How many ranks' data a call on it has: of the other group's, where it has one; 0 of one that is not valid. */
int margay_check_size(MPI_Comm comm);
/* The same at the root alone. */
int margay_check_size_at(MPI_Comm comm, int root);
/* The size of its own group. */
int margay_check_own_size(MPI_Comm comm);
/* The extent of a datatype of a target; 0 where it or the window is not valid. */
MPI_Count margay_check_extent(MPI_Datatype datatype, MPI_Win win);

void margay_check_hello(void);

#define MARGAY_NO_ROOT -32768

/* Of a Fortran program, that of its own call; of one in Python a number, of which the other function knows line and file. */
const void *margay_program_address(const void *address);
uint32_t margay_python_place(const void *number, char *file, size_t room);
#define SITE_OF_CALLER ((void *)margay_program_address(__builtin_return_address(0)))
/* The library's own function, which takes the call for the program's: its reports name the line there, not this library. */
void margay_called_from(const void *address);
/* The program's last call is this one, whatever this library has called since. */
void margay_note_call(const char *name);
#define AS_PROGRAM(invoke) (margay_called_from(site), INSIDE(invoke))

/* What a thread accesses within a call of MPI is not the program's: how many calls it is in. */
extern _Thread_local int margay_check_depth;
static inline int margay_check_left(int code)
{
    margay_check_depth--;
    return code;
}
#define INSIDE(invoke) margay_check_left((margay_check_depth++, invoke))

/* The call itself, a record before it and one after it. */
#define CALL(name, invoke, before, after)                                                                             \
    void *site = SITE_OF_CALLER;                                                                                       \
    margay_check_record(BEFORE, name, site, 0, UNPACK before);                                                         \
    int code = AS_PROGRAM(invoke);                                                                                     \
    margay_check_record(AFTER, name, site, code, UNPACK after);                                                        \
    return code
#define UNPACK(...) __VA_ARGS__

/* A status of ours where the program wants none. */
#define WITH_STATUS(status)                                                                                            \
    MPI_Status own_status;                                                                                             \
    if (status == MPI_STATUS_IGNORE) {                                                                                 \
        status = &own_status;                                                                                          \
    }

#endif
