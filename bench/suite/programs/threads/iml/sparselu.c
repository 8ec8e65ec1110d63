/* Sparse LU factorization by a group of IML's tasks, which one thread makes. */
#include "../sparselu.h"
#include "../by_iml.h"

/* Blocks by their place: what is done to (i, j) in step k. */
typedef struct { int i, j, k; } Place;

static Place places[SPARSELU_BLOCKS][SPARSELU_BLOCKS];

static void forward(void *argument) {
    const Place *at = argument;
    sparselu_forward(sparselu[at->k][at->k], sparselu[at->i][at->j]);
}

static void divide(void *argument) {
    const Place *at = argument;
    sparselu_divide(sparselu[at->k][at->k], sparselu[at->i][at->j]);
}

static void update(void *argument) {
    const Place *at = argument;
    sparselu_update(sparselu[at->i][at->k], sparselu[at->k][at->j], &sparselu[at->i][at->j]);
}

static void body(void) {
    iml_group_t group;
    iml_GroupBegin(&group);
    for (int k = 0; k < SPARSELU_BLOCKS; k++) {
        for (int i = k; i < SPARSELU_BLOCKS; i++)
            for (int j = k; j < SPARSELU_BLOCKS; j++) places[i][j] = (Place){i, j, k};
        sparselu_factor(sparselu[k][k]);
        for (int j = k + 1; j < SPARSELU_BLOCKS; j++)
            if (sparselu[k][j]) iml_Spawn(&group, forward, &places[k][j]);
        for (int i = k + 1; i < SPARSELU_BLOCKS; i++)
            if (sparselu[i][k]) iml_Spawn(&group, divide, &places[i][k]);
        iml_Wait(&group);
        for (int i = k + 1; i < SPARSELU_BLOCKS; i++)
            for (int j = k + 1; j < SPARSELU_BLOCKS; j++)
                if (sparselu[i][k] && sparselu[k][j]) iml_Spawn(&group, update, &places[i][j]);
        iml_Wait(&group);
    }
}

int main(int argc, char **argv) {
    iml_start(argc, argv, "sparselu");
    sparselu_expect();
    threads_measure("tasks", "ms", 1e3, sparselu_prepare, body, sparselu_wrong);
    return suite_failed;
}
