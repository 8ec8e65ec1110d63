/* Sections of arrays with gaps between their elements, as descriptors describe them.
 *
 * A section stands for the array without gaps that its elements would make. Where count and datatype say what is sent or
 * received, that array's elements are described where they lie, by a derived datatype; elsewhere they are copied to an
 * array without gaps and back.
 */
#include "glue.h"

/* An array of assumed size has no last extent; it is without gaps. */
int margay_has_gaps(const CFI_cdesc_t *buffer)
{
    CFI_index_t next = (CFI_index_t)buffer->elem_len;
    for (int i = 0; i < buffer->rank; i++) {
        CFI_index_t extent = buffer->dim[i].extent;
        if (extent == 0) return 0;
        if (extent < 0) return 0;
        if (extent > 1 && buffer->dim[i].sm != next) return 1;
        next *= extent;
    }
    return 0;
}

void margay_no_gaps(const CFI_cdesc_t *buffer, int *error)
{
    if (*error != MPI_SUCCESS || !margay_has_gaps(buffer)) return;
    *error = MPI_ERR_BUFFER;
    PMPI_Comm_call_errhandler(MPI_COMM_WORLD, *error);
}

static size_t elements_of(const CFI_dim_t *dim, int rank)
{
    size_t n = 1;
    for (int i = 0; i < rank; i++) n *= (size_t)dim[i].extent;
    return n;
}

/* Where the element stands that would be the n-th without gaps. */
static MPI_Aint place(const CFI_dim_t *dim, int rank, size_t n)
{
    MPI_Aint offset = 0;
    for (int i = 0; i < rank; i++) {
        size_t extent = (size_t)dim[i].extent;
        /* Beyond the last element the program is wrong; the last dimension goes on, as an array would. */
        size_t at = i == rank - 1 ? n : n % extent;
        offset += (MPI_Aint)at * dim[i].sm;
        n /= extent;
    }
    return offset;
}

/* `n` elements of `type`, which fills one element of the array or several times a part of one, in nested vectors. */
static int regular(const CFI_cdesc_t *buffer, MPI_Count n, MPI_Count per_element, MPI_Datatype type, MPI_Datatype *new)
{
    const CFI_dim_t *dim = buffer->dim;
    int rank = buffer->rank;
    size_t whole = (size_t)(n / per_element), rest = (size_t)(n % per_element);
    MPI_Datatype parts[CFI_MAX_RANK + 2], layer[CFI_MAX_RANK + 1];
    MPI_Count lengths[CFI_MAX_RANK + 2], offsets[CFI_MAX_RANK + 2];
    int count = 0, error = MPI_SUCCESS, layers = 0;
    size_t below[CFI_MAX_RANK + 1];
    /* layer[i]: all elements of dimensions below i. */
    error = PMPI_Type_contiguous_c(per_element, type, &layer[0]);
    if (error != MPI_SUCCESS) return error;
    layers = 1;
    below[0] = 1;
    for (int i = 0; i < rank && error == MPI_SUCCESS && below[i] <= whole; i++) {
        size_t extent = (size_t)dim[i].extent;
        below[i + 1] = below[i] * extent;
        error = PMPI_Type_create_hvector_c((MPI_Count)extent, 1, dim[i].sm, layer[i], &layer[i + 1]);
        if (error == MPI_SUCCESS) layers++;
    }
    /* From the largest layers down to single elements, like the digits of a number. */
    size_t done = 0;
    for (int i = layers - 1; i >= 0 && error == MPI_SUCCESS && done < whole; i--) {
        size_t times = (whole - done) / below[i];
        if (times == 0) continue;
        MPI_Count step = i < rank ? dim[i].sm : (MPI_Count)buffer->elem_len * (MPI_Count)below[i];
        offsets[count] = place(dim, rank, done);
        lengths[count] = 1;
        error = PMPI_Type_create_hvector_c((MPI_Count)times, 1, step, layer[i], &parts[count]);
        if (error == MPI_SUCCESS) count++;
        done += times * below[i];
    }
    if (error == MPI_SUCCESS && rest > 0) {
        offsets[count] = place(dim, rank, whole);
        lengths[count] = 1;
        error = PMPI_Type_contiguous_c((MPI_Count)rest, type, &parts[count]);
        if (error == MPI_SUCCESS) count++;
    }
    if (error == MPI_SUCCESS) error = PMPI_Type_create_struct_c(count, lengths, offsets, parts, new);
    for (int i = 0; i < count; i++) PMPI_Type_free(&parts[i]);
    for (int i = 0; i < layers; i++) PMPI_Type_free(&layer[i]);
    return error;
}

/* Any datatype: the bytes that it names, found by packing a buffer in which every byte holds a
 * digit of its own place. */
static int irregular(const CFI_cdesc_t *buffer, MPI_Count n, MPI_Datatype type, MPI_Datatype *new)
{
    MPI_Count lb, extent, size, packed_size, true_lb, true_extent;
    int error = PMPI_Type_get_true_extent_c(type, &true_lb, &true_extent);
    if (error == MPI_SUCCESS) error = PMPI_Type_get_extent_c(type, &lb, &extent);
    if (error == MPI_SUCCESS) error = PMPI_Type_size_c(type, &size);
    if (error == MPI_SUCCESS) error = PMPI_Pack_size_c(n, type, MPI_COMM_SELF, &packed_size);
    if (error != MPI_SUCCESS) return error;
    MPI_Count span = true_extent + (n - 1) * (extent < 0 ? -extent : extent);
    MPI_Count first = true_lb + (extent < 0 ? (n - 1) * extent : 0);
    size_t bytes = (size_t)(n * size);
    unsigned char *source = margay_allocate((size_t)span, 1), *packed = margay_allocate((size_t)packed_size, 1);
    MPI_Count *offsets = margay_allocate(bytes, sizeof *offsets), *lengths = margay_allocate(bytes, sizeof *lengths);
    for (int digit = 0; digit < 8 && (digit == 0 || (span >> (8 * digit)) > 0) && error == MPI_SUCCESS; digit++) {
        for (MPI_Count i = 0; i < span; i++) source[i] = (unsigned char)(i >> (8 * digit));
        MPI_Count position = 0;
        error = PMPI_Pack_c(source - first, n, type, packed, packed_size, &position, MPI_COMM_SELF);
        for (size_t i = 0; i < bytes; i++) offsets[i] |= (MPI_Count)packed[i] << (8 * digit);
    }
    /* From places in the array without gaps to places in the section, neighbors as one block. */
    size_t blocks = 0;
    MPI_Count element = (MPI_Count)buffer->elem_len;
    for (size_t i = 0; i < bytes && error == MPI_SUCCESS; i++) {
        MPI_Count at = offsets[i] + first;
        if (at < 0) {
            error = MPI_ERR_BUFFER;
            break;
        }
        MPI_Count real = place(buffer->dim, buffer->rank, (size_t)(at / element)) + at % element;
        if (blocks > 0 && offsets[blocks - 1] + lengths[blocks - 1] == real) {
            lengths[blocks - 1]++;
        } else {
            offsets[blocks] = real;
            lengths[blocks++] = 1;
        }
    }
    if (error == MPI_SUCCESS)
        error = PMPI_Type_create_hindexed_c((MPI_Count)blocks, lengths, offsets, MPI_BYTE, new);
    free(source);
    free(packed);
    free(offsets);
    free(lengths);
    return error;
}

margay_section margay_section_of(CFI_cdesc_t *buffer, MPI_Count count, MPI_Datatype type, int *error)
{
    margay_section section = {margay_buffer(buffer->base_addr), count, type, 0};
    if (*error != MPI_SUCCESS || count <= 0 || !margay_has_gaps(buffer)) return section;
    MPI_Count lb, extent, true_lb, true_extent, size, element = (MPI_Count)buffer->elem_len;
    *error = PMPI_Type_get_extent_c(type, &lb, &extent);
    if (*error == MPI_SUCCESS) *error = PMPI_Type_get_true_extent_c(type, &true_lb, &true_extent);
    if (*error == MPI_SUCCESS) *error = PMPI_Type_size_c(type, &size);
    if (*error != MPI_SUCCESS || size == 0) return section;
    int dense = size == extent && size == true_extent && lb == 0 && true_lb == 0;
    if (dense && element % extent == 0)
        *error = regular(buffer, count, element / extent, type, &section.type);
    else
        *error = irregular(buffer, count, type, &section.type);
    if (*error != MPI_SUCCESS) return section;
    *error = PMPI_Type_commit(&section.type);
    section.made = 1;
    section.count = 1;
    return section;
}

void margay_section_end(margay_section *section)
{
    if (section->made) PMPI_Type_free(&section->type);
}

/* Copies between the section and the array without gaps. */
static void transfer(const margay_scratch *scratch, int to_array)
{
    size_t n = elements_of(scratch->dim, scratch->rank), row = (size_t)scratch->dim[0].extent;
    char *packed = scratch->base;
    for (size_t i = 0; i < n; i += row) {
        char *element = (char *)scratch->array + place(scratch->dim, scratch->rank, i);
        for (size_t j = 0; j < row; j++, element += scratch->dim[0].sm, packed += scratch->element) {
            if (to_array)
                memcpy(element, packed, scratch->element);
            else
                memcpy(packed, element, scratch->element);
        }
    }
}

margay_scratch margay_scratch_of(CFI_cdesc_t *buffer, int write_back, int *error)
{
    margay_scratch scratch;
    scratch.base = margay_buffer(buffer->base_addr);
    scratch.array = NULL;
    if (*error != MPI_SUCCESS || !margay_has_gaps(buffer)) return scratch;
    scratch.array = buffer->base_addr;
    scratch.element = buffer->elem_len;
    scratch.rank = buffer->rank;
    scratch.write_back = write_back;
    memcpy(scratch.dim, buffer->dim, (size_t)buffer->rank * sizeof *buffer->dim);
    scratch.base = margay_allocate(elements_of(scratch.dim, scratch.rank), scratch.element);
    margay_scratch_read(&scratch);
    return scratch;
}

void margay_scratch_read(margay_scratch *scratch)
{
    if (scratch->array) transfer(scratch, 0);
}

void margay_scratch_write(const margay_scratch *scratch)
{
    if (scratch->array && scratch->write_back) transfer(scratch, 1);
}

void margay_scratch_end(margay_scratch *scratch)
{
    if (!scratch->array) return;
    margay_scratch_write(scratch);
    free(scratch->base);
}
