/*
 * A ray tracer that computes a picture of balls on a chequered floor line by line, the way POV-Ray did on parallel machines: every line
 * has a buffer of its own from malloc, and every ray a list of hits, so that the allocator is part of it. Lines cost from next to
 * nothing (sky) to much (balls in balls) and are taken as they come. The picture is compared with a sequential one.
 */
#ifndef THREADS_SCANLINES_H
#define THREADS_SCANLINES_H
#include "threads.h"

enum { SCANLINES_WIDTH = 160, SCANLINES_HEIGHT = 120, SCANLINES_BALLS = 24, SCANLINES_BOUNCES = 4 };

typedef struct { double x, y, z; } ScanVector;
typedef struct { ScanVector centre; double radius, brightness; } ScanBall;
/* What a ray meets, nearest first. */
typedef struct ScanHit { double distance; const ScanBall *ball; struct ScanHit *next; } ScanHit;

static ScanBall scanlines_balls[SCANLINES_BALLS];
static unsigned char scanlines_picture[SCANLINES_HEIGHT][SCANLINES_WIDTH], scanlines_expected[SCANLINES_HEIGHT][SCANLINES_WIDTH];

static inline ScanVector scan_along(ScanVector from, ScanVector direction, double distance) {
    const ScanVector at = {from.x + distance * direction.x, from.y + distance * direction.y, from.z + distance * direction.z};
    return at;
}

static inline double scan_dot(ScanVector a, ScanVector b) { return a.x * b.x + a.y * b.y + a.z * b.z; }

static inline ScanVector scan_unit(ScanVector a) {
    const ScanVector zero = {0, 0, 0};
    return scan_along(zero, a, 1 / sqrt(scan_dot(a, a)));
}

/* All balls that a ray meets, as a list in the order of distance. */
static ScanHit *scan_hits(ScanVector from, ScanVector direction) {
    ScanHit *first = NULL;
    for (int n = 0; n < SCANLINES_BALLS; n++) {
        const ScanBall *ball = &scanlines_balls[n];
        const ScanVector to = scan_along(ball->centre, from, -1);
        const double middle = scan_dot(to, direction);
        const double inside = middle * middle - scan_dot(to, to) + ball->radius * ball->radius;
        if (inside <= 0) continue;
        const double distance = middle - sqrt(inside);
        if (distance < 1e-6) continue;
        ScanHit *hit = (ScanHit *)malloc(sizeof *hit), **place = &first;
        if (!hit) suite_fail("no memory for a hit");
        while (*place && (*place)->distance < distance) place = &(*place)->next;
        hit->distance = distance;
        hit->ball = ball;
        hit->next = *place;
        *place = hit;
    }
    return first;
}

static void scan_forget(ScanHit *hits) {
    while (hits) {
        ScanHit *next = hits->next;
        free(hits);
        hits = next;
    }
}

/* Brightness from 0 to 1 that comes along a ray. */
static double scan_trace(ScanVector from, ScanVector direction, int bounces) {
    static const ScanVector light = {-0.48, 0.8, -0.36}, up = {0, 1, 0};
    ScanHit *hits = scan_hits(from, direction);
    const double ground = direction.y < 0 ? -from.y / direction.y : -1;
    ScanVector at, normal;
    double brightness, mirror;
    if (hits && (ground < 0 || hits->distance < ground)) {
        at = scan_along(from, direction, hits->distance);
        normal = scan_unit(scan_along(at, hits->ball->centre, -1));
        brightness = hits->ball->brightness;
        mirror = 0.5;
    } else if (ground > 1e-6) {
        at = scan_along(from, direction, ground);
        normal = up;
        brightness = (long)(floor(at.x) + floor(at.z)) % 2 ? 0.2 : 0.9;
        mirror = 0.15;
    } else {
        scan_forget(hits);
        return 0.6 + 0.4 * fmax(direction.y, 0);
    }
    scan_forget(hits);
    ScanHit *shade = scan_hits(at, light);
    const double lit = shade ? 0 : fmax(scan_dot(normal, light), 0);
    scan_forget(shade);
    brightness *= 0.2 + 0.8 * lit;
    if (bounces == 0) return brightness;
    const ScanVector back = scan_along(direction, normal, -2 * scan_dot(direction, normal));
    return (1 - mirror) * brightness + mirror * scan_trace(at, back, bounces - 1);
}

static void __attribute__((noinline)) scanlines_line(int line) {
    static const ScanVector eye = {0, 1.5, -6};
    double *pixels = (double *)malloc(SCANLINES_WIDTH * sizeof *pixels);
    if (!pixels) suite_fail("no memory for a line");
    for (int column = 0; column < SCANLINES_WIDTH; column++) {
        const ScanVector direction = {(column - 0.5 * SCANLINES_WIDTH) / SCANLINES_HEIGHT, (0.4 * SCANLINES_HEIGHT - line) / SCANLINES_HEIGHT, 1};
        pixels[column] = scan_trace(eye, scan_unit(direction), SCANLINES_BOUNCES);
    }
    for (int column = 0; column < SCANLINES_WIDTH; column++) scanlines_picture[line][column] = (unsigned char)(255 * fmin(pixels[column], 1));
    free(pixels);
}

static inline void scanlines_expect(void) {
    for (int n = 0; n < SCANLINES_BALLS; n++) {
        const uint64_t seed = (uint64_t)n << 8;
        ScanBall *ball = &scanlines_balls[n];
        ball->radius = 0.2 + 0.6 * threads_random(seed);
        ball->centre.x = 6 * threads_random(seed + 1) - 3;
        ball->centre.y = ball->radius + 1.5 * threads_random(seed + 2);
        ball->centre.z = 6 * threads_random(seed + 3) - 1;
        ball->brightness = 0.4 + 0.6 * threads_random(seed + 4);
    }
    for (int line = 0; line < SCANLINES_HEIGHT; line++) scanlines_line(line);
    memcpy(scanlines_expected, scanlines_picture, sizeof scanlines_picture);
}

static void scanlines_prepare(void) { memset(scanlines_picture, 0, sizeof scanlines_picture); }

static long scanlines_wrong(void) {
    long wrong = 0;
    for (int line = 0; line < SCANLINES_HEIGHT; line++)
        wrong += memcmp(scanlines_picture[line], scanlines_expected[line], SCANLINES_WIDTH) != 0;
    return wrong;
}
#endif
