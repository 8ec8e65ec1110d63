! A program of Fortran whose second rank is late.
module mesh
  implicit none
contains
  subroutine smooth(total)
    double precision, volatile, intent(inout) :: total
    integer :: i
    do
      do i = 1, 1000
        total = total + i ! LINE smooth
      end do
    end do
  end subroutine smooth
end module mesh

program solver
  use mpi_f08
  use mesh
  implicit none
  double precision, volatile :: total
  integer :: rank
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  print '(a)', 'ready'
  flush (6)
  total = 0
  if (rank == 1) call smooth(total)
  call MPI_Barrier(MPI_COMM_WORLD) ! LINE barrier
  call MPI_Finalize()
end program solver
