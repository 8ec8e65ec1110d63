/* What an extension module in a wheel is to its loader: a library that uses a copy of libgomp under a name of its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <omp.h>

int sum_to(int n) {
    int sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(4)
    for (int i = 1; i <= n; i++) sum += i;
    return sum;
}

const char *runtime(void) {
    Dl_info info;
    return dladdr((void *)omp_get_thread_num, &info) ? info.dli_fname : "unknown";
}
