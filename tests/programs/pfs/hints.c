/* MPI-IO lays a new file out as its hints ask, as far as the parallel file system can: the arguments
   are a name for the file, the hints for unit and factor, and what has to come of them. An existing
   file stays as it is. */
#include "../mpi/check.h"

static void asked(const char *name, int mode, const char *unit, const char *factor, const char *is_unit,
                  const char *is_factor)
{
    static const char *const keys[] = { "striping_unit", "striping_factor" };
    const char *wanted[] = { unit, factor }, *expected[] = { is_unit, is_factor };
    MPI_File file;
    MPI_Info info;
    MPI_Info_create(&info);
    for (int i = 0; i < 2; i++) MPI_Info_set(info, keys[i], wanted[i]);
    CHECK(MPI_File_open(MPI_COMM_WORLD, name, mode, info, &file) == MPI_SUCCESS);
    MPI_Info_free(&info);
    MPI_File_get_info(file, &info);
    for (int i = 0; i < 2; i++) {
        char value[MPI_MAX_INFO_VAL + 1];
        int flag;
        MPI_Info_get(info, keys[i], MPI_MAX_INFO_VAL, value, &flag);
        CHECK(flag && strcmp(value, expected[i]) == 0);
    }
    MPI_Info_free(&info);
    int rank, length = 300000;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *bytes = malloc(length);
    memset(bytes, 'a' + rank, length);
    CHECK(MPI_File_write_at_all(file, (MPI_Offset)rank * length, bytes, length, MPI_BYTE, MPI_STATUS_IGNORE) ==
          MPI_SUCCESS);
    memset(bytes, 0, length);
    CHECK(MPI_File_read_at_all(file, (MPI_Offset)rank * length, bytes, length, MPI_BYTE, MPI_STATUS_IGNORE) ==
          MPI_SUCCESS);
    CHECK(bytes[0] == 'a' + rank && bytes[length - 1] == 'a' + rank);
    free(bytes);
    MPI_File_close(&file);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    CHECK(argc == 6);
    int mode = MPI_MODE_CREATE | MPI_MODE_RDWR;
    asked(argv[1], mode, argv[2], argv[3], argv[4], argv[5]);
    asked(argv[1], mode, "65536", "1", argv[4], argv[5]);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) puts("ok");
    MPI_Finalize();
    return 0;
}
