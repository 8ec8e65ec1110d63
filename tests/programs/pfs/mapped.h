#include <stdio.h>
#include <string.h>

/* Whether the memory of a direct way is mapped. */
static int has_direct(void)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) found |= strstr(line, "margay-common") != NULL;
    fclose(maps);
    return found;
}
