! Two ranks, of each of which two threads of OpenMP receive what nobody sends.
program languages
  use mpi_f08
  use omp_lib
  implicit none
  integer :: level, rank, number
  call MPI_Init_thread(MPI_THREAD_MULTIPLE, level)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  !$omp parallel num_threads(2) private(number)
  if (omp_get_thread_num() == 0) then
     call MPI_Recv(number, 1, MPI_INTEGER, 1 - rank, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE) ! LINE first
  else
     call listen(1 - rank)
  end if
  !$omp end parallel
  call MPI_Finalize()
contains
  subroutine listen(from)
    integer, intent(in) :: from
    integer :: number
    call MPI_Recv(number, 1, MPI_INTEGER, from, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE) ! LINE second
  end subroutine
end program
