/* Records of calls, written to the socket on which the checker listens. */
#include "record.h"
#include "ring.h"
#include "watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* What the checker says on the socket. */
#define READS_RINGS 'r'
#define HAS_OPENED 'o'

/* The most entries of an array that a record has. */
#define MOST 65536

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int checker = -1;
static int is_child;
/* Where records go; NULL: into the socket. */
static struct ring *ring;
static volatile int has_world;
/* omp_in_parallel, where the program has OpenMP and only the level for one thread. */
static int (*in_parallel)(void);

struct text {
    char *bytes;
    size_t used, room;
};

/* The record that is being put together. The lock is held. */
static struct text text;
/* This thread is inside a hook: what the hook itself calls is no call of the program. */
static _Thread_local int is_inside;

/* Where the next bytes go; NULL where there is no memory for them. */
static char *more(size_t n)
{
    if (text.used + n > text.room) {
        size_t room = (text.used + n) * 2 + 256;
        char *bytes = realloc(text.bytes, room);
        if (bytes == NULL) {
            return NULL;
        }
        text.bytes = bytes;
        text.room = room;
    }
    text.used += n;
    return text.bytes + text.used - n;
}

static void put(const void *bytes, size_t n)
{
    char *to = more(n);
    if (to != NULL) {
        memcpy(to, bytes, n);
    }
}

/* In one piece, whose length the compiler knows: a copy of each byte or number by itself took most of a record's time. */
static void put_number(int64_t number)
{
    char *to = more(1 + sizeof number);
    if (to != NULL) {
        to[0] = 'n';
        memcpy(to + 1, &number, sizeof number);
    }
}

static void put_count(char kind, uint32_t n)
{
    put(&kind, 1);
    put(&n, sizeof n);
}

static void put_text(const char *words)
{
    size_t n = words == NULL ? 0 : strlen(words);
    put_count('t', (uint32_t)n);
    put(words, n);
}

static void put_ranks(MPI_Group group)
{
    int n = 0;
    MPI_Group world = MPI_GROUP_NULL;
    if (group != MPI_GROUP_NULL) {
        PMPI_Group_size(group, &n);
    }
    if (n > MOST || n == 0 || !has_world || PMPI_Comm_group(MPI_COMM_WORLD, &world) != MPI_SUCCESS) {
        put_count('l', 0);
        return;
    }
    int *from = malloc(2 * (size_t)n * sizeof *from);
    int *to = from == NULL ? NULL : from + n;
    put_count('l', from == NULL ? 0 : (uint32_t)n);
    for (int i = 0; from != NULL && i < n; i++) {
        from[i] = i;
    }
    if (from != NULL) {
        PMPI_Group_translate_ranks(group, n, from, world, to);
    }
    for (int i = 0; from != NULL && i < n; i++) {
        int64_t rank = to[i];
        put(&rank, sizeof rank);
    }
    free(from);
    PMPI_Group_free(&world);
}

static void put_comm(MPI_Comm comm)
{
    int is_inter = 0;
    MPI_Group own = MPI_GROUP_NULL, remote = MPI_GROUP_NULL;
    if (comm != MPI_COMM_NULL) {
        PMPI_Comm_test_inter(comm, &is_inter);
        PMPI_Comm_group(comm, &own);
        if (is_inter) {
            PMPI_Comm_remote_group(comm, &remote);
        }
    }
    put_ranks(own);
    put_ranks(remote);
    put_number(is_inter);
    if (own != MPI_GROUP_NULL) {
        PMPI_Group_free(&own);
    }
    if (remote != MPI_GROUP_NULL) {
        PMPI_Group_free(&remote);
    }
}

static void put_statuses(int n, const MPI_Status *statuses)
{
    put_count('l', (uint32_t)n * 4);
    for (int i = 0; i < n; i++) {
        MPI_Count bytes = MPI_UNDEFINED;
        int is_cancelled = 0;
        PMPI_Get_elements_x(&statuses[i], MPI_BYTE, &bytes);
        PMPI_Test_cancelled(&statuses[i], &is_cancelled);
        int64_t all[4] = {statuses[i].MPI_SOURCE, statuses[i].MPI_TAG, bytes, is_cancelled};
        put(all, sizeof all);
    }
}

static void put_items(const char *items, va_list list)
{
    for (; *items != 0; items++) {
        int n;
        switch (*items) {
        case 'h':
            put_number((int64_t)(intptr_t)va_arg(list, void *));
            break;
        case 'i':
            put_number(va_arg(list, int));
            break;
        case 'l':
            put_number(va_arg(list, int64_t));
            break;
        case 'A':
        case 'D': {
            n = va_arg(list, int);
            const int *ints = va_arg(list, const int *);
            n = ints == NULL || n < 0 ? 0 : n > MOST ? MOST : n;
            put_count('l', (uint32_t)n);
            for (int i = 0; i < n; i++) {
                int64_t wide = ints[i];
                put(&wide, sizeof wide);
            }
            break;
        }
        case 'B':
        case 'E':
        case 'H': {
            n = va_arg(list, int);
            const void *words = va_arg(list, const void *);
            n = words == NULL || n < 0 ? 0 : n > MOST ? MOST : n;
            put_count('l', (uint32_t)n);
            put(words, (size_t)n * sizeof(int64_t));
            break;
        }
        case 'S': {
            n = va_arg(list, int);
            const MPI_Status *statuses = va_arg(list, const MPI_Status *);
            put_statuses(statuses == NULL || n < 0 ? 0 : n > MOST ? MOST : n, statuses);
            break;
        }
        case 'G':
            put_comm(va_arg(list, MPI_Comm));
            break;
        case 'g':
            put_ranks(va_arg(list, MPI_Group));
            break;
        case 't':
            put_text(va_arg(list, const char *));
            break;
        }
    }
}

/* The kernel's number of this thread. */
static uint64_t own_thread(void)
{
    static _Thread_local uint64_t number;
    if (number == 0) {
        number = (uint64_t)syscall(SYS_gettid);
    }
    return number;
}

static void begin(enum margay_check_phase phase, const char *name, const void *site, int code)
{
    text.used = 0;
    uint32_t length = 0;
    uint8_t start[sizeof length + 2] = {0, 0, 0, 0, (uint8_t)phase, (uint8_t)strlen(name)};
    int64_t place[3] = {(int64_t)(intptr_t)site, (int64_t)own_thread(), code};
    put(start, sizeof start);
    put(name, start[sizeof length + 1]);
    put(place, sizeof place);
}

/* Sends what has been put together. The lock is held. */
static void flush(void)
{
    uint32_t length = (uint32_t)(text.used - sizeof length);
    memcpy(text.bytes, &length, sizeof length);
    const char *from = text.bytes;
    size_t left = text.used;
    if (ring != NULL && checker >= 0) {
        if (!margay_ring_write(ring, from, left)) {
            close(checker);
            checker = -1;
        }
        return;
    }
    while (left > 0 && checker >= 0) {
        ssize_t done = send(checker, from, left, MSG_NOSIGNAL);
        if (done < 0 && errno != EINTR) {
            close(checker);
            checker = -1;
        }
        if (done > 0) {
            from += done;
            left -= (size_t)done;
        }
    }
}

/* Before the file of a place in Python, whose offset is the line (sys/os/src/python.rs). */
#define OF_PYTHON "python:"

/* Sites whose file and offset the checker knows. */
#define SITES 4096
static const void *sites[SITES];

/* Says in which file a site is, once. The lock is held. */
static void describe(const void *site)
{
    size_t at = ((uintptr_t)site * 0x9E3779B97F4A7C15u) >> 52;
    if (sites[at] == site) {
        return;
    }
    sites[at] = site;
    Dl_info info;
    struct link_map *map = NULL;
    const char *file = "";
    uintptr_t offset = (uintptr_t)site;
    if (dladdr1(site, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL) {
        file = map->l_name != NULL && map->l_name[0] != 0 ? map->l_name : "/proc/self/exe";
        offset -= map->l_addr;
    }
    char own[4096] = OF_PYTHON;
    uint32_t line = margay_python_place(site, own + strlen(own), sizeof own - strlen(own));
    if (line != 0) {
        offset = line;
        file = own;
    }
    if (strcmp(file, "/proc/self/exe") == 0) {
        ssize_t n = readlink(file, own, sizeof own - 1);
        own[n < 0 ? 0 : n] = 0;
        file = own;
    }
    begin(SITE, "", site, 0);
    put_number((int64_t)offset);
    put_text(file);
    flush();
}

/* A child made by fork has the socket of its parent, and says nothing on it. */
static void in_child(void)
{
    is_child = 1;
}

/* The listener says first whether it reads rings: an agent that passes records on to another host does not. */
static int hears(char word)
{
    char said = 0;
    ssize_t n;
    do {
        n = recv(checker, &said, 1, 0);
    } while (n < 0 && errno == EINTR);
    return n == 1 && said == word;
}

static void agree_on_ring(void)
{
    char path[64];
    struct ring *made = hears(READS_RINGS) ? margay_ring_make(checker, path, sizeof path) : NULL;
    if (made == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    begin(MEMORY, "", (void *)agree_on_ring, 0);
    put_text(path);
    flush();
    pthread_mutex_unlock(&lock);
    if (hears(HAS_OPENED)) {
        margay_ring_opened(made);
        ring = made;
    } else {
        margay_ring_drop(made);
    }
}

static void connect_checker(void)
{
    const char *name = getenv("MARGAY_CHECK");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (name == NULL || strlen(name) + 1 >= sizeof address.sun_path) {
        return;
    }
    memcpy(address.sun_path + 1, name, strlen(name));
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    if (s >= 0 && connect(s, (struct sockaddr *)&address, length) != 0) {
        close(s);
        s = -1;
    }
    checker = s;
    pthread_atfork(NULL, NULL, in_child);
    if (s >= 0) {
        agree_on_ring();
    }
}

static int is_other_abi(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    const char *name = strrchr(info->dlpi_name, '/');
    name = name == NULL ? info->dlpi_name : name + 1;
    if (strncmp(name, "libmpi.so.", 10) == 0) {
        *(const char **)found = info->dlpi_name;
    }
    return 0;
}

int margay_check_is_on(void)
{
    pthread_once(&opened, connect_checker);
    return checker >= 0 && !is_child;
}

int margay_check_has_world(void)
{
    return has_world && margay_check_is_on();
}

void margay_check_goodbye(void)
{
    has_world = 0;
}

void margay_check_level(int level)
{
    if (level == MPI_THREAD_SINGLE) {
        *(void **)&in_parallel = dlsym(RTLD_DEFAULT, "omp_in_parallel");
    }
}

void margay_check_record(enum margay_check_phase phase, const char *name, void *site, int code, const char *items, ...)
{
    if (!margay_check_is_on() || is_inside) {
        return;
    }
    margay_watch_say();
    if (phase == BEFORE && in_parallel != NULL) {
        code = in_parallel();
    }
    is_inside = 1;
    va_list list;
    va_start(list, items);
    pthread_mutex_lock(&lock);
    describe(site);
    begin(phase, name, site, code);
    put_items(items, list);
    va_end(list);
    flush();
    if (phase == AFTER) {
        margay_note_call(name);
    }
    pthread_mutex_unlock(&lock);
    is_inside = 0;
}

/* Says who this is, and stops a program whose handles are those of another library. */
void margay_check_hello(void)
{
    const char *other = NULL;
    dl_iterate_phdr(is_other_abi, &other);
    if (other != NULL && margay_check_is_on()) {
        fprintf(stderr, "mpiexec: -check needs a program of the standard ABI, and this one uses %s; compile it with mpicc\n",
                other);
        _exit(2);
    }
    has_world = 1;
    int rank = -1, size = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    int *tag_limit = NULL, has = 0;
    PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&tag_limit, &has);
    margay_check_record(HELLO, "", (void *)margay_check_hello, 0, "iiii", rank, size, (int)getpid(),
                        has ? *tag_limit : 32767);
}
