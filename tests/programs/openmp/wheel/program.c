/* What an interpreter is to a module: knows nothing of OpenMP and loads it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *module = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!module) {
        printf("%s\n", argc > 1 ? dlerror() : "no module");
        return 2;
    }
    int (*sum_to)(int) = (int (*)(int))dlsym(module, "sum_to");
    const char *(*runtime)(void) = (const char *(*)(void))dlsym(module, "runtime");
    printf("%d by %s\n", sum_to(100), runtime());
    return 0;
}
