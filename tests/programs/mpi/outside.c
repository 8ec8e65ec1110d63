/* Calls at the wrong time, and errors that are fatal. The argument chooses. */
#include "check.h"

static int say(MPI_Comm comm, int key, void *value, void *state)
{
    int flag;
    (void)comm, (void)key, (void)state;
    MPI_Finalized(&flag);
    printf("deleted %s%s\n", (char *)value, flag ? " too late" : "");
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    int x = 0, key, rank;
    if (!strcmp(which, "before"))
        MPI_Comm_rank(MPI_COMM_WORLD, &x);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!strcmp(which, "fatal") && rank == 1)
        MPI_Send(&x, 1, MPI_INT, 77, 3, MPI_COMM_WORLD);
    if (!strcmp(which, "abort") && rank == 1)
        MPI_Abort(MPI_COMM_WORLD, 42);
    if (!strcmp(which, "twice"))
        MPI_Init(&argc, &argv);
    if (!strcmp(which, "attribute")) {
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, say, &key, NULL);
        MPI_Comm_set_attr(MPI_COMM_SELF, key, "first");
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, say, &key, NULL);
        MPI_Comm_set_attr(MPI_COMM_SELF, key, "second");
    }
    if (!strcmp(which, "fatal") || !strcmp(which, "abort"))
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    MPI_Finalized(&x);
    if (!x)
        return 1;
    if (!strcmp(which, "after"))
        MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}
