/* Nodes of NX that wait for each other. */
#include <nx.h>
#include <stdio.h>

int main(void)
{
    char buf[8];
    printf("ready\n");
    fflush(stdout);
    crecv(5 + (int)mynode(), buf, sizeof buf); /* LINE receive */
    return 0;
}
