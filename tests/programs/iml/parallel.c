/* Inner levels are parallel: what runs there meets, which one thread after the other could not. */
#include <iml.h>
#include <stdio.h>

static const int one = 1, two = 2, none = 0;

/* Two that wait for each other without yielding their threads. */
static void meet(int *arrived) {
    __atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(arrived, __ATOMIC_SEQ_CST) < 2) {}
}

static void meet_in_loop(const int *start, const int *iterations, int *arrived) {
    (void)start;
    for (int n = 0; n < *iterations; n++) meet(arrived);
}

static void inner_loop(const int *start, const int *iterations) {
    (void)start;
    for (int n = 0; n < *iterations; n++) {
        int arrived = 0;
        iml_DOALL(meet_in_loop, &two, &self_schedule, &one, &one, &arrived);
    }
}

static void inner_sections(void) {
    int arrived = 0;
    iml_COBEGIN(&two, meet, meet, &one, &arrived);
}

static void inner_tasks(void) {
    iml_group_t group;
    int arrived = 0;
    iml_GroupBegin(&group);
    iml_Spawn(&group, (void (*)(void *))meet, &arrived);
    meet(&arrived);
    iml_Wait(&group);
}

static void middle(void) {
    iml_COBEGIN(&one, inner_sections, &none);
    iml_DOALL(inner_loop, &one, &static_schedule, &one, &none);
    inner_tasks();
}

int main(void) {
    static int arrived;
    if (iml_NumThreads() < 2) {
        puts("skipped: one core");
        return 0;
    }
    for (int n = 0; n < 20; n++) {
        middle();
        arrived = 0;
        iml_EnQ(meet, &one, &arrived);
        meet(&arrived);
        iml_WaitEnQ();
        iml_COBEGIN(&one, middle, &none);
    }
    puts("ok");
    return 0;
}
