/* Part of random.c. Tasks, their dependences, groups and loops. */

static void body(const struct node *n, struct env *task, const struct env *maker)
{
    struct env *e = task;
    int thread = omp_get_thread_num();
    check_place(n, task);
    run(n->kid[0], task);
    check_place(n, task);
    REQUIRE(thread == omp_get_thread_num(), "a tied task went from thread %d to %d", thread, omp_get_thread_num());
    task_done(maker);
}

/* An environment that outlives the frame in which it lies, for tasks that read their creator's when
 * they end. */
static struct env *kept(const struct env *e)
{
    struct env *copy = allocate(e->program, sizeof *copy);
    *copy = *e;
    return copy;
}

static void task(const struct node *n, struct env *e)
{
    struct env *made = new_task(e), *maker = kept(e);
    int how = n->variant % 8;
    made->is_final |= how == 2;
    if (how == 4) {
        /* Arguments that are copied by code of the program. */
        int length = 1 + n->value;
        long values[length];
        for (int k = 0; k < length; k++) values[k] = n->id + k;
#pragma omp task firstprivate(values, n, made, maker, length)
        {
            struct env *e = made;
            for (int k = 0; k < length; k++) REQUIRE(values[k] == n->id + k, "firstprivate gives %ld instead of %d", values[k], n->id + k);
            body(n, made, maker);
        }
    } else if (how == 5) {
#pragma omp task mergeable
        body(n, made, maker);
    } else {
        atomic_int *mark = allocate(e->program, sizeof *mark);
#pragma omp task if (how != 1) final(how == 2) priority(how == 3 ? n->value : 0)
        {
            body(n, made, maker);
            atomic_store(mark, 1);
        }
        if ((how == 1 || e->is_final) && !e->is_loose) REQUIRE(atomic_load(mark), "an undeferred task is not complete");
    }
}

static void untied(const struct node *n, struct env *e)
{
    struct env *made = new_task(e), *maker = kept(e);
    made->is_untied = 1;
#pragma omp task untied
    {
        run(n->kid[0], made);
        task_done(maker);
    }
}

static void detach(const struct node *n, struct env *e)
{
    struct env *made = new_task(e), *maker = kept(e);
    omp_event_handle_t event;
    omp_event_handle_t *passed = allocate(e->program, sizeof *passed);
#pragma omp task detach(event) firstprivate(passed)
    {
        *passed = event;
        run(n->kid[0], made);
        /* What is cancelled may include the task that would fulfil the event. The maker's own environment may be gone by now. */
        if (n->variant & 1 || made->is_loose) {
            task_done(maker);
            omp_fulfill_event(event);
        } else {
#pragma omp task firstprivate(passed, maker, made)
            {
                task_done(maker);
                omp_fulfill_event(*passed);
            }
        }
    }
}

/* Whether dependent task `later` has to wait for `earlier`: they name an address, and not both for reading or both with
 * mutexinoutset. */
static int must_follow(const struct node *n, int earlier, int later)
{
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 5; b++) {
            int both_in = (a == 2 || a == 3) && (b == 2 || b == 3), both_mutex = a == 4 && b == 4;
            if (n->access[earlier][a] >= 0 && n->access[earlier][a] == n->access[later][b] && !both_in && !both_mutex) return 1;
        }
    return 0;
}

struct chain {
    char at[ADDRESSES], unused[DEPENDENT + 1][5];
    atomic_int done[DEPENDENT], inside[ADDRESSES];
};

static void dependent(const struct node *n, struct env *e, struct chain *chain, int k)
{
    for (int earlier = 0; earlier < k; earlier++)
        if (!e->is_loose && must_follow(n, earlier, k)) REQUIRE(atomic_load(&chain->done[earlier]), "task %d begins before %d, on which it depends, is done", k, earlier);
    int mutex = n->access[k][4];
    if (mutex >= 0) REQUIRE(atomic_fetch_add(&chain->inside[mutex], 1) == 0, "two tasks with mutexinoutset are executed");
    run(n->kid[0], e);
    if (mutex >= 0) atomic_fetch_sub(&chain->inside[mutex], 1);
    atomic_store(&chain->done[k], 1);
}

static void depend(const struct node *n, struct env *e)
{
    struct chain *chain = allocate(e->program, sizeof *chain);
    struct env *maker = kept(e);
    for (int k = 0; k < n->iterations; k++) {
        struct env *made = new_task(e);
        /* What names no address of the chain names one that nothing else does. */
        char *at[5];
        for (int a = 0; a < 5; a++)
            at[a] = n->access[k][a] < 0 || breaks("depend") ? &chain->unused[k][a] : &chain->at[n->access[k][a]];
        if (n->variant % 4 == 3) {
            omp_depend_t object;
#pragma omp depobj(object) depend(inout : at[1][0])
#pragma omp task depend(depobj : object) depend(out : at[0][0]) depend(in : at[2][0], at[3][0]) depend(mutexinoutset : at[4][0])
            {
                dependent(n, made, chain, k);
                task_done(maker);
            }
#pragma omp depobj(object) destroy
        } else {
            int defers = (n->variant >> k & 3) != 3;
#pragma omp task if (defers) priority(k % 3) depend(out : at[0][0]) depend(inout : at[1][0]) depend(in : at[2][0], at[3][0]) \
    depend(mutexinoutset : at[4][0])
            {
                dependent(n, made, chain, k);
                task_done(maker);
            }
        }
    }
    switch (n->variant % 4) {
    case 0: {
#pragma omp taskwait
        break;
    }
    case 1: {
        if (breaks("depend")) break;
#pragma omp taskwait depend(in : chain->at[0])
        for (int k = 0; k < n->iterations; k++)
            for (int a = 0; a < 5; a++)
                if (a != 2 && a != 3 && n->access[k][a] == 0 && !e->is_loose)
                    REQUIRE(atomic_load(&chain->done[k]), "taskwait with a dependence has not waited for task %d", k);
        break;
    }
    default:
        break;
    }
}

static void taskwait(const struct node *n, struct env *e)
{
    if (!breaks("taskwait")) {
#pragma omp taskwait
    }
    if (!e->is_loose)
        REQUIRE(is_done(e->children), "%d of %d children are done behind the taskwait", atomic_load(&e->children->done), atomic_load(&e->children->made));
}

static void in_group(const struct node *n, struct env *e, struct tally *group, long *reduction)
{
    struct tally *outside = e->group;
    long *variable = e->reduction;
    e->group = group;
    if (reduction) e->reduction = reduction;
    for (int k = 0; k < n->kids; k++) run(n->kid[k], e);
    e->group = outside;
    e->reduction = variable;
}

static void taskgroup(const struct node *n, struct env *e)
{
    struct tally *group = allocate(e->program, sizeof *group);
    if (n->kind == TASKGROUP) {
#pragma omp taskgroup
        in_group(n, e, group, NULL);
    } else {
        long *sum = allocate(e->program, sizeof *sum);
        sum[0] = 5;
#pragma omp taskgroup task_reduction(+ : sum[ : 1])
        in_group(n, e, group, sum);
        long expected = 5 + n->expected_reduction;
        if (n->is_reduction_bounded) REQUIRE(sum[0] <= expected, "its task reduction gives %ld, which is more than %ld", sum[0], expected);
        else REQUIRE(sum[0] == expected, "its task reduction gives %ld instead of %ld", sum[0], expected);
    }
    /* Tasks made in it count for the taskgroup outside as well, which cannot end before. */
    if (!e->is_loose)
        REQUIRE(is_done(group), "%d of %d tasks are done behind the taskgroup", atomic_load(&group->done), atomic_load(&group->made));
}

static void task_in_reduction(const struct node *n, struct env *e)
{
    struct env *made = new_task(e), *maker = kept(e);
    long *sum = e->reduction;
#pragma omp task in_reduction(+ : sum[ : 1]) firstprivate(made, maker)
    {
        sum[0] += n->value;
        made->reduction = sum;
        run(n->kid[0], made);
        task_done(maker);
    }
}

/* Iterations of a taskloop have no place before them: the task that executes one has an environment of its own for each. */
static void taskloop_iteration(const struct node *n, const struct env *maker, struct tally *group, long k)
{
    struct env me = *maker, *e = &me;
    me.children = allocate(me.program, sizeof *me.children);
    me.group = group;
    me.is_final |= n->variant % 8 == 6;
    if (!me.is_loose) atomic_fetch_add(&group->made, 1);
    check_place(n, e);
    iteration(n, e, k);
    if (!me.is_loose) atomic_fetch_add(&group->done, 1);
}

static void taskloop(const struct node *n, struct env *e)
{
    struct env *maker = kept(e);
    struct tally *group = allocate(e->program, sizeof *group);
    int count = n->iterations, size = 1 + n->chunk;
    atomic_int *left = allocate(e->program, sizeof *left);
    long *sum = allocate(e->program, sizeof *sum);
    int has_sum = 0;
    atomic_store(left, count);
    switch (n->variant % 8) {
    case 0:
#pragma omp taskloop grainsize(size)
        for (int i = 0; i < count; i++) taskloop_iteration(n, maker, group, i), atomic_fetch_sub(left, 1);
        break;
    case 1:
#pragma omp taskloop num_tasks(size)
        for (int i = count - 1; i >= 0; i--) taskloop_iteration(n, maker, group, i), atomic_fetch_sub(left, 1);
        break;
    case 2:
#pragma omp taskloop grainsize(strict : size) priority(2)
        for (unsigned long long i = 0; i < (unsigned long long)count; i++)
            taskloop_iteration(n, maker, group, (long)i), atomic_fetch_sub(left, 1);
        break;
    case 3:
#pragma omp taskloop num_tasks(strict : size) mergeable
        for (long i = n->lower; i < n->lower + 3 * count; i += 3)
            taskloop_iteration(n, maker, group, (i - n->lower) / 3), atomic_fetch_sub(left, 1);
        break;
    case 4:
        has_sum = 1;
#pragma omp taskloop reduction(+ : sum[ : 1]) grainsize(size)
        for (int i = 0; i < count; i++) taskloop_iteration(n, maker, group, i), atomic_fetch_sub(left, 1), sum[0] += i + 1;
        break;
    case 5:
        has_sum = 1;
#pragma omp taskgroup task_reduction(+ : sum[ : 1])
        {
#pragma omp taskloop in_reduction(+ : sum[ : 1]) nogroup
            for (int i = 0; i < count; i++) taskloop_iteration(n, maker, group, i), atomic_fetch_sub(left, 1), sum[0] += i + 1;
        }
        break;
    case 6:
#pragma omp taskloop final(1)
        for (int i = 0; i < count; i++) taskloop_iteration(n, maker, group, i), atomic_fetch_sub(left, 1);
        break;
    default:
#pragma omp taskloop if (0) collapse(2)
        for (int i = 0; i < count; i++)
            for (int j = 0; j < 1; j++) taskloop_iteration(n, maker, group, i + j), atomic_fetch_sub(left, 1);
    }
    if (e->is_loose) return;
    REQUIRE(atomic_load(left) == 0, "%d of %d iterations are left behind the taskloop", atomic_load(left), count);
    REQUIRE(is_done(group), "%d of %d tasks are done behind the taskloop", atomic_load(&group->done), atomic_load(&group->made));
    long expected = (long)count * (count + 1) / 2;
    if (has_sum) REQUIRE(sum[0] == expected, "its reduction gives %ld instead of %ld", sum[0], expected);
}
