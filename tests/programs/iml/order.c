/* The order in which enqueued procedures run, a loop whose iterations depend on each other (DOACROSS), sections inside
   of sections, and numbers of threads when more are asked for than there are cores. */
#include <iml.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define CHECK(what)                                                                                                                                  \
    do {                                                                                                                                             \
        if (!(what)) {                                                                                                                               \
            printf("line %d: %s is false\n", __LINE__, #what);                                                                                       \
            failed = 1;                                                                                                                              \
        }                                                                                                                                            \
    } while (0)

static int failed;
static const int none = 0, one = 1, two = 2, four = 4;

/* What has run, in order. */
static int order[64], ran;

static void note(const int *number) { order[__atomic_fetch_add(&ran, 1, __ATOMIC_SEQ_CST)] = *number; }

static void enqueue(int numbers[64]) {
    ran = 0;
    for (int n = 0; n < 64; n++) {
        numbers[n] = n;
        iml_EnQ(note, &one, &numbers[n]);
    }
}

/* A queue is a stack for the thread that it belongs to; a thief takes the oldest. */
static void order_of_tasks(int threads) {
    int numbers[64];
    iml_ReInitMultiThread(1);
    enqueue(numbers);
    iml_WaitEnQ();
    CHECK(ran == 64);
    for (int n = 0; n < 64; n++) CHECK(order[n] == 63 - n);
    if (threads >= 2) {
        iml_ReInitMultiThread(2);
        enqueue(numbers);
        /* This thread takes nothing, so the one thief has it all. */
        while (__atomic_load_n(&ran, __ATOMIC_SEQ_CST) < 64) sched_yield();
        iml_WaitEnQ();
        for (int n = 0; n < 64; n++) CHECK(order[n] == n);
    }
    iml_ReInitMultiThread(threads);
}

/* x[i][j] needs its left and its upper neighbour: the rows follow each other, a block of columns apart. */
enum { ROWS = 60, COLUMNS = 512, BLOCK = 32, BLOCKS = COLUMNS / BLOCK };

static unsigned x[ROWS + 1][COLUMNS + 1], expected[ROWS + 1][COLUMNS + 1];
static int missing[ROWS][BLOCKS], rows[ROWS], blocks[BLOCKS];

static void compute(unsigned to[ROWS + 1][COLUMNS + 1], int row, int block) {
    for (int column = block * BLOCK + 1; column <= (block + 1) * BLOCK; column++)
        to[row + 1][column] = to[row][column] * 3 + to[row + 1][column - 1] * 5 + to[row][column - 1] + 1;
}

static void part(const int *row, const int *block) {
    compute(x, *row, *block);
    if (*row + 1 < ROWS && iml_DecAndFetch(&missing[*row + 1][*block]) == 0) iml_EnQ(part, &two, &rows[*row + 1], block);
    if (*block + 1 < BLOCKS && iml_DecAndFetch(&missing[*row][*block + 1]) == 0) iml_EnQ(part, &two, row, &blocks[*block + 1]);
}

static void dependent_iterations(void) {
    for (int row = 0; row < ROWS; row++) {
        rows[row] = row;
        for (int block = 0; block < BLOCKS; block++) {
            blocks[block] = block;
            missing[row][block] = (row > 0) + (block > 0);
            compute(expected, row, block);
        }
    }
    iml_EnQ(part, &two, &rows[0], &blocks[0]);
    iml_WaitEnQ();
    CHECK(memcmp(x, expected, sizeof x) == 0);
    memset(x, 0, sizeof x);
    memset(expected, 0, sizeof expected);
}

static int sections;

static void count(void) { __atomic_add_fetch(&sections, 1, __ATOMIC_SEQ_CST); }
static void inner(void) { iml_COBEGIN(&four, count, count, count, count, &none); }
static void middle(void) { iml_COBEGIN(&four, inner, count, inner, inner, &none); }

static void nested_sections(void) {
    sections = 0;
    iml_COBEGIN(&two, middle, middle, &none);
    CHECK(sections == 2 * 13);
}

/* No thread has a number above the highest, and none has another's. */
static int holder[1024];

static void hold(const int *start, const int *iterations, const int *threads) {
    (void)start, (void)iterations;
    const int id = iml_GetThreadID();
    CHECK(id >= 0 && id < *threads);
    CHECK(__atomic_add_fetch(&holder[id], 1, __ATOMIC_SEQ_CST) == 1);
    for (volatile int n = 0; n < 500; n++) {}
    CHECK(iml_GetThreadID() == id);
    __atomic_sub_fetch(&holder[id], 1, __ATOMIC_SEQ_CST);
}

static void more_threads_than_cores(int cores) {
    const int iterations = 4000, threads = iml_ReInitMultiThread(8 * cores);
    CHECK(threads == cores);
    iml_DOALL(hold, &iterations, &self_schedule, &one, &one, &threads);
}

int main(void) {
    const int threads = iml_NumThreads();
    for (int round = 0; round < 10; round++) {
        order_of_tasks(threads);
        dependent_iterations();
        nested_sections();
        more_threads_than_cores(threads);
    }
    if (!failed) puts("ok");
    return failed;
}
