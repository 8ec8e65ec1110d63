/* Unbalanced tree search by groups of IML's tasks. */
#include "../uts.h"
#include "../by_iml.h"

/* A node, and how many nodes there are below it and itself. */
typedef struct { uint64_t parent; int number; long nodes; } Node;

static void walk(void *argument) {
    Node *node = argument, below[UTS_CHILDREN];
    const uint64_t state = uts_child(node->parent, node->number);
    const int children = uts_children(state);
    node->nodes = 1;
    if (children == 0) return;
    iml_group_t group;
    iml_GroupBegin(&group);
    for (int n = 0; n < children; n++) {
        below[n] = (Node){state, n, 0};
        iml_Spawn(&group, walk, &below[n]);
    }
    iml_Wait(&group);
    for (int n = 0; n < children; n++) node->nodes += below[n].nodes;
}

static void body(void) {
    static Node below[UTS_ROOTS];
    iml_group_t group;
    iml_GroupBegin(&group);
    for (int n = 0; n < UTS_ROOTS; n++) {
        below[n] = (Node){0, n, 0};
        iml_Spawn(&group, walk, &below[n]);
    }
    iml_Wait(&group);
    uts_nodes = 1;
    for (int n = 0; n < UTS_ROOTS; n++) uts_nodes += below[n].nodes;
}

int main(int argc, char **argv) {
    iml_start(argc, argv, "uts");
    uts_expect();
    threads_measure("node", "ns", 1e9 / (double)uts_expected, uts_prepare, body, uts_wrong);
    return suite_failed;
}
