/* A rank with tasks of IML: one waits for others in a group, one of which computes for ever; one waits for a message. A loop
 * with another word; with "none" there was a loop, and it sleeps. */
#include <iml.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int never;

static void computes(void *word)
{
    (void)word;
    while (!never) { /* LINE computes */
    }
}

static void forks(void *word)
{
    iml_group_t group;
    iml_GroupBegin(&group);
    iml_Spawn(&group, computes, word);
    iml_Wait(&group); /* LINE forks */
}

static void receives(void *word)
{
    (void)word;
    int number;
    printf("ready\n");
    fflush(stdout);
    MPI_Recv(&number, 1, MPI_INT, 0, 5, MPI_COMM_SELF, MPI_STATUS_IGNORE); /* LINE receives */
}

static void chunk(int64_t begin, int64_t end, void *word)
{
    (void)end;
    if (begin == 0) {
        receives(word);
    } else {
        computes(word);
    }
}

static void nothing(int64_t begin, int64_t end, void *word)
{
    (void)begin, (void)end, (void)word;
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (argc > 1 && strcmp(argv[1], "none") == 0) {
        iml_For(0, 2, 1, nothing, NULL, NULL);
        printf("ready\n");
        fflush(stdout);
        pause();
    } else if (argc > 1) {
        iml_For(0, 2, 1, chunk, NULL, NULL); /* LINE loop */
    } else {
        iml_Both(forks, NULL, receives, NULL); /* LINE both */
    }
    MPI_Finalize();
    return 0;
}
