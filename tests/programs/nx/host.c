/* The controlling process and its nodes pass messages. */
#include "check.h"
#include <mpi.h>

enum { LONG = 1 << 18, TASK = 1, ANSWER = 2, BIG = 3, LAST = 4 };

/* A node: gets a number from the host, returns it to it, long as well, and takes part in what is among the nodes. */
static int node(long type_of_host) {
    long number, host = myhost(), sum = 1, work;
    static long big[LONG];
    CHECK(mynode() < host && numnodes() == host);
    crecvx(TASK, &number, sizeof number, host, -1, msginfo);
    CHECK(infonode() == host && infoptype() == type_of_host && number == 100 + mynode());
    gisum(&sum, 1, &work);
    CHECK(sum == numnodes());
    number++;
    csend(ANSWER, &number, sizeof number, host, type_of_host);
    for (int i = 0; i < LONG; i++) big[i] = i + mynode();
    csend(BIG, big, sizeof big, host, type_of_host);
    /* From the host to all. */
    crecv(LAST, &number, sizeof number);
    CHECK(number == 7 && infonode() == host);
    gsync();
    return 0;
}

static void ask(long nodes) {
    long number;
    for (long n = 0; n < nodes; n++) {
        number = 100 + n;
        csend(TASK, &number, sizeof number, n, 2);
    }
    for (long n = 0; n < nodes; n++) {
        crecv(ANSWER, &number, sizeof number);
        CHECK(number == 101 + infonode() && infoptype() == 2);
    }
}

/* What was sent is received although the nodes have ended meanwhile, or their host waits. */
static void take(long nodes, long (*big)[LONG], long *mids) {
    long number = 7;
    for (long n = 0; n < nodes; n++) mids[n] = irecvx(BIG, big[n], sizeof big[n], n, -1, msginfo);
    csend(LAST, &number, sizeof number, -1, 2);
    CHECK(nx_waitall() == 0);
    for (long n = 0; n < nodes; n++) {
        msgwait(mids[n]);
        CHECK(big[n][0] == n && big[n][LONG - 1] == LONG - 1 + n);
    }
}

int main(int argc, char **argv) {
    static long big[4][LONG];
    long pids[8], mids[4], number;
    const char *what = argc > 1 ? argv[1] : "fork";
    if (!strcmp(what, "node")) return node(3);
    if (!strcmp(what, "cube")) {
        /* As hosts of the iPSC. */
        getcube("mine", "d1", NULL, 0);
        setpid(3);
        CHECK(numnodes() == 2 && mynode() == 2);
        char *arguments[] = {argv[0], "node", NULL};
        CHECK(nx_loadve(NULL, -1, 2, pids, argv[0], arguments, NULL) == 2);
        ask(2);
        killcube(-1, -1);
        waitall(-1, -1);
        relcube("mine");
        puts("cube");
        return 0;
    }
    long nodes = nx_initve(NULL, 3, NULL, &argc, argv);
    CHECK(nodes == 3 && mynode() == 3 && myhost() == 3 && numnodes() == 3 && myptype() == 0);
    setptype(9);
    CHECK(myptype() == 9);
    fflush(NULL);
    if (nx_nfork(NULL, -1, 2, pids) == 0) {
        if (!strcmp(what, "mpi")) {
            int size, rank, all = 1;
            MPI_Init(NULL, NULL);
            MPI_Comm_size(MPI_COMM_WORLD, &size);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            CHECK(size == 3 && rank == mynode() && all == 3);
            MPI_Finalize();
        }
        if (!strcmp(what, "dies") && mynode() == 1) abort();
        return node(9);
    }
    if (!strcmp(what, "dies")) {
        CHECK(_crecvx(ANSWER, &number, sizeof number, 1, -1, msginfo) == -1);
        puts("noticed");
        killcube(-1, -1);
        CHECK(_nx_waitall() == -1);
        return 0;
    }
    ask(nodes);
    CHECK(_nx_nfork(NULL, -1, 2, pids) == -1 && errno == EQNODE);
    CHECK(_gsync() == -1 && errno == EQSTATE);
    take(nodes, big, mids);
    if (!strcmp(what, "mpi")) {
        int size;
        MPI_Init(NULL, NULL);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        CHECK(size == 1);
        MPI_Finalize();
    }
    puts("waited");
    return 0;
}
