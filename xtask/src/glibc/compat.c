/* What an old glibc has in no shared library, for the libraries and programs that are linked with the stubs of glibc.rs. It is
   linked from an archive, so each function only goes where it is needed, and none of them is exported. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Before glibc 2.33, stat and the like were inlined calls of functions that take the version of the
 * structure's layout. */
#ifdef __x86_64__
enum { STAT_VERSION = 1 };
#else
enum { STAT_VERSION = 0 };
#endif

int __xstat(int version, const char *path, struct stat *out);
int __lxstat(int version, const char *path, struct stat *out);
int __fxstat(int version, int file, struct stat *out);
int __fxstatat(int version, int folder, const char *path, struct stat *out, int flags);

int stat(const char *path, struct stat *out) { return __xstat(STAT_VERSION, path, out); }
int lstat(const char *path, struct stat *out) { return __lxstat(STAT_VERSION, path, out); }
int fstat(int file, struct stat *out) { return __fxstat(STAT_VERSION, file, out); }
int fstatat(int folder, const char *path, struct stat *out, int flags) {
    return __fxstatat(STAT_VERSION, folder, path, out, flags);
}

/* The two structures are one where off_t has 64 bits anyway. */
int stat64(const char *path, struct stat64 *out) { return stat(path, (struct stat *)out); }
int lstat64(const char *path, struct stat64 *out) { return lstat(path, (struct stat *)out); }
int fstat64(int file, struct stat64 *out) { return fstat(file, (struct stat *)out); }
int fstatat64(int folder, const char *path, struct stat64 *out, int flags) {
    return fstatat(folder, path, (struct stat *)out, flags);
}

/* Came with glibc 2.30. */
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }
