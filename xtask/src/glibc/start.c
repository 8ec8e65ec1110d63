/* How a program starts. Since glibc 2.34 the start-up object of the compiler leaves it to
   __libc_start_main to run the program's constructors, and hands it null where it handed a function
   before. An older glibc runs that function or nothing. So this start-up code stands between: it
   hands on a function that does what glibc 2.34 does by itself. */
typedef void constructor(int argc, char **argv, char **environment);

int old_start(int (*main)(int, char **, char **), int argc, char **argv, constructor *init, void (*fini)(void),
              void (*loader_fini)(void), void *stack_end);
__asm__(".symver old_start, __libc_start_main@" OLDEST_VERSION);

extern constructor *__init_array_start[] __attribute__((visibility("hidden")));
extern constructor *__init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void);

static void run_constructors(int argc, char **argv, char **environment) {
    _init();
    for (constructor **next = __init_array_start; next < __init_array_end; next++) (*next)(argc, argv, environment);
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, constructor *init, void (*fini)(void),
                      void (*loader_fini)(void), void *stack_end) {
    return old_start(main, argc, argv, init ? init : run_constructors, fini, loader_fini, stack_end);
}
