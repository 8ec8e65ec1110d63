/* Two programs on the same nodes: processes of type 0 and of type 1 (started with -pt 1). */
#include "check.h"

int main(void) {
    long me = mynode(), nodes = numnodes(), mine = myptype(), value, work, info[8];
    /* Global operations are among those of one type. */
    value = mine + 1;
    gisum(&value, 1, &work);
    CHECK(value == nodes * (mine + 1));
    /* To the neighbour of the other type on the same node, and round the ring of the processes of
     * the same type. */
    long word = 100 * mine + me;
    csend(1, &word, sizeof word, me, 1 - mine);
    crecv(1, &value, sizeof value);
    CHECK(value == 100 * (1 - mine) + me && infonode() == me && infoptype() == 1 - mine);
    csend(2, &word, sizeof word, (me + 1) % nodes, mine);
    crecvx(2, &value, sizeof value, -1, mine, info);
    CHECK(value == 100 * mine + (me + nodes - 1) % nodes && info[3] == mine);
    CHECK(_csend(1, &word, 8, me, 7) == -1 && errno == EQPID);
    CHECK(_setptype(1 - mine) == -1 && errno == EQPID);
    gsync();
    if (me == 0) printf("ok %ld\n", mine);
}
