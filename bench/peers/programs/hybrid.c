/*
 * Ranks with nested OpenMP regions: heat in a square, a strip of rows on each rank. A step exchanges the rows at the edges with the
 * neighbours, computes in a parallel loop over blocks of rows, in each of which the rows are a parallel loop again, and agrees about
 * the largest change (Allreduce). Microseconds of one step of the slowest rank. The field after some steps is compared with one that
 * rank 0 computes alone.
 * Usage: hybrid [--batch-ms 10] [--openmp <name for the figure>] [--threads <of a team, on both levels>]
 */
#define _GNU_SOURCE
#include "bench.h"

#include <dlfcn.h>
#include <omp.h>

enum { COLUMNS = 512, ROWS = 128, BLOCK = 16 };

typedef struct {
    double (*now)[COLUMNS], (*next)[COLUMNS]; /* rows 0 and `rows` + 1 are the neighbours' */
    int rows, threads;
} Field;

static double heat(int row, int column) { return (double)((row * 37 + column * 101) % 1000); }

static Field field_of(int first, int rows, int threads) {
    Field f = {malloc((size_t)(rows + 2) * sizeof *f.now), malloc((size_t)(rows + 2) * sizeof *f.next), rows, threads};
    if (!f.now || !f.next) bench_fail("no memory for the field");
    for (int row = 0; row < rows + 2; row++)
        for (int column = 0; column < COLUMNS; column++) f.now[row][column] = f.next[row][column] = heat(first + row, column);
    return f;
}

static double larger(double a, double b) { return a > b ? a : b; }

/* Computes one row and gives the largest change. */
static double advance_row(const Field *f, int row) {
    double change = 0;
    for (int column = 1; column + 1 < COLUMNS; column++) {
        const double around = f->now[row - 1][column] + f->now[row + 1][column] + f->now[row][column - 1] + f->now[row][column + 1];
        const double next = 0.25 * around;
        change = larger(change, next > f->now[row][column] ? next - f->now[row][column] : f->now[row][column] - next);
        f->next[row][column] = next;
    }
    return change;
}

static double advance(Field *f) {
    double change = 0;
#pragma omp parallel for schedule(dynamic) num_threads(f->threads) reduction(max : change)
    for (int block = 1; block <= f->rows; block += BLOCK) {
        double most = 0;
        const int end = block + BLOCK <= f->rows + 1 ? block + BLOCK : f->rows + 1;
#pragma omp parallel for schedule(dynamic) num_threads(f->threads) reduction(max : most)
        for (int row = block; row < end; row++) most = larger(most, advance_row(f, row));
        change = larger(change, most);
    }
    double(*old)[COLUMNS] = f->now;
    f->now = f->next;
    f->next = old;
    return change;
}

static double step(Field *f) {
    const int above = bench_rank > 0 ? bench_rank - 1 : MPI_PROC_NULL;
    const int below = bench_rank + 1 < bench_ranks ? bench_rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(f->now[1], COLUMNS, MPI_DOUBLE, above, 1, f->now[f->rows + 1], COLUMNS, MPI_DOUBLE, below, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(f->now[f->rows], COLUMNS, MPI_DOUBLE, below, 2, f->now[0], COLUMNS, MPI_DOUBLE, above, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    const double own = advance(f);
    double change;
    MPI_Allreduce(&own, &change, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return change;
}

static void steps(void *context, int calls) {
    for (int n = 0; n < calls; n++) step(context);
}

/* Some steps by all, and by rank 0 alone. */
static void verify(int threads) {
    enum { STEPS = 5 };
    Field f = field_of(bench_rank * ROWS, ROWS, threads), all = {0};
    double(*gathered)[COLUMNS] = NULL, change = 0;
    for (int n = 0; n < STEPS; n++) change = step(&f);
    if (bench_rank == 0) gathered = malloc((size_t)bench_ranks * ROWS * sizeof *gathered);
    MPI_Gather(f.now[1], ROWS * COLUMNS, MPI_DOUBLE, gathered, ROWS * COLUMNS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (bench_rank == 0) {
        double alone = 0;
        all = field_of(0, ROWS * bench_ranks, 1);
        for (int n = 0; n < STEPS; n++) {
            double(*old)[COLUMNS] = all.now;
            alone = 0;
            for (int row = 1; row <= all.rows; row++) alone = larger(alone, advance_row(&all, row));
            all.now = all.next;
            all.next = old;
        }
        if (alone != change) bench_fail("the largest change is wrong");
        for (int row = 0; row < all.rows; row++)
            if (memcmp(gathered[row], all.now[row + 1], sizeof *gathered) != 0) bench_fail("the field is wrong");
    }
    free(gathered);
    free(all.now);
    free(all.next);
    free(f.now);
    free(f.next);
}

/* How many threads of two levels of regions there are at once. */
static int members(int threads) {
    int count = 0;
#pragma omp parallel num_threads(threads)
#pragma omp parallel num_threads(threads)
#pragma omp atomic
    count++;
    return count;
}

int main(int argc, char **argv) {
    bench_start(&argc, &argv, MPI_THREAD_FUNNELED);
    const int threads = atoi(bench_option(argc, argv, "--threads", "4"));
    Dl_info found;
    void *symbol = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    char *file = symbol && dladdr(symbol, &found) ? realpath(found.dli_fname, NULL) : NULL;
    if (bench_rank == 0) printf("openmp %s\n", file ? file : "unknown");
    free(file);
    if (members(threads) != threads * threads) bench_fail("the nested regions have not all threads that were asked for");
    verify(threads);
    Field f = field_of(bench_rank * ROWS, ROWS, threads);
    double median, best;
    bench_measure(steps, &f, 1, &median, &best);
    bench_report("hybrid", bench_option(argc, argv, "--openmp", "-"), 0, "us", median * 1e6, best * 1e6);
    free(f.now);
    free(f.next);
    MPI_Finalize();
    return 0;
}
