/* What the model tests share: random numbers, kinds of elements, and datatypes of which it is known where every element
 * lies, so that buffers can be filled and predicted without the library. */
#ifndef SHAPES_H
#define SHAPES_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Random numbers (splitmix64). */
static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A number that everybody computes alike from what identifies it. */
static inline uint64_t hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return mix(mix(mix(mix(a) + b) + c) + d);
}

typedef struct {
    uint64_t state;
} Random;

static inline uint64_t next(Random *random)
{
    return mix(random->state++);
}

/* A number from 0 to bound - 1. */
static inline int below(Random *random, int bound)
{
    return (int)(next(random) % (uint64_t)bound);
}

/* Kinds of elements; values are small integers, so that floating-point sums are exact. */
enum { CHAR, SHORT, INT, LONG, FLOAT, DOUBLE, KINDS };
static const int kind_bytes[KINDS] = {1, 2, 4, 8, 4, 8};
static const char *const kind_names[KINDS] = {"char", "short", "int", "long", "float", "double"};
static MPI_Datatype kind_types[KINDS];

static inline void put(void *at, int kind, long value)
{
    union {
        unsigned char c;
        int16_t s;
        int32_t i;
        int64_t l;
        float f;
        double d;
    } v;
    switch (kind) {
    case CHAR: v.c = (unsigned char)value; break;
    case SHORT: v.s = (int16_t)value; break;
    case INT: v.i = (int32_t)value; break;
    case LONG: v.l = value; break;
    case FLOAT: v.f = (float)value; break;
    default: v.d = (double)value;
    }
    memcpy(at, &v, (size_t)kind_bytes[kind]);
}

/* Where the elements of one instance of a datatype lie. */
enum { UNIT = 4 };
enum { BASIC, ROW, GAPS, COLUMN, BEHIND, BACKWARDS, NESTED, SHAPES };
static const char *const shape_names[SHAPES] = {"basic",  "contiguous", "vector",   "resized vector",
                                                "struct", "hindexed",   "nested"};
typedef struct {
    MPI_Datatype type;
    int elements; /* 1 or UNIT */
    long at[UNIT];
    long extent;
} Shape;
static Shape shapes[KINDS][SHAPES];

static inline void make_shapes(void)
{
    MPI_Datatype types[KINDS] = {MPI_UNSIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_INT64_T, MPI_FLOAT, MPI_DOUBLE};
    for (int kind = 0; kind < KINDS; kind++) {
        long w = kind_bytes[kind];
        MPI_Datatype basic = types[kind], inner;
        kind_types[kind] = basic;
        for (int shape = 0; shape < SHAPES; shape++) {
            Shape *s = &shapes[kind][shape];
            long at[UNIT] = {0, w, 2 * w, 3 * w};
            s->elements = shape == BASIC ? 1 : UNIT;
            s->extent = s->elements * w;
            switch (shape) {
            case BASIC: s->type = basic; break;
            case ROW: MPI_Type_contiguous(UNIT, basic, &s->type); break;
            case GAPS:
                MPI_Type_vector(2, 2, 3, basic, &s->type);
                at[2] = 3 * w, at[3] = 4 * w;
                s->extent = 5 * w;
                break;
            case COLUMN:
                MPI_Type_vector(UNIT, 1, 2, basic, &inner);
                MPI_Type_create_resized(inner, -w, 11 * w, &s->type);
                MPI_Type_free(&inner);
                for (int k = 0; k < UNIT; k++) at[k] = 2 * k * w;
                s->extent = 11 * w;
                break;
            case BEHIND: {
                int lengths[3] = {1, 2, 1};
                MPI_Aint places[3] = {w, 3 * w, 7 * w};
                MPI_Datatype parts[3] = {basic, basic, basic};
                MPI_Type_create_struct(3, lengths, places, parts, &inner);
                MPI_Type_create_resized(inner, 0, 8 * w, &s->type);
                MPI_Type_free(&inner);
                at[0] = w, at[1] = 3 * w, at[2] = 4 * w, at[3] = 7 * w;
                s->extent = 8 * w;
                break;
            }
            case BACKWARDS: {
                int lengths[3] = {1, 1, 2};
                MPI_Aint places[3] = {4 * w, 2 * w, -2 * w};
                MPI_Type_create_hindexed(3, lengths, places, basic, &s->type);
                at[0] = 4 * w, at[1] = 2 * w, at[2] = -2 * w, at[3] = -w;
                s->extent = 7 * w;
                break;
            }
            default: {
                int lengths[2] = {1, 1}, places[2] = {1, 0};
                MPI_Datatype pair;
                MPI_Type_vector(2, 1, 2, basic, &pair);
                MPI_Type_indexed(2, lengths, places, pair, &s->type);
                MPI_Type_free(&pair);
                at[0] = 3 * w, at[1] = 5 * w, at[2] = 0, at[3] = 2 * w;
                s->extent = 6 * w;
            }
            }
            memcpy(s->at, at, sizeof at);
            if (shape != BASIC) MPI_Type_commit(&s->type);
        }
    }
}

static inline void free_shapes(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int shape = 1; shape < SHAPES; shape++) MPI_Type_free(&shapes[kind][shape].type);
}

/* Address of element k of instances of a shape that begin at `base`. */
static inline char *element(char *base, const Shape *s, long k)
{
    return base + k / s->elements * s->extent + s->at[k % s->elements];
}

/* Memory around instances of a shape: none of them reaches further than this beyond its own extent. */
enum { GUARD_BYTES = 128, FILL = 0xA5 };

/* A buffer with guards on both sides: `base` may be given to the library for `bytes` bytes. */
typedef struct {
    char *memory, *base;
    size_t total;
} Buffer;

static inline Buffer buffer(size_t bytes)
{
    Buffer b;
    b.total = bytes + 2 * GUARD_BYTES;
    b.memory = malloc(b.total);
    b.base = b.memory + GUARD_BYTES;
    memset(b.memory, FILL, b.total);
    return b;
}

static inline Buffer copy_of(const Buffer *other)
{
    Buffer b;
    b.total = other->total;
    b.memory = malloc(b.total);
    b.base = b.memory + GUARD_BYTES;
    memcpy(b.memory, other->memory, b.total);
    return b;
}

/* The first byte at which two buffers differ, from `base`, or LONG_MIN when they do not. */
static inline int differs(const Buffer *a, const Buffer *b, long *where)
{
    if (a->total == b->total && memcmp(a->memory, b->memory, a->total) == 0) return 0;
    size_t at = 0;
    while (a->memory[at] == b->memory[at]) at++;
    *where = (long)at - GUARD_BYTES;
    return 1;
}

/* A size in units of four elements: zeros, small, and now and then large ones, at most `most_bytes` altogether. */
static inline int random_units(uint64_t h, int kind, long most_bytes)
{
    static const long classes[] = {0, 40, 200, 200, 4200, 20000, 70000, 300000, 1 << 20};
    long bytes = classes[h % 9];
    if (bytes > most_bytes) bytes = most_bytes;
    long units = bytes / (UNIT * kind_bytes[kind]);
    return units == 0 ? (int)((h >> 8) % 3 == 1) : (int)((h >> 16) % (uint64_t)(units + 1));
}

#endif
