/* What the hooks keep themselves: the communicators that are valid, and sums of the buffers of open requests. */
#include "record.h"
#include "watch.h"

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

#define BUCKETS 16384
static struct open_request *open_requests[BUCKETS];

static struct open_request **bucket_of(MPI_Request request)
{
    return &open_requests[((uintptr_t)request * 0x9E3779B97F4A7C15u) >> 50];
}

static struct open_request *find(MPI_Request request)
{
    struct open_request *at = *bucket_of(request);
    while (at != NULL && at->request != request) {
        at = at->next;
    }
    return at;
}

#define PRIME 0x9E3779B97F4A7C15u

static inline uint64_t with_word(uint64_t sum, const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    sum = (sum ^ word) * PRIME;
    return sum ^ sum >> 32;
}

static uint64_t sum_of(const void *buffer, size_t bytes)
{
    const unsigned char *at = buffer;
    uint64_t sum = 0xcbf29ce484222325u;
    /* Four sums at a time: each word has to wait for the product of the one before it in its sum. */
    uint64_t a = sum, b = sum + 1, c = sum + 2, d = sum + 3;
    for (; bytes >= 32; bytes -= 32, at += 32) {
        a = with_word(a, at);
        b = with_word(b, at + 8);
        c = with_word(c, at + 16);
        d = with_word(d, at + 24);
    }
    sum = ((((a * PRIME) ^ b) * PRIME ^ c) * PRIME ^ d) * PRIME;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        sum = with_word(sum, at);
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

/* Parts of what one rank receives that are looked at, of operations with gaps between them. */
#define MOST_PARTS 64
/* Handles below are the standard's constants. */
#define FIRST_OWN 0x400

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
    if (use == COPIES || request == MPI_REQUEST_NULL || !margay_check_is_on()) {
        return;
    }
    size_t bytes = bytes_of(buffer, count, datatype);
    int is_received = use == RECEIVES || use == RECEIVES_LATER;
    if (use == SENDS || use == RECEIVES) {
        margay_watch_begin(is_received ? WATCH_RECEIVED : WATCH_SENT, request, MPI_WIN_NULL, 0, buffer, bytes, NULL, NULL);
    }
    enter(request, use, buffer, is_received && bytes > MOST_RECEIVED ? 0 : bytes);
}

/* What a nonblocking collective operation sends from or receives in. */
struct part {
    const void *buffer;
    int counts, types;
    const void *count;
    const MPI_Datatype *type;
    int is_wide;
};

static void watch_received(const char *name, MPI_Request request, const struct part *of, MPI_Comm comm, int displacements,
                           const void *displacement, int are_wide)
{
    MPI_Count count = 0, lower = 0, extent = 0;
    if (of->types != 1 || of->buffer == NULL || of->buffer == MPI_IN_PLACE || of->buffer == MPI_BOTTOM) {
        return;
    }
    if (of->counts == 1 && displacements == 0) {
        int parts = strstr(name, "gather") != NULL || strstr(name, "alltoall") != NULL ? margay_check_own_size(comm) : 1;
        count = of->is_wide ? *(const int64_t *)of->count : *(const int *)of->count;
        count = count < 0 || count > MOST_BYTES ? 0 : count * parts;
        margay_watch_begin(WATCH_RECEIVED, request, MPI_WIN_NULL, 0, of->buffer, bytes_of(of->buffer, count, *of->type), NULL,
                           NULL);
        return;
    }
    /* With gaps between the parts: each part by itself, as many as are of use. */
    for (int i = 0; i < of->counts && i < displacements && i < MOST_PARTS; i++) {
        count = of->is_wide ? ((const int64_t *)of->count)[i] : ((const int *)of->count)[i];
        int64_t at = are_wide ? ((const int64_t *)displacement)[i] : ((const int *)displacement)[i];
        if (count > 0 && PMPI_Type_get_extent_c(*of->type, &lower, &extent) == MPI_SUCCESS) {
            const char *buffer = (const char *)of->buffer + at * extent;
            margay_watch_begin(WATCH_RECEIVED, request, MPI_WIN_NULL, 0, buffer, bytes_of(buffer, count, *of->type), NULL,
                               NULL);
        }
    }
}

static struct part next_part(const char *items, va_list *list)
{
    struct part part = {.is_wide = items[1] == 'B'};
    part.buffer = va_arg(*list, const void *);
    part.counts = va_arg(*list, int);
    part.count = va_arg(*list, const void *);
    part.types = va_arg(*list, int);
    part.type = va_arg(*list, const MPI_Datatype *);
    return part;
}

void margay_check_begin_collective(const char *name, MPI_Request request, const char *items, ...)
{
    /* What is sent and what is received stand first, each with counts and types. */
    if (!margay_check_is_on() || request == MPI_REQUEST_NULL || strlen(items) < 9) {
        return;
    }
    va_list list;
    va_start(list, items);
    struct part sent = next_part(items, &list), received = next_part(items + 3, &list);
    int root = va_arg(list, int);
    MPI_Op op = va_arg(list, MPI_Op);
    MPI_Comm comm = va_arg(list, MPI_Comm);
    int displacements = items[9] == 0 ? 0 : va_arg(list, int);
    const void *displacement = items[9] == 0 ? NULL : va_arg(list, const void *);
    va_end(list);
    int is_inter = 0, rank = -1;
    if (!is_valid(comm)) {
        return;
    }
    PMPI_Comm_test_inter(comm, &is_inter);
    PMPI_Comm_rank(comm, &rank);
    /* Between groups only some send. A function of the program that combines has the buffers while the operation runs. */
    int is_bcast = strcmp(name, "MPI_Ibcast") == 0;
    int has_function = op != NULL && (uintptr_t)op >= FIRST_OWN;
    if (is_inter) {
        return;
    }
    /* What a broadcast and a scatter send means something at their root only, what others receive at the root of theirs. */
    int is_from_root = is_bcast || strcmp(name, "MPI_Iscatter") == 0;
    if (sent.counts == 1 && sent.types == 1 && sent.is_wide && (!is_from_root || root == rank)) {
        size_t bytes = bytes_of(sent.buffer, *(const int64_t *)sent.count, *sent.type);
        if (!has_function) {
            margay_watch_begin(WATCH_SENT, request, MPI_WIN_NULL, 0, sent.buffer, bytes, NULL, NULL);
        }
        enter(request, SENDS, sent.buffer, bytes);
    }
    int is_to_root = strcmp(name, "MPI_Igather") == 0 || strcmp(name, "MPI_Igatherv") == 0 || strcmp(name, "MPI_Ireduce") == 0;
    int is_nothing = (is_to_root && root != rank) || (rank == 0 && strcmp(name, "MPI_Iexscan") == 0);
    const struct part *into = is_bcast ? (root == rank ? NULL : &sent) : is_nothing ? NULL : &received;
    if (into != NULL && !has_function) {
        watch_received(name, request, into, comm, displacements, displacement, items[9] == 'E');
    }
}

void margay_check_restart(int count, const MPI_Request *requests)
{
    if (requests == NULL || !margay_check_is_on()) {
        return;
    }
    for (int i = 0; i < count; i++) {
        pthread_mutex_lock(&lock);
        struct open_request *entry = find(requests[i]);
        struct open_request started = entry != NULL && !entry->is_open ? *entry : (struct open_request){.bytes = 0};
        if (entry != NULL) {
            entry->sum = sum_of(entry->buffer, entry->bytes);
            entry->is_open = 1;
            entry->was_reported = 0;
        }
        pthread_mutex_unlock(&lock);
        margay_watch_begin(started.use == RECEIVES_LATER ? WATCH_RECEIVED : WATCH_SENT, requests[i], MPI_WIN_NULL, 0,
                           started.buffer, started.bytes, NULL, NULL);
    }
}

void margay_check_look(void *site, int count, const MPI_Request *requests)
{
    if (!margay_check_is_on()) {
        return;
    }
    margay_watch_say();
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
    for (int i = 0; i < count; i++) {
        margay_watch_end(before[i]);
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
    int was_reported;
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
    *entry = (struct sent){site, win, rank, buffer, bytes, sum_of(buffer, bytes), 0, NULL};
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
    margay_watch_say();
    margay_watch_synchronized(win, rank);
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
        if (!entry->was_reported && sum_of(entry->buffer, entry->bytes) != entry->sum) {
            margay_check_record(CHANGED, "w", site, 0, "h", entry->site);
        }
        free(entry);
    }
}

void margay_check_was_touched(MPI_Request request, const void *buffer)
{
    pthread_mutex_lock(&lock);
    struct open_request *entry = request == MPI_REQUEST_NULL ? NULL : find(request);
    if (entry != NULL) {
        entry->was_reported = 1;
    }
    for (struct sent *at = buffer == NULL ? NULL : all_sent; at != NULL; at = at->next) {
        at->was_reported |= at->buffer == buffer;
    }
    pthread_mutex_unlock(&lock);
}

void margay_check_watch(enum margay_check_use use, const char *name, void *site, MPI_Request request, MPI_Win win, int rank,
                        const void *buffer, MPI_Count count, MPI_Datatype datatype)
{
    if (buffer != NULL && rank >= 0 && margay_check_is_on()) {
        margay_watch_begin(use == SENDS ? WATCH_PUT : WATCH_GOT, request, win, rank, buffer,
                           bytes_of(buffer, count, datatype), name, site);
    }
}

MPI_Request margay_check_exchange(MPI_Request request, const void *sent, MPI_Count sent_count, MPI_Datatype sent_type, int dest,
                                  const void *received, MPI_Count received_count, MPI_Datatype received_type, int source)
{
    if (request == MPI_REQUEST_NULL || !margay_check_is_on()) {
        return request;
    }
    if (dest != MPI_PROC_NULL) {
        margay_watch_begin(WATCH_SENT, request, MPI_WIN_NULL, 0, sent, bytes_of(sent, sent_count, sent_type), NULL, NULL);
    }
    if (source != MPI_PROC_NULL) {
        margay_watch_begin(WATCH_RECEIVED, request, MPI_WIN_NULL, 0, received,
                           bytes_of(received, received_count, received_type), NULL, NULL);
    }
    return request;
}

MPI_Win margay_check_watch_window(MPI_Win win, void *base, int64_t bytes)
{
    if (win != MPI_WIN_NULL && base != NULL && bytes > 0) {
        margay_watch_begin(WATCH_WINDOW, MPI_REQUEST_NULL, win, -1, base, (size_t)bytes, NULL, NULL);
    }
    return win;
}
