/* NX's calls that make, change and ask for partitions. */
#include <errno.h>
#include <nx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                        \
    do {                                                                                   \
        if (!(what)) {                                                                     \
            printf("line %d: %s fails, errno %d: ", __LINE__, #what, errno);               \
            fflush(stdout);                                                                \
            nx_perror("");                                                                 \
            return 1;                                                                      \
        }                                                                                  \
    } while (0)

int main(void) {
    nx_part_info_t info;
    nx_nodes_t nodes;
    nx_pspart_t *running;
    long n, map[] = {0};
    CHECK(nx_part_attr(".compute", &info) == 0);
    long all = info.nodes;
    CHECK(info.sched == NX_STD && info.access == 0755 && info.epl == 10 && info.mesh_x * info.mesh_y == all);
    CHECK(nx_mkpart("a", -1, NX_STD) == all);
    CHECK(nx_mkpart("a.b", 1, NX_GANG) == 1);
    CHECK(nx_part_attr("a.b", &info) == 0 && info.sched == NX_GANG && info.rq == 60000 && info.nodes == 1);
    CHECK(info.uid == (long)getuid() && info.mesh_x == 1 && info.enclose_mesh_y == 1);
    CHECK(nx_mkpart_rect("a.c", 1, 1, NX_SPS) == 1);
    CHECK(nx_mkpart_map("a.d", 1, map, NX_STD) == 1);
    CHECK(nx_mkpart_attr("a.e", NX_ATTR_SZ, 1, NX_ATTR_SCHED, NX_GANG, NX_ATTR_RQ, 500, NX_ATTR_EPL, 3, NX_ATTR_MOD, 0700,
                         NX_ATTR_RELAXED, 1, NX_ATTR_END) == 1);
    CHECK(nx_part_attr("a.e", &info) == 0 && info.rq == 500 && info.epl == 3 && info.access == 0700);
    CHECK(nx_part_nodes("a.d", &nodes, &n) == 0 && n == 1 && nodes[0] == 0);
    free(nodes);
    CHECK(nx_chpart_name("a.d", "z") == 0 && nx_chpart_epl("a.z", 2) == 0 && nx_chpart_mod("a.z", 0711) == 0);
    CHECK(nx_chpart_rq("a.z", 250) == 0 && nx_part_attr("a.z", &info) == 0);
    CHECK(info.sched == NX_GANG && info.rq == 250 && info.epl == 2 && info.access == 0711);
    CHECK(nx_chpart_sched("a.z", NX_SPS) == 0 && nx_chpart_owner("a.z", -1, (long)getgid()) == 0);
    CHECK(nx_part_attr("a.z", &info) == 0 && info.sched == NX_SPS && info.gid == (long)getgid());
    CHECK(nx_pspart("a", &running, &n) == 0 && n == 0);
    free(running);
    CHECK(nx_empty_nodes(&nodes, &n) == 0 && n == all);
    free(nodes);
    CHECK(nx_failed_nodes(&nodes, &n) == 0 && n == 0);
    free(nodes);

    CHECK(_nx_mkpart("a", 1, NX_STD) == -1 && errno == EQPARTITION);
    CHECK(_nx_mkpart("b", all + 1, NX_STD) == -1 && errno == EQPARTITION);
    CHECK(_nx_mkpart("b", 1, 9) == -1 && errno == EQPARAM);
    CHECK(_nx_mkpart_rect("b", 0, 1, NX_STD) == -1 && errno == EQPARAM);
    CHECK(_nx_part_attr("none", &info) == -1 && errno == EQPARTITION);
    CHECK(_nx_rmpart("a", 0, 0) == -1 && errno == EQPARTITION);
    nx_perror("rmpart");
    CHECK(nx_rmpart("a", 1, 1) == 0 && _nx_part_attr("a.b", &info) == -1);
    printf("all right\n");
    return 0;
}
