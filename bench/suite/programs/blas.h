/*
 * BLAS of the system, found when the program runs, so that no package for developers is needed: OpenBLAS, BLIS, MKL, the
 * reference library; or the file that MARGAY_BLAS names. Interfaces are those of Fortran with 32-bit integers. Each rank
 * computes with the number of threads that `blas_open` gets.
 */
#ifndef BLAS_H
#define BLAS_H
#include <dlfcn.h>
#include "suite.h"

static struct {
    void (*gemm)(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *,
                 const double *, const int *, const double *, double *, const int *);
    void (*trsm)(const char *, const char *, const char *, const char *, const int *, const int *, const double *, const double *,
                 const int *, double *, const int *);
    void (*trsv)(const char *, const char *, const char *, const int *, const double *, const int *, double *, const int *);
    void (*gemv)(const char *, const int *, const int *, const double *, const double *, const int *, const double *, const int *,
                 const double *, double *, const int *);
    int (*iamax)(const int *, const double *, const int *);
    /* LAPACK's LU; NULL where the library has none. */
    void (*getrf)(const int *, const int *, double *, const int *, int *, int *);
    char name[160];
} blas;

static inline void *blas_symbol(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol) suite_fail("%s has no %s", blas.name, name);
    return symbol;
}

#if defined __x86_64__
/*
 * OpenBLAS takes a kernel of twenty years ago for a processor that is newer than itself. When it
 * did, a newer kernel that the processor can run is set, and it is loaded again.
 */
static inline void *blas_newer(void *library, const char *file) {
    const char *(*core)(void) = (const char *(*)(void))dlsym(library, "openblas_get_corename");
    static const char *const old[] = {"Prescott", "Core2", "Generic", "generic", "Nehalem", "Unknown"};
    const char *fits = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") ? "SkylakeX"
                       : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")        ? "Haswell"
                                                                                                : NULL;
    for (size_t n = 0; core && fits && !getenv("OPENBLAS_CORETYPE") && n < sizeof old / sizeof old[0]; n++)
        if (strcmp(core(), old[n]) == 0) {
            dlclose(library);
            setenv("OPENBLAS_CORETYPE", fits, 1);
            return dlopen(file, RTLD_NOW | RTLD_LOCAL);
        }
    return library;
}
#else
static inline void *blas_newer(void *library, const char *file) {
    (void)file;
    return library;
}
#endif

static inline void blas_open(int threads) {
    static const char *const files[] = {"libopenblas.so.0", "libopenblas.so", "libblis.so.4", "libblis.so.3", "libblis.so",
                                        "libmkl_rt.so.2", "libblas.so.3"};
    const char *named = getenv("MARGAY_BLAS"), *file = named;
    char number[16];
    snprintf(number, sizeof number, "%d", threads);
    setenv("OPENBLAS_NUM_THREADS", number, 1);
    setenv("BLIS_NUM_THREADS", number, 1);
    setenv("MKL_NUM_THREADS", number, 1);
    void *library = named ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t n = 0; !named && !library && n < sizeof files / sizeof files[0]; n++)
        library = dlopen(file = files[n], RTLD_NOW | RTLD_LOCAL);
    if (!library && named) suite_misused("MARGAY_BLAS: %s", dlerror());
    if (!library)
        suite_misused("no BLAS library: install OpenBLAS or BLIS (Debian, Ubuntu: apt-get install libopenblas0-pthread), or name "
                      "one by MARGAY_BLAS=FILE");
    library = blas_newer(library, file);
    if (!library) suite_fail("%s: %s", file, dlerror());
    snprintf(blas.name, sizeof blas.name, "%s", file);
    const char *(*config)(void) = (const char *(*)(void))dlsym(library, "openblas_get_config");
    const char *(*core)(void) = (const char *(*)(void))dlsym(library, "openblas_get_corename");
    if (config && core) {
        const char *words = config(), *version = strchr(words, ' ');
        size_t length = version ? (size_t)(version - words) + 1 + strcspn(version + 1, " ") : strlen(words);
        snprintf(blas.name, sizeof blas.name, "%.*s, kernels for %s", (int)length, words, core());
    }
    *(void **)&blas.gemm = blas_symbol(library, "dgemm_");
    *(void **)&blas.trsm = blas_symbol(library, "dtrsm_");
    *(void **)&blas.trsv = blas_symbol(library, "dtrsv_");
    *(void **)&blas.gemv = blas_symbol(library, "dgemv_");
    *(void **)&blas.iamax = blas_symbol(library, "idamax_");
    *(void **)&blas.getrf = dlsym(library, "dgetrf_");
    suite_note("BLAS: %s; %d thread%s for each rank", blas.name, threads, threads == 1 ? "" : "s");
}

/* C (m by n) = beta C + alpha A (m by k) B (k by n), all by columns. */
static inline void blas_multiply(int m, int n, int k, double alpha, const double *a, size_t lda, const double *b, size_t ldb,
                                 double beta, double *c, size_t ldc) {
    int la = (int)lda, lb = (int)ldb, lc = (int)ldc;
    if (m > 0 && n > 0 && k > 0) blas.gemm("N", "N", &m, &n, &k, &alpha, a, &la, b, &lb, &beta, c, &lc);
}

/*
 * B (m by n) = inverse of the lower triangle of A, whose diagonal is 1, times B. Recursive down to 16 rows, so that most of
 * the work is multiplication: the libraries' own DTRSM of 192 rows took 12 % of LINPACK's time, this takes 7 %.
 */
static inline void blas_solve_lower(int m, int n, const double *a, size_t lda, double *b, size_t ldb) {
    int la = (int)lda, lb = (int)ldb;
    double one = 1;
    if (m <= 0 || n <= 0) return;
    if (m <= 16) {
        blas.trsm("L", "L", "N", "U", &m, &n, &one, a, &la, b, &lb);
        return;
    }
    const int half = (m / 2 + 7) / 8 * 8;
    blas_solve_lower(half, n, a, lda, b, ldb);
    blas_multiply(m - half, n, half, -1, a + half, lda, b, ldb, 1, b + half, ldb);
    blas_solve_lower(m - half, n, a + (size_t)half * (lda + 1), lda, b + half, ldb);
}
#endif
