/* MPI-IO on a parallel file system: its layout is known, collective writes of interleaved blocks are
   right whatever the alignment, and so are atomic mode and the shared pointer. The arguments are a
   name for the file, the unit and the factor. */
#include "../mpi/check.h"

enum { BLOCK = 5000, BLOCKS = 300, SKIP = 1234 };

static int rank, size;

static void layout(MPI_File file, const char *unit, const char *factor)
{
    char value[MPI_MAX_INFO_VAL + 1];
    int flag;
    MPI_Info info;
    MPI_File_get_info(file, &info);
    MPI_Info_get(info, "striping_unit", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(flag && strcmp(value, unit) == 0);
    MPI_Info_get(info, "striping_factor", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(flag && strcmp(value, factor) == 0);
    MPI_Info_free(&info);
}

static unsigned char byte_of(int owner, long at)
{
    return (unsigned char)(owner * 37 + at * 11 + at / 253);
}

static void interleaved(MPI_File file)
{
    MPI_Datatype blocks;
    unsigned char *mine = malloc(BLOCK * BLOCKS), *all = malloc((size_t)BLOCK * BLOCKS * size);
    MPI_Type_vector(BLOCKS, BLOCK, BLOCK * size, MPI_BYTE, &blocks);
    MPI_Type_commit(&blocks);
    for (long i = 0; i < BLOCK * BLOCKS; i++) mine[i] = byte_of(rank, i);
    MPI_File_set_view(file, SKIP + (MPI_Offset)rank * BLOCK, MPI_BYTE, blocks, "native", MPI_INFO_NULL);
    CHECK(MPI_File_write_at_all(file, 0, mine, BLOCK * BLOCKS, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    memset(mine, 0, BLOCK * BLOCKS);
    CHECK(MPI_File_read_at_all(file, 0, mine, BLOCK * BLOCKS, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    int wrong = 0;
    for (long i = 0; i < BLOCK * BLOCKS; i++) wrong += mine[i] != byte_of(rank, i);
    CHECK(wrong == 0);
    MPI_File_set_view(file, SKIP, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    CHECK(MPI_File_read_at(file, 0, all, BLOCK * BLOCKS * size, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (long i = 0; i < (long)BLOCK * BLOCKS * size; i++) {
        long block = i / BLOCK;
        wrong += all[i] != byte_of((int)(block % size), block / size * BLOCK + i % BLOCK);
    }
    CHECK(wrong == 0);
    MPI_Type_free(&blocks);
    free(mine);
    free(all);
}

/* Each read sees one write as a whole, and every record of the shared pointer has one writer. */
static void whole(MPI_File file)
{
    enum { LENGTH = 300000, TIMES = 20 };
    unsigned char *bytes = malloc(LENGTH);
    int wrong = 0, own = 0;
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_File_set_size(file, 0);
    MPI_File_set_atomicity(file, 1);
    memset(bytes, rank + 1, LENGTH);
    MPI_File_write_at(file, 1000, bytes, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE);
    for (int i = 0; i < TIMES; i++) {
        memset(bytes, rank + 1, LENGTH);
        MPI_File_write_at(file, 1000, bytes, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_File_read_at(file, 1000, bytes, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE);
        for (int k = 1; k < LENGTH; k++) wrong += bytes[k] != bytes[0];
    }
    CHECK(wrong == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_set_size(file, 0);
    memset(bytes, rank + 1, LENGTH);
    for (int i = 0; i < TIMES; i++) MPI_File_write_shared(file, bytes, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < TIMES * size; i++) {
        MPI_File_read_at(file, (MPI_Offset)i * BLOCK, bytes, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
        for (int k = 1; k < BLOCK; k++) wrong += bytes[k] != bytes[0];
        own += bytes[0] == rank + 1;
    }
    CHECK(wrong == 0 && own == TIMES);
    free(bytes);
}

int main(int argc, char **argv)
{
    MPI_File file;
    MPI_Info info;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(argc == 4);
    for (int nodes = 1; nodes <= size; nodes++) {
        char number[20];
        snprintf(number, sizeof number, "%d", nodes);
        MPI_Info_create(&info);
        MPI_Info_set(info, "cb_nodes", number);
        MPI_Info_set(info, "cb_buffer_size", "1000000");
        MPI_Info_set(info, "romio_cb_write", "enable");
        MPI_Info_set(info, "romio_cb_read", "enable");
        /* The file system has decided. */
        MPI_Info_set(info, "striping_unit", "1000");
        CHECK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file) == MPI_SUCCESS);
        MPI_Info_free(&info);
        layout(file, argv[2], argv[3]);
        interleaved(file);
        if (nodes == 1) whole(file);
        MPI_File_close(&file);
    }
    return finish();
}
