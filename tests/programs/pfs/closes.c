/* Closes copies of open files one after the other: of one that was only read, one that could have been written, and twice of one that
 * was, then of another one that was. Argument: a file that is there. Writes the errors' numbers. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words)
{
    if (count != 2) return 2;
    int modes[] = {O_RDONLY, O_RDWR, O_RDWR, O_WRONLY}, files[5];
    char byte;
    for (int n = 0; n < 4; n++)
        if ((files[n] = open(words[1], modes[n])) < 0) return 3;
    if ((files[4] = dup(files[2])) < 0) return 3;
    if (pwrite(files[2], "in memory", 9, 0) != 9 || pwrite(files[3], "!", 1, 9) != 1) return 4;
    if (pread(files[0], &byte, 1, 0) != 1 || pread(files[1], &byte, 1, 0) != 1 || byte != 'i') return 5;
    for (int at = 0; at < 5; at++) {
        int n = (int[]){0, 1, 2, 4, 3}[at];
        printf("%d ", close(files[n]) < 0 ? errno : 0);
    }
    return 0;
}
