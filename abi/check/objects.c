/* What the hooks keep themselves: the communicators that are valid, and sums of the buffers of open requests. */
#include "record.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Communicators that the program has made. */
static MPI_Comm *comms;
static size_t comms_used, comms_room;

void margay_check_keep(MPI_Comm comm)
{
    if (comm == MPI_COMM_NULL || !margay_check_is_on()) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (comms_used == comms_room) {
        size_t room = comms_room * 2 + 16;
        MPI_Comm *more = realloc(comms, room * sizeof *more);
        if (more != NULL) {
            comms = more;
            comms_room = room;
        }
    }
    if (comms_used < comms_room) {
        comms[comms_used++] = comm;
    }
    pthread_mutex_unlock(&lock);
}

void margay_check_forget(MPI_Comm comm)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < comms_used; i++) {
        if (comms[i] == comm) {
            comms[i] = comms[--comms_used];
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

static int is_valid(MPI_Comm comm)
{
    if (!margay_check_has_world()) {
        return 0;
    }
    int found = comm == MPI_COMM_WORLD || comm == MPI_COMM_SELF;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; !found && i < comms_used; i++) {
        found = comms[i] == comm;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int margay_check_own_size(MPI_Comm comm)
{
    int size = 0;
    if (is_valid(comm)) {
        PMPI_Comm_size(comm, &size);
    }
    return size;
}

int margay_check_size(MPI_Comm comm)
{
    int size = 0, is_inter = 0;
    if (is_valid(comm)) {
        PMPI_Comm_test_inter(comm, &is_inter);
        (is_inter ? PMPI_Comm_remote_size : PMPI_Comm_size)(comm, &size);
    }
    return size;
}

int margay_check_size_at(MPI_Comm comm, int root)
{
    int rank = -1, is_inter = 0;
    if (is_valid(comm)) {
        PMPI_Comm_test_inter(comm, &is_inter);
        PMPI_Comm_rank(comm, &rank);
    }
    return root == (is_inter ? MPI_ROOT : rank) ? margay_check_size(comm) : 0;
}

MPI_Count margay_check_extent(MPI_Datatype datatype, MPI_Win win)
{
    /* Predefined ones only: whether another one is valid is not known before the call. */
    (void)datatype;
    (void)win;
    return 0;
}

/* Buffers whose sums are known: of contiguous data, and not so long that sums would take longer than the message. */
#define MOST_BYTES (4 << 20)
#define MOST_RECEIVED 4096

struct open_request {
    MPI_Request request;
    enum margay_check_use use;
    const void *buffer;
    size_t bytes;
    uint64_t sum;
    int is_open;
    int was_reported;
    struct open_request *next;
};

#define BUCKETS 1024
static struct open_request *open_requests[BUCKETS];

static struct open_request **bucket_of(MPI_Request request)
{
    return &open_requests[((uintptr_t)request * 0x9E3779B97F4A7C15u) >> 54];
}

static struct open_request *find(MPI_Request request)
{
    struct open_request *at = *bucket_of(request);
    while (at != NULL && at->request != request) {
        at = at->next;
    }
    return at;
}

static uint64_t sum_of(const void *buffer, size_t bytes)
{
    const unsigned char *at = buffer;
    uint64_t sum = 0xcbf29ce484222325u;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
        sum ^= sum >> 32;
    }
    for (; bytes > 0; bytes--, at++) {
        sum = (sum ^ *at) * 0x100000001b3u;
    }
    return sum;
}

/* The bytes of a buffer whose data lie without gaps; 0 for others. The datatype is valid. */
static size_t bytes_of(const void *buffer, MPI_Count count, MPI_Datatype datatype)
{
    MPI_Count size = 0, lower = 0, extent = 0;
    if (buffer == NULL || buffer == MPI_IN_PLACE || buffer == MPI_BOTTOM || count <= 0 ||
        PMPI_Type_size_c(datatype, &size) != MPI_SUCCESS || size <= 0 || count > MOST_BYTES / size) {
        return 0;
    }
    PMPI_Type_get_extent_c(datatype, &lower, &extent);
    if (lower != 0 || extent != size) {
        return 0;
    }
    PMPI_Type_get_true_extent_c(datatype, &lower, &extent);
    return lower == 0 && extent == size ? (size_t)(size * count) : 0;
}

static void enter(MPI_Request request, enum margay_check_use use, const void *buffer, size_t bytes)
{
    if (bytes == 0 || request == MPI_REQUEST_NULL) {
        return;
    }
    struct open_request *entry = malloc(sizeof *entry);
    if (entry == NULL) {
        return;
    }
    int is_open = use == SENDS || use == RECEIVES;
    *entry = (struct open_request){.request = request, .use = use, .buffer = buffer, .bytes = bytes, .is_open = is_open};
    if (is_open) {
        entry->sum = sum_of(buffer, bytes);
    }
    pthread_mutex_lock(&lock);
    entry->next = *bucket_of(request);
    *bucket_of(request) = entry;
    pthread_mutex_unlock(&lock);
}

void margay_check_begin(MPI_Request request, enum margay_check_use use, const void *buffer, MPI_Count count,
                        MPI_Datatype datatype)
{
    if (use == COPIES || !margay_check_is_on()) {
        return;
    }
    size_t bytes = bytes_of(buffer, count, datatype);
    int is_received = use == RECEIVES || use == RECEIVES_LATER;
    enter(request, use, buffer, is_received && bytes > MOST_RECEIVED ? 0 : bytes);
}

void margay_check_begin_collective(const char *name, MPI_Request request, const char *items, ...)
{
    /* One count and one type of what is sent stand first. */
    if (!margay_check_is_on() || strncmp(items, "hBH", 3) != 0) {
        return;
    }
    va_list list;
    va_start(list, items);
    const void *buffer = va_arg(list, const void *);
    int counts = va_arg(list, int);
    const int64_t *count = va_arg(list, const int64_t *);
    int types = va_arg(list, int);
    const MPI_Datatype *type = va_arg(list, const MPI_Datatype *);
    (void)va_arg(list, const void *);
    (void)va_arg(list, int);
    (void)va_arg(list, const void *);
    (void)va_arg(list, int);
    (void)va_arg(list, const MPI_Datatype *);
    int root = va_arg(list, int);
    (void)va_arg(list, MPI_Op);
    MPI_Comm comm = va_arg(list, MPI_Comm);
    va_end(list);
    int is_inter = 0, rank = -1;
    if (!is_valid(comm) || counts != 1 || types != 1) {
        return;
    }
    PMPI_Comm_test_inter(comm, &is_inter);
    PMPI_Comm_rank(comm, &rank);
    /* What a broadcast and a scatter send means something at their root only. Between groups only some send. */
    int is_from_root = strcmp(name, "MPI_Ibcast") == 0 || strcmp(name, "MPI_Iscatter") == 0;
    if (!is_inter && (!is_from_root || root == rank)) {
        enter(request, SENDS, buffer, bytes_of(buffer, *count, *type));
    }
}

void margay_check_restart(int count, const MPI_Request *requests)
{
    if (requests == NULL || !margay_check_is_on()) {
        return;
    }
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        struct open_request *entry = find(requests[i]);
        if (entry != NULL) {
            entry->sum = sum_of(entry->buffer, entry->bytes);
            entry->is_open = 1;
        }
    }
    pthread_mutex_unlock(&lock);
}

void margay_check_look(void *site, int count, const MPI_Request *requests)
{
    if (!margay_check_is_on()) {
        return;
    }
    for (int i = 0; i < count; i++) {
        pthread_mutex_lock(&lock);
        struct open_request *entry = find(requests[i]);
        int is_changed = entry != NULL && entry->is_open && !entry->was_reported &&
                         sum_of(entry->buffer, entry->bytes) != entry->sum;
        int is_receive = is_changed && (entry->use == RECEIVES || entry->use == RECEIVES_LATER);
        const void *buffer = is_changed ? entry->buffer : NULL;
        pthread_mutex_unlock(&lock);
        int is_complete = 0;
        /* What a receive has put there is no change by the program. */
        if (is_receive) {
            PMPI_Request_get_status(requests[i], &is_complete, MPI_STATUS_IGNORE);
        }
        if (is_changed && !is_complete) {
            margay_check_record(CHANGED, is_receive ? "r" : "s", site, 0, "Hh", 1, &requests[i], buffer);
            pthread_mutex_lock(&lock);
            entry = find(requests[i]);
            if (entry != NULL) {
                entry->was_reported = 1;
            }
            pthread_mutex_unlock(&lock);
        }
    }
}

void margay_check_end(int count, const MPI_Request *before, const MPI_Request *after)
{
    if (!margay_check_is_on()) {
        return;
    }
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        struct open_request *entry = find(before[i]);
        if (entry == NULL) {
            continue;
        }
        if (after[i] != MPI_REQUEST_NULL) {
            /* Persistent: until its next start. */
            entry->is_open = 0;
            continue;
        }
        struct open_request **from = bucket_of(before[i]);
        while (*from != entry) {
            from = &(*from)->next;
        }
        *from = entry->next;
        free(entry);
    }
    pthread_mutex_unlock(&lock);
}

/* Data that operations of windows send from. */
struct sent {
    void *site;
    MPI_Win win;
    int rank;
    const void *buffer;
    size_t bytes;
    uint64_t sum;
    struct sent *next;
};

static struct sent *all_sent;
static size_t sent_number;

/* An epoch with more is not looked at to the end. */
#define MOST_SENT 4096

void margay_check_put(void *site, MPI_Win win, int rank, const void *buffer, MPI_Count count, MPI_Datatype datatype)
{
    if (buffer == NULL || !margay_check_is_on()) {
        return;
    }
    size_t bytes = bytes_of(buffer, count, datatype);
    struct sent *entry = bytes == 0 || sent_number >= MOST_SENT ? NULL : malloc(sizeof *entry);
    if (entry == NULL) {
        return;
    }
    *entry = (struct sent){site, win, rank, buffer, bytes, sum_of(buffer, bytes), NULL};
    pthread_mutex_lock(&lock);
    entry->next = all_sent;
    all_sent = entry;
    sent_number++;
    pthread_mutex_unlock(&lock);
}

void margay_check_synchronize(void *site, MPI_Win win, int rank)
{
    if (rank < -1 || !margay_check_is_on()) {
        return;
    }
    struct sent *done = NULL;
    pthread_mutex_lock(&lock);
    for (struct sent **at = &all_sent; *at != NULL;) {
        struct sent *entry = *at;
        if (entry->win != win || (rank >= 0 && entry->rank != rank)) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        entry->next = done;
        done = entry;
        sent_number--;
    }
    pthread_mutex_unlock(&lock);
    while (done != NULL) {
        struct sent *entry = done;
        done = entry->next;
        if (sum_of(entry->buffer, entry->bytes) != entry->sum) {
            margay_check_record(CHANGED, "w", site, 0, "h", entry->site);
        }
        free(entry);
    }
}
