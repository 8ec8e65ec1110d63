/* Writes a file, from its end on, in pieces until there is no space for more, and looks whether it has what was written and nothing
 * behind it. Arguments: file, bytes of a piece, most bytes. Writes its length and the error's number. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What belongs at an offset. */
static char byte_at(size_t at)
{
    return (char)((at * 2654435761u) >> 11);
}

int main(int count, char **words)
{
    if (count != 4) return 2;
    size_t piece = strtoul(words[2], NULL, 10), most = strtoul(words[3], NULL, 10);
    char *bytes = malloc(piece);
    struct stat facts;
    int file = open(words[1], O_RDWR | O_CREAT, 0644), shorts = 0;
    if (!bytes || file < 0 || fstat(file, &facts) < 0) return 2;
    size_t end = (size_t)facts.st_size;
    for (;;) {
        size_t len = most - end < piece ? most - end : piece;
        for (size_t i = 0; i < len; i++) bytes[i] = byte_at(end + i);
        errno = 0;
        ssize_t n = len > 0 ? pwrite(file, bytes, len, (off_t)end) : -1;
        int error = errno;
        if (n > 0) end += (size_t)n;
        shorts += n > 0 && (size_t)n < len;
        if (fstat(file, &facts) < 0 || (size_t)facts.st_size != end) {
            fprintf(stderr, "%zu were written, the file has %lld, shorts %d\n", end, (long long)facts.st_size, shorts);
            return 1;
        }
        if (n <= 0) {
            printf("%zu %d", end, error);
            break;
        }
    }
    for (size_t at = 0; at < end;) {
        ssize_t n = pread(file, bytes, piece, (off_t)at);
        if (n <= 0) return 3;
        for (ssize_t i = 0; i < n; i++, at++)
            if (bytes[i] != byte_at(at)) {
                fprintf(stderr, "byte %zu of %zu is wrong\n", at, end);
                return 1;
            }
    }
    return 0;
}
