/* OpenMP as the programs use it; compiled without OpenMP they are the sequential ones. */
#ifndef THREADS_OPENMP_H
#define THREADS_OPENMP_H
#include "threads.h"

#ifdef _OPENMP
#include <omp.h>
static const char *const openmp_symbol = "omp_get_max_threads";
#else
static const char *const openmp_symbol = NULL;
#endif
#endif
