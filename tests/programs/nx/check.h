/* What the NX programs share: each node checks, node 0 says "ok" when all of them have come through. */
#include <errno.h>
#include <nx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: node %ld: %s\n", __FILE__, __LINE__, mynode(), #condition);   \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

static inline void all_is_well(void) {
    gsync();
    if (mynode() == 0) puts("ok");
}
