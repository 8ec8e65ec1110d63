/* Names: made before and after the fork, by any process, found by all at the same address; zeroed, freed, refused. */
#include "check.h"

struct node {
    struct node *next;
    int value;
};

int main(int argc, char **argv) {
    int processes = argc > 1 ? atoi(argv[1]) : 3;
    char text[512];
    if (argc > 2 && strcmp(argv[2], "large") == 0) {
        mlp_arena((size_t)1 << 60); /* ends the process */
        return 0;
    }
    CHECK(mlp_arena(64 << 20) == 0);
    char *before = mlp_alloc("before", 3 << 20);
    memset(before, 7, 3 << 20);
    int me = fork_all(processes, 1);
    CHECK(mlp_find("before", NULL) == before && before[(3 << 20) - 1] == 7);

    /* Everybody asks for the same; the first process makes it. */
    long *all = mlp_alloc("all", sizeof(long) * 512);
    CHECK((size_t)all % 128 == 0 || (size_t)all % 4096 == 0);
    all[me] = (long)all;
    mlp_barrier();
    for (int n = 1; n <= processes; n++) CHECK(all[n] == (long)all);

    /* A list whose links are plain pointers, each node made by another process. */
    sprintf(text, "node %d", me);
    struct node *own = mlp_alloc(text, sizeof *own);
    own->value = me * me;
    mlp_barrier();
    sprintf(text, "node %d", me % processes + 1);
    size_t bytes = 0;
    own->next = mlp_find(text, &bytes);
    CHECK(own->next && bytes == sizeof *own);
    mlp_barrier();
    struct node *at = own;
    int sum = 0, wanted = 0;
    for (int n = 1; n <= processes; n++, at = at->next) sum += at->value, wanted += n * n;
    CHECK(at == own && sum == wanted);
    CHECK(mlp_find("nobody made this", &bytes) == NULL && bytes == 0);
    mlp_barrier();

    /* What was freed is zero when it is made again, also where it does not fill pages. */
    if (me == processes) {
        CHECK(mlp_free("before") == 0);
        char *again = mlp_alloc("again", 3 << 20);
        CHECK(again == before);
        for (int i = 0; i < 3 << 20; i++) CHECK(again[i] == 0);
        char *small = mlp_alloc("small", 300);
        memset(small, 1, 300);
        mlp_free("small");
        CHECK(mlp_alloc("small", 200) == small && small[0] == 0 && small[199] == 0);
    }
    mlp_barrier();

    /* Errors that are returned, and their texts. */
    mlp_errors(MLP_ERRORS_RETURN);
    CHECK(mlp_alloc("again", 5) == NULL);
    mlp_error(text, sizeof text);
    CHECK(strstr(text, "mlp_alloc: 'again' is there with 3145728 bytes, made by process") == text);
    CHECK(mlp_error(text, 4) > 4 && strcmp(text, "mlp") == 0);
    CHECK(mlp_alloc("huge", 1 << 30) == NULL);
    CHECK(mlp_alloc("", 5) == NULL && mlp_alloc("x", 0) == NULL && mlp_alloc(NULL, 5) == NULL);
    CHECK(mlp_free("nobody made this") == MLP_ERR_NAME);
    CHECK(mlp_arena(1 << 20) == MLP_ERR_STATE);
    int nthread[1] = {1}, nowpro = 0;
    CHECK(forkit(nthread, 1, &nowpro) == MLP_ERR_STATE);
    CHECK(mlp_pin(1) == MLP_ERR_ARGUMENT && mlp_pin(-1) == MLP_ERR_ARGUMENT && mlp_pin(0) == 0);
    CHECK(mlp_place("again", 0, 5 << 20, 1) == MLP_ERR_ARGUMENT);
    CHECK(mlp_place("again", 4096, 1 << 20, processes + 1) == MLP_ERR_ARGUMENT);
    CHECK(mlp_place("again", 4096, 1 << 20, 1) == 0 && mlp_elsewhere("again", 0, 3 << 20, 1) == 0);
    CHECK(mlp_state(0, NULL) == MLP_ERR_ARGUMENT && mlp_state(me, NULL) == MLP_LIVING);
    int outside = 0;
    CHECK(mlp_lock(&outside) == MLP_ERR_ARGUMENT && mlp_unlock(NULL) == MLP_ERR_ARGUMENT);
    mlp_barrier();
    if (me == 1) printf("ok\n");
    return 0;
}
