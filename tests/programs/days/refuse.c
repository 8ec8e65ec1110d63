/* Runs a command for which the kernel refuses cross-memory attach, as containers do.
 * Usage: refuse EPERM|ENOSYS read|write|both <command> <arguments> */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 4) return 2;
    unsigned error = strcmp(argv[1], "EPERM") ? ENOSYS : EPERM;
    unsigned read = strcmp(argv[2], "write") ? SYS_process_vm_readv : SYS_process_vm_writev;
    unsigned write = strcmp(argv[2], "read") ? SYS_process_vm_writev : SYS_process_vm_readv;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, read, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, write, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("refuse: no filter");
        return 1;
    }
    execvp(argv[3], argv + 3);
    perror(argv[3]);
    return 1;
}
