/* The writer of the ring; svc/check/src/ring.rs draws the bytes and is the reader. */
#include "ring.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC "margayc1"
#define HEADER 4096
#define BYTES (256 << 10)
/* The reader is woken when there is as much; it also looks by itself. */
#define WAKE (32 << 10)
/* For as many bytes that it has read it sends back a byte. */
#define CREDIT (16 << 10)

struct header {
    char magic[8];
    uint64_t end, inverse;
};

struct ring {
    int socket, file;
    struct header *header;
    char *data;
    /* Bytes since the begin: written, known to be read, and of which the reader has been woken. */
    uint64_t end, read, woken;
};

struct ring *margay_ring_make(int socket, char *path, size_t room)
{
    struct ring *ring = calloc(1, sizeof *ring);
    if (ring == NULL) {
        return NULL;
    }
    ring->socket = socket;
    struct rlimit most;
    int is_allowed = getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur >= HEADER + BYTES;
    ring->file = is_allowed ? memfd_create("margay-check", MFD_CLOEXEC) : -1;
    void *memory = MAP_FAILED;
    if (ring->file >= 0 && ftruncate(ring->file, HEADER + BYTES) == 0) {
        memory = mmap(NULL, HEADER + BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring->file, 0);
    }
    if (memory == MAP_FAILED) {
        margay_ring_opened(ring);
        free(ring);
        return NULL;
    }
    madvise(memory, HEADER + BYTES, MADV_DONTFORK);
    ring->header = memory;
    ring->data = (char *)memory + HEADER;
    memcpy(ring->header->magic, MAGIC, sizeof ring->header->magic);
    ring->header->inverse = ~(uint64_t)0;
    snprintf(path, room, "/proc/%d/fd/%d", (int)getpid(), ring->file);
    return ring;
}

void margay_ring_opened(struct ring *ring)
{
    if (ring->file >= 0) {
        close(ring->file);
        ring->file = -1;
    }
}

void margay_ring_drop(struct ring *ring)
{
    margay_ring_opened(ring);
    munmap(ring->header, HEADER + BYTES);
    free(ring);
}

/* Takes what the reader has sent back; waits for it where `flags` do not say otherwise. Returns 0 when it has gone. */
static int take_credits(struct ring *ring, int flags)
{
    char credits[BYTES / CREDIT];
    ssize_t n;
    do {
        n = recv(ring->socket, credits, sizeof credits, flags);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        ring->read += (uint64_t)n * CREDIT;
    }
    return n > 0 || (n < 0 && errno == EAGAIN);
}

static void publish(struct ring *ring)
{
    __atomic_store_n(&ring->header->end, ring->end, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->header->inverse, ~ring->end, __ATOMIC_RELEASE);
}

/* A byte that does not fit is not needed: there are others that the reader has not taken. */
static int wake(struct ring *ring)
{
    ring->woken = ring->end;
    return send(ring->socket, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno == EAGAIN || errno == EINTR;
}

int margay_ring_write(struct ring *ring, const void *bytes, size_t n)
{
    const char *from = bytes;
    while (n > 0) {
        if (BYTES - (ring->end - ring->read) < n && !take_credits(ring, MSG_DONTWAIT)) {
            return 0;
        }
        size_t room = (size_t)(BYTES - (ring->end - ring->read));
        if (room == 0) {
            publish(ring);
            if (!wake(ring) || !take_credits(ring, 0)) {
                return 0;
            }
            continue;
        }
        size_t at = (size_t)(ring->end % BYTES), part = n < room ? n : room;
        part = part < BYTES - at ? part : BYTES - at;
        memcpy(ring->data + at, from, part);
        ring->end += part;
        from += part;
        n -= part;
    }
    publish(ring);
    return ring->end - ring->woken < WAKE || wake(ring);
}
