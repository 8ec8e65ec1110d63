/* A program that makes a partition, runs its application in it and removes it, as those of the Paragon did. Its arguments may be an
 * account, and a file for which its nodes wait. */
#include <nx.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    long node[] = {0}, pids[8];
    const char *account = argc > 1 && argv[1][0] != '-' ? argv[1] : "", *file = *account && argc > 2 ? argv[2] : NULL;
    if (nx_mkpart_map("own", 1, node, NX_STD) != 1) return 1;
    long nodes = nx_initve("own", 0, account, &argc, argv);
    fflush(NULL);
    if (nx_nfork(NULL, -1, 0, pids) == 0) {
        cpu_set_t set;
        sched_getaffinity(0, sizeof set, &set);
        gsync();
        printf("node %ld of %ld has %d core\n", mynode(), numnodes(), CPU_COUNT(&set));
        fflush(NULL);
        while (file && access(file, F_OK) != 0) usleep(1000);
        return 0;
    }
    nx_waitall();
    if (nx_rmpart("own", 0, 0) != 0) return 1;
    printf("%ld nodes\n", nodes);
    return 0;
}
