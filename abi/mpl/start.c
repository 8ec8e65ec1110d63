/* The part of libmpl that is not printed from the definitions: the predefined functions, and what happens before main. It
 * stands behind the printed part in one file. */

int mperrno;

int mpc_status(int msgid) { return margay_mpl_status(msgid); }
int mp_status(int *msgid) { return margay_mpl_status(*msgid); }
void mp_status_(int *msgid, int *nbytes) { *nbytes = margay_mpl_status(*msgid); }

/* out = in1 op in2, on len bytes; C passes the length as size_t, Fortran as an integer of four bytes. */
#define FUNCTION(name, type, length, expression)                          \
    void name(void *in1, void *in2, void *out, length *len) {             \
        const type *a_ = in1, *b_ = in2;                                  \
        type *c_ = out;                                                   \
        for (size_t i_ = 0; i_ < (size_t)*len / sizeof(type); i_++) {     \
            type a = a_[i_], b = b_[i_];                                  \
            c_[i_] = (type)(expression);                                  \
        }                                                                 \
    }
#define NUMBERS(of, end, type, length)                \
    FUNCTION(of##_vadd##end, type, length, a + b)     \
    FUNCTION(of##_vmul##end, type, length, a *b)      \
    FUNCTION(of##_vmax##end, type, length, a > b ? a : b) \
    FUNCTION(of##_vmin##end, type, length, a < b ? a : b)
#define BITS(of, end, type, length)             \
    FUNCTION(of##_vand##end, type, length, a &b) \
    FUNCTION(of##_vor##end, type, length, a | b) \
    FUNCTION(of##_vxor##end, type, length, a ^ b)

NUMBERS(b, , signed char, size_t)
NUMBERS(i, , int, size_t)
NUMBERS(l, , long, size_t)
NUMBERS(s, , float, size_t)
NUMBERS(d, , double, size_t)
BITS(b, , signed char, size_t)
BITS(i, , int, size_t)
BITS(l, , long, size_t)

NUMBERS(b, _, signed char, int)
NUMBERS(i, _, int, int)
NUMBERS(l, _, int, int)
NUMBERS(s, _, float, int)
NUMBERS(d, _, double, int)
BITS(b, _, signed char, int)
BITS(i, _, int, int)
BITS(l, _, int, int)

#define ADDRESSES(of, end) (size_t)of##_vadd##end, (size_t)of##_vmul##end, (size_t)of##_vmax##end, (size_t)of##_vmin##end
#define ALL(of, end) ADDRESSES(of, end), (size_t)of##_vand##end, (size_t)of##_vor##end, (size_t)of##_vxor##end
#define SOME(of, end) ADDRESSES(of, end), 0, 0, 0

__attribute__((constructor)) static void start(void) {
    /* In the order of the table in abi/mpl. */
    const size_t functions[] = {ALL(b, ),  ALL(i, ),  ALL(l, ),  SOME(s, ),  SOME(d, ),
                                ALL(b, _), ALL(i, _), ALL(l, _), SOME(s, _), SOME(d, _)};
    margay_mpl_start(&mperrno, functions);
}
