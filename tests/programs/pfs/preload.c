/* A program that knows nothing of Margay: random operations on one file by several descriptors, threads and children, against a model
 * of its bytes. The arguments are a name for the file, a seed, the number of operations and whether there is a direct way. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mapped.h"

enum { MOST = 2500000 };

static unsigned char model[MOST], bytes[MOST], seen[MOST];
static long size;
static unsigned state;
static const char *path;

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "line %d: not %s (%d)\n", __LINE__, #condition, errno); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

static long below(long end)
{
    state = state * 1664525u + 1013904223u;
    return (long)((state >> 4) % (unsigned)end);
}

static void note(long at, long length)
{
    if (at > size) memset(model + size, 0, (size_t)(at - size));
    memcpy(model + at, bytes, (size_t)length);
    if (at + length > size) size = at + length;
}

static long rest(long at, long length)
{
    long left = at < size ? size - at : 0;
    return left < length ? left : length;
}

static void same(long got, long at, long length)
{
    CHECK(got == rest(at, length));
    CHECK(memcmp(seen, model + at, (size_t)got) == 0);
}

static void *writes_records(void *fd)
{
    static const unsigned char filled[5000] = {1};
    for (int i = 0; i < 100; i++) CHECK(write(*(int *)fd, filled, sizeof filled) == sizeof filled);
    return NULL;
}

/* Records of threads that share a position do not overlap. */
static void by_threads(void)
{
    int fd = open(path, O_RDWR | O_TRUNC);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, writes_records, &fd);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK(lseek(fd, 0, SEEK_CUR) == 4 * 100 * 5000 && lseek(fd, 0, SEEK_END) == 4 * 100 * 5000);
    /* Nor do those of a child. */
    pid_t child = fork();
    writes_records(&fd);
    if (child == 0) _exit(0);
    CHECK(waitpid(child, NULL, 0) == child && lseek(fd, 0, SEEK_END) == 6 * 100 * 5000);
    /* A FILE that closes the descriptor by itself, and another file with its number. */
    FILE *file = fdopen(fd, "r+");
    CHECK(fseek(file, 10000, SEEK_SET) == 0 && fwrite(bytes, 1, 20000, file) == 20000 && fclose(file) == 0);
    char other[4096];
    snprintf(other, sizeof other, "%s.other", path);
    FILE *written = fopen(other, "w+");
    CHECK(fileno(written) == fd && write(fd, bytes + 7, 30000) == 30000);
    fclose(written);
    fd = open(other, O_RDONLY);
    CHECK(read(fd, seen, MOST) == 30000 && memcmp(seen, bytes + 7, 30000) == 0);
    CHECK(write(fd, bytes, 5000) == -1 && errno == EBADF);
    close(fd);
    CHECK(read(fd, seen, MOST) == -1 && errno == EBADF);
    fd = open(path, O_RDONLY);
    CHECK(pread(fd, seen, 20000, 10000) == 20000 && memcmp(seen, bytes, 20000) == 0);
    /* A program that closes what it does not know, and opens others. */
    for (int i = 3; i < 100; i++)
        if (i != fd) close(i);
    int ends[2];
    while (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0 && ends[1] < 50) continue;
    memset(seen, 0, 20000);
    CHECK(pread(fd, seen, 20000, 10000) == 20000 && memcmp(seen, bytes, 20000) == 0);
    close(fd);
    CHECK(recv(ends[0], seen, 100, MSG_DONTWAIT) == -1 && errno == EAGAIN && send(ends[1], "x", 1, 0) == 1);
    for (int i = 3; i < 50; i++) CHECK(i == fd || recv(i, seen, 100, MSG_DONTWAIT) == -1);
}

int main(int argc, char **argv)
{
    CHECK(argc == 5);
    path = argv[1];
    state = (unsigned)atoi(argv[2]);
    for (long i = 0; i < MOST; i++) bytes[i] = (unsigned char)(i * 7 + i / 251);
    int fd[2], flags = O_RDWR | O_CREAT, direct = 0;
    long at[2] = {0, 0};
    for (int i = 0; i < 2; i++) CHECK((fd[i] = open(path, flags, 0644)) >= 0);
    int appends = open(path, O_WRONLY | O_APPEND);
    for (long count = atol(argv[3]); count > 0; count--) {
        long length = 1 + below((long[]){200, 20000, 20000, 300000}[below(4)]), to = below(MOST - length), got;
        int i = (int)below(2);
        memset(bytes + below(MOST - 64), (int)count, 64);
        if (at[i] + length > MOST) CHECK((at[i] = lseek(fd[i], 0, SEEK_SET)) == 0);
        switch (below(14)) {
        case 0:
        case 1: CHECK(write(fd[i], bytes, (size_t)length) == length); note(at[i], length); at[i] += length; break;
        case 2:
        case 3: got = read(fd[i], seen, (size_t)length); same(got, at[i], length); at[i] += got; break;
        case 4: CHECK(pwrite(fd[i], bytes, (size_t)length, to) == length); note(to, length); break;
        case 5: same(pread(fd[i], seen, (size_t)length, to), to, length); break;
        case 6: CHECK(lseek(fd[i], to, SEEK_SET) == to); at[i] = to; break;
        case 7: CHECK((at[i] = lseek(fd[i], 0, SEEK_END)) == size); break;
        case 8:
            if (size + length > MOST) break;
            CHECK(write(appends, bytes, (size_t)length) == length);
            note(size, length);
            break;
        case 9:
            CHECK(ftruncate(fd[i], to) == 0);
            if (to > size) memset(model + size, 0, (size_t)(to - size));
            size = to;
            break;
        case 10: {
            struct iovec parts[2] = {{bytes, (size_t)length / 2}, {bytes + length / 2, (size_t)(length - length / 2)}};
            CHECK(writev(fd[i], parts, 2) == length);
            note(at[i], length);
            at[i] += length;
            break;
        }
        case 11: {
            /* The position is that of both. */
            int twice = dup(fd[i]);
            CHECK(write(twice, bytes, (size_t)length) == length);
            note(at[i], length);
            at[i] += length;
            close(twice);
            break;
        }
        case 12: {
            struct stat facts;
            CHECK(fstat(fd[i], &facts) == 0 && facts.st_size == size);
            break;
        }
        default:
            if (below(8)) break;
            if (below(2)) {
                pid_t child = fork();
                if (child == 0) _exit(write(fd[i], bytes, (size_t)length) == length ? 0 : 1);
                int end;
                CHECK(waitpid(child, &end, 0) == child && end == 0);
                note(at[i], length);
                at[i] += length;
            }
            CHECK(close(fd[i]) == 0 && (fd[i] = open(path, flags, 0644)) >= 0);
            at[i] = 0;
        }
        direct |= has_direct();
    }
    same(pread(fd[0], seen, MOST, 0), 0, MOST);
    by_threads();
    CHECK(direct == atoi(argv[4]));
    puts("ok");
    return 0;
}
