/* IML as the programs use it: on as many threads as teams have elsewhere, but never on more than there are cores. */
#ifndef THREADS_BY_IML_H
#define THREADS_BY_IML_H
#include <iml.h>

#include "threads.h"

static inline void iml_start(int argc, char **argv, const char *program) {
    threads_start(argc, argv, program, "iml_DOALL");
    iml_ReInitMultiThread(threads);
}
#endif
