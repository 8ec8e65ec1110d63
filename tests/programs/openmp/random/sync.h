/* Part of random.c. Sections, singles, and all by which members wait for each other or exclude each other. */

static void sections(const struct node *n, struct env *e)
{
    if (n->nowait) {
#pragma omp sections nowait
        {
#pragma omp section
            run(n->kid[0], e);
#pragma omp section
            run(n->kid[1], e);
#pragma omp section
            run(n->kid[2], e);
#pragma omp section
            run(n->kid[3], e);
        }
        return;
    }
    long *sum = &e->team->shares[n->share].sum;
#pragma omp sections reduction(+ : sum[ : 1])
    {
#pragma omp section
        run(n->kid[0], e), sum[0] += 1;
#pragma omp section
        run(n->kid[1], e), sum[0] += 2;
#pragma omp section
        run(n->kid[2], e), sum[0] += 4;
#pragma omp section
        run(n->kid[3], e), sum[0] += 8;
    }
    passed_barrier(n, e);
    REQUIRE(sum[0] == 15, "sections %ld of 15 were executed once", sum[0]);
}

static void single(const struct node *n, struct env *e)
{
    if (n->nowait) {
#pragma omp single nowait
        run(n->kid[0], e);
        return;
    }
#pragma omp single
    run(n->kid[0], e);
    passed_barrier(n, e);
}

static void copyprivate(const struct node *n, struct env *e)
{
    long passed = -1, expected = e->team->base ^ n->id;
#pragma omp single copyprivate(passed)
    {
        run(n->kid[0], e);
        passed = expected;
    }
    REQUIRE(passed == expected, "copyprivate gives %ld instead of %ld", passed, expected);
    passed_barrier(n, e);
}

static void scope(const struct node *n, struct env *e)
{
    struct share *share = &e->team->shares[n->share];
#pragma omp scope
    {
        run(n->kid[0], e);
        atomic_fetch_add(&share->arrived, 1);
    }
    passed_barrier(n, e);
    REQUIRE(atomic_load(&share->arrived) == e->team->size, "%d of %d members were in it", atomic_load(&share->arrived), e->team->size);
}

static void barrier(const struct node *n, struct env *e)
{
    struct share *share = &e->team->shares[n->share];
    wait_a_little(e, n);
    atomic_fetch_add(&share->arrived, 1);
    if (!breaks("barrier") || n->id % 4) {
#pragma omp barrier
    }
    int arrived = atomic_load(&share->arrived);
    REQUIRE(arrived == e->team->size, "%d of %d members have come to the barrier that is passed", arrived, e->team->size);
    passed_barrier(n, e);
}

static void spin(const struct node *n, struct env *e)
{
    struct share *share = &e->team->shares[n->share];
    atomic_fetch_add(&share->arrived, 1);
    while (atomic_load_explicit(&share->arrived, memory_order_relaxed) < e->team->size) {
        if (n->variant & 1) sched_yield();
    }
}

/* Waits in the kernel, which knows nothing of OpenMP. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, barrier_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_here = PTHREAD_COND_INITIALIZER;

static void locked(const struct node *n, struct env *e)
{
    struct program *p = e->program;
    atomic_fetch_add(&p->mutexes, 1);
    pthread_mutex_lock(&mutex);
    long count = p->mutex_count;
    wait_a_little(e, n);
    if (n->variant % 8 == 0) sched_yield();
    p->mutex_count = count + 1;
    pthread_mutex_unlock(&mutex);
}

static void meet(const struct node *n, struct env *e)
{
    struct share *share = &e->team->shares[n->share];
    pthread_mutex_lock(&barrier_lock);
    if (atomic_fetch_add(&share->arrived, 1) + 1 == e->team->size) pthread_cond_broadcast(&all_here);
    while (atomic_load(&share->arrived) < e->team->size) pthread_cond_wait(&all_here, &barrier_lock);
    pthread_mutex_unlock(&barrier_lock);
}

/* The first member that comes makes a pipe, the last one writes a byte for each, and the last one that goes closes the pipe. */
static void pass(const struct node *n, struct env *e)
{
    struct share *share = &e->team->shares[n->share];
    char all[MAX_THREADS] = {0}, one;
    int size = e->team->size;
    pthread_mutex_lock(&barrier_lock);
    int arrived = atomic_fetch_add(&share->arrived, 1) + 1;
    if (arrived == 1) REQUIRE(pipe(share->ends) == 0, "there is no pipe: %s", strerror(errno));
    pthread_mutex_unlock(&barrier_lock);
    if (arrived == size) REQUIRE(write(share->ends[1], all, (size_t)size) == size, "the pipe takes no %d bytes: %s", size, strerror(errno));
    REQUIRE(read(share->ends[0], &one, 1) == 1, "the pipe gives no byte: %s", strerror(errno));
    REQUIRE(atomic_load(&share->arrived) == size, "%d of %d members have come where a byte is there", atomic_load(&share->arrived), size);
    if (atomic_fetch_add(&share->next, 1) + 1 == size) close(share->ends[0]), close(share->ends[1]);
}

static void critical(const struct node *n, struct env *e)
{
    struct program *p = e->program;
    int which = n->variant & 1;
    atomic_fetch_add(&p->criticals[which], 1);
    if (breaks("critical")) {
        long count = p->critical_count[which];
        sched_yield();
        p->critical_count[which] = count + 1;
        return;
    }
    if (which) {
#pragma omp critical(named) hint(omp_sync_hint_contended)
        {
            long count = p->critical_count[1];
            wait_a_little(e, n);
            p->critical_count[1] = count + 1;
        }
    } else {
#pragma omp critical
        {
            REQUIRE(atomic_fetch_add(&p->critical_inside, 1) == 0, "two are in the critical section");
            long count = p->critical_count[0];
            wait_a_little(e, n);
            p->critical_count[0] = count + 1;
            atomic_fetch_sub(&p->critical_inside, 1);
        }
    }
}

static void atomically(struct env *e)
{
    struct program *p = e->program;
    atomic_fetch_add(&p->atomics, 1);
#pragma omp atomic
    p->atomic_sum += 3;
#pragma omp atomic
    p->atomic_double += 1;
#pragma omp atomic
    p->atomic_byte ^= 1;
#pragma omp atomic
    p->atomic_long_double += 1;
}

static void lock(const struct node *n, struct env *e)
{
    struct program *p = e->program;
    atomic_fetch_add(&p->locks, 1);
    if (n->variant % 8 || !may_spin) omp_set_lock(&p->lock);
    else
        while (!omp_test_lock(&p->lock)) sched_yield();
    REQUIRE(atomic_fetch_add(&p->lock_inside, 1) == 0, "two have the lock");
    long count = p->lock_count;
    wait_a_little(e, n);
    p->lock_count = count + 1;
    atomic_fetch_sub(&p->lock_inside, 1);
    omp_unset_lock(&p->lock);
}

static void nest_lock(const struct node *n, struct env *e)
{
    struct program *p = e->program;
    atomic_fetch_add(&p->nests, 1);
    omp_set_nest_lock(&p->nest_lock);
    int depth = omp_test_nest_lock(&p->nest_lock);
    REQUIRE(depth == 2, "a member's nestable lock is set for the time %d instead of 2", depth);
    omp_set_nest_lock(&p->nest_lock);
    omp_unset_nest_lock(&p->nest_lock);
    REQUIRE(atomic_fetch_add(&p->nest_inside, 1) == 0, "two have the nestable lock");
    long count = p->nest_count;
    wait_a_little(e, n);
    p->nest_count = count + 1;
    atomic_fetch_sub(&p->nest_inside, 1);
    omp_unset_nest_lock(&p->nest_lock);
    omp_unset_nest_lock(&p->nest_lock);
}
