/* NX's files: the part of libnx that reads and writes. It stands behind start.c in one file.
 *
 * A file is what the program's descriptor says; what NX adds to it, the mode of access, is kept by the descriptor's number with the
 * file's identity, so that a number that the program has closed and got again is a new file. The pointer is the kernel's own where
 * each node has one, and where all nodes move theirs in the same way (M_SYNC, M_GLOBAL), so that read, write and lseek go on
 * working. In M_LOG it is a word of memory that all nodes share. docs/nx.md describes the modes. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Types of messages that carry a file's bytes to the other nodes: force types, which only exact selectors match. */
#define DATA 2000000001L
#define RESULT 2000000002L

struct nxfile {
    dev_t device;
    ino_t number;
    long mode, record;
    _Atomic long *shared; /* M_LOG: the pointer */
    struct way *way;      /* past the kernel, once it was asked for */
    int asked;
};

/* The nodes that take part: those whose processes were started with the caller's type, in their order. */
struct nodes {
    long count, index, first;
};

static struct nxfile *nxfiles;
static int nxfiles_room;

static int failed(long number) {
    errno = (int)number;
    return -1;
}

static int nodes_of(struct nodes *all) {
    static struct nodes known;
    if (known.count == 0) {
        long own = margay_nx__mynode(), bytes = 0, room = margay_nx__numnodes() * (long)sizeof(long);
        long *list = own < 0 ? NULL : malloc((size_t)room);
        if (!list) return failed(EQFAULT);
        if (margay_nx__gcol(&own, sizeof own, list, room, &bytes) < 0) {
            free(list);
            return -1;
        }
        long count = bytes / (long)sizeof(long);
        for (long i = 0; i < count; i++)
            if (list[i] == own) known.index = i;
        known.first = list[0];
        known.count = count;
        free(list);
    }
    *all = known;
    return 0;
}

/* What is known of a descriptor; NULL and errno where it is none. */
static struct nxfile *file_of(int fd) {
    /* What is known here: a parallel file system would be asked for the rest, for every record. */
    struct statx now;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &now) < 0) return NULL;
    if (fd >= nxfiles_room) {
        int room = fd + 64;
        struct nxfile *more = realloc(nxfiles, (size_t)room * sizeof *more);
        if (!more) return NULL;
        memset(more + nxfiles_room, 0, (size_t)(room - nxfiles_room) * sizeof *more);
        nxfiles = more;
        nxfiles_room = room;
    }
    struct nxfile *file = &nxfiles[fd];
    uint64_t device = (uint64_t)now.stx_dev_major << 32 | now.stx_dev_minor;
    if (file->device != device || file->number != now.stx_ino) {
        if (file->shared) munmap((void *)file->shared, sizeof(long));
        way_end(file->way);
        *file = (struct nxfile){.device = device, .number = now.stx_ino, .mode = M_UNIX};
    }
    return file;
}

/* What pread and pwrite do, past the kernel where that goes. A way that is over is asked for once more: the program may have closed
 * the file and opened it again. */
static ssize_t part(int fd, void *bytes, size_t length, off_t at, int writes) {
    struct nxfile *file = &nxfiles[fd];
    if (!file->asked) {
        file->asked = 1;
        file->way = way_begin(fd);
    }
    ssize_t n = way_move(file->way, fd, bytes, length, at, writes);
    if (n != WAY_KERNEL) return n;
    if (file->way && atomic_load(&file->way->over)) {
        way_end(file->way);
        file->way = NULL;
        file->asked = 0;
    }
    return writes ? pwrite(fd, bytes, length, at) : pread(fd, bytes, length, at);
}

/* All bytes, or up to the end of the file. */
static long transfer(int fd, const struct iovec *parts, int count, off_t at, int writes) {
    long done = 0;
    for (int i = 0; i < count; i++) {
        char *from = parts[i].iov_base;
        size_t left = parts[i].iov_len;
        while (left > 0) {
            ssize_t n = part(fd, from, left, at, writes);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) return -1;
            if (n == 0) return writes ? failed(ENOSPC) : done;
            from += n;
            left -= (size_t)n;
            at += n;
            done += n;
        }
    }
    return done;
}

/* Serializes nodes that read and write the same bytes. Where the file system has no such locks they are not serialized. */
static void range(int fd, short kind, off_t at, long length) {
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = at, .l_len = length};
    if (length > 0)
        while (fcntl(fd, F_OFD_SETLKW, &lock) < 0 && errno == EINTR) continue;
}

static long size_of(int fd) {
    struct stat now;
    return fstat(fd, &now) < 0 ? -1 : (long)now.st_size;
}

/* What the nodes say to each other before a synchronized access. */
struct said {
    long length, writes, pointer, size;
};

static struct said *ask_all(const struct nodes *all, struct said own) {
    struct said *list = malloc((size_t)all->count * sizeof own);
    long bytes = 0;
    if (list && margay_nx__gcol(&own, sizeof own, list, all->count * (long)sizeof own, &bytes) == 0) return list;
    free(list);
    return NULL;
}

static long in_order(int fd, const struct iovec *parts, int count, long length, int writes) {
    struct nodes all;
    if (nodes_of(&all) < 0) return -1;
    long pointer = lseek(fd, 0, SEEK_CUR);
    struct said *list = ask_all(&all, (struct said){length, writes, pointer, size_of(fd)});
    if (!list) return -1;
    long before = 0, total = 0, same = 1, size = list[0].size;
    for (long i = 0; i < all.count; i++) {
        if (i < all.index) before += list[i].length;
        total += list[i].length;
        same = same && list[i].writes == list[0].writes && list[i].pointer == list[0].pointer;
    }
    free(list);
    if (!same) return failed(EQSTATE);
    long end = pointer + total;
    if (!writes && end > size) end = size > pointer ? size : pointer;
    long done = transfer(fd, parts, count, pointer + before, writes);
    lseek(fd, end, SEEK_SET);
    return done;
}

static long at_once(int fd, const struct iovec *parts, int count, long length, int writes) {
    struct nodes all;
    if (nodes_of(&all) < 0) return -1;
    long pointer = lseek(fd, 0, SEEK_CUR), ptype = margay_nx_myptype(), info[8];
    struct said *list = ask_all(&all, (struct said){length, writes, pointer, 0});
    if (!list) return -1;
    int same = 1;
    for (long i = 0; i < all.count; i++)
        same = same && list[i].length == length && list[i].writes == writes && list[i].pointer == pointer;
    free(list);
    if (!same) return failed(EQSTATE);
    long result[2] = {0, 0};
    if (all.index == 0) {
        result[0] = transfer(fd, parts, count, pointer, writes);
        result[1] = errno;
        if (all.count > 1 && margay_nx__csend(RESULT, result, sizeof result, -1, ptype) < 0) return -1;
    } else if (margay_nx__crecvx(RESULT, result, sizeof result, all.first, ptype, info) < 0) {
        return -1;
    }
    if (result[0] < 0) return failed(result[1]);
    long left = writes || all.count == 1 ? 0 : result[0];
    for (int i = 0; i < count && left > 0; i++) {
        long bytes = left < (long)parts[i].iov_len ? left : (long)parts[i].iov_len;
        if (bytes == 0) continue;
        long sent = all.index == 0 ? margay_nx__csend(DATA, parts[i].iov_base, bytes, -1, ptype)
                                   : margay_nx__crecvx(DATA, parts[i].iov_base, bytes, all.first, ptype, info);
        if (sent < 0) return -1;
        left -= bytes;
    }
    lseek(fd, pointer + result[0], SEEK_SET);
    return result[0];
}

static long first_come(struct nxfile *file, int fd, const struct iovec *parts, int count, long length, int writes) {
    if (!file->shared) return failed(EQSTATE);
    long at = atomic_load(file->shared), taken = length;
    if (writes) {
        at = atomic_fetch_add(file->shared, length);
    } else {
        long size = size_of(fd);
        do {
            taken = at + length > size ? (size > at ? size - at : 0) : length;
        } while (!atomic_compare_exchange_weak(file->shared, &at, at + taken));
    }
    long done = transfer(fd, parts, count, at, writes);
    lseek(fd, at + taken, SEEK_SET);
    return done > taken ? taken : done;
}

static long by_record(struct nxfile *file, int fd, const struct iovec *parts, int count, long length, int writes) {
    struct nodes all;
    if (nodes_of(&all) < 0) return -1;
    if (file->record >= 0 && file->record != length) return failed(EQBLEN);
    file->record = length;
    long pointer = lseek(fd, 0, SEEK_CUR);
    long done = transfer(fd, parts, count, pointer + all.index * length, writes);
    lseek(fd, pointer + all.count * length, SEEK_SET);
    return done;
}

static long private(const struct nxfile *file, int fd, const struct iovec *parts, int count, long length, int writes) {
    long pointer = lseek(fd, 0, SEEK_CUR);
    if (pointer < 0) {
        /* A pipe or a terminal. */
        ssize_t n = writes ? writev(fd, parts, count) : readv(fd, parts, count);
        return n;
    }
    if (writes && fcntl(fd, F_GETFL) & O_APPEND) return writev(fd, parts, count);
    if (file->mode == M_UNIX) range(fd, writes ? F_WRLCK : F_RDLCK, pointer, length);
    long done = transfer(fd, parts, count, pointer, writes);
    int number = errno;
    if (file->mode == M_UNIX) range(fd, F_UNLCK, pointer, length);
    if (done >= 0) lseek(fd, pointer + done, SEEK_SET);
    errno = number;
    return done;
}

/* Reads or writes where the pointer is, and moves it. Returns the bytes, -1 and errno. */
static long move(int fd, const struct iovec *parts, int count, int writes) {
    struct nxfile *file = file_of(fd);
    if (!file) return -1;
    if (count < 0 || count > 1024 || (count > 0 && !parts)) return failed(EQPARAM);
    long length = 0;
    for (int i = 0; i < count; i++) {
        if (!parts[i].iov_base && parts[i].iov_len > 0) return failed(EQPARAM);
        length += (long)parts[i].iov_len;
    }
    switch (file->mode) {
    case M_LOG: return first_come(file, fd, parts, count, length, writes);
    case M_SYNC: return in_order(fd, parts, count, length, writes);
    case M_RECORD: return by_record(file, fd, parts, count, length, writes);
    case M_GLOBAL: return at_once(fd, parts, count, length, writes);
    default: return private(file, fd, parts, count, length, writes);
    }
}

/* Memory that all nodes share: the first one makes it, the others open it by way of that process. */
static _Atomic long *share(const struct nodes *all, long pointer) {
    long made[2] = {getpid(), -1}, ptype = margay_nx_myptype(), info[8];
    void *at = MAP_FAILED;
    if (all->index == 0) {
        made[1] = memfd_create("margay-nx-pointer", MFD_CLOEXEC);
        if (made[1] >= 0 && ftruncate((int)made[1], sizeof(long)) == 0)
            at = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, (int)made[1], 0);
        if (at != MAP_FAILED) *(long *)at = pointer;
        if (all->count > 1 && margay_nx__csend(RESULT, made, sizeof made, -1, ptype) < 0) at = MAP_FAILED;
    } else if (margay_nx__crecvx(RESULT, made, sizeof made, all->first, ptype, info) == 0 && made[1] >= 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%ld/fd/%ld", made[0], made[1]);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
            at = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            close(fd);
        }
    }
    /* Nobody looks for it any more when all have it, or have not. */
    margay_nx__gsync();
    if (all->index == 0 && made[1] >= 0) close((int)made[1]);
    return at == MAP_FAILED ? NULL : at;
}

long _setiomode(int fd, long mode) {
    struct nodes all;
    struct nxfile *file = file_of(fd);
    if (nodes_of(&all) < 0) return -1;
    long pointer = file ? lseek(fd, 0, SEEK_CUR) : -1;
    /* All nodes learn whether one of them cannot. */
    struct said *list = ask_all(&all, (struct said){pointer, mode, 0, file ? 0 : errno});
    if (!list) return -1;
    long wrong = 0, first = list[0].length;
    for (long i = 0; i < all.count; i++) {
        if (list[i].size) wrong = list[i].size;
        if (list[i].writes != mode || mode < M_UNIX || mode > M_ASYNC) wrong = EQPARAM;
        if (list[i].length < 0 && mode != M_UNIX && mode != M_ASYNC) wrong = wrong ? wrong : ESPIPE;
    }
    free(list);
    if (wrong) return failed(wrong);
    if (file->shared) munmap((void *)file->shared, sizeof(long));
    file->shared = NULL;
    file->mode = mode;
    file->record = -1;
    if (mode != M_UNIX && mode != M_ASYNC) lseek(fd, first, SEEK_SET);
    if (mode == M_LOG && !(file->shared = share(&all, first))) return failed(EQSTATE);
    return 0;
}

long _iomode(int fd) {
    struct nxfile *file = file_of(fd);
    return file ? file->mode : -1;
}

/* All nodes open, the first one before the others, and it alone makes or empties the file. */
static long open_all(const char *path, int flags, mode_t permissions) {
    struct nodes all;
    if (nodes_of(&all) < 0) return -1;
    long ptype = margay_nx_myptype(), info[8], number = 0;
    int fd = -1;
    if (all.index == 0) {
        fd = path ? open(path, flags | O_CLOEXEC, permissions) : failed(EQPARAM);
        number = fd < 0 ? errno : 0;
        if (all.count > 1 && margay_nx__csend(RESULT, &number, sizeof number, -1, ptype) < 0) return -1;
    } else {
        if (margay_nx__crecvx(RESULT, &number, sizeof number, all.first, ptype, info) < 0) return -1;
        if (number == 0) {
            fd = path ? open(path, (flags & ~(O_CREAT | O_EXCL | O_TRUNC)) | O_CLOEXEC) : failed(EQPARAM);
            number = fd < 0 ? errno : 0;
        }
    }
    struct said *list = ask_all(&all, (struct said){number, 0, 0, 0});
    if (!list) return -1;
    for (long i = 0; i < all.count; i++)
        if (list[i].length) number = list[i].length;
    free(list);
    if (number) {
        if (fd >= 0) close(fd);
        return failed(number);
    }
    return fd;
}

int _gopen(const char *path, int flags, int mode, ...) {
    mode_t permissions = 0666;
    if (flags & O_CREAT) {
        va_list list;
        va_start(list, mode);
        permissions = (mode_t)va_arg(list, int);
        va_end(list);
    }
    int fd = (int)open_all(path, flags, permissions);
    if (fd < 0) return -1;
    if (file_of(fd)) nxfiles[fd] = (struct nxfile){.device = nxfiles[fd].device, .number = nxfiles[fd].number};
    if (_setiomode(fd, mode) == 0) return fd;
    int number = errno;
    close(fd);
    return failed(number);
}

/* Sizes and pointers, as numbers of 64 bits. */

static long seek(int fd, long offset, long whence) {
    struct nxfile *file = file_of(fd);
    if (!file) return -1;
    long base = 0;
    if (whence == SIZE_CUR) base = file->shared ? atomic_load(file->shared) : lseek(fd, 0, SEEK_CUR);
    if (whence == SIZE_END) base = size_of(fd);
    if (whence < SIZE_SET || whence > SIZE_END || base < 0) return base < 0 ? -1 : failed(EQPARAM);
    if (offset < -base) return failed(EINVAL);
    if (file->shared) atomic_store(file->shared, base + offset);
    file->record = -1;
    return lseek(fd, base + offset, SEEK_SET);
}

static long grow(int fd, long offset, long whence) {
    struct nxfile *file = file_of(fd);
    long size = file ? size_of(fd) : -1, base = 0;
    if (size < 0) return -1;
    if (whence == SIZE_CUR) base = file->shared ? atomic_load(file->shared) : lseek(fd, 0, SEEK_CUR);
    if (whence == SIZE_END) base = size;
    if (whence < SIZE_SET || whence > SIZE_END || base < 0) return base < 0 ? -1 : failed(EQPARAM);
    long wanted = base + offset;
    /* Made in one step: of several nodes that ask for sizes the largest stays. */
    if (wanted > size) {
        int number = posix_fallocate(fd, 0, wanted);
        if (number) return failed(number);
    }
    size = size_of(fd);
    return size;
}

static long number_of(esize_t e) { return (long)((unsigned long)e.shigh << 32 | ((unsigned long)e.slow & 0xffffffffUL)); }

static esize_t esize_of(long n) { return (esize_t){(long)((unsigned long)n & 0xffffffffUL), n >> 32}; }

long _iseof(int fd) {
    struct nxfile *file = file_of(fd);
    long size = file ? size_of(fd) : -1;
    if (size < 0) return -1;
    long pointer = file->shared ? atomic_load(file->shared) : lseek(fd, 0, SEEK_CUR);
    return pointer < 0 ? -1 : pointer >= size;
}

long _lsize(int fd, long offset, int whence) { return grow(fd, offset, whence); }

esize_t _esize(int fd, esize_t offset, int whence) { return esize_of(grow(fd, number_of(offset), whence)); }

esize_t _eseek(int fd, esize_t offset, int whence) { return esize_of(seek(fd, number_of(offset), whence)); }

/* Reading and writing. */

static long one(int fd, const void *buf, unsigned long n, int writes) {
    struct iovec part = {(void *)buf, n};
    return move(fd, &part, 1, writes);
}

static long at(int fd, esize_t offset, const void *buf, unsigned long n, int writes) {
    struct iovec part = {(void *)buf, n};
    if (!buf && n > 0) return failed(EQPARAM);
    return file_of(fd) ? transfer(fd, &part, 1, number_of(offset), writes) : -1;
}

/* An access that was begun is complete when the call returns; ids count them. */
static long begun;

static long begin(long bytes) { return bytes < 0 ? -1 : ++begun; }

long _iodone(long id) { return id < 1 || id > begun ? failed(EQMID) : 1; }

long _iowait(long id) { return id < 1 || id > begun ? failed(EQMID) : 0; }

long _cread(int fd, void *buf, unsigned n) { return one(fd, buf, n, 0); }
long _cwrite(int fd, const void *buf, unsigned n) { return one(fd, buf, n, 1); }
long _creadv(int fd, const struct iovec *parts, int n) { return move(fd, parts, n, 0); }
long _cwritev(int fd, const struct iovec *parts, int n) { return move(fd, parts, n, 1); }
long _readoff(int fd, esize_t offset, void *buf, unsigned n) { return at(fd, offset, buf, n, 0); }
long _writeoff(int fd, esize_t offset, const void *buf, unsigned n) { return at(fd, offset, buf, n, 1); }
long _iread(int fd, void *buf, unsigned n) { return begin(one(fd, buf, n, 0)); }
long _iwrite(int fd, const void *buf, unsigned n) { return begin(one(fd, buf, n, 1)); }
long _ireadv(int fd, const struct iovec *parts, int n) { return begin(move(fd, parts, n, 0)); }
long _iwritev(int fd, const struct iovec *parts, int n) { return begin(move(fd, parts, n, 1)); }
long _ireadoff(int fd, esize_t offset, void *buf, unsigned n) { return begin(at(fd, offset, buf, n, 0)); }
long _iwriteoff(int fd, esize_t offset, const void *buf, unsigned n) { return begin(at(fd, offset, buf, n, 1)); }

/* Volumes of a file system that this machine has not: checked, without effect. */
long _restrictvol(int fd, long n, long volumes[]) {
    if (n < 0 || (n > 0 && !volumes)) return failed(EQPARAM);
    return file_of(fd) ? 0 : -1;
}

/* The calls that end the job where their twins return an error. */

static void die(const char *name) {
    char text[64];
    int number = errno;
    long node = margay_nx__mynode();
    snprintf(text, sizeof text, "%s (called by node %ld)", name, node);
    errno = number;
    margay_nx_nx_perror(text);
    abort();
}

#define ENDS(type, name, parameters, arguments) \
    type name parameters {                      \
        long result = _##name arguments;        \
        if (result < 0) die(#name);             \
        return (type)result;                    \
    }
ENDS(long, setiomode, (int fd, long mode), (fd, mode))
ENDS(long, iomode, (int fd), (fd))
ENDS(long, iseof, (int fd), (fd))
ENDS(long, lsize, (int fd, long offset, int whence), (fd, offset, whence))
ENDS(long, iodone, (long id), (id))
ENDS(long, iowait, (long id), (id))
ENDS(long, cread, (int fd, void *buf, unsigned n), (fd, buf, n))
ENDS(long, cwrite, (int fd, const void *buf, unsigned n), (fd, buf, n))
ENDS(long, creadv, (int fd, const struct iovec *parts, int n), (fd, parts, n))
ENDS(long, cwritev, (int fd, const struct iovec *parts, int n), (fd, parts, n))
ENDS(long, readoff, (int fd, esize_t offset, void *buf, unsigned n), (fd, offset, buf, n))
ENDS(long, writeoff, (int fd, esize_t offset, const void *buf, unsigned n), (fd, offset, buf, n))
ENDS(long, iread, (int fd, void *buf, unsigned n), (fd, buf, n))
ENDS(long, iwrite, (int fd, const void *buf, unsigned n), (fd, buf, n))
ENDS(long, ireadv, (int fd, const struct iovec *parts, int n), (fd, parts, n))
ENDS(long, iwritev, (int fd, const struct iovec *parts, int n), (fd, parts, n))
ENDS(long, ireadoff, (int fd, esize_t offset, void *buf, unsigned n), (fd, offset, buf, n))
ENDS(long, iwriteoff, (int fd, esize_t offset, const void *buf, unsigned n), (fd, offset, buf, n))
ENDS(long, restrictvol, (int fd, long n, long volumes[]), (fd, n, volumes))

int gopen(const char *path, int flags, int mode, ...) {
    mode_t permissions = 0666;
    if (flags & O_CREAT) {
        va_list list;
        va_start(list, mode);
        permissions = (mode_t)va_arg(list, int);
        va_end(list);
    }
    int fd = _gopen(path, flags, mode, permissions);
    if (fd < 0) die("gopen");
    return fd;
}

esize_t esize(int fd, esize_t offset, int whence) {
    esize_t now = _esize(fd, offset, whence);
    if (now.shigh < 0) die("esize");
    return now;
}

esize_t eseek(int fd, esize_t offset, int whence) {
    esize_t now = _eseek(fd, offset, whence);
    if (now.shigh < 0) die("eseek");
    return now;
}

/* Arithmetic. */

esize_t eadd(esize_t a, esize_t b) { return esize_of((long)((unsigned long)number_of(a) + (unsigned long)number_of(b))); }
esize_t eadd1(esize_t a, long b) { return esize_of((long)((unsigned long)number_of(a) + (unsigned long)b)); }
esize_t esub(esize_t a, esize_t b) { return esize_of((long)((unsigned long)number_of(a) - (unsigned long)number_of(b))); }
esize_t esub1(esize_t a, long b) { return esize_of((long)((unsigned long)number_of(a) - (unsigned long)b)); }
esize_t emul(esize_t a, long b) { return esize_of((long)((unsigned long)number_of(a) * (unsigned long)b)); }
long ecmp(esize_t a, esize_t b) { return (number_of(a) > number_of(b)) - (number_of(a) < number_of(b)); }

static long divided(const char *name, long a, long b, int rest) {
    if (b == 0) {
        errno = EQPARAM;
        die(name);
    }
    if (b == -1) return rest ? 0 : (long)(0 - (unsigned long)a);
    return rest ? a % b : a / b;
}

long ediv(esize_t a, long b) { return divided("ediv", number_of(a), b, 0); }
long emod(esize_t a, long b) { return divided("emod", number_of(a), b, 1); }
void etos(esize_t a, char *text) { sprintf(text, "%ld", number_of(a)); }
esize_t stoe(const char *text) { return esize_of(strtol(text, NULL, 10)); }

/* Fortran: files are units that gopen has opened, and numbers of 64 bits are two integers. */

static struct {
    int unit, fd;
} units[256];
static int units_count;

static int unit(const int *number) {
    for (int i = 0; i < units_count; i++)
        if (units[i].unit == *number) return units[i].fd;
    return *number;
}

static esize_t pair(const int n[2]) { return (esize_t){(long)(unsigned)n[0], n[1]}; }

static void unpair(esize_t e, int n[2]) {
    n[0] = (int)e.slow;
    n[1] = (int)e.shigh;
}

void gopen_(const int *number, const char *path, const int *mode, size_t length) {
    char *text = malloc(length + 1);
    if (!text) return die("gopen");
    while (length > 0 && path[length - 1] == ' ') length--;
    memcpy(text, path, length);
    text[length] = 0;
    int fd = _gopen(text, O_RDWR | O_CREAT, *mode, 0666);
    if (fd < 0 && (errno == EACCES || errno == EROFS)) fd = _gopen(text, O_RDONLY, *mode);
    free(text);
    if (fd < 0) die("gopen");
    int i = 0;
    while (i < units_count && units[i].unit != *number) i++;
    if (i == units_count && i == (int)(sizeof units / sizeof *units)) {
        errno = EMFILE;
        die("gopen");
    }
    if (i < units_count)
        close(units[i].fd);
    else
        units_count++;
    units[i].unit = *number;
    units[i].fd = fd;
}

void setiomode_(const int *u, const int *mode) { setiomode(unit(u), *mode); }
int iomode_(const int *u) { return (int)iomode(unit(u)); }
void cread_(const int *u, void *buf, const int *n) { cread(unit(u), buf, (unsigned)*n); }
void cwrite_(const int *u, const void *buf, const int *n) { cwrite(unit(u), buf, (unsigned)*n); }
int iread_(const int *u, void *buf, const int *n) { return (int)iread(unit(u), buf, (unsigned)*n); }
int iwrite_(const int *u, const void *buf, const int *n) { return (int)iwrite(unit(u), buf, (unsigned)*n); }
int iodone_(const int *id) { return (int)iodone(*id); }
void iowait_(const int *id) { iowait(*id); }
int iseof_(const int *u) { return (int)iseof(unit(u)); }
int lsize_(const int *u, const int *offset, const int *whence) { return (int)lsize(unit(u), *offset, *whence); }
void esize_(const int *u, const int offset[2], const int *whence, int now[2]) { unpair(esize(unit(u), pair(offset), *whence), now); }
void eseek_(const int *u, const int offset[2], const int *whence, int now[2]) { unpair(eseek(unit(u), pair(offset), *whence), now); }
void eadd_(const int a[2], const int b[2], int c[2]) { unpair(eadd(pair(a), pair(b)), c); }
void eadd1_(const int a[2], const int *b, int c[2]) { unpair(eadd1(pair(a), *b), c); }
void esub_(const int a[2], const int b[2], int c[2]) { unpair(esub(pair(a), pair(b)), c); }
void esub1_(const int a[2], const int *b, int c[2]) { unpair(esub1(pair(a), *b), c); }
void emul_(const int a[2], const int *b, int c[2]) { unpair(emul(pair(a), *b), c); }
int ecmp_(const int a[2], const int b[2]) { return (int)ecmp(pair(a), pair(b)); }
int ediv_(const int a[2], const int *b) { return (int)ediv(pair(a), *b); }
int emod_(const int a[2], const int *b) { return (int)emod(pair(a), *b); }
void restrictvol_(const int *u, const int *n, const int volumes[]) {
    long none = 0;
    restrictvol(unit(u), *n, *n > 0 && volumes ? &none : NULL);
}
