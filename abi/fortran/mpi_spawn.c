/* Starting processes: commands and their arguments, which Fortran gives as arrays of texts of one length. */
#include "glue.h"

static MPI_Fint *errcodes(MPI_Fint *codes)
{
    return IS_ERRCODES_IGNORE(codes) ? MPI_ERRCODES_IGNORE : codes;
}

/* A null-terminated list of C strings: the texts from `texts` on, `stride` bytes apart, up to the first blank one. */
static char **list(const char *texts, size_t length, size_t stride)
{
    size_t n = 0;
    for (;; n++) {
        size_t i = 0;
        while (i < length && texts[n * stride + i] == ' ') i++;
        if (i == length) break;
    }
    char **all = margay_allocate(n + 1, sizeof *all);
    for (size_t i = 0; i < n; i++) all[i] = margay_text(texts + i * stride, length, 1);
    return all;
}

static void free_list(char **all)
{
    if (!all) return;
    for (char **one = all; *one; one++) free(*one);
    free(all);
}

void FN(comm_spawn)(char *command, char *argv, MPI_Fint *maxprocs, MPI_Fint *info, MPI_Fint *root, MPI_Fint *comm,
                    MPI_Fint *intercomm, MPI_Fint *codes, MPI_Fint *ierror, size_t command_len, size_t argv_len)
{
    char *c_command = margay_text(command, command_len, 1);
    char **c_argv = IS_ARGV_NULL(argv) ? MPI_ARGV_NULL : list(argv, argv_len, argv_len);
    MPI_Comm c = MPI_COMM_NULL;
    int e = CALL(Comm_spawn)(c_command, c_argv, *maxprocs, FROM_INT(Info, *info), *root, FROM_INT(Comm, *comm), &c,
                             errcodes(codes));
    *intercomm = TO_INT(Comm, c);
    free_list(c_argv);
    free(c_command);
    margay_done(ierror, e);
}
SAME_IN_F08(comm_spawn,
            (char *command, char *argv, MPI_Fint *maxprocs, MPI_Fint *info, MPI_Fint *root, MPI_Fint *comm,
             MPI_Fint *intercomm, MPI_Fint *codes, MPI_Fint *ierror, size_t command_len, size_t argv_len))

/* Only the root's arguments count; elsewhere they may be anything. */
void FN(comm_spawn_multiple)(MPI_Fint *count, char *commands, char *argvs, MPI_Fint *maxprocs, MPI_Fint *infos,
                             MPI_Fint *root, MPI_Fint *comm, MPI_Fint *intercomm, MPI_Fint *codes, MPI_Fint *ierror,
                             size_t command_len, size_t argv_len)
{
    MPI_Comm group = FROM_INT(Comm, *comm), c = MPI_COMM_NULL;
    int rank = MPI_UNDEFINED;
    PMPI_Comm_rank(group, &rank);
    int n = rank == *root ? *count : 0;
    size_t rows = n > 0 ? (size_t)n : 0;
    char **c_commands = margay_allocate(rows, sizeof *c_commands);
    char ***c_argvs = IS_ARGVS_NULL(argvs) ? MPI_ARGVS_NULL : margay_allocate(rows, sizeof *c_argvs);
    for (size_t i = 0; i < rows; i++) {
        c_commands[i] = margay_text(commands + i * command_len, command_len, 1);
        if (c_argvs) c_argvs[i] = list(argvs + i * argv_len, argv_len, rows * argv_len);
    }
    MPI_Info *c_infos = margay_info_in(infos, n);
    int e = CALL(Comm_spawn_multiple)(*count, c_commands, c_argvs, maxprocs, c_infos, *root, group, &c,
                                      errcodes(codes));
    *intercomm = TO_INT(Comm, c);
    for (size_t i = 0; i < rows; i++) {
        free(c_commands[i]);
        if (c_argvs) free_list(c_argvs[i]);
    }
    free(c_commands);
    free(c_argvs);
    free(c_infos);
    margay_done(ierror, e);
}
SAME_IN_F08(comm_spawn_multiple,
            (MPI_Fint *count, char *commands, char *argvs, MPI_Fint *maxprocs, MPI_Fint *infos, MPI_Fint *root,
             MPI_Fint *comm, MPI_Fint *intercomm, MPI_Fint *codes, MPI_Fint *ierror, size_t command_len,
             size_t argv_len))
