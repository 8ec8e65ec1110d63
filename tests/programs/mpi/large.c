/*
 * Counts beyond 2^31. With little memory: a datatype whose elements overlap has three thousand million of them in a few
 * bytes. With the argument `real`: two ranks with a buffer of more than 2 GiB each.
 */
#include "check.h"

static int rank;

#define MANY ((MPI_Count)3000000000)
#define REAL (((MPI_Count)1 << 31) + 4099)
#define MIB ((MPI_Count)1 << 20)

/* 3 * 10^9 chars that are all at the same address: a vector of vectors with stride 0. */
static void overlapping(void)
{
    MPI_Datatype row, all;
    MPI_Count size, lb, extent, count;
    MPI_Type_create_hvector_c(1000000, 1, 0, MPI_CHAR, &row);
    MPI_Type_create_resized_c(row, 0, 1, &all);
    MPI_Type_free(&row);
    row = all;
    MPI_Type_create_hvector_c(3000, 1, 0, row, &all);
    MPI_Type_commit(&all);
    MPI_Type_size_c(all, &size);
    CHECK(size == MANY);
    int small;
    MPI_Type_size(all, &small);
    CHECK(small == MPI_UNDEFINED);
    MPI_Type_get_extent_c(all, &lb, &extent);
    CHECK(lb == 0 && extent == 1);
    MPI_Count packed;
    MPI_Pack_size_c(2, all, MPI_COMM_WORLD, &packed);
    CHECK(packed >= 2 * MANY);
    MPI_Status status;
    MPI_Status_set_elements_c(&status, all, 2);
    MPI_Get_elements_c(&status, all, &count);
    CHECK(count == 2);
    MPI_Get_count_c(&status, MPI_CHAR, &count);
    CHECK(count == 2);
    MPI_Type_free(&all);
    MPI_Type_free(&row);
}

/* Byte `i` of the contents number `seed`; the same through each MiB. */
static unsigned char byte(int seed, MPI_Count i) { return (unsigned char)(seed * 37 + (i / MIB) * 11 + (i / (MIB * 200)) * 5); }

static void fill(unsigned char *buffer, int seed)
{
    for (MPI_Count i = 0; i < REAL; i += MIB)
        memset(buffer + i, byte(seed, i), (size_t)(REAL - i < MIB ? REAL - i : MIB));
}

static void compare(const unsigned char *buffer, int seed)
{
    for (MPI_Count i = 0; i < REAL; i += MIB) {
        MPI_Count end = REAL - i < MIB ? REAL : i + MIB;
        for (MPI_Count at = i; at < end; at += 509) CHECK(buffer[at] == byte(seed, i));
        CHECK(buffer[end - 1] == byte(seed, i));
    }
}

static void real(void)
{
    unsigned char *buffer = malloc((size_t)REAL), *other;
    MPI_Status status;
    MPI_Count count;
    int small;
    CHECK(buffer != NULL);
    if (rank == 0) {
        fill(buffer, 1);
        MPI_Send_c(buffer, REAL, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    } else {
        MPI_Recv_c(buffer, REAL, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &status);
        MPI_Get_count_c(&status, MPI_BYTE, &count);
        MPI_Get_count(&status, MPI_BYTE, &small);
        CHECK(count == REAL && small == MPI_UNDEFINED);
        compare(buffer, 1);
        fill(buffer, 2);
    }
    MPI_Bcast_c(buffer, REAL, MPI_BYTE, 1, MPI_COMM_WORLD);
    if (rank == 0) compare(buffer, 2);
    MPI_Allreduce_c(MPI_IN_PLACE, buffer, REAL, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD);
    for (MPI_Count i = 0; i < REAL; i += 4093) CHECK(buffer[i] == 0);

    MPI_Win window;
    MPI_Win_allocate_c(REAL, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &other, &window);
    MPI_Win_fence(0, window);
    if (rank == 0) {
        fill(buffer, 3);
        MPI_Put_c(buffer, REAL, MPI_BYTE, 1, 0, REAL, MPI_BYTE, window);
    }
    MPI_Win_fence(0, window);
    if (rank == 1) compare(other, 3);
    MPI_Win_free(&window);
    free(buffer);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc > 1 && strcmp(argv[1], "real") == 0) real();
    else overlapping();
    return finish();
}
