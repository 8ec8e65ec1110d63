/* A region with barriers, with as many members as the process's limits allow. */
#include <omp.h>
#include <stdio.h>

int main(void) {
    int members = 0, arrived = 0;
#pragma omp parallel reduction(+ : arrived)
    {
#pragma omp single
        members = omp_get_num_threads();
#pragma omp barrier
        arrived += 1;
#pragma omp barrier
    }
    if (arrived != members) {
        printf("%d of %d members\n", arrived, members);
        return 2;
    }
    printf("%d members PASSED\n", members);
    return 0;
}
