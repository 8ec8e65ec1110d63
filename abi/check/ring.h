/* Records in memory that the checker reads, so that a record costs no system call and is there when the process dies. */
#ifndef MARGAY_CHECK_RING_H
#define MARGAY_CHECK_RING_H

#include <stddef.h>

struct ring;

/* A ring whose reader is at the other end of a socket, and in `path` the name under which it can be opened; NULL where
 * there is no memory for it. */
struct ring *margay_ring_make(int socket, char *path, size_t room);
/* The reader has opened it: nobody else needs to. */
void margay_ring_opened(struct ring *ring);
void margay_ring_drop(struct ring *ring);
/* Writes bytes, and waits while there is no room for them. Returns 0 when the reader has gone. */
int margay_ring_write(struct ring *ring, const void *bytes, size_t n);

#endif
