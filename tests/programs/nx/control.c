/* A controlling process: forks the nodes, or loads other programs, and awaits them. */
#include "check.h"

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "node")) {
        /* A program that was loaded: its arguments say how many nodes there are. */
        double x = mynode() + 1, work;
        gdsum(&x, 1, &work);
        CHECK(argc == 3 && myptype() == 4 && numnodes() == atol(argv[2]) && x == numnodes() * (numnodes() + 1) / 2);
        if (mynode() == 0) puts("loaded");
        return 0;
    }
    const char *how = argc > 1 ? argv[1] : "";
    long nodes, pids[64], rows, cols;
    if (!strcmp(how, "rectangle"))
        nodes = nx_initve_rect(NULL, -1, 2, 2, NULL, &argc, argv);
    else if (!strcmp(how, "attributes"))
        nodes = nx_initve_attr(NULL, &argc, argv, NX_ATTR_RECT, 2, 2, NX_ATTR_PRI, 5, NX_ATTR_END);
    else
        nodes = nx_initve(NULL, 3, NULL, &argc, argv);
    CHECK(numnodes() == nodes && myhost() == nodes);
    const char *what = argc > 1 ? argv[1] : "fork";
    if (strcmp(what, "again")) CHECK(mynode() == nodes && myptype() == 0);
    int inherited = 4711;
    if (!strcmp(what, "load")) {
        char count[8];
        snprintf(count, sizeof count, "%ld", nodes);
        char *arguments[] = {argv[0], "node", count, NULL};
        /* In two steps, the last node first. */
        CHECK(nx_loadve((long[]){nodes - 1}, 1, 4, pids, argv[0], arguments, NULL) == 1);
        long rest[64];
        for (long i = 0; i < nodes - 1; i++) rest[i] = i;
        CHECK(nx_loadve(rest, nodes - 1, 4, pids + 1, argv[0], arguments, NULL) == nodes - 1);
        CHECK(_nx_load(NULL, -1, 0, NULL, argv[0]) == -1 && errno == EQNODE);
        CHECK(nx_waitall() == 0);
        puts("waited");
        return 0;
    }
    fflush(NULL);
    long made = nx_nfork(NULL, -1, 2, pids);
    if (made == 0) {
        CHECK(inherited == 4711 && numnodes() == nodes && myptype() == 2);
        long sum = 1, work, from;
        gisum(&sum, 1, &work);
        CHECK(sum == nodes);
        csend(5, &sum, sizeof sum, (mynode() + 1) % nodes, 2);
        crecv(5, &from, sizeof from);
        CHECK(infonode() == (mynode() + nodes - 1) % nodes && infoptype() == 2 && infopid() == 2);
        mypart(&rows, &cols);
        if ((!strcmp(how, "rectangle") || !strcmp(how, "attributes")) && mynode() == 0) printf("%ldx%ld\n", rows, cols);
        if (!strcmp(what, "fail") && mynode() == 1) abort();
        if (!strcmp(what, "fail")) crecv(6, &from, sizeof from);
        if (mynode() == 0) puts("forked");
        return 0;
    }
    CHECK(made == nodes && pids[0] > 0);
    CHECK(nx_waitall() == 0);
    puts("waited");
    return 0;
}
