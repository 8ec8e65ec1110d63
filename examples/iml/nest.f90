! The loops of the paper's appendix from Fortran: nested, as sections, and as tasks of a graph.
!
!     gfortran -fallow-argument-mismatch nest.f90 -L PREFIX/lib -Wl,-rpath,PREFIX/lib -liml
module work
  implicit none
  integer, parameter :: m = 300, n = 200, static = 1, simple = 2, self = 3
  external :: iml_doall, iml_cobegin, iml_enq, iml_waitenq
  integer, external :: iml_decandfetch
contains
  subroutine iloop(start, iterations, a, j)
    integer, intent(in) :: start, iterations, j
    double precision, intent(inout) :: a(m, n)
    integer :: i
    do i = start + 1, start + iterations
      a(j, i) = dble(i) * j
    end do
  end subroutine

  subroutine jloop(start, iterations, a)
    integer, intent(in) :: start, iterations
    double precision, intent(inout) :: a(m, n)
    integer :: j
    do j = start + 1, start + iterations
      call iml_doall(iloop, n, self, 16, 2, a, j)
    end do
  end subroutine

  subroutine kloop(start, iterations, b)
    integer, intent(in) :: start, iterations
    double precision, intent(inout) :: b(n)
    integer :: k
    do k = start + 1, start + iterations
      b(k) = k
    end do
  end subroutine

  subroutine all_of_a(a, b)
    double precision, intent(inout) :: a(m, n), b(n)
    call iml_doall(jloop, m, static, 1, 1, a)
  end subroutine

  subroutine all_of_b(a, b)
    double precision, intent(inout) :: a(m, n), b(n)
    call iml_doall(kloop, n, simple, 1, 1, b)
  end subroutine

  subroutine go_on(a, b, count, c)
    double precision, intent(inout) :: a(m, n), b(n), c
    integer, intent(inout) :: count
    if (iml_decandfetch(count) == 0) call iml_enq(add, 3, a, b, c)
  end subroutine

  subroutine with_a(a, b, count, c)
    double precision, intent(inout) :: a(m, n), b(n), c
    integer, intent(inout) :: count
    call all_of_a(a, b)
    call go_on(a, b, count, c)
  end subroutine

  subroutine with_b(a, b, count, c)
    double precision, intent(inout) :: a(m, n), b(n), c
    integer, intent(inout) :: count
    call all_of_b(a, b)
    call go_on(a, b, count, c)
  end subroutine

  subroutine add(a, b, c)
    double precision, intent(in) :: a(m, n), b(n)
    double precision, intent(out) :: c
    c = sum(a) + sum(b)
  end subroutine
end module

program nest
  use work
  implicit none
  double precision, save :: a(m, n), b(n)
  double precision :: c, expected
  integer, volatile :: count
  expected = n * (n + 1) / 2d0 + (n * (n + 1) / 2d0) * (m * (m + 1) / 2d0)

  a = 0
  b = 0
  call iml_cobegin(2, all_of_a, all_of_b, 2, a, b)
  call add(a, b, c)
  call tell('sections', c)

  a = 0
  b = 0
  c = 0
  count = 2
  call iml_enq(with_a, 4, a, b, count, c)
  call iml_enq(with_b, 4, a, b, count, c)
  call iml_waitenq
  call tell('tasks', c)
contains
  subroutine tell(how, value)
    character(len=*), intent(in) :: how
    double precision, intent(in) :: value
    if (value /= expected) error stop 'the sum is wrong'
    print '(a, a, f14.0)', how, ': c =', value
  end subroutine
end program
