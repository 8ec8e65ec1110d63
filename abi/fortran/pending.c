/* Copies of sections that live until their request is complete: of nonblocking and persistent collectives.
 *
 * There are few or none at a time, so they are a list. It is Fortran's functions that look here when they complete a
 * request.
 */
#include "glue.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct pending {
    struct pending *next;
    MPI_Fint request;
    int persistent;
    margay_scratch copies[2];
} pending;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pending *list;
static atomic_int entries;

int margay_any_pending(void)
{
    return atomic_load_explicit(&entries, memory_order_relaxed) != 0;
}

void margay_scratch_keep(int error, MPI_Fint request, int persistent, margay_scratch *first, margay_scratch *second)
{
    int any = first->array || (second && second->array);
    if (!any) return;
    if (error != MPI_SUCCESS) {
        margay_scratch_end(first);
        if (second) margay_scratch_end(second);
        return;
    }
    pending *entry = margay_allocate(1, sizeof *entry);
    entry->request = request;
    entry->persistent = persistent;
    entry->copies[0] = *first;
    if (second) entry->copies[1] = *second;
    pthread_mutex_lock(&lock);
    entry->next = list;
    list = entry;
    atomic_fetch_add(&entries, 1);
    pthread_mutex_unlock(&lock);
}

enum event { START, COMPLETE, FREE };

static void happened(MPI_Fint request, enum event event)
{
    pthread_mutex_lock(&lock);
    pending **link = &list;
    while (*link && (*link)->request != request) link = &(*link)->next;
    pending *entry = *link;
    for (int i = 0; entry && i < 2; i++) {
        if (event == START) margay_scratch_read(&entry->copies[i]);
        if (event == COMPLETE) margay_scratch_write(&entry->copies[i]);
    }
    if (entry && (event == FREE || (event == COMPLETE && !entry->persistent))) {
        *link = entry->next;
        atomic_fetch_sub(&entries, 1);
        for (int i = 0; i < 2; i++)
            if (entry->copies[i].array) free(entry->copies[i].base);
        free(entry);
    }
    pthread_mutex_unlock(&lock);
}

void margay_pending_start(MPI_Fint request)
{
    happened(request, START);
}

void margay_pending_complete(MPI_Fint request)
{
    happened(request, COMPLETE);
}

void margay_pending_free(MPI_Fint request)
{
    happened(request, FREE);
}
