/* A command under its other name in an environment: wheels have no symbolic links. It becomes the program `margay` of its folder
   and keeps its own name, which tells margay what to do. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM "margay"

int main(int argc, char **argv) {
    char path[PATH_MAX + sizeof PROGRAM];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    if (argc > 0 && length > 0) {
        char *name = memrchr(path, '/', (size_t)length) + 1;
        memcpy(name, PROGRAM, sizeof PROGRAM);
        execv(path, argv);
        fprintf(stderr, "%s: cannot start '%s': %s; install margay-mpi again\n", argv[0], path, strerror(errno));
    } else {
        fprintf(stderr, "margay: cannot read /proc/self/exe: %s; mount /proc\n", strerror(errno));
    }
    return 127;
}
