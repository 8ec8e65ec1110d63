/* NX's files: random accesses in the six modes, compared with a model of the whole file that every node keeps; in M_LOG whole
 * records in each node's order. Arguments: a file, a seed, the number of accesses in each mode. */
#include <errno.h>
#include <fcntl.h>
#include <nx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST (1 << 22)

static unsigned long state;
static unsigned char model[MOST], room[1 << 16], sent[1 << 16];
static long size, me, nodes;

static unsigned long next(unsigned long bound) {
    state += 0x9e3779b97f4a7c15UL;
    unsigned long z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9UL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebUL;
    return (z ^ (z >> 31)) % bound;
}

#define CHECK(what)                                                                                  \
    do {                                                                                             \
        if (!(what)) {                                                                               \
            printf("node %ld, line %d: %s fails, errno %d\n", me, __LINE__, #what, errno);           \
            fflush(stdout);                                                                          \
            abort();                                                                                 \
        }                                                                                            \
    } while (0)

static void fill(unsigned char *to, long n, long salt) {
    for (long i = 0; i < n; i++) to[i] = (unsigned char)(salt * 131 + i * 7 + 1);
}

static void put(long at, long n, long salt) {
    CHECK(at + n <= MOST);
    if (at > size) memset(model + size, 0, (size_t)(at - size));
    fill(model + at, n, salt);
    if (at + n > size) size = at + n;
}

static long there(long at, long n) { return at >= size ? 0 : at + n > size ? size - at : n; }

static long moved(int fd, int writes, long n) {
    long half = n / 2, bytes;
    struct iovec two[2] = {{sent, (size_t)half}, {sent + half, (size_t)(n - half)}};
    if (!writes) two[0].iov_base = room, two[1].iov_base = room + half;
    switch (next(3)) {
    case 0: return writes ? _cwrite(fd, sent, (unsigned)n) : _cread(fd, room, (unsigned)n);
    case 1: return writes ? cwritev(fd, two, 2) : creadv(fd, two, 2);
    default:
        /* Ids do not say how many bytes: those of a short read are found by the pointer. */
        bytes = writes ? iwrite(fd, sent, (unsigned)n) : iread(fd, room, (unsigned)n);
        CHECK(bytes > 0 && iodone(bytes) == 1);
        iowait(bytes);
        return -2;
    }
}

/* Accesses in a mode in which every node knows where each one goes. */
static void steps(int fd, long mode, long count, long *pointer) {
    long record = 1 + (long)next(3000);
    for (long step = 0; step < count; step++) {
        int writes = next(2) == 0;
        long common = (long)next(3000), lengths[64], offsets[64], at = *pointer, end = at;
        if (at > MOST / 2 || next(10) == 0) {
            long to = size ? (long)next((unsigned long)size) : 0;
            gsync();
            esize_t where = {to, 0};
            CHECK(ecmp(eseek(fd, where, SIZE_SET), where) == 0 && lseek(fd, 0, SEEK_CUR) == to);
            *pointer = at = end = to;
            record = 1 + (long)next(3000);
        }
        for (long node = 0; node < nodes; node++) {
            lengths[node] = mode == M_SYNC ? (long)next(3000) : mode == M_RECORD ? record : common;
            offsets[node] = mode == M_GLOBAL ? at : end;
            if (mode != M_GLOBAL || node == 0) end += lengths[node];
        }
        long salt = step + mode * 1000;
        fill(sent, lengths[me], mode == M_GLOBAL ? salt : salt + me);
        long expected = writes ? lengths[me] : there(offsets[me], lengths[me]);
        /* All nodes draw the same numbers, also for the kind of call. */
        long done = moved(fd, writes, lengths[me]);
        CHECK(done == -2 || done == expected);
        if (writes) {
            for (long node = 0; node < nodes; node++)
                if (lengths[node]) put(offsets[node], lengths[node], mode == M_GLOBAL ? salt : salt + node);
        } else {
            CHECK(memcmp(room, model + offsets[me], (size_t)expected) == 0);
            if (mode != M_RECORD && end > size) end = size > at ? size : at;
        }
        if (mode != M_GLOBAL) gsync();
        *pointer = end;
        CHECK(lseek(fd, 0, SEEK_CUR) == end);
        CHECK(iseof(fd) == (end >= size));
        /* Before another node writes on. */
        if (mode == M_RECORD) gsync();
    }
}

static void private(int fd, long mode, long count) {
    /* Each node has a part of its own. */
    long part = 20000, base = me * part, pointer;
    setiomode(fd, mode);
    CHECK(iomode(fd) == mode);
    static unsigned char mine[20000];
    memset(mine, 0, sizeof mine);
    lseek(fd, base, SEEK_SET);
    cwrite(fd, mine, sizeof mine);
    unsigned long common = state;
    state += (unsigned long)me;
    for (long step = 0; step < count; step++) {
        long n = (long)next(3000);
        pointer = (long)next((unsigned long)(part - n));
        CHECK(lseek(fd, base + pointer, SEEK_SET) == base + pointer);
        if (next(2)) {
            fill(sent, n, step);
            CHECK(_cwrite(fd, sent, (unsigned)n) == n);
            memcpy(mine + pointer, sent, (size_t)n);
        } else {
            CHECK(_cread(fd, room, (unsigned)n) == n && memcmp(room, mine + pointer, (size_t)n) == 0);
        }
        CHECK(lseek(fd, 0, SEEK_CUR) == base + pointer + n);
    }
    state = common;
    gsync();
}

static void by_arrival(const char *path, long count) {
    int fd = gopen(path, O_RDWR | O_CREAT | O_TRUNC, M_LOG, 0644);
    for (long i = 0; i < count; i++) {
        long words[40], n = 3 + (me * 7 + i) % 30;
        words[0] = n, words[1] = me, words[2] = i;
        for (long w = 3; w < n; w++) words[w] = me * 1000 + i;
        cwrite(fd, words, (unsigned)(n * 8));
    }
    gsync();
    esize_t start = {0, 0};
    if (me == 0) eseek(fd, start, SIZE_SET);
    gsync();
    CHECK(iseof(fd) == (count == 0));
    /* Each record goes to one node, and none is missing. */
    long seen[64] = {0}, all = 0, work;
    struct stat now;
    CHECK(fstat(fd, &now) == 0);
    long *whole = malloc((size_t)now.st_size + 8);
    CHECK(pread(fd, whole, (size_t)now.st_size, 0) == now.st_size);
    for (long at = 0; at < now.st_size / 8; at += whole[at]) {
        long n = whole[at], node = whole[at + 1];
        CHECK(n >= 3 && node >= 0 && node < nodes && whole[at + 2] == seen[node]);
        for (long w = 3; w < n; w++) CHECK(whole[at + w] == node * 1000 + seen[node]);
        seen[node]++;
    }
    for (long node = 0; node < nodes; node++) CHECK(seen[node] == count);
    gsync();
    long bytes = 0, got;
    while ((got = _cread(fd, room, 8)) > 0) bytes += got;
    gisum(&bytes, 1, &work);
    CHECK(bytes == now.st_size);
    (void)all;
    free(whole);
    gsync();
    close(fd);
}

/* Whether a file of a parallel file system is read and written past the kernel. */
static int has_direct(void) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, "margay-common") != NULL;
    if (maps) fclose(maps);
    return found;
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "files.data";
    state = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    long count = argc > 3 ? atol(argv[3]) : 50;
    me = mynode();
    nodes = numnodes();
    int fd = gopen(path, O_RDWR | O_CREAT | O_TRUNC, M_UNIX, 0640);
    struct stat now;
    CHECK(fstat(fd, &now) == 0 && iomode(fd) == M_UNIX && iseof(fd) == 1);
    long pointer = 0;
    for (int round = 0; round < 3; round++) {
        static const long modes[] = {M_SYNC, M_RECORD, M_GLOBAL};
        for (int m = 0; m < 3; m++) {
            setiomode(fd, modes[m]);
            CHECK(iomode(fd) == modes[m] && lseek(fd, 0, SEEK_CUR) == pointer);
            steps(fd, modes[m], count, &pointer);
            gsync();
        }
    }
    CHECK(fstat(fd, &now) == 0 && now.st_size == size);
    gsync();
    CHECK(lsize(fd, size + 1000, SIZE_SET) == size + 1000 && lsize(fd, 10, SIZE_SET) == size + 1000);
    gsync();
    private(fd, M_UNIX, count);
    private(fd, M_ASYNC, count);
    if (argc > 4) CHECK(has_direct());
    close(fd);
    by_arrival(path, count);

    /* What is wrong is refused, on all nodes. */
    CHECK(_gopen("/no such folder/file", O_RDONLY, M_UNIX) == -1 && errno == ENOENT);
    CHECK(_cread(-1, room, 1) == -1 && errno == EBADF);
    CHECK(_iodone(1L << 40) == -1 && errno == EQMID);
    fd = gopen(path, O_RDONLY, M_UNIX);
    CHECK(_setiomode(fd, 9) == -1 && errno == EQPARAM);
    setiomode(fd, M_RECORD);
    CHECK(_cread(fd, room, 8) == 8 && _cread(fd, room, 9) == -1 && errno == EQBLEN);
    gsync();
    setiomode(fd, M_GLOBAL);
    if (nodes > 1) CHECK(_cread(fd, room, me == 0 ? 8 : 16) == -1 && errno == EQSTATE);
    CHECK(_cwrite(fd, sent, 8) == -1 && errno == EBADF);
    char text[32];
    esize_t big = stoe("4294967296000");
    etos(emul(eadd1(big, -1), 2), text);
    CHECK(strcmp(text, "8589934591998") == 0 && ediv(big, 1000) == 4294967296 && emod(big, 7) == 4294967296000 % 7);
    CHECK(ecmp(esub(big, big), stoe("0")) == 0 && ecmp(esub1(stoe("0"), 1), stoe("0")) < 0);
    close(fd);
    gsync();
    if (me == 0) printf("all right on %ld nodes\n", nodes);
    return 0;
}
