/* Wrong arguments, one kind a run. */
#include <iml.h>
#include <stdlib.h>
#include <string.h>

static void task(void) {}
static void loop(int *start, int *iterations) { (void)start, (void)iterations; }
static iml_group_t group;
static void wait_there(void *unused) {
    (void)unused;
    iml_Wait(&group);
}

int main(int argc, char **argv) {
    const int one = 1, none = 0, nine = 9, minus = -1, many = 17;
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "schedule")) iml_DOALL(loop, &one, &nine, &one, &none);
    if (!strcmp(what, "body")) iml_DOALL(NULL, &one, &self_schedule, &one, &none);
    if (!strcmp(what, "params")) iml_EnQ(task, &many);
    if (!strcmp(what, "tasks")) iml_COBEGIN(&minus, task, &none);
    if (!strcmp(what, "threads")) iml_ReInitMultiThread(0);
    if (!strcmp(what, "group")) iml_Wait(&group);
    if (!strcmp(what, "elsewhere")) {
        iml_group_t here;
        iml_GroupBegin(&group);
        iml_GroupBegin(&here);
        iml_Spawn(&here, wait_there, NULL);
        while (iml_NumThreads() > 1) {} /* another thread takes it */
        wait_there(NULL);
    }
    return 0;
}
