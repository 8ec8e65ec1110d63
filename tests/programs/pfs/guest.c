/* Shows a ticket of the direct way, and says whether it lets in. The arguments are the name of the socket and the ticket in
 * hexadecimal. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    unsigned char ticket[16], byte;
    if (argc != 3) return 2;
    for (int i = 0; i < 16; i++)
        if (sscanf(argv[2] + 2 * i, "%2hhx", &ticket[i]) != 1) return 2;
    strncpy(name.sun_path + 1, argv[1], sizeof name.sun_path - 2);
    int line = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(argv[1]));
    if (connect(line, (struct sockaddr *)&name, length) < 0) return 3;
    puts(send(line, ticket, sizeof ticket, 0) == sizeof ticket && recv(line, &byte, 1, 0) == 1 ? "in" : "out");
    return 0;
}
