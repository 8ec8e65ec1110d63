/* As programs of the iPSC and the Delta were: in the first C, without prototypes, so that numbers come as ints. */
extern double dclock();

int failed(n) int n;
{
    printf("check %d failed\n", n);
    exit(1);
}

int main() {
    int me = mynode(), nodes = numnodes(), id, x, y, work;
    x = me;
    if (nodes > 1) csend(7, &x, sizeof x, -1, 0);
    for (work = 1; work < nodes; work++) {
        crecv(-1, &y, sizeof y);
        if (infocount() != sizeof y || infonode() != y || infotype() != 7) failed(1);
    }
    gsync();
    if (_csend(8, &x, sizeof x, nodes, 0) != -1 || _setptype(-1) != -1) failed(2);
    id = irecv(9, &y, sizeof y);
    if (id <= 0) failed(3);
    csend(9, &x, sizeof x, me, 0);
    while (!msgdone(id)) flick();
    msgwait(id);
    if (_msgwait(id) != -1 || y != me) failed(4);
    if (_msgmerge(-1, -1) != -1) failed(5);
    x = iprobe(-1);
    if (x != 0) failed(6);
    gsync();
    if (me == 0) puts("ok");
    return 0;
}
