/* A client of a file system: does what the lines of standard input say, in a folder, and answers each with a line. Files that are open have
 * numbers. Unless it is compiled without MPI, it opens files with MPI-IO as well. Bytes that are written follow from a seed; those that were read are
 * answered as a number and a hash. Argument: the folder. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#ifndef WITHOUT_MPI
#include <mpi.h>
static MPI_File opened[16];
#endif

enum { MOST = 1 << 20 };
static unsigned char bytes[MOST];

static void fill(uint64_t seed, long len)
{
    for (long i = 0; i < len; i++) bytes[i] = (unsigned char)(((seed + (uint64_t)i) * 2654435761u) >> 13);
}

static void say_read(long len)
{
    uint64_t hash = 14695981039346656037u;
    for (long i = 0; i < len; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    printf("%ld %llu\n", len, (unsigned long long)hash);
}

/* Answers with the error where something failed. */
static int has_failed(long done)
{
    if (done < 0) printf("-%d\n", errno);
    return done < 0;
}

static void say(long done)
{
    if (!has_failed(done)) printf("%ld\n", done);
}

static void say_facts(int done, const struct stat *facts)
{
    if (has_failed(done)) return;
    int is_folder = S_ISDIR(facts->st_mode);
    printf("%s %lld %ld %o\n", is_folder ? "folder" : "file", is_folder ? 0 : (long long)facts->st_size,
           (long)facts->st_nlink, facts->st_mode & 07777);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void list(const char *path)
{
    struct dirent **all;
    int count = scandir(path, &all, NULL, by_name);
    if (has_failed(count)) return;
    for (int n = 0; n < count; n++) {
        printf("%s%s", n ? " " : "", all[n]->d_name);
        free(all[n]);
    }
    puts("");
    free(all);
}

static void lock(int file, const char *kind, long from, long len, int is_asked)
{
    struct flock lock = {.l_type = *kind == 'r' ? F_RDLCK : *kind == 'w' ? F_WRLCK : F_UNLCK, .l_start = from, .l_len = len};
    if (!is_asked) {
        say(fcntl(file, F_SETLK, &lock));
    } else if (!has_failed(fcntl(file, F_GETLK, &lock))) {
        puts(lock.l_type == F_UNLCK ? "free" : "held");
    }
}

#ifndef WITHOUT_MPI
static void by_mpi(const char *what, int n, const char *path, long at, long len, uint64_t seed)
{
    MPI_Status status;
    MPI_Offset size = 0;
    int error = MPI_SUCCESS, count = 0;
    if (!strcmp(what, "mopen")) {
        error = MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR, MPI_INFO_NULL, &opened[n]);
    } else if (!strcmp(what, "mclose")) {
        error = MPI_File_close(&opened[n]);
    } else if (!strcmp(what, "mcut")) {
        error = MPI_File_set_size(opened[n], at);
    } else if (!strcmp(what, "msize")) {
        error = MPI_File_get_size(opened[n], &size);
        count = (int)size;
    } else if (!strcmp(what, "mwrite")) {
        fill(seed, len);
        error = MPI_File_write_at(opened[n], at, bytes, (int)len, MPI_BYTE, &status);
        if (!error) MPI_Get_count(&status, MPI_BYTE, &count);
    } else {
        error = MPI_File_read_at(opened[n], at, bytes, (int)len, MPI_BYTE, &status);
        if (!error) MPI_Get_count(&status, MPI_BYTE, &count);
    }
    if (error) printf("MPI's error %d\n", error);
    else if (!strcmp(what, "mread")) say_read(count);
    else printf("%d\n", count);
}
#endif

int main(int count, char **words)
{
    char line[512], what[16], a[64], b[64];
    int files[16];
    struct stat facts;
    if (count != 2 || chdir(words[1]) < 0) return 2;
    umask(022);
#ifndef WITHOUT_MPI
    MPI_Init(NULL, NULL);
#endif
    while (fgets(line, sizeof line, stdin)) {
        long n = 0, at = 0, len = 0, seed = 0;
        *a = *b = 0;
        if (sscanf(line, "%15s %ld %63s %63s %ld %ld %ld", what, &n, a, b, &at, &len, &seed) < 7) return 3;
        int file = files[n];
        if (!strcmp(what, "open")) {
            files[n] = open(a, (int)at, 0644);
            say(files[n] < 0 ? -1 : 0);
        } else if (!strcmp(what, "close")) say(close(file));
        else if (!strcmp(what, "read")) {
            ssize_t got = pread(file, bytes, (size_t)len, at);
            if (!has_failed(got)) say_read(got);
        } else if (!strcmp(what, "write")) {
            fill((uint64_t)seed, len);
            say(pwrite(file, bytes, (size_t)len, at));
        } else if (!strcmp(what, "append")) {
            fill((uint64_t)seed, len);
            say(write(file, bytes, (size_t)len));
        } else if (!strcmp(what, "cut")) say(ftruncate(file, at));
        else if (!strcmp(what, "hole")) say(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, len));
        else if (!strcmp(what, "sync")) say(fsync(file));
        else if (!strcmp(what, "lock")) lock(file, a, at, len, 0);
        else if (!strcmp(what, "asklock")) lock(file, a, at, len, 1);
        else if (!strcmp(what, "facts")) say_facts(fstat(file, &facts), &facts);
        else if (!strcmp(what, "stat")) say_facts(stat(a, &facts), &facts);
        else if (!strcmp(what, "cutpath")) say(truncate(a, at));
        else if (!strcmp(what, "mkdir")) say(mkdir(a, 0755));
        else if (!strcmp(what, "rmdir")) say(rmdir(a));
        else if (!strcmp(what, "unlink")) say(unlink(a));
        else if (!strcmp(what, "link")) say(link(a, b));
        else if (!strcmp(what, "rename")) say(rename(a, b));
        else if (!strcmp(what, "chmod")) say(chmod(a, (mode_t)at));
        else if (!strcmp(what, "list")) list(a);
        else if (!strcmp(what, "note")) say(setxattr(a, "user.note", &seed, sizeof seed, 0));
        else if (!strcmp(what, "noted")) {
            if (!has_failed(getxattr(a, "user.note", &seed, sizeof seed))) printf("%ld\n", seed);
        }
#ifndef WITHOUT_MPI
        else by_mpi(what, (int)n, a, at, len, (uint64_t)seed);
#else
        else return 4;
#endif
        fflush(stdout);
    }
#ifndef WITHOUT_MPI
    MPI_Finalize();
#endif
    return 0;
}
