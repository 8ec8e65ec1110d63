/* mlp.h: Multi-Level Parallelism, Margay. Printed by `cargo xtask header`; see docs/mlp.md. */
#ifndef MLP_H_INCLUDED
#define MLP_H_INCLUDED

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MLP_OWNER_DIED 1 /* The lock was taken from a process that has ended; what it guards may be half changed. */
#define MLP_ERR_ARGUMENT (-1) /* An argument has a wrong value. */
#define MLP_ERR_STATE (-2) /* Not possible at this point. */
#define MLP_ERR_MEMORY (-3) /* The arena has no room, or the machine has none for the arena. */
#define MLP_ERR_NAME (-4) /* The name is not there, or there with another size. */
#define MLP_ERR_DEATH (-5) /* A process of the group has ended. */
#define MLP_ERR_LOCK (-6) /* The lock is held, or not held, by the caller. */
#define MLP_ERR_SYSTEM (-7) /* The system refuses. */
#define MLP_ERRORS_END 0 /* Errors end the process with a message, and the death of a process ends the group. */
#define MLP_ERRORS_RETURN 1 /* Calls return errors, and when a process dies the others go on. */
#define MLP_LIVING 1 /* The process runs. */
#define MLP_ENDED 2 /* The process has ended with code 0. */
#define MLP_DEAD 3 /* The process was killed or has ended with another code. */
#define MLP_UNKNOWN 1000 /* How the process ended is not known. */

/* An error ends the process with a message, and the group with it; after mlp_errors(MLP_ERRORS_RETURN) calls return a number below 0
 * instead, or a null pointer. */
/* Makes processes until there are numpro; process n gets n in nowpro and nthread[n - 1] threads. */
int forkit(const int nthread[], int numpro, int *nowpro);
/* Makes the arena with this size; without the call the first use makes one of half the memory. */
int mlp_arena(size_t bytes);
/* The address of the part of the arena with that name, made with zeroes if it is not there. */
void *mlp_alloc(const char *name, size_t bytes);
/* The address of the part with that name, and its bytes; null when it is not there. */
void *mlp_find(const char *name, size_t *bytes);
/* Gives the part with that name back. */
int mlp_free(const char *name);
/* The number of this process, from 1. */
int mlp_process(void);
/* How many processes the group was made of. */
int mlp_processes(void);
/* Returns when all processes have called it. */
int mlp_barrier(void);
/* Takes the lock, an integer in the arena that was 0 at first; MLP_OWNER_DIED if its holder died. */
int mlp_lock(int *lock);
/* As mlp_lock if that need not wait, and got is 1; else got is 0. */
int mlp_trylock(int *lock, int *got);
/* Releases the lock. */
int mlp_unlock(int *lock);
/* How many threads this process is to use now; sets OpenMP's number and binds the threads. */
int mlp_threads(void);
/* Binds the calling thread to the CPU of a thread of this process, from 0. */
int mlp_pin(int thread);
/* Lends up to this many CPUs of this process to others; returns how many it lends in addition. */
int mlp_lend(int cpus);
/* Borrows up to this many CPUs that others lend; returns how many. */
int mlp_borrow(int cpus);
/* Wants all CPUs of this process back; returns how many others still use. */
int mlp_reclaim(void);
/* Returns all borrowed CPUs to their owners; returns how many. */
int mlp_return(void);
/* How many CPUs could be borrowed now. */
int mlp_idle(void);
/* Binds a range of the part to a process's node; returns how many pages are still elsewhere. */
long mlp_place(const char *name, size_t offset, size_t bytes, int process);
/* How many pages of a range of the part lie on another node than that of the process. */
long mlp_elsewhere(const char *name, size_t offset, size_t bytes, int process);
/* Prints the placement on standard error. */
int mlp_report(void);
/* The placement as text, cut to size; returns how many bytes all of it has. */
long mlp_report_text(char *text, size_t size);
/* What is done about errors and deaths: MLP_ERRORS_END or MLP_ERRORS_RETURN. */
int mlp_errors(int mode);
/* The text of the last error that was returned, cut to size; returns the bytes of all of it. */
long mlp_error(char *text, size_t size);
/* MLP_LIVING, MLP_ENDED or MLP_DEAD; in status the exit code, minus the signal, or MLP_UNKNOWN. */
int mlp_state(int process, int *status);
/* Agrees with all living processes to go on without the ended ones; returns how many go on. */
int mlp_shrink(void);

#ifdef __cplusplus
}
#endif

#endif
