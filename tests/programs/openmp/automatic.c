/* Loops without a directive: gcc makes them parallel itself (-ftree-parallelize-loops). */
#include <stdio.h>

#define N 100000
static double a[N], b[N], c[N];

int main(void)
{
	for (int i = 0; i < N; i++) {
		a[i] = i;
		b[i] = 2 * i;
	}
	for (int i = 0; i < N; i++)
		c[i] = a[i] * 3 + b[i];
	long sum = 0;
	for (int i = 0; i < N; i++)
		sum += (long)c[i];
	printf("%s\n", sum == 5L * N * (N - 1L) / 2 ? "PASSED" : "FAILED");
	return 0;
}
