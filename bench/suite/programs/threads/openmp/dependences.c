/*
 * Tasks with dependences: a wavefront of blocks, each after the one above and the one to the left, as of sequence alignment; and LU
 * factorization of a dense matrix of blocks. The results are those of the sequential program bit by bit.
 */
#include "../kernels.h"

enum { BLOCKS = 12, BLOCK = 48, SIDE = BLOCKS * BLOCK, TILES = 8, TILE = 24 };

typedef double Tile[TILE][TILE];

static int score[SIDE + 1][SIDE + 1], score_expected[SIDE + 1][SIDE + 1];
static unsigned char across[SIDE], down[SIDE];
static Tile tiles[TILES][TILES], tiles_original[TILES][TILES], tiles_expected[TILES][TILES];

/* Letters with room around them, so that a block's dependences are named by its place. */
static char done[BLOCKS + 1][BLOCKS + 1];

static void __attribute__((noinline)) align(int block_row, int block_column) {
    for (int i = block_row * BLOCK + 1; i <= (block_row + 1) * BLOCK; i++)
        for (int j = block_column * BLOCK + 1; j <= (block_column + 1) * BLOCK; j++) {
            int best = score[i - 1][j - 1] + (down[i - 1] == across[j - 1] ? 5 : -3);
            if (score[i - 1][j] - 4 > best) best = score[i - 1][j] - 4;
            if (score[i][j - 1] - 4 > best) best = score[i][j - 1] - 4;
            score[i][j] = best > 0 ? best : 0;
        }
}

static void wavefront(void) {
#pragma omp parallel num_threads(threads)
#pragma omp single
    for (int i = 0; i < BLOCKS; i++)
        for (int j = 0; j < BLOCKS; j++) {
#pragma omp task depend(in : done[i][j + 1], done[i + 1][j]) depend(out : done[i + 1][j + 1])
            align(i, j);
        }
}

static void factor(Tile *a) {
    for (int k = 0; k < TILE; k++)
        for (int i = k + 1; i < TILE; i++) {
            (*a)[i][k] /= (*a)[k][k];
            for (int j = k + 1; j < TILE; j++) (*a)[i][j] -= (*a)[i][k] * (*a)[k][j];
        }
}

static void forward(Tile *diagonal, Tile *b) {
    for (int k = 0; k < TILE; k++)
        for (int i = k + 1; i < TILE; i++)
            for (int j = 0; j < TILE; j++) (*b)[i][j] -= (*diagonal)[i][k] * (*b)[k][j];
}

static void divide(Tile *diagonal, Tile *b) {
    for (int i = 0; i < TILE; i++)
        for (int k = 0; k < TILE; k++) {
            (*b)[i][k] /= (*diagonal)[k][k];
            for (int j = k + 1; j < TILE; j++) (*b)[i][j] -= (*b)[i][k] * (*diagonal)[k][j];
        }
}

static void __attribute__((noinline)) update(Tile *a, Tile *b, Tile *c) {
    for (int i = 0; i < TILE; i++)
        for (int k = 0; k < TILE; k++)
            for (int j = 0; j < TILE; j++) (*c)[i][j] -= (*a)[i][k] * (*b)[k][j];
}

static void lu_sequential(void) {
    for (int k = 0; k < TILES; k++) {
        factor(&tiles[k][k]);
        for (int j = k + 1; j < TILES; j++) forward(&tiles[k][k], &tiles[k][j]);
        for (int i = k + 1; i < TILES; i++) divide(&tiles[k][k], &tiles[i][k]);
        for (int i = k + 1; i < TILES; i++)
            for (int j = k + 1; j < TILES; j++) update(&tiles[i][k], &tiles[k][j], &tiles[i][j]);
    }
}

static void lu(void) {
#pragma omp parallel num_threads(threads)
#pragma omp single
    for (int k = 0; k < TILES; k++) {
#pragma omp task depend(inout : tiles[k][k])
        factor(&tiles[k][k]);
        for (int j = k + 1; j < TILES; j++) {
#pragma omp task depend(in : tiles[k][k]) depend(inout : tiles[k][j])
            forward(&tiles[k][k], &tiles[k][j]);
        }
        for (int i = k + 1; i < TILES; i++) {
#pragma omp task depend(in : tiles[k][k]) depend(inout : tiles[i][k])
            divide(&tiles[k][k], &tiles[i][k]);
        }
        for (int i = k + 1; i < TILES; i++)
            for (int j = k + 1; j < TILES; j++) {
#pragma omp task depend(in : tiles[i][k], tiles[k][j]) depend(inout : tiles[i][j])
                update(&tiles[i][k], &tiles[k][j], &tiles[i][j]);
            }
    }
}

static void score_prepare(void) { memset(score, 0, sizeof score); }
static long score_wrong(void) { return kernels_differ(score, score_expected, sizeof score); }
static void tiles_prepare(void) { memcpy(tiles, tiles_original, sizeof tiles); }
static long tiles_wrong(void) { return kernels_differ(tiles, tiles_expected, sizeof tiles); }

int main(int argc, char **argv) {
    threads_start(argc, argv, "dependences", openmp_symbol);
    for (int i = 0; i < SIDE; i++) {
        across[i] = (unsigned char)(threads_mix((uint64_t)i) & 3);
        down[i] = (unsigned char)(threads_mix((uint64_t)i + SIDE) & 3);
    }
    score_prepare();
    for (int i = 0; i < BLOCKS; i++)
        for (int j = 0; j < BLOCKS; j++) align(i, j);
    memcpy(score_expected, score, sizeof score);
    threads_measure("wavefront", "us", 1e6, score_prepare, wavefront, score_wrong);
    kernels_fill(&tiles_original[0][0][0][0], TILES * TILES * TILE * TILE, 1);
    for (int k = 0; k < TILES; k++)
        for (int i = 0; i < TILE; i++) tiles_original[k][k][i][i] += TILES * TILE;
    tiles_prepare();
    lu_sequential();
    memcpy(tiles_expected, tiles, sizeof tiles);
    threads_measure("lu", "us", 1e6, tiles_prepare, lu, tiles_wrong);
    return suite_failed;
}
