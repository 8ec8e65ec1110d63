/* Watches on memory that MPI is using: the program's own loads and stores there. */
#ifndef MARGAY_CHECK_WATCH_H
#define MARGAY_CHECK_WATCH_H

#include <mpi.h>
#include <stddef.h>

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

/* Writes records of what was hit since the last time. */
void margay_watch_say(void);

#endif
