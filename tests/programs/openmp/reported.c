/* Constructs of all kinds, to be reported to a tool. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

static int fibonacci(int n) {
    int a, b;
    if (n < 2)
        return n;
    #pragma omp task shared(a) if (n > 4)
    a = fibonacci(n - 1);
    #pragma omp task shared(b) final(n < 6)
    b = fibonacci(n - 2);
    #pragma omp taskwait
    return a + b;
}

static long loops(void) {
    long sum = 0;
    #pragma omp parallel num_threads(4) reduction(+ : sum)
    {
        #pragma omp for schedule(static)
        for (int i = 0; i < 100; i++)
            sum += i;
        #pragma omp for schedule(dynamic, 7) nowait
        for (int i = 0; i < 100; i++)
            sum += i;
        #pragma omp for schedule(guided) ordered
        for (int i = 0; i < 20; i++) {
            #pragma omp ordered
            sum += i;
        }
        #pragma omp sections
        {
            #pragma omp section
            sum += 1;
            #pragma omp section
            sum += 2;
        }
        #pragma omp single
        sum += 3;
        #pragma omp barrier
        #pragma omp single nowait
        sum += 4;
        #pragma omp master
        sum += 5;
    }
    #pragma omp parallel for num_threads(3) schedule(dynamic) reduction(+ : sum)
    for (int i = 0; i < 10; i++)
        sum++;
    long a = 0, b = 0, c = 0, d = 0, e = 0;
    #pragma omp parallel num_threads(4) reduction(+ : a, b, c, d, e)
    a++, b++, c++, d++, e++;
    return sum + a + b + c + d + e;
}

static int tasks(void) {
    int result = 0, chain = 0, looped = 0;
    #pragma omp parallel num_threads(4)
    #pragma omp single
    {
        result = fibonacci(12);
        #pragma omp taskgroup
        {
            /* It ends when the others wait for it, so that there is a dependence to report. */
            omp_event_handle_t others_wait;
            #pragma omp task depend(inout : chain) shared(chain) detach(others_wait)
            chain++;
            for (int i = 1; i < 5; i++) {
                #pragma omp task depend(inout : chain) shared(chain)
                chain++;
            }
            omp_fulfill_event(others_wait);
            #pragma omp task depend(in : chain) shared(chain)
            chain += 0;
        }
        #pragma omp taskloop shared(looped) grainsize(4)
        for (int i = 0; i < 20; i++) {
            #pragma omp atomic
            looped++;
        }
        #pragma omp task
        result += 0;
        #pragma omp taskyield
    }
    return result == 144 && chain == 5 && looped == 20;
}

static int locks(void) {
    omp_lock_t lock;
    omp_nest_lock_t nested;
    int count = 0, counted = 0, named = 0;
    omp_init_lock(&lock);
    omp_init_nest_lock(&nested);
    #pragma omp parallel num_threads(4)
    {
        omp_set_lock(&lock);
        count++;
        omp_unset_lock(&lock);
        while (!omp_test_lock(&lock))
            ;
        count++;
        omp_unset_lock(&lock);
        omp_set_nest_lock(&nested);
        omp_set_nest_lock(&nested);
        counted++;
        omp_unset_nest_lock(&nested);
        omp_unset_nest_lock(&nested);
        #pragma omp critical(named)
        named++;
        #pragma omp flush
    }
    omp_destroy_lock(&lock);
    omp_destroy_nest_lock(&nested);
    return count == 8 && counted == 4 && named == 4;
}

static int nests(void) {
    int count = 0;
    omp_set_max_active_levels(3);
    for (int i = 0; i < 10; i++) {
        #pragma omp parallel num_threads(3)
        {
            #pragma omp parallel num_threads(2) if (omp_get_thread_num() != 1)
            {
                #pragma omp atomic
                count++;
                #pragma omp barrier
            }
        }
    }
    return count == 50;
}

static int cancels(void) {
    int done = 0;
    #pragma omp parallel num_threads(4)
    {
        #pragma omp single
        #pragma omp taskgroup
        for (int i = 0; i < 20; i++) {
            #pragma omp task shared(done)
            {
                #pragma omp atomic
                done++;
                #pragma omp cancel taskgroup
            }
        }
        #pragma omp for
        for (int i = 0; i < 100; i++) {
            #pragma omp cancel for if (i == 50)
        }
    }
    return done > 0;
}

int main(void) {
    if (!tasks() || !locks() || !nests() || !cancels() || loops() < 10000)
        return 1;
#ifdef __clang__
    int argument = 0;
    printf("control %d\n", omp_control_tool(omp_control_tool_flush, 7, &argument));
#endif
    printf("PASSED\n");
    return 0;
}
