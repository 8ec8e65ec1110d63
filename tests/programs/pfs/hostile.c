/* A program with the preload library that does what libraries forget: its signals' handlers read, write and jump, it gives memory that
 * it may not use, it has closed the lowest descriptors, and it limits the size of its files. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 64 << 10, ENOUGH = 200 };
static const char *path;
static int file, other;
static char data[BYTES], own[BYTES], handlers[BYTES];
static volatile sig_atomic_t way, wrong, handled;
static sigjmp_buf back;

#define CHECK(what)                                                   \
    do {                                                              \
        if (!(what)) {                                                \
            dprintf(2, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno)); \
            _exit(1);                                                 \
        }                                                             \
    } while (0)

static int is_right(int fd, char *into)
{
    return pread(fd, into, BYTES, 0) == BYTES && memcmp(into, data, BYTES) == 0;
}

/* Signals that come faster than a loaded machine serves a read would nest until the stack is full: from
 * the ENOUGH-th on they do nothing. */
static void hear(int number)
{
    (void)number;
    int error = errno;
    if (handled++ >= ENOUGH)
        return;
    if (way == 0)
        wrong |= !is_right(file, handlers);
    if (way == 1)
        wrong |= pwrite(other, data, BYTES, 0) != BYTES || !is_right(other, handlers);
    errno = error;
    if (way == 2)
        siglongjmp(back, 1);
}

/* One thread reads beside; if a handler that jumps kept a lock, it would wait for ever. */
static void *beside(void *unused)
{
    static char there[BYTES];
    for (int i = 0; i < 200; i++)
        CHECK(pread(file, there, BYTES, 0) == BYTES);
    return unused;
}

static void signals(void)
{
    struct sigaction action = {.sa_handler = hear, .sa_flags = SA_RESTART | SA_NODEFER};
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    for (way = 0; way < 3; way++) {
        struct timespec begun, now;
        sigset_t alarm;
        pthread_t thread;
        sigemptyset(&alarm);
        sigaddset(&alarm, SIGALRM);
        handled = 0;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        setitimer(ITIMER_REAL, &often, NULL);
        sigsetjmp(back, 1);
        while (clock_gettime(CLOCK_MONOTONIC, &now) == 0 && now.tv_sec - begun.tv_sec < 2 && handled < ENOUGH) {
            int again = open(path, O_RDWR);
            CHECK(again >= 0 && pread(again, own, BYTES, 0) == BYTES);
            close(again);
            CHECK(is_right(file, own));
        }
        setitimer(ITIMER_REAL, &never, NULL);
        CHECK(handled > 0 && !wrong);
        pthread_sigmask(SIG_BLOCK, &alarm, NULL);
        pthread_create(&thread, NULL, beside, NULL);
        pthread_join(thread, NULL);
        pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    }
    /* What jumps never closed. */
    for (int fd = 3; fd < 1000; fd++)
        if (fd != file && fd != other)
            close(fd);
}

static void memory(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, 8 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED);
    CHECK(mprotect(map, page, PROT_NONE) == 0);
    CHECK(pread(file, map, page, 0) == -1 && errno == EFAULT);
    CHECK(pwrite(other, map, page, 0) == -1 && errno == EFAULT);
    CHECK(mprotect(map, page, PROT_READ) == 0);
    CHECK(pread(file, map, 8 * page, 0) == -1 && errno == EFAULT);
    CHECK(mprotect(map, 8 * page, PROT_READ | PROT_WRITE) == 0);
    CHECK(mprotect(map + 4 * page, page, PROT_NONE) == 0);
    CHECK(pread(file, map, 8 * page, 0) == (ssize_t)(4 * page));
    CHECK(is_right(file, own));
}

static void descriptors(void)
{
    int out = dup(1);
    CHECK(out > 2);
    close(0);
    close(1);
    CHECK(open(path, O_RDWR) == 0 && is_right(0, own));
    CHECK(write(1, data, 100) == -1 && errno == EBADF);
    CHECK(open(path, O_RDWR) == 1 && is_right(1, own));
    close(0);
    CHECK(dup2(out, 1) == 1);
    close(out);
}

static void limits(void)
{
    struct rlimit small = {2 * BYTES, 2 * BYTES};
    CHECK(is_right(other, own));
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK(pwrite(other, data, BYTES, 2 * BYTES) == -1 && errno == EFBIG);
    struct stat facts;
    CHECK(fstat(other, &facts) == 0 && facts.st_size <= 2 * BYTES);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    path = argv[1];
    for (int i = 0; i < BYTES; i++)
        data[i] = (char)(i * 31 % 251);
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    other = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0 && other >= 0);
    CHECK(pwrite(file, data, BYTES, 0) == BYTES && pwrite(other, data, BYTES, 0) == BYTES);
    signals();
    memory();
    descriptors();
    limits();
    printf("ok\n");
    return 0;
}
