/*
 * LU factorization with row pivoting of a block scattered matrix, looking right, one panel ahead: while the trailing matrix
 * is updated with one panel, the next one has been factored already and is on its way. Then the solution by U.
 *
 * With several process rows, the rows that pivots exchange travel for one set of columns while another is multiplied.
 */
#ifndef LU_H
#define LU_H
#include "panel.h"

enum { LU_SLAB = 1024, LU_CHUNK = 512, LU_TAG = 2 };

/* What the pivots of a panel exchange, as one permutation. Rows are local indices on their process. */
typedef struct {
    int width, top;            /* `top`: local row of the top block on its process */
    int home;                  /* the process row of the top block */
    int *source_process, *source_row; /* whose row becomes row j of U */
    int moved;                 /* rows outside of the top block that get one of it */
    int *to_process, *to_row, *from_top;
    int *gives, *gets;         /* for each process row: rows of U that it has; moved rows that it gets */
    int *touched, *content;
} Swaps;

static inline int *lu_integers(size_t count) {
    int *memory = malloc((count ? count : 1) * sizeof(int));
    if (!memory) suite_fail("no memory for row numbers");
    return memory;
}

static inline void swaps_make(Swaps *s, int nb, int P) {
    int **lists[] = {&s->source_process, &s->source_row, &s->to_process, &s->to_row, &s->from_top, &s->touched, &s->content};
    for (size_t n = 0; n < sizeof lists / sizeof lists[0]; n++) *lists[n] = lu_integers((size_t)nb * 2);
    s->gives = lu_integers((size_t)P);
    s->gets = lu_integers((size_t)P);
}

static inline void swaps_free(Swaps *s) {
    int *lists[] = {s->source_process, s->source_row, s->to_process, s->to_row, s->from_top, s->touched, s->content, s->gives, s->gets};
    for (size_t n = 0; n < sizeof lists / sizeof lists[0]; n++) free(lists[n]);
}

static inline void swaps_plan(Swaps *s, const Panel *panel, const Matrix *m) {
    const int width = panel->width, first = panel->first, P = m->grid->P, nb = m->nb;
    int *top = s->content, *touched = s->touched, *got = s->content + nb, count = 0;
    for (int j = 0; j < width; j++) top[j] = first + j;
    for (int j = 0; j < width; j++) {
        int row = (int)panel->pivots[j], at = 0, kept = top[j];
        if (row < first + width) {
            top[j] = top[row - first];
            top[row - first] = kept;
            continue;
        }
        while (at < count && touched[at] != row) at++;
        if (at == count) {
            touched[count] = got[count] = row;
            count++;
        }
        top[j] = got[at];
        got[at] = kept;
    }
    s->width = width;
    s->home = grid_owner(first, nb, P);
    s->top = grid_local(first, nb, P);
    memset(s->gives, 0, (size_t)P * sizeof(int));
    memset(s->gets, 0, (size_t)P * sizeof(int));
    for (int j = 0; j < width; j++) {
        s->source_process[j] = grid_owner(top[j], nb, P);
        s->source_row[j] = grid_local(top[j], nb, P);
        s->gives[s->source_process[j]]++;
    }
    s->moved = count;
    for (int n = 0; n < count; n++) {
        s->to_process[n] = grid_owner(touched[n], nb, P);
        s->to_row[n] = grid_local(touched[n], nb, P);
        s->from_top[n] = got[n] - first;
        s->gets[s->to_process[n]]++;
    }
}

/* Some columns on their way through the exchange of rows: what is sent, what comes, and the rows of U that result. */
typedef struct {
    int column, count;
    double *mine, *all, *out, *in, *u;
    int *counts, *places;
    MPI_Request *requests;
    int open;
} Chunk;

static inline void chunk_make(Chunk *c, int nb, int P) {
    size_t bytes = (size_t)nb * LU_CHUNK * sizeof(double);
    double **buffers[] = {&c->mine, &c->all, &c->out, &c->in, &c->u};
    for (size_t n = 0; n < sizeof buffers / sizeof buffers[0]; n++) *buffers[n] = suite_memory(bytes);
    c->counts = lu_integers((size_t)P);
    c->places = lu_integers((size_t)P);
    c->requests = malloc(((size_t)P + 1) * sizeof(MPI_Request));
    if (!c->requests) suite_fail("no memory for requests");
    c->open = 0;
}

static inline void chunk_free(Chunk *c) {
    void *parts[] = {c->mine, c->all, c->out, c->in, c->u, c->counts, c->places, c->requests};
    for (size_t n = 0; n < sizeof parts / sizeof parts[0]; n++) free(parts[n]);
}

/* Packs the rows of U and the rows that the top block gives, and sends them on their way. */
static inline void chunk_start(Chunk *c, const Swaps *s, const Matrix *m, int column, int count) {
    const Grid *grid = m->grid;
    const int p = grid->p, P = grid->P;
    c->column = column;
    c->count = count;
    c->open = 0;
    double *packed = c->mine;
    for (int n = 0; n < count; n++) {
        const double *from = m->a + (size_t)(column + n) * m->ld;
        for (int j = 0; j < s->width; j++)
            if (s->source_process[j] == p) *packed++ = from[s->source_row[j]];
    }
    for (int r = 0, place = 0; r < P; r++) {
        c->counts[r] = s->gives[r] * count;
        c->places[r] = place;
        place += c->counts[r];
    }
    MPI_Iallgatherv(c->mine, c->counts[p], MPI_DOUBLE, c->all, c->counts, c->places, MPI_DOUBLE, grid->column, &c->requests[c->open++]);
    if (p != s->home) {
        if (s->gets[p] > 0)
            MPI_Irecv(c->in, s->gets[p] * count, MPI_DOUBLE, s->home, LU_TAG, grid->column, &c->requests[c->open++]);
        return;
    }
    double *out = c->out;
    for (int r = 0; r < P; r++) {
        if (s->gets[r] == 0) continue;
        double *start = r == p ? c->in : out, *next = start;
        for (int n = 0; n < count; n++) {
            const double *from = m->a + (size_t)(column + n) * m->ld + s->top;
            for (int k = 0; k < s->moved; k++)
                if (s->to_process[k] == r) *next++ = from[s->from_top[k]];
        }
        if (r == p) continue;
        MPI_Isend(start, s->gets[r] * count, MPI_DOUBLE, r, LU_TAG, grid->column, &c->requests[c->open++]);
        out = next;
    }
}

/* Waits for the rows, puts them where they belong and leaves the rows of U, not yet solved for, in `u`. */
static inline void chunk_finish(Chunk *c, const Swaps *s, Matrix *m) {
    const int p = m->grid->p, width = s->width;
    MPI_Waitall(c->open, c->requests, MPI_STATUSES_IGNORE);
    c->open = 0;
    const double *in = c->in;
    for (int n = 0; n < c->count; n++) {
        double *to = m->a + (size_t)(c->column + n) * m->ld;
        for (int k = 0; k < s->moved; k++)
            if (s->to_process[k] == p) to[s->to_row[k]] = *in++;
    }
    for (int r = 0; r < m->grid->P; r++) {
        const double *from = c->all + c->places[r];
        for (int n = 0; n < c->count; n++)
            for (int j = 0; j < width; j++)
                if (s->source_process[j] == r) c->u[(size_t)n * (size_t)width + (size_t)j] = *from++;
    }
}

/* The factorization under way. */
typedef struct {
    Matrix *m;
    Panel panels[2];
    Swaps swaps;
    Chunk chunks[2];
    double *spare; /* the rows of U of one column */
    int singular;
} Lu;

/* Exchanges rows, solves for U and updates, for `count` local columns from `column` on; one process row. */
static inline void lu_update_alone(Lu *lu, const Panel *panel, int column, int count) {
    Matrix *m = lu->m;
    const Swaps *s = &lu->swaps;
    for (int n = 0; n < count; n++) {
        double *a = m->a + (size_t)(column + n) * m->ld;
        for (int j = 0; j < s->width; j++) lu->spare[j] = a[s->source_row[j]];
        for (int k = 0; k < s->moved; k++) a[s->to_row[k]] = a[s->top + s->from_top[k]];
        memcpy(a + s->top, lu->spare, (size_t)s->width * sizeof(double));
    }
    double *u = m->a + (size_t)column * m->ld + s->top, *rest = u + s->width;
    blas_solve_lower(s->width, count, panel->top, (size_t)s->width, u, m->ld);
    blas_multiply(panel_below_rows(panel), count, s->width, -1, panel_below(panel), panel->ld, u, m->ld, 1, rest, m->ld);
}

/* The same for a chunk whose rows are on their way. */
static inline void lu_update_chunk(Lu *lu, const Panel *panel, Chunk *c, Chunk *next) {
    Matrix *m = lu->m;
    const Swaps *s = &lu->swaps;
    const int width = s->width, half = (c->count + 1) / 2;
    chunk_finish(c, s, m);
    blas_solve_lower(width, c->count, panel->top, (size_t)width, c->u, (size_t)width);
    double *a = m->a + (size_t)c->column * m->ld;
    if (m->grid->p == s->home)
        for (int n = 0; n < c->count; n++)
            memcpy(a + (size_t)n * m->ld + s->top, c->u + (size_t)n * (size_t)width, (size_t)width * sizeof(double));
    double *rest = a + panel->row + panel->skip;
    for (int n = 0; n < c->count; n += half) {
        const int count = c->count - n < half ? c->count - n : half;
        blas_multiply(panel_below_rows(panel), count, width, -1, panel_below(panel), panel->ld, c->u + (size_t)n * (size_t)width,
                      (size_t)width, 1, rest + (size_t)n * m->ld, m->ld);
        int done;
        if (next) MPI_Testall(next->open, next->requests, &done, MPI_STATUSES_IGNORE);
    }
}

/* Updates the local columns from `column` to before `end` and meanwhile looks after the panel `coming`, if any. */
static inline void lu_update(Lu *lu, const Panel *panel, int column, int end, Panel *coming) {
    const Grid *grid = lu->m->grid;
    if (grid->P == 1) {
        for (int count; column < end; column += count) {
            count = end - column < LU_SLAB ? end - column : LU_SLAB;
            lu_update_alone(lu, panel, column, count);
            if (coming) panel_poll(coming, grid, 0);
        }
        return;
    }
    int at = column, now = 0;
    if (at < end) chunk_start(&lu->chunks[now], &lu->swaps, lu->m, at, end - at < LU_CHUNK ? end - at : LU_CHUNK);
    while (at < end) {
        Chunk *chunk = &lu->chunks[now], *next = NULL;
        at += chunk->count;
        if (at < end) {
            next = &lu->chunks[1 - now];
            chunk_start(next, &lu->swaps, lu->m, at, end - at < LU_CHUNK ? end - at : LU_CHUNK);
        }
        lu_update_chunk(lu, panel, chunk, next);
        if (coming) panel_poll(coming, grid, 0);
        now = 1 - now;
    }
}

/* Factors the matrix in place: U and, in column n, the right-hand side of U x = y. Not zero when it is singular. */
static inline int lu_factor(Matrix *m) {
    const Grid *grid = m->grid;
    Lu lu = {.m = m, .spare = suite_memory((size_t)m->nb * sizeof(double))};
    swaps_make(&lu.swaps, m->nb, grid->P);
    for (int n = 0; n < 2; n++) {
        panel_make(&lu.panels[n], m);
        if (grid->P > 1) chunk_make(&lu.chunks[n], m->nb, grid->P);
    }
    Panel *now = &lu.panels[0], *next = &lu.panels[1];
    panel_at(now, m, 0);
    panel_expect(now, grid);
    if (grid->q == now->root) {
        lu.singular |= panel_factor(now, m);
        panel_pass(now, grid);
    }
    for (int first = 0; first < m->n; first += m->nb) {
        panel_poll(now, grid, 1);
        swaps_plan(&lu.swaps, now, m);
        int after = first + now->width, column = grid_column(m, after), more = after < m->n;
        if (more) {
            panel_at(next, m, after);
            panel_expect(next, grid);
            if (grid->q == next->root) {
                lu_update(&lu, now, column, column + next->width, NULL);
                column += next->width;
                lu.singular |= panel_factor(next, m);
                panel_pass(next, grid);
            }
        }
        lu_update(&lu, now, column, m->columns, more ? next : NULL);
        Panel *other = now;
        now = next;
        next = other;
    }
    for (int n = 0; n < 2; n++) {
        panel_free(&lu.panels[n]);
        if (grid->P > 1) chunk_free(&lu.chunks[n]);
    }
    swaps_free(&lu.swaps);
    free(lu.spare);
    int singular;
    MPI_Allreduce(&lu.singular, &singular, 1, MPI_INT, MPI_MAX, grid->all);
    return singular;
}

/* y -= U[first rows, columns of a block] x, for local rows `from` to before `to`. */
static inline void lu_subtract(const Matrix *m, int column, int width, const double *x, double *y, int from, int to) {
    const int rows = to - from, ld = (int)m->ld, one = 1;
    const double minus = -1, plus = 1;
    if (rows > 0) blas.gemv("N", &rows, &width, &minus, m->a + (size_t)column * m->ld + from, &ld, x, &one, &plus, y + from, &one);
}

/*
 * Solves U x = y from the last block to the first. Each column of the grid keeps what its blocks have subtracted from y;
 * of a solved block only what the next one waits for is subtracted at once. `x` gets the local columns' part.
 */
static inline void lu_solve(const Matrix *m, double *x) {
    const Grid *grid = m->grid;
    const int P = grid->P, Q = grid->Q, p = grid->p, q = grid->q, nb = m->nb;
    double *y = suite_memory((size_t)(m->rows + 1) * sizeof(double)), *sum = suite_memory((size_t)nb * sizeof(double));
    if (grid_owner(m->n, nb, Q) == q) memcpy(y, m->a + (size_t)grid_column(m, m->n) * m->ld, (size_t)m->rows * sizeof(double));
    else memset(y, 0, (size_t)m->rows * sizeof(double));
    int pending = -1, pending_width = 0, pending_rows = 0;
    for (int first = (m->n - 1) / nb * nb; first >= 0; first -= nb) {
        const int width = m->n - first < nb ? m->n - first : nb, row = grid_row(m, first), column = grid_column(m, first);
        const int home = grid_owner(first, nb, P), root = grid_owner(first, nb, Q);
        if (p == home) MPI_Reduce(y + row, sum, width, MPI_DOUBLE, MPI_SUM, root, grid->row);
        if (pending >= 0) lu_subtract(m, pending, pending_width, x + pending, y, 0, pending_rows);
        pending = -1;
        if (q != root) continue;
        if (p == home) {
            const int ld = (int)m->ld, one = 1;
            blas.trsv("U", "N", "N", &width, m->a + (size_t)column * m->ld + row, &ld, sum, &one);
            memcpy(x + column, sum, (size_t)width * sizeof(double));
        }
        MPI_Bcast(x + column, width, MPI_DOUBLE, home, grid->column);
        pending_rows = first > 0 ? grid_row(m, first - nb) : 0;
        lu_subtract(m, column, width, x + column, y, pending_rows, row);
        pending = column;
        pending_width = width;
    }
    free(y);
    free(sum);
}
#endif
