/* The parameters of crucible.c: their values without a file, their limits, and reading them. */

/* ---- parameters -------------------------------------------------------------------------------------------------- */

enum { PATH_BYTES = 512, ERROR_BYTES = 1024 };

typedef struct {
    int nr, nphi, nz, px, py, steps, sor_max, heaters, report_every;
    double radius_cm, height_cm, crystal_cm, hub_cm, viscosity, diffusivity, expansion, gravity;
    double t_wall, t_bottom, t_crystal, heater_ripple, crucible_rpm, crystal_rpm;
    double cfl, dt_max, upwind, omega, sor_tolerance;
    char restart_in[PATH_BYTES], restart_out[PATH_BYTES], field_out[PATH_BYTES], result_out[PATH_BYTES];
} Params;

static Params par = {
    .nr = 30, .nphi = 90, .nz = 40, .px = 0, .py = 0, .steps = 400, .sor_max = 40, .heaters = 3, .report_every = 100,
    .radius_cm = 3, .height_cm = 4, .crystal_cm = 1.2, .hub_cm = 1.0, .viscosity = 4e-6, .diffusivity = 6e-6,
    .expansion = 1.4e-4, .gravity = 9.81, .t_wall = 1735, .t_bottom = 1715, .t_crystal = 1685, .heater_ripple = 4,
    .crucible_rpm = 4, .crystal_rpm = -12, .cfl = 0.6, .dt_max = 0.02, .upwind = 0.4, .omega = 1.7,
    .sor_tolerance = 1e-3
};

typedef enum { INT, EVEN, REAL, PATH } Kind;
typedef struct { const char *key; Kind kind; void *value; double low, high; } Key;

/* The limits are inclusive. crucible.par explains each key and names its unit. */
static const Key keys[] = {
    {"nr", INT, &par.nr, 3, 4096}, {"nphi", EVEN, &par.nphi, 4, 4096}, {"nz", INT, &par.nz, 3, 4096},
    {"px", INT, &par.px, 0, 65536}, {"py", INT, &par.py, 0, 65536},
    {"steps", INT, &par.steps, 0, INT_MAX}, {"report_every", INT, &par.report_every, 1, INT_MAX},
    {"radius_cm", REAL, &par.radius_cm, 0.01, 1000}, {"height_cm", REAL, &par.height_cm, 0.01, 1000},
    {"crystal_cm", REAL, &par.crystal_cm, 0, 1000}, {"hub_cm", REAL, &par.hub_cm, 0, 1000},
    {"viscosity", REAL, &par.viscosity, 1e-12, 1}, {"diffusivity", REAL, &par.diffusivity, 1e-12, 1},
    {"expansion", REAL, &par.expansion, 0, 1}, {"gravity", REAL, &par.gravity, 0, 1000},
    {"t_wall", REAL, &par.t_wall, 0, 1e5}, {"t_bottom", REAL, &par.t_bottom, 0, 1e5},
    {"t_crystal", REAL, &par.t_crystal, 0, 1e5}, {"heater_ripple", REAL, &par.heater_ripple, 0, 1e4},
    {"heaters", INT, &par.heaters, 0, 64}, {"crucible_rpm", REAL, &par.crucible_rpm, -1e4, 1e4},
    {"crystal_rpm", REAL, &par.crystal_rpm, -1e4, 1e4}, {"cfl", REAL, &par.cfl, 1e-3, 1},
    {"dt_max", REAL, &par.dt_max, 1e-9, 10}, {"upwind", REAL, &par.upwind, 0, 1}, {"omega", REAL, &par.omega, 0.1, 1.99},
    {"sor_tolerance", REAL, &par.sor_tolerance, 0, 1}, {"sor_max", INT, &par.sor_max, 1, 100000},
    {"restart_in", PATH, par.restart_in, 0, 0}, {"restart_out", PATH, par.restart_out, 0, 0},
    {"field_out", PATH, par.field_out, 0, 0}, {"result_out", PATH, par.result_out, 0, 0}
};
enum { KEYS = sizeof keys / sizeof keys[0] };

static int rank, ranks;

static void finish(int status) {
    MPI_Finalize();
    exit(status);
}

/* Ends the run on every rank when rank 0 holds a message in `error`; collective. */
static void stop_on_error(const char *error) {
    int bad = rank == 0 && error[0] != '\0';
    MPI_Bcast(&bad, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!bad) return;
    if (rank == 0) fprintf(stderr, "crucible: %s\n", error);
    finish(1);
}

static void say(char *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, ERROR_BYTES, format, arguments);
    va_end(arguments);
}

static char *trim(char *s) {
    while (isspace((unsigned char)*s)) s++;
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1])) *--end = '\0';
    return s;
}

/* Sets one key from its text; `where` names the file and line, or the command line, for the message. */
static int set_key(const char *where, const char *name, const char *text, char *error) {
    const Key *key = NULL;
    for (int n = 0; n < KEYS; n++)
        if (strcmp(keys[n].key, name) == 0) key = &keys[n];
    if (!key) {
        say(error, "%s: %s: no such key; crucible.par in the examples lists all of them", where, name);
        return 0;
    }
    if (key->kind == PATH) {
        if (strlen(text) >= PATH_BYTES) {
            say(error, "%s: %s: the path is longer than %d bytes", where, name, PATH_BYTES - 1);
            return 0;
        }
        strcpy(key->value, text);
        return 1;
    }
    char *end;
    double number = strtod(text, &end);
    if (text[0] == '\0' || *end != '\0' || !isfinite(number)) {
        say(error, "%s: %s: '%s' is not a number", where, name, text);
        return 0;
    }
    if (number < key->low || number > key->high) {
        say(error, "%s: %s: %s is not between %g and %g", where, name, text, key->low, key->high);
        return 0;
    }
    if (key->kind == REAL) {
        *(double *)key->value = number;
        return 1;
    }
    if (number != floor(number)) {
        say(error, "%s: %s: %s is not a whole number", where, name, text);
        return 0;
    }
    if (key->kind == EVEN && fmod(number, 2) != 0) {
        say(error, "%s: %s: %s is odd, and red-black ordering closes round the cylinder only when it is even", where,
            name, text);
        return 0;
    }
    *(int *)key->value = (int)number;
    return 1;
}

static void read_parameters(int argc, char **argv, char *error) {
    if (argc < 2) {
        say(error, "usage: crucible <parameter file> [key=value ...]");
        return;
    }
    FILE *file = fopen(argv[1], "r");
    if (!file) {
        say(error, "%s: cannot be opened: %s", argv[1], strerror(errno));
        return;
    }
    char line[1024], where[PATH_BYTES + 32];
    for (int number = 1; !error[0] && fgets(line, sizeof line, file); number++) {
        snprintf(where, sizeof where, "%s:%d", argv[1], number);
        line[strcspn(line, "#\r\n")] = '\0';
        char *name = trim(line), *equals = strchr(name, '=');
        if (*name == '\0') continue;
        if (!equals) {
            say(error, "%s: '%s' is not of the form key = value", where, name);
            break;
        }
        *equals = '\0';
        set_key(where, trim(name), trim(equals + 1), error);
    }
    if (!error[0] && ferror(file)) say(error, "%s: cannot be read: %s", argv[1], strerror(errno));
    fclose(file);
    for (int n = 2; n < argc && !error[0]; n++) {
        char *equals = strchr(argv[n], '=');
        if (!equals) {
            say(error, "argument '%s' is not of the form key=value", argv[n]);
            return;
        }
        *equals = '\0';
        set_key("command line", argv[n], equals + 1, error);
    }
    if (!error[0] && par.crystal_cm > par.radius_cm)
        say(error, "%s: crystal_cm: the crystal (%g cm) is wider than the crucible (radius_cm = %g)", argv[1],
            par.crystal_cm, par.radius_cm);
}
