/* Lines of a picture by a loop of IML. */
#include "../scanlines.h"
#include "../by_iml.h"

static int height = SCANLINES_HEIGHT, schedule = IML_SELF, chunk = 1, none = 0;

static void lines(int *start, int *iterations) {
    for (int line = *start; line < *start + *iterations; line++) scanlines_line(line);
}

static void body(void) { iml_DOALL(lines, &height, &schedule, &chunk, &none); }

int main(int argc, char **argv) {
    iml_start(argc, argv, "scanlines");
    scanlines_expect();
    threads_measure("lines", "ms", 1e3, scanlines_prepare, body, scanlines_wrong);
    return suite_failed;
}
