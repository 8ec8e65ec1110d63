! Heat in a plate of several zones, as in zones.c: one process for each zone, the zones in the arena, OpenMP loops.
!
!     gfortran -O2 -fopenmp zones.f90 $(pkg-config --cflags --libs mlp) -o zones
!     ./zones
program zones
    use, intrinsic :: iso_c_binding
    implicit none
    include 'fmlp.h'
    integer, parameter :: cols = 256, rows = 64, numpro = 2, steps = 500
    integer, parameter :: long = selected_int_kind(18)
    integer :: nthread(numpro), nowpro, n, step, i, j, now, next, error
    integer(long) :: moved
    double precision, pointer :: plate(:, :, :), total(:)
    double precision :: up, down, left, right

    nthread = 1
    call forkit(nthread, numpro, nowpro)
    n = nowpro
    ! Rows of all zones one behind the other; the last index is the step's parity.
    call c_f_pointer(pointer_to(mlp_alloc('plate', int(cols, long)*rows*numpro*2*8)), plate, [cols, rows*numpro, 2])
    call c_f_pointer(pointer_to(mlp_alloc('sum', int(numpro, long)*8)), total, [numpro])
    do i = 0, 1
        moved = mlp_place('plate', int(i*numpro + n - 1, long)*cols*rows*8, int(cols, long)*rows*8, n)
    end do
    error = mlp_barrier() ! all have bound their threads: so says the report
    if (n == 1) error = mlp_report()
    error = mlp_barrier()

    do step = 0, steps - 1
        now = mod(step, 2) + 1
        next = 3 - now
        !$omp parallel do private(i, up, down, left, right)
        do j = (n - 1)*rows + 1, n*rows
            do i = 1, cols
                up = 100d0
                if (j > 1) up = plate(i, j - 1, now)
                down = 0
                if (j < rows*numpro) down = plate(i, j + 1, now)
                left = 0
                if (i > 1) left = plate(i - 1, j, now)
                right = 0
                if (i < cols) right = plate(i + 1, j, now)
                plate(i, j, next) = 0.25d0*(up + down + left + right)
            end do
        end do
        error = mlp_barrier()
    end do

    total(n) = sum(plate(:, (n - 1)*rows + 1:n*rows, mod(steps, 2) + 1))
    error = mlp_barrier()
    if (n == 1) print '(i0, a, i0, a, f0.12)', numpro, ' zones, ', steps, ' steps: mean ', sum(total)/(numpro*rows*cols)

contains

    type(c_ptr) function pointer_to(address)
        integer(long), intent(in) :: address
        pointer_to = transfer(address, c_null_ptr)
    end function

end program
