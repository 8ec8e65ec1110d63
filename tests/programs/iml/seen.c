/* Tasks that stay until the process is ended from outside: what gdb shows of them. The program thread waits for a group, a task of it
 * waits for one of its own, and the last task says when all threads are where they stay. */
#include <iml.h>
#include <stdio.h>
#include <unistd.h>

static volatile int arrived;

static void stay(int mine)
{
    /* One for each thread, at most two: then the others are tasks of those that run. */
    int all = iml_NumThreads() > 1 ? 2 : 1;
    if (__atomic_add_fetch(&arrived, 1, __ATOMIC_SEQ_CST) == all) {
        puts("ready");
        fflush(stdout);
    }
    for (;;)
        sleep(mine);
}

static void inner(void *argument)
{
    stay(1000 + *(int *)argument);
}

static void outer(void *argument)
{
    iml_group_t group;
    iml_GroupBegin(&group);
    iml_Spawn(&group, inner, argument);
    iml_Wait(&group);
}

int main(void)
{
    int numbers[2] = {10, 20};
    iml_group_t group;
    iml_GroupBegin(&group);
    iml_Spawn(&group, outer, &numbers[0]);
    iml_Spawn(&group, outer, &numbers[1]);
    iml_Wait(&group);
    return 0;
}
