/* Rank 1 spawns processes that write; the launcher of theirs must be reaped when it has ended. Where
 * hosts are namespaces of one machine, rank 1 sees all processes. */
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The number of zombies whose parent is the process that talks to the hosts. */
static int zombies(void)
{
    DIR *all = opendir("/proc");
    int found = 0;
    for (struct dirent *one; all && (one = readdir(all));) {
        char path[300], name[64], parent_name[64] = "", state;
        int parent;
        snprintf(path, sizeof path, "/proc/%s/stat", one->d_name);
        FILE *file = fopen(path, "r");
        if (!file)
            continue;
        if (fscanf(file, "%*d (%63[^)]) %c %d", name, &state, &parent) == 3 && state == 'Z') {
            snprintf(path, sizeof path, "/proc/%d/comm", parent);
            FILE *comm = fopen(path, "r");
            if (comm) {
                if (fscanf(comm, "%63s", parent_name) == 1 && getenv("MARGAY_TEST_MARK") &&
                    !strcmp(parent_name, "margay-relay") &&
                    (!strcmp(name, "mpiexec") || !strcmp(name, "margay")))
                    found++;
                fclose(comm);
            }
        }
        fclose(file);
    }
    if (all)
        closedir(all);
    return found;
}

int main(int argc, char **argv)
{
    MPI_Comm parent, children;
    int me;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    if (parent != MPI_COMM_NULL) {
        printf("child %d speaks\n", me);
        MPI_Comm_disconnect(&parent);
    } else if (me == 1) {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_SELF, &children,
                       MPI_ERRCODES_IGNORE);
        MPI_Comm_disconnect(&children);
        struct timespec pause = {0, 100000000};
        int turns = 0;
        /* Its launcher ends a little later, and is reaped within a second. */
        do
            nanosleep(&pause, NULL);
        while (++turns < 30 || (zombies() && turns < 300));
        puts(zombies() ? "zombies" : "no zombies");
    }
    MPI_Finalize();
    return 0;
}
