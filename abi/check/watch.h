/* Watches on memory that MPI is using: the program's own loads and stores there. */
#ifndef MARGAY_CHECK_WATCH_H
#define MARGAY_CHECK_WATCH_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* In place of an error: registers have taken their share of the time. */
#define SPARING -1

/* Who uses it: operations that send must not be stored to, the others not be read either; a window's owner may do both,
 * and what is wrong with that the checker knows. */
enum margay_watch { WATCH_SENT, WATCH_RECEIVED, WATCH_PUT, WATCH_GOT, WATCH_WINDOW };

/* Memory is in use until its request is done, its window synchronized with that rank, or the window freed. `name` and
 * `site`: of the call, where that is an access to a window. */
void margay_watch_begin(enum margay_watch use, MPI_Request request, MPI_Win win, int rank, const void *buffer, size_t bytes,
                        const char *name, void *site);
void margay_watch_end(MPI_Request request);
/* All ranks: -1. */
void margay_watch_synchronized(MPI_Win win, int rank);
void margay_watch_freed(MPI_Win win);

/* Which code is the program's: to be called once before the other two. */
void margay_watch_find_code(void);
/* Where the program made an access: behind its instruction, or behind its call of a function that copies. NULL: the
 * access is none of the program's, or of a function of the C library that may read more than it was asked to, as those
 * for strings do. */
void *margay_watch_place(uintptr_t at, uintptr_t stack);
/* Whether nothing is decided between a load and a store: no byte there can be the begin of a jump. */
int margay_watch_is_update(uintptr_t load, uintptr_t store);

/* Writes records of what was hit since the last time. */
void margay_watch_say(void);

#endif
