/*
 * Cholesky factorization as a graph of IML's tasks: what is done to a tile in one step counts down the tasks that it waits for
 * (iml_DecAndFetch), and the last of these starts it.
 */
#include "../cholesky.h"
#include "../by_iml.h"

/* What is done to tile (i, j) in step k: factored (i = j = k), solved (j = k) or updated. */
typedef struct { int i, j, k, waits; } Task;

static Task tasks[CHOLESKY_TILES][CHOLESKY_TILES][CHOLESKY_TILES];
static iml_group_t group;

static void work(void *argument);

/* A task that (i, j, k) waited for is done. */
static void done(int i, int j, int k) {
    Task *task = &tasks[i][j][k];
    if (iml_DecAndFetch(&task->waits) == 0) iml_Spawn(&group, work, task);
}

static void work(void *argument) {
    const Task *task = argument;
    const int i = task->i, j = task->j, k = task->k;
    if (k < j) {
        cholesky_update(cholesky[i][k], cholesky[j][k], cholesky[i][j]);
        done(i, j, k + 1);
    } else if (i == j) {
        cholesky_factor(cholesky[k][k]);
        for (int row = k + 1; row < CHOLESKY_TILES; row++) done(row, k, k);
    } else {
        cholesky_solve(cholesky[k][k], cholesky[i][k]);
        for (int column = k + 1; column <= i; column++) done(i, column, k);
        for (int row = i + 1; row < CHOLESKY_TILES; row++) done(row, i, k);
    }
}

static void body(void) {
    for (int i = 0; i < CHOLESKY_TILES; i++)
        for (int j = 0; j <= i; j++)
            for (int k = 0; k <= j; k++) {
                // The step before on the same tile, and the tiles of column k that are read.
                const int reads = k < j ? (i == j ? 1 : 2) : (i == j ? 0 : 1);
                tasks[i][j][k] = (Task){i, j, k, reads + (k > 0)};
            }
    iml_GroupBegin(&group);
    iml_Spawn(&group, work, &tasks[0][0][0]);
    iml_Wait(&group);
}

int main(int argc, char **argv) {
    iml_start(argc, argv, "cholesky");
    cholesky_expect();
    threads_measure("tasks", "ms", 1e3, cholesky_prepare, body, cholesky_wrong);
    return suite_failed;
}
