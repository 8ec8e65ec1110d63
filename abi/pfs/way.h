/* The direct way to a file of a parallel file system of this host, past the kernel: the client in C, for libraries whose files are
 * descriptors. What is said is drawn in docs/pfs-format.md; fs/storage/src/direct.rs is the same in Rust. Whenever there is no direct
 * way, the caller uses the descriptor. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define WAY_INVITES 0x80304d50UL
#define WAY_FUSE 0x65735546
/* Descriptors from here on are for the library, as far as the limit of the process allows. */
#define WAY_HIGH 1000
enum { WAY_MOST = 1 << 20, WAY_PLACES = 2, WAY_GROWN = -2, WAY_KERNEL = -2 };

struct way {
    int line;
    ino_t socket; /* what it is: a program that closes all descriptors may have closed it, and opened another */
    char *memory;
    pid_t process; /* a child has the connection, and must not use it */
    atomic_flag busy;
    atomic_int over;
};

static int way_is_open(const struct way *way) {
    struct stat facts;
    return way->line >= 0 && fstat(way->line, &facts) == 0 && S_ISSOCK(facts.st_mode) && facts.st_ino == way->socket;
}

static void way_end(struct way *way) {
    if (!way) return;
    if (way->memory != MAP_FAILED) munmap(way->memory, WAY_PLACES * WAY_MOST);
    if (way_is_open(way)) close(way->line);
    munmap(way, sizeof *way);
}

/* The same as another descriptor: programs rely on it that they get the lowest that is free, as 0 to 2. A process that may have few
 * keeps them for itself. */
static int way_high(int fd) {
    struct rlimit limit;
    int high = -1;
    if (fd < 0) return -1;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= 256)
        high = fcntl(fd, F_DUPFD_CLOEXEC, limit.rlim_cur > 2 * WAY_HIGH ? WAY_HIGH : (int)(limit.rlim_cur / 2));
    close(fd);
    return high;
}

/* Whether the process may use all of this memory. What it may not use gives a signal in a copy, and EFAULT from the kernel. */
static int way_is_usable(const void *bytes, size_t length, int writes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)bytes / page * page;
    uintptr_t end = ((uintptr_t)bytes + length + page - 1) / page * page;
    if (end <= first) return 0;
    if (madvise((void *)first, end - first, writes ? MADV_POPULATE_READ : MADV_POPULATE_WRITE) == 0) return 1;
    /* Before Linux 5.14 nobody knows, and the same is said of what may be read. */
    return errno == EINVAL && madvise((void *)((uintptr_t)&page / page * page), page, MADV_POPULATE_READ) < 0;
}

/* Whether the process may only write small files, which the kernel sees to. */
static int way_is_limited(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY;
}

/* Receives the descriptor of the memory that both have. */
static int way_receive(int line) {
    char byte;
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } space;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &space, .msg_controllen = sizeof space};
    int fd = -1;
    if (recvmsg(line, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
    struct cmsghdr *sent = CMSG_FIRSTHDR(&message);
    if (sent && sent->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(sent), sizeof fd);
    return fd;
}

static int way_connect(struct way *way, const unsigned char *invitation) {
    static const char digits[] = "0123456789abcdef", begin[] = "margay-pfs-";
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct timeval within = {2, 0}, ever = {0, 0};
    struct ucred peer;
    socklen_t room = sizeof peer;
    uint32_t user;
    size_t at = 1 + sizeof begin - 1;
    memcpy(name.sun_path + 1, begin, sizeof begin - 1);
    for (int i = 15; i >= 0; i--) {
        name.sun_path[at++] = digits[invitation[8 + i] >> 4];
        name.sun_path[at++] = digits[invitation[8 + i] & 15];
    }
    way->line = way_high(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    struct stat facts;
    if (way->line < 0 || fstat(way->line, &facts) < 0) return -1;
    way->socket = facts.st_ino;
    setsockopt(way->line, SOL_SOCKET, SO_SNDTIMEO, &within, sizeof within);
    setsockopt(way->line, SOL_SOCKET, SO_RCVTIMEO, &within, sizeof within);
    if (connect(way->line, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at)) < 0) return -1;
    /* Somebody else may listen there when the service has ended. */
    memcpy(&user, invitation + 4, sizeof user);
    if (getsockopt(way->line, SOL_SOCKET, SO_PEERCRED, &peer, &room) < 0 || peer.uid != user) return -1;
    if (send(way->line, invitation + 24, 16, MSG_NOSIGNAL) != 16) return -1;
    int fd = way_receive(way->line);
    if (fd < 0) return -1;
    way->memory = mmap(NULL, WAY_PLACES * WAY_MOST, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    /* An answer takes as long as the disks do. */
    setsockopt(way->line, SOL_SOCKET, SO_SNDTIMEO, &ever, sizeof ever);
    setsockopt(way->line, SOL_SOCKET, SO_RCVTIMEO, &ever, sizeof ever);
    return way->memory == MAP_FAILED ? -1 : 0;
}

/* The direct way to an open file; NULL where there is none. Keeps errno. */
static struct way *way_begin(int fd) {
    unsigned char invitation[48];
    struct stat facts;
    struct statfs place;
    struct way *way = NULL;
    const char *asked = getenv("MARGAY_PFS_DIRECT");
    int number = errno;
    if (!(asked && strcmp(asked, "0") == 0) && fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && fstatfs(fd, &place) == 0 &&
        place.f_type == WAY_FUSE && !way_is_limited() && ioctl(fd, WAY_INVITES, invitation) == 0 && memcmp(invitation, "MPD1", 4) == 0) {
        /* A signal's handler may have interrupted malloc. */
        way = mmap(NULL, sizeof *way, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (way == MAP_FAILED) way = NULL;
    }
    if (way) {
        *way = (struct way){.line = -1, .memory = MAP_FAILED, .process = getpid(), .busy = ATOMIC_FLAG_INIT};
        if (way_connect(way, invitation) < 0) {
            way_end(way);
            way = NULL;
        }
    }
    errno = number;
    return way;
}

static int way_ask(struct way *way, int writes, int follows, off_t at, size_t length, int place) {
    /* The program itself may map the file. What follows a write that was not done as a whole is not done. */
    uint32_t words[6] = {(writes ? 3 : 0) | (follows ? 4 : 0), (uint32_t)syscall(SYS_gettid), 0, 0, (uint32_t)length, (uint32_t)place};
    memcpy(words + 2, &at, sizeof at);
    ssize_t sent;
    do sent = send(way->line, words, sizeof words, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == sizeof words ? 0 : -1;
}

/* Sends requests for all bytes, as many at a time as there are places. */
static ssize_t way_transfer(struct way *way, int fd, char *bytes, size_t length, off_t at, int writes) {
    size_t asked[WAY_PLACES], sent_bytes = 0, got_bytes = 0;
    ssize_t done = 0;
    int sent = 0, answered = 0, goes_on = 1, error = 0, grown = 0;
    for (;;) {
        while (goes_on && sent_bytes < length && sent - answered < WAY_PLACES) {
            size_t room = length <= WAY_MOST ? WAY_MOST : WAY_MOST - (size_t)(at + (off_t)sent_bytes) % WAY_MOST;
            size_t part = length - sent_bytes < room ? length - sent_bytes : room;
            int place = sent % WAY_PLACES;
            if (writes) memcpy(way->memory + place * WAY_MOST, bytes + sent_bytes, part);
            if (way_ask(way, writes, sent > 0, at + (off_t)sent_bytes, part, place) < 0) return WAY_KERNEL;
            asked[place] = part;
            sent_bytes += part;
            sent++;
        }
        if (sent == answered) break;
        int32_t answer[2];
        int place = answered++ % WAY_PLACES;
        ssize_t n;
        do n = recv(way->line, answer, sizeof answer, 0);
        while (n < 0 && errno == EINTR);
        if (n != sizeof answer) return WAY_KERNEL;
        if (!goes_on) continue;
        if (answer[0] > 0) {
            error = answer[0];
            goes_on = 0;
        } else if ((answer[0] == 0 || answer[0] == WAY_GROWN) && (size_t)(uint32_t)answer[1] <= asked[place]) {
            size_t got = (size_t)(uint32_t)answer[1];
            if (!writes) memcpy(bytes + got_bytes, way->memory + place * WAY_MOST, got);
            got_bytes += got;
            done += (ssize_t)got;
            goes_on = got == asked[place];
            grown |= answer[0] == WAY_GROWN;
        } else {
            return WAY_KERNEL;
        }
    }
    if (grown) {
        /* Who maps the file sees as much of it as the kernel knows. */
        struct stat facts;
        (void)fstat(fd, &facts);
    }
    if (!error || done > 0) return done;
    errno = error;
    return -1;
}

/* Reads or writes at an offset as pread and pwrite do; WAY_KERNEL where the caller has to use these. */
static ssize_t way_move(struct way *way, int fd, void *bytes, size_t length, off_t at, int writes) {
    int flags, number = errno;
    if (!way || length == 0 || at < 0 || (uint64_t)at + length > INT64_MAX || atomic_load(&way->over) || way->process != getpid())
        return WAY_KERNEL;
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || flags & (O_APPEND | O_DSYNC) || (flags & O_ACCMODE) == (writes ? O_RDONLY : O_WRONLY)) return WAY_KERNEL;
    if ((writes && way_is_limited()) || !way_is_usable(bytes, length, writes)) {
        errno = number;
        return WAY_KERNEL;
    }
    if (atomic_flag_test_and_set(&way->busy)) return WAY_KERNEL;
    ssize_t done = way_is_open(way) ? way_transfer(way, fd, bytes, length, at, writes) : WAY_KERNEL;
    if (done == WAY_KERNEL) {
        atomic_store(&way->over, 1);
        errno = number;
    }
    atomic_flag_clear(&way->busy);
    return done;
}
