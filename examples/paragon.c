/* Pi on the nodes of a Paragon, with the calls of NX, and the time that a message takes around the ring.
 *
 *     mpicc examples/paragon.c -lnx -o paragon
 *     ./paragon -sz 4                  as on the Paragon: the program starts itself on 4 nodes
 *     mpiexec -n 4 ./paragon           the same through the launcher
 *
 * NX needs no call to begin or to end: a program joins at its first call, and a return from main ends it. */
#include <nx.h>
#include <stdio.h>

enum { INTERVALS = 1000000, ROUNDS = 100 };

/* Types tell messages apart, as tags do in MPI. */
enum { RING = 7 };

int main(void)
{
    long me = mynode(), nodes = numnodes();

    /* The integral of 4 / (1 + x * x) from 0 to 1 is pi. Each node takes every nodes-th interval. */
    double width = 1.0 / INTERVALS, pi = 0.0, work;
    for (long i = me; i < INTERVALS; i += nodes) {
        double x = (i + 0.5) * width;
        pi += 4.0 * width / (1.0 + x * x);
    }
    /* Adds up over all nodes; each of them gets the sum. The last argument is memory for the call to work with. */
    gdsum(&pi, 1, &work);

    /* A number travels around the ring, and each node adds 1. Node 0 begins, so it sends first and receives last. The
     * last argument of csend is the process type: all processes of this program have the type 0. */
    long next = (me + 1) % nodes, count = 0;
    gsync();
    double start = dclock();
    for (int round = 0; round < ROUNDS; round++) {
        if (me == 0) {
            count++;
            csend(RING, &count, sizeof count, next, 0);
            crecv(RING, &count, sizeof count);
        } else {
            crecv(RING, &count, sizeof count);
            count++;
            csend(RING, &count, sizeof count, next, 0);
        }
    }
    double seconds = dclock() - start;

    if (me == 0) {
        printf("pi is %.10f, computed by %ld nodes\n", pi, nodes);
        printf("the ring counted %ld, with %.2f microseconds for each message\n", count, 1e6 * seconds / count);
    }
    return 0;
}
