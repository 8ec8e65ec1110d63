/* libmargay_pfs: takes long reads and writes of a program on files of a parallel file system past the kernel. A program gets it by
 * LD_PRELOAD. It takes those of descriptors that the program has opened itself, and leaves all others, and all that it does not know,
 * to the kernel: both ways show the same. The position of an open file stays the kernel's. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>

#include "way.h"

/* Shorter ones cost the kernel no more. */
#define LEAST 4096
/* Pages of 4 KiB that are moved before a direct way is made: that costs a millisecond. */
#define WORTH 1024
#define MOST_FILES 4096

#define EXPORTED __attribute__((visibility("default")))

struct file {
    struct way *way;
    pthread_mutex_t turn; /* of those who move the position */
    dev_t device;
    ino_t number;
    atomic_int is_shared; /* by other descriptors or processes, which may move the position at any time */
    atomic_int uses;      /* the table's, and those of calls */
};

static struct file *files[MOST_FILES];
/* Opened by the program, and not asked for yet: 1, or 2 if its position is shared; 3: a thread asks for it. */
static atomic_char opened[MOST_FILES];
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static int is_held; /* by a fork */
static atomic_uint moved[MOST_FILES]; /* in pages */
static int is_at_once;                /* whatever has been moved */
static atomic_int plain[MOST_FILES];  /* calls at the position that the kernel does without anybody's turn */
static atomic_int known; /* how many of either there are, so that programs without such files lose no time */

#define NEXT(name) ((__typeof__(&name))next((void *_Atomic *)&nexts[__COUNTER__], #name))
static void *_Atomic nexts[64];

/* While a call has something of this library's, no handler of a signal interrupts it, which might call again or never come back, and
 * nobody ends its thread. As with files of the system, handlers run when the call has ended. */
struct calm {
    sigset_t before;
    int cancel;
};

static struct calm calm(void) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS};
    struct calm calm;
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &calm.cancel);
    pthread_sigmask(SIG_BLOCK, &all, &calm.before);
    return calm;
}

static void disturb(const struct calm *calm) {
    int number = errno;
    pthread_sigmask(SIG_SETMASK, &calm->before, NULL);
    pthread_setcancelstate(calm->cancel, NULL);
    errno = number;
}

/* Whether a descriptor may be one of those that are taken. */
static int concerns(int fd);

/* The function that this library stands before. */
static void *next(void *_Atomic *place, const char *name) {
    void *found = atomic_load(place);
    if (!found) {
        found = dlsym(RTLD_NEXT, name);
        if (!found) abort();
        atomic_store(place, found);
    }
    return found;
}

static void leave(struct file *file) {
    if (!file || atomic_fetch_sub(&file->uses, 1) > 1) return;
    way_end(file->way);
    munmap(file, sizeof *file);
}

/* Locks the table. It is locked for some instructions only, or for the time of a fork: then the kernel has to do. */
static int hold(void) {
    for (int i = 0; i < 1000; i++) {
        if (pthread_mutex_trylock(&table) == 0) return 1;
        sched_yield();
    }
    return 0;
}

static int concerns(int fd) {
    return fd >= 0 && fd < MOST_FILES && atomic_load(&known) > 0 && (atomic_load(&opened[fd]) || files[fd]);
}

/* Forgets a descriptor. */
static void forget(int fd) {
    if (!concerns(fd)) return;
    struct calm before = calm();
    if (hold()) {
        struct file *file = files[fd];
        if (file || atomic_load(&opened[fd])) atomic_fetch_sub(&known, 1);
        files[fd] = NULL;
        atomic_store(&opened[fd], 0);
        pthread_mutex_unlock(&table);
        leave(file);
    }
    disturb(&before);
}

static int begun(int fd) {
    if (fd < 0 || fd >= MOST_FILES) return fd;
    int number = errno;
    forget(fd);
    atomic_store(&moved[fd], 0);
    atomic_store(&plain[fd], 0);
    atomic_store(&opened[fd], 1);
    atomic_fetch_add(&known, 1);
    errno = number;
    return fd;
}

/* Which file it is, as far as the kernel knows without asking. */
static int identify(int fd, dev_t *device, ino_t *number) {
    struct statx facts;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &facts) < 0) return -1;
    *device = ((dev_t)facts.stx_dev_major << 32) | facts.stx_dev_minor;
    *number = facts.stx_ino;
    return 0;
}

static struct file *ask(int fd, int is_shared) {
    struct way *way = way_begin(fd);
    if (!way) return NULL;
    struct file *file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t kind;
    if (file == MAP_FAILED) {
        way_end(way);
        return NULL;
    }
    file->way = way;
    identify(fd, &file->device, &file->number);
    /* A signal's handler does not wait for what it interrupted. */
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&file->turn, &kind);
    atomic_store(&file->is_shared, is_shared);
    atomic_store(&file->uses, 1);
    return file;
}

/* Whether a direct way is worth its making, if this many bytes are moved now. */
static int is_worth(int fd, size_t length) {
    unsigned pages = (unsigned)(length >> 12 < WORTH ? length >> 12 : WORTH);
    return length >= LEAST && (atomic_fetch_add(&moved[fd], pages) + pages >= WORTH || is_at_once);
}

/* The file of a descriptor, to be given back; NULL where the kernel has it. It may get a direct way now, if `length` bytes are to be
 * moved. The caller is calm. */
static struct file *of(int fd, size_t length) {
    if (!concerns(fd)) return NULL;
    int asks = !files[fd] && is_worth(fd, length);
    int number = errno;
    char was = atomic_load(&opened[fd]);
    for (int i = 0; i < 1000 && was == 3; was = atomic_load(&opened[fd]), i++) sched_yield();
    int is_mine = asks && (was == 1 || was == 2) && atomic_compare_exchange_strong(&opened[fd], &was, 3);
    /* Who begins such a call from now on waits for the answer. Those who have begun move the position without a turn. */
    struct file *asked = is_mine ? ask(fd, was == 2 || atomic_load(&plain[fd]) > 0) : NULL;
    struct file *file = NULL;
    if (hold()) {
        if (asked && !files[fd]) {
            files[fd] = asked;
            asked = NULL;
        } else if (is_mine) {
            atomic_fetch_sub(&known, 1);
        }
        file = files[fd];
        if (file) atomic_fetch_add(&file->uses, 1);
        pthread_mutex_unlock(&table);
    }
    if (is_mine) atomic_store(&opened[fd], 0);
    leave(asked);
    dev_t device;
    ino_t inode;
    if (file && (identify(fd, &device, &inode) < 0 || device != file->device || inode != file->number)) {
        /* The C library has closed it by itself, as for a FILE, and the number is another file's. */
        leave(file);
        forget(fd);
        file = NULL;
    }
    errno = number;
    return file;
}

/* Another descriptor or process has the position, too. */
static void share(int fd) {
    if (fd < 0 || fd >= MOST_FILES) return;
    char alone = 1;
    atomic_compare_exchange_strong(&opened[fd], &alone, 2);
    struct calm before = calm();
    struct file *file = of(fd, 0);
    if (file) atomic_store(&file->is_shared, 1);
    leave(file);
    disturb(&before);
}

static void share_all(void) {
    for (int fd = 0; atomic_load(&known) > 0 && fd < MOST_FILES; fd++)
        if (files[fd] || atomic_load(&opened[fd])) share(fd);
}

static _Thread_local struct calm forking;

static void before_fork(void) {
    forking = calm();
    share_all();
    is_held = hold();
}

static void in_parent(void) {
    if (is_held) pthread_mutex_unlock(&table);
    disturb(&forking);
}

/* A child begins anew, and has the descriptors of its parent from the kernel. */
static void in_child(void) {
    memset(files, 0, sizeof files);
    memset((void *)opened, 0, sizeof opened);
    memset((void *)moved, 0, sizeof moved);
    memset((void *)plain, 0, sizeof plain);
    atomic_store(&known, 0);
    in_parent();
}

static __attribute__((constructor)) void begin(void) {
    const char *asked = getenv("MARGAY_PFS_DIRECT");
    is_at_once = asked && strcmp(asked, "1") == 0;
    pthread_atfork(before_fork, in_parent, in_child);
}

static ssize_t by_kernel(int fd, void *bytes, size_t length, int writes) {
    return writes ? NEXT(write)(fd, bytes, length) : NEXT(read)(fd, bytes, length);
}

/* The file of a descriptor for a call at its position; NULL where the kernel does that: then it is counted in `plain`, and nobody moves
 * the position directly meanwhile. */
static struct file *positioned(int fd, size_t length) {
    struct file *file = NULL;
    for (int i = 0; i < 1000 && !file; i++) {
        file = of(fd, length);
        if (file) break;
        atomic_fetch_add(&plain[fd], 1);
        if (atomic_load(&opened[fd]) != 3 && !files[fd]) break;
        if (i < 999) atomic_fetch_sub(&plain[fd], 1);
    }
    return file;
}

/* Moves the position by what `done` says, and lets others do so. */
static ssize_t sequential(int fd, void *bytes, size_t length, int writes) {
    if (!concerns(fd)) return by_kernel(fd, bytes, length, writes);
    struct calm before = calm();
    struct file *file = positioned(fd, length);
    if (!file) {
        /* A pipe, say, in whose calls signals are heard. */
        disturb(&before);
        ssize_t done = by_kernel(fd, bytes, length, writes);
        atomic_fetch_sub(&plain[fd], 1);
        return done;
    }
    ssize_t done = WAY_KERNEL;
    int is_mine = pthread_mutex_lock(&file->turn) == 0;
    if (is_mine && length >= LEAST && !atomic_load(&file->is_shared)) {
        off_t at = NEXT(lseek)(fd, 0, SEEK_CUR);
        if (at >= 0) done = way_move(file->way, fd, bytes, length, at, writes);
        if (done > 0) NEXT(lseek)(fd, at + done, SEEK_SET);
    }
    if (done == WAY_KERNEL) done = by_kernel(fd, bytes, length, writes);
    int number = errno;
    if (is_mine) pthread_mutex_unlock(&file->turn);
    leave(file);
    errno = number;
    disturb(&before);
    return done;
}

static ssize_t placed(int fd, void *bytes, size_t length, off_t at, int writes) {
    ssize_t done = WAY_KERNEL;
    if (length >= LEAST && concerns(fd)) {
        struct calm before = calm();
        struct file *file = of(fd, length);
        if (file) done = way_move(file->way, fd, bytes, length, at, writes);
        int number = errno;
        leave(file);
        errno = number;
        disturb(&before);
    }
    if (done != WAY_KERNEL) return done;
    return writes ? NEXT(pwrite)(fd, bytes, length, at) : NEXT(pread)(fd, bytes, length, at);
}

/* A call that moves the position, by the kernel. */
#define IN_TURN(type, fd, call)                                           \
    if (!concerns(fd)) return call;                                       \
    struct calm before = calm();                                          \
    struct file *file = positioned(fd, 0);                                \
    if (!file) {                                                          \
        disturb(&before);                                                 \
        type done = call;                                                 \
        atomic_fetch_sub(&plain[fd], 1);                                  \
        return done;                                                      \
    }                                                                     \
    int is_mine = pthread_mutex_lock(&file->turn) == 0;                   \
    type result = call;                                                   \
    int number = errno;                                                   \
    if (is_mine) pthread_mutex_unlock(&file->turn);                       \
    leave(file);                                                          \
    errno = number;                                                       \
    disturb(&before);                                                     \
    return result

EXPORTED ssize_t read(int fd, void *bytes, size_t length) { return sequential(fd, bytes, length, 0); }
EXPORTED ssize_t write(int fd, const void *bytes, size_t length) { return sequential(fd, (void *)bytes, length, 1); }
EXPORTED ssize_t pread(int fd, void *bytes, size_t length, off_t at) { return placed(fd, bytes, length, at, 0); }
EXPORTED ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return placed(fd, (void *)bytes, length, at, 1); }
EXPORTED ssize_t pread64(int fd, void *bytes, size_t length, off_t at) { return placed(fd, bytes, length, at, 0); }
EXPORTED ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t at) { return placed(fd, (void *)bytes, length, at, 1); }

/* What _FORTIFY_SOURCE calls. */
extern void __chk_fail(void) __attribute__((noreturn));
EXPORTED ssize_t __read_chk(int fd, void *bytes, size_t length, size_t room) {
    if (length > room) __chk_fail();
    return read(fd, bytes, length);
}
EXPORTED ssize_t __pread_chk(int fd, void *bytes, size_t length, off_t at, size_t room) {
    if (length > room) __chk_fail();
    return pread(fd, bytes, length, at);
}
EXPORTED ssize_t __pread64_chk(int fd, void *bytes, size_t length, off_t at, size_t room) {
    return __pread_chk(fd, bytes, length, at, room);
}

EXPORTED ssize_t readv(int fd, const struct iovec *parts, int count) {
    if (count == 1) return sequential(fd, parts->iov_base, parts->iov_len, 0);
    IN_TURN(ssize_t, fd, NEXT(readv)(fd, parts, count));
}
EXPORTED ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (count == 1) return sequential(fd, parts->iov_base, parts->iov_len, 1);
    IN_TURN(ssize_t, fd, NEXT(writev)(fd, parts, count));
}
EXPORTED off_t lseek(int fd, off_t offset, int whence) { IN_TURN(off_t, fd, NEXT(lseek)(fd, offset, whence)); }
EXPORTED off_t lseek64(int fd, off_t offset, int whence) { return lseek(fd, offset, whence); }

EXPORTED int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return begun(NEXT(open)(path, flags, mode));
}
EXPORTED int openat(int folder, const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return begun(NEXT(openat)(folder, path, flags, mode));
}
EXPORTED int open64(const char *, int, ...) __attribute__((alias("open")));
EXPORTED int openat64(int, const char *, int, ...) __attribute__((alias("openat")));
EXPORTED int __open_2(const char *path, int flags) { return open(path, flags, 0); }
EXPORTED int __open64_2(const char *path, int flags) { return open(path, flags, 0); }
EXPORTED int __openat_2(int folder, const char *path, int flags) { return openat(folder, path, flags, 0); }
EXPORTED int __openat64_2(int folder, const char *path, int flags) { return openat(folder, path, flags, 0); }
EXPORTED int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
EXPORTED int creat64(const char *path, mode_t mode) { return creat(path, mode); }

EXPORTED int close(int fd) {
    forget(fd);
    return NEXT(close)(fd);
}
EXPORTED int dup(int fd) {
    share(fd);
    return NEXT(dup)(fd);
}
EXPORTED int dup2(int fd, int to) {
    share(fd);
    if (fd != to) forget(to);
    return NEXT(dup2)(fd, to);
}
EXPORTED int dup3(int fd, int to, int flags) {
    share(fd);
    forget(to);
    return NEXT(dup3)(fd, to, flags);
}
EXPORTED int fcntl(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    void *value = va_arg(more, void *);
    va_end(more);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) share(fd);
    return NEXT(fcntl)(fd, command, value);
}
EXPORTED int fcntl64(int, int, ...) __attribute__((alias("fcntl")));

/* Children that the C library makes by itself. */
EXPORTED int posix_spawn(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                         char *const words[], char *const environment[]) {
    share_all();
    return NEXT(posix_spawn)(child, path, actions, how, words, environment);
}
EXPORTED int posix_spawnp(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                          char *const words[], char *const environment[]) {
    share_all();
    return NEXT(posix_spawnp)(child, path, actions, how, words, environment);
}
EXPORTED int system(const char *command) {
    share_all();
    return NEXT(system)(command);
}
EXPORTED FILE *popen(const char *command, const char *how) {
    share_all();
    return NEXT(popen)(command, how);
}
/* A child that waits in its parent's memory may do little else than what one with a copy does. */
EXPORTED pid_t vfork(void) { return fork(); }
