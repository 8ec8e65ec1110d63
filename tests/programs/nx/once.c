/* All nodes read a file in mode M_GLOBAL, by which one node reads and the others get its bytes. Arguments: the file, bytes of a record.
 * Byte i of the file is i modulo 251. */
#include <fcntl.h>
#include <nx.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words)
{
    long length = count == 3 ? atol(words[2]) : 0, at = 0, wrong = 0, got;
    unsigned char *bytes = malloc((size_t)length);
    if (!bytes || count != 3) return 1;
    int fd = gopen(words[1], O_RDONLY, M_GLOBAL, 0);
    while ((got = _cread(fd, bytes, (unsigned)length)) > 0)
        for (long i = 0; i < got; i++, at++) wrong += bytes[i] != at % 251;
    gisum(&wrong, 1, &got);
    if (mynode() == 0) printf("%ld bytes, %ld wrong\n", at, wrong);
    close(fd);
    return 0;
}
