/* Nested loops and tasks, with the threads and the memory that the process's limits allow. */
#include <iml.h>
#include <stdatomic.h>

static atomic_long sum;

static void inner(int64_t begin, int64_t end, void *data) {
    (void)data;
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&sum, 1);
}

static void task(void *data) {
    iml_For(0, 10, 1, inner, data, NULL);
}

static void outer(int64_t begin, int64_t end, void *data) {
    for (int64_t i = begin; i < end; i++) {
        iml_group_t group;
        iml_GroupBegin(&group);
        for (int n = 0; n < 5; n++) iml_Spawn(&group, task, data);
        iml_Wait(&group);
    }
}

int main(void) {
    iml_For(0, 100, 1, outer, NULL, NULL);
    return atomic_load(&sum) == 100 * 5 * 10 ? 0 : 2;
}
