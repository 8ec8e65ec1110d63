/* Part of random.c. Constructs that are cancelled. */

static void cancel_parallel(const struct node *n, struct env *e)
{
    long outside = own_value;
    struct team *team = new_team(n, e);
    int threads = n->threads, who = n->value % n->size, when = n->chunk;
#pragma omp parallel num_threads(threads)
    {
        struct env me;
        enter(n, e, team, &me, 0);
        me.is_loose |= cancels;
        for (int k = 0; k < n->iterations; k++) {
            if (omp_get_thread_num() == who && k == when) {
#pragma omp cancel parallel
            }
            run(n->kid[0], &me);
            if (n->variant & 1) {
#pragma omp barrier
                me.phase++;
            }
            struct env *made = new_task(&me), *maker = kept(&me);
#pragma omp task firstprivate(made, maker)
            {
                run(n->kid[1], made);
                task_done(maker);
            }
            if (n->variant & 2) {
#pragma omp for schedule(dynamic)
                for (int i = 0; i < 5; i++) leaf(n, &me);
                me.phase++;
            }
#pragma omp cancellation point parallel
        }
    }
    own_value = outside;
    check_team(n, e, team);
}

static void cancel_for(const struct node *n, struct env *e)
{
    int count = n->iterations, which = n->value % count, chunk = n->chunk + 1, is_loose = e->is_loose;
    e->is_loose |= cancels;
    switch (n->schedule % 3) {
#define CANCELLED(...)                                              \
    _Pragma(TEXT(omp for __VA_ARGS__))                              \
    for (int i = 0; i < count; i++) {                               \
        _Pragma("omp cancellation point for")                       \
        iteration(n, e, i);                                         \
        if (i == which) {                                           \
            _Pragma("omp cancel for")                               \
        }                                                           \
    }
    case 0: CANCELLED(schedule(static)) break;
    case 1: CANCELLED(schedule(dynamic, chunk)) break;
    default: CANCELLED(schedule(guided, chunk))
    }
    e->is_loose = is_loose;
    passed_barrier(n, e);
}

static void cancel_sections(const struct node *n, struct env *e)
{
    int is_loose = e->is_loose;
    e->is_loose |= cancels;
#pragma omp sections
    {
#pragma omp section
        {
#pragma omp cancellation point sections
            run(n->kid[0], e);
        }
#pragma omp section
        {
#pragma omp cancel sections if (n->variant & 1)
            run(n->kid[1], e);
        }
#pragma omp section
        {
            run(n->kid[2], e);
#pragma omp cancel sections
        }
#pragma omp section
        run(n->kid[3], e);
    }
    e->is_loose = is_loose;
    passed_barrier(n, e);
}

static void cancel_taskgroup(const struct node *n, struct env *e)
{
    struct env *maker = kept(e);
    maker->is_loose |= cancels;
    atomic_int *running = allocate(e->program, sizeof *running);
    atomic_int *begun = allocate(e->program, sizeof *begun);
    int which = n->value % n->iterations;
#pragma omp taskgroup
    {
        struct tally *group = maker->group = allocate(e->program, sizeof *group);
        for (int k = 0; k < n->iterations; k++) {
            struct env *made = new_task(maker);
#pragma omp task firstprivate(k, made) if (n->variant & 4 || k % 3)
            {
                atomic_fetch_add(running, 1);
                atomic_fetch_add(begun, 1);
                run(n->kid[0], made);
                atomic_fetch_sub(running, 1);
                task_done(maker);
                if (k == which) {
#pragma omp cancel taskgroup
                }
#pragma omp cancellation point taskgroup
            }
        }
    }
    REQUIRE(atomic_load(running) == 0, "%d tasks still run behind the taskgroup", atomic_load(running));
    REQUIRE(atomic_load(begun) <= n->iterations, "%d of %d tasks have begun", atomic_load(begun), n->iterations);
    if (!cancels) REQUIRE(atomic_load(begun) == n->iterations, "%d of %d tasks have begun", atomic_load(begun), n->iterations);
}
