/* Every call of iml.h, with what it promises. */
#include <iml.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(truth)                                                                            \
    do {                                                                                        \
        if (!(truth)) {                                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #truth);                         \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

enum { N = 1000 };
static int seen[N];
static int largest, smallest_but_last, chunks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void count_chunk(const int *start, const int *iterations, const int *total) {
    pthread_mutex_lock(&lock);
    chunks++;
    if (*iterations > largest) largest = *iterations;
    if (*start + *iterations < *total && *iterations < smallest_but_last) smallest_but_last = *iterations;
    pthread_mutex_unlock(&lock);
    for (int i = *start; i < *start + *iterations; i++) __atomic_add_fetch(&seen[i], 1, __ATOMIC_RELAXED);
}

static void run_loop(const int *schedule, int n, int min_chunk) {
    const int params = 1;
    memset(seen, 0, sizeof seen);
    largest = chunks = 0;
    smallest_but_last = N;
    iml_DOALL(count_chunk, &n, schedule, &min_chunk, &params, &n);
    for (int i = 0; i < N; i++) CHECK(seen[i] == (i < n));
    CHECK(n <= min_chunk || smallest_but_last >= min_chunk);
}

static void loops(void) {
    const int *const schedules[] = {&static_schedule, &simple_schedule, &self_schedule, &guided_schedule, &factoring_schedule};
    const int threads = iml_NumThreads();
    for (int s = 0; s < 5; s++)
        for (int n = 0; n <= N; n = n < 4 ? n + 1 : n * 3)
            for (int min_chunk = 0; min_chunk < 40; min_chunk += 13) run_loop(schedules[s], n, min_chunk);
    run_loop(&static_schedule, N, 1);
    CHECK(chunks == threads && largest == (N + threads - 1) / threads);
    run_loop(&simple_schedule, N, 10);
    CHECK(chunks == N / 10 && largest == 10);
    run_loop(&self_schedule, N, 1);
    CHECK(chunks == N && largest == 1);
    run_loop(&guided_schedule, N, 1);
    CHECK(largest <= (N + threads - 1) / threads && chunks < N);
}

static void *got[16];
static void none(void) { got[0] = got; }
static void three(void *a, void *b, void *c) { got[0] = a, got[1] = b, got[2] = c; }
static void sixteen(void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h, void *i, void *j, void *k, void *l, void *m,
                    void *n, void *o, void *p) {
    void *all[16] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p};
    memcpy(got, all, sizeof all);
}
static void loop_sixteen(int *start, int *iterations, void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h, void *i, void *j,
                         void *k, void *l, void *m, void *n, void *o, void *p) {
    CHECK(*start == 0 && *iterations == 1);
    sixteen(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
}

static void parameters(void) {
    const int zero = 0, one = 1, many = 16, number = 3;
    char x[16];
    iml_EnQ(none, &zero);
    iml_WaitEnQ();
    CHECK(got[0] == got);
    iml_COBEGIN(&one, three, &number, &x[0], &x[1], &x[2]);
    CHECK(got[0] == &x[0] && got[1] == &x[1] && got[2] == &x[2]);
    for (int which = 0; which < 3; which++) {
        memset(got, 0, sizeof got);
        if (which == 0)
            iml_EnQ(sixteen, &many, &x[0], &x[1], &x[2], &x[3], &x[4], &x[5], &x[6], &x[7], &x[8], &x[9], &x[10], &x[11], &x[12], &x[13],
                    &x[14], &x[15]);
        else if (which == 1)
            iml_DOALL(loop_sixteen, &one, &self_schedule, &one, &many, &x[0], &x[1], &x[2], &x[3], &x[4], &x[5], &x[6], &x[7], &x[8], &x[9],
                      &x[10], &x[11], &x[12], &x[13], &x[14], &x[15]);
        else
            iml_COBEGIN(&one, sixteen, &many, &x[0], &x[1], &x[2], &x[3], &x[4], &x[5], &x[6], &x[7], &x[8], &x[9], &x[10], &x[11], &x[12],
                        &x[13], &x[14], &x[15]);
        iml_WaitEnQ();
        for (int n = 0; n < 16; n++) CHECK(got[n] == &x[n]);
    }
}

static void enqueue_more(int *left, int *ran, const int *depth) {
    static const int depths[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const int params = 3;
    __atomic_add_fetch(ran, 1, __ATOMIC_RELAXED);
    if (*depth > 0)
        for (int n = 0; n < 2; n++) iml_EnQ(enqueue_more, &params, left, ran, &depths[*depth - 1]);
    else
        iml_DecAndFetch(left);
}

static void tasks(void) {
    const int params = 3, depth = 8;
    int left = 256, ran = 0;
    iml_EnQ(enqueue_more, &params, &left, &ran, &depth);
    iml_WaitEnQ();
    CHECK(left == 0 && ran == 511);
    int two = 2;
    CHECK(iml_DecAndFetch(&two) == 1 && iml_DecAndFetch(&two) == 0);
}

static void *fib(void *argument) {
    intptr_t n = (intptr_t)argument;
    if (n < 2) return (void *)n;
    iml_group_t group;
    void *less_one;
    iml_GroupBegin(&group);
    iml_SpawnResult(&group, fib, (void *)(n - 1), &less_one);
    void *less_two = fib((void *)(n - 2));
    iml_Wait(&group);
    return (void *)((intptr_t)less_one + (intptr_t)less_two);
}

struct fib {
    int n;
    long result;
};

static void fib_both(void *argument) {
    struct fib *f = argument, one = {f->n - 1, 0}, two = {f->n - 2, 0};
    f->result = f->n;
    if (f->n < 2) return;
    iml_Both(fib_both, &one, fib_both, &two);
    f->result = one.result + two.result;
}

static void add_one(void *count) { __atomic_add_fetch((int *)count, 1, __ATOMIC_RELAXED); }
static void add_range(int64_t begin, int64_t end, void *count) { __atomic_add_fetch((int *)count, (int)(end - begin), __ATOMIC_RELAXED); }
static void spawn_more(void *argument) {
    void **with = argument;
    for (int n = 0; n < 10; n++) iml_Spawn(with[0], add_one, with[1]);
}

static void groups(void) {
    CHECK(fib((void *)20) == (void *)6765);
    struct fib both = {20, 0};
    fib_both(&both);
    CHECK(both.result == 6765);
    iml_group_t group;
    int count = 0;
    void *with[2] = {&group, &count};
    iml_GroupBegin(&group);
    for (int n = 0; n < 100; n++) iml_Spawn(&group, add_one, &count);
    iml_Spawn(&group, spawn_more, with);
    iml_Wait(&group);
    CHECK(count == 110);
    CHECK(!iml_IsCancelled(&group));
    iml_Cancel(&group);
    CHECK(iml_IsCancelled(&group));
    for (int n = 0; n < 100; n++) iml_Spawn(&group, add_one, &count);
    iml_For(0, 100, 10, add_range, &count, &group);
    iml_Wait(&group);
    CHECK(count == 110 && !iml_IsCancelled(&group));
    iml_For(-50, 50, 7, add_range, &count, &group);
    iml_For(3, 3, 7, add_range, &count, NULL);
    CHECK(count == 210);
}

static void add_inverse(int64_t begin, int64_t end, void *sum, void *data) {
    (void)data;
    for (int64_t i = begin; i < end; i++) *(double *)sum += 1.0 / (double)i;
}
static void add_both(void *left, const void *right, void *data) {
    (void)data;
    *(double *)left += *(const double *)right;
}

static void reductions(void) {
    double first = 0;
    iml_Reduce(1, 100001, 100, &first, sizeof first, add_inverse, add_both, NULL);
    CHECK(first > 12.09014 && first < 12.09015);
    for (int n = 0; n < 50; n++) {
        double again = 0;
        iml_Reduce(1, 100001, 100, &again, sizeof again, add_inverse, add_both, NULL);
        CHECK(memcmp(&again, &first, sizeof first) == 0);
    }
    double nothing = 5;
    iml_Reduce(4, 4, 1, &nothing, sizeof nothing, add_inverse, add_both, NULL);
    CHECK(nothing == 5);
}

static void note_thread(const int *start, const int *iterations, int *highest) {
    (void)start, (void)iterations;
    if (iml_GetThreadID() > __atomic_load_n(highest, __ATOMIC_RELAXED)) __atomic_store_n(highest, iml_GetThreadID(), __ATOMIC_RELAXED);
}

static void threads(void) {
    const int n = 10000, chunk = 1, params = 1, all = iml_NumThreads();
    int highest = 0;
    CHECK(all >= 1 && iml_GetThreadID() == 0);
    CHECK(iml_ReInitMultiThread(1) == 1 && iml_NumThreads() == 1);
    iml_DOALL(note_thread, &n, &self_schedule, &chunk, &params, &highest);
    CHECK(highest == 0);
    CHECK(iml_ReInitMultiThread(1000000) == all && iml_NumThreads() == all);
    iml_DOALL(note_thread, &n, &self_schedule, &chunk, &params, &highest);
    CHECK(highest < all);
}

static void *all_of_it(void *unused) {
    (void)unused;
    CHECK(iml_GetThreadID() == 0);
    groups();
    reductions();
    return NULL;
}

int main(void) {
    loops();
    parameters();
    tasks();
    groups();
    reductions();
    threads();
    pthread_t others[4];
    for (int n = 0; n < 4; n++) CHECK(pthread_create(&others[n], NULL, all_of_it, NULL) == 0);
    for (int n = 0; n < 4; n++) CHECK(pthread_join(others[n], NULL) == 0);
    puts("ok");
    return 0;
}
