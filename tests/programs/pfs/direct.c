/* MPI-IO on a parallel file system, past the kernel: what one rank writes with MPI, another one reads through the mount and the other
   way round; a rank that has forked; the end of the file. The arguments are a name for the file, and whether there is a direct way. */
#include "../mpi/check.h"
#include "mapped.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LENGTH = 3000001 };

static unsigned char bytes[LENGTH], seen[LENGTH];

static void fill(int seed)
{
    for (int i = 0; i < LENGTH; i++) bytes[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

int main(int argc, char **argv)
{
    int rank, code = MPI_Init(&argc, &argv);
    MPI_File file;
    MPI_Status status;
    CHECK(code == MPI_SUCCESS && argc == 3);
    int direct = atoi(argv[2]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    code = MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    CHECK(code == MPI_SUCCESS);
    int fd = open(argv[1], O_RDWR);
    CHECK(fd >= 0 && !has_direct());
    for (int turn = 0; turn < 6; turn++) {
        fill(turn);
        if (rank == turn % 2)
            CHECK(MPI_File_write_at(file, turn * 777, bytes, LENGTH, MPI_BYTE, &status) == MPI_SUCCESS);
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(pread(fd, seen, LENGTH, turn * 777) == LENGTH);
        CHECK(memcmp(seen, bytes, LENGTH) == 0);
        MPI_Barrier(MPI_COMM_WORLD);
        fill(turn + 100);
        if (rank == turn % 2) CHECK(pwrite(fd, bytes, LENGTH, turn * 555) == LENGTH);
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(MPI_File_read_at(file, turn * 555, seen, LENGTH, MPI_BYTE, &status) == MPI_SUCCESS);
        CHECK(memcmp(seen, bytes, LENGTH) == 0);
        CHECK(has_direct() == direct);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    /* A child has the connection as well, and ends while its parent uses it. */
    MPI_Offset own = (MPI_Offset)(rank + 2) * LENGTH;
    fill(rank);
    pid_t child = fork();
    if (child == 0) _exit(pwrite(fd, bytes, 5000, own + LENGTH - 5000) == 5000 ? 7 : 1);
    for (int i = 0; i < 20; i++) {
        CHECK(MPI_File_write_at(file, own, bytes, LENGTH - 5000, MPI_BYTE, &status) == MPI_SUCCESS);
        CHECK(MPI_File_read_at(file, own, seen, LENGTH - 5000, MPI_BYTE, &status) == MPI_SUCCESS);
        CHECK(memcmp(seen, bytes, LENGTH - 5000) == 0);
    }
    int end;
    CHECK(waitpid(child, &end, 0) == child && WIFEXITED(end) && WEXITSTATUS(end) == 7);
    CHECK(MPI_File_read_at(file, own + LENGTH - 5000, seen, 5000, MPI_BYTE, &status) == MPI_SUCCESS);
    CHECK(memcmp(seen, bytes, 5000) == 0);
    /* Behind the end. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_set_size(file, 1000);
    int count = -1;
    CHECK(MPI_File_read_at(file, 900, seen, LENGTH, MPI_BYTE, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == 100);
    close(fd);
    CHECK(MPI_File_close(&file) == MPI_SUCCESS && !has_direct());
    return finish();
}
