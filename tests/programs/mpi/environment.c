/* Environment: versions, time, info objects, memory, threads, profiling control. */
#include "check.h"

int main(int argc, char **argv)
{
    int flag, a, b, length, buflen, provided;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Initialized(&flag);
    CHECK(!flag);
    MPI_Get_version(&a, &b);
    CHECK(a == MPI_VERSION && b == MPI_SUBVERSION);
    MPI_Abi_get_version(&a, &b);
    CHECK(a == 1 && b == 0);
    MPI_Get_library_version(text, &length);
    CHECK(strstr(text, "Margay") && length == (int)strlen(text));

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    CHECK(provided == MPI_THREAD_FUNNELED);
    MPI_Initialized(&flag);
    CHECK(flag);
    MPI_Finalized(&flag);
    CHECK(!flag);
    MPI_Query_thread(&provided);
    CHECK(provided == MPI_THREAD_FUNNELED);
    MPI_Is_thread_main(&flag);
    CHECK(flag);
    MPI_Get_processor_name(text, &length);
    CHECK(length > 0 && length == (int)strlen(text));
    double before = MPI_Wtime(), after = before;
    while (after == before)
        after = MPI_Wtime();
    CHECK(after > before && after - before < 1 && MPI_Wtick() > 0 && MPI_Wtick() < 1e-3);
    MPI_Pcontrol(1, "ignored", 3.0);

    MPI_Info info, twin;
    MPI_Info_create(&info);
    MPI_Info_set(info, "one", "1");
    MPI_Info_set(info, "two", "22");
    MPI_Info_set(info, "one", "eleven");
    MPI_Info_get_nkeys(info, &a);
    MPI_Info_get_nthkey(info, 1, text);
    CHECK(a == 2 && strcmp(text, "two") == 0);
    buflen = 4;
    MPI_Info_get_string(info, "one", &buflen, text, &flag);
    CHECK(flag && buflen == 7 && strcmp(text, "ele") == 0);
    MPI_Info_get(info, "one", 100, text, &flag);
    CHECK(flag && strcmp(text, "eleven") == 0);
    MPI_Info_get_valuelen(info, "two", &a, &flag);
    CHECK(flag && a == 2);
    MPI_Info_dup(info, &twin);
    MPI_Info_delete(info, "one");
    MPI_Info_get(info, "one", 100, text, &flag);
    CHECK(!flag);
    MPI_Info_get(twin, "one", 100, text, &flag);
    CHECK(flag);
    MPI_Comm_set_info(MPI_COMM_SELF, twin);
    MPI_Info_free(&info);
    MPI_Info_free(&twin);
    CHECK(info == MPI_INFO_NULL);
    MPI_Comm_get_info(MPI_COMM_SELF, &info);
    MPI_Info_get_nkeys(info, &a);
    MPI_Info_free(&info);
    MPI_Info_get(MPI_INFO_ENV, "maxprocs", 100, text, &flag);
    MPI_Comm_size(MPI_COMM_WORLD, &b);
    CHECK(flag && atoi(text) == b);

    /* Shared memory: sent to everybody, freed, used again. */
    for (long bytes = 1; bytes < 100000000; bytes *= 41) {
        char *shared;
        int rank;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Alloc_mem(bytes, MPI_INFO_NULL, &shared);
        memset(shared, rank == 0 ? 7 : 0, bytes);
        MPI_Bcast(shared, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
        CHECK(shared[0] == 7 && shared[bytes - 1] == 7);
        MPI_Free_mem(shared);
    }
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
    CHECK(MPI_Type_toint(MPI_INT) == 0x209);
    return finish();
}
