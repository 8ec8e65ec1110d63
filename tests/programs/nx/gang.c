/* Computes until the file "end" is there; with an argument its application has that priority from then on. Says on which core each
 * process may run. */
#include <nx.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    cpu_set_t set;
    if (argc > 2 && nx_pri(-1, atol(argv[2])) != 0) return 1;
    if (argc > 1)
        while (access(argv[1], F_OK) != 0) continue;
    sched_getaffinity(0, sizeof set, &set);
    int first = 0;
    while (!CPU_ISSET(first, &set)) first++;
    printf("node %ld of %ld: %d core, the first %d %ld\n", mynode(), numnodes(), CPU_COUNT(&set), first, myphysnode());
    return 0;
}
