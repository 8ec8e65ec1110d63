/* Many requests at the same time: each thread writes and reads a piece of a file of its own. Arguments: the file, the first piece, pieces, and
 * bytes of a piece. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int file;
static size_t length;
static long first;
static pthread_barrier_t all;

static void *move(void *number)
{
    long piece = first + (long)number;
    char *bytes = malloc(length), *back = malloc(length);
    if (!bytes || !back) return "no memory";
    memset(bytes, (int)(piece % 255) + 1, length);
    pthread_barrier_wait(&all);
    if (pwrite(file, bytes, length, piece * (off_t)length) != (ssize_t)length) return "not written";
    pthread_barrier_wait(&all);
    if (pread(file, back, length, piece * (off_t)length) != (ssize_t)length) return "not read";
    const char *why = memcmp(bytes, back, length) == 0 ? NULL : "wrong";
    free(bytes);
    free(back);
    return (void *)why;
}

int main(int count, char **words)
{
    if (count != 5) return 1;
    long pieces = atol(words[3]);
    pthread_t threads[256];
    file = open(words[1], O_RDWR | O_CREAT, 0644);
    first = atol(words[2]);
    length = (size_t)atol(words[4]);
    if (file < 0 || pieces > 256) return 1;
    pthread_barrier_init(&all, NULL, (unsigned)pieces);
    for (long i = 0; i < pieces; i++)
        if (pthread_create(&threads[i], NULL, move, (void *)i)) return 1;
    for (long i = 0; i < pieces; i++) {
        void *why;
        pthread_join(threads[i], &why);
        if (why) {
            printf("piece %ld: %s\n", first + i, (char *)why);
            return 1;
        }
    }
    puts("ok");
    return 0;
}
