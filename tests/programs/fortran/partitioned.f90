! Partitioned communication in both modules: the count is of MPI_COUNT_KIND, as the standard has it.
subroutine with_mpi(errors)
  use mpi
  implicit none
  integer, intent(inout) :: errors
  integer :: rank, ranks, right, left, requests(2), statuses(MPI_STATUS_SIZE, 2), ierror, i
  double precision :: out(6), in(6)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  right = mod(rank + 1, ranks)
  left = mod(rank + ranks - 1, ranks)
  out = [(rank * 100d0 + i, i = 1, 6)]
  in = 0
  call MPI_Psend_init(out, 3, 2_MPI_COUNT_KIND, MPI_DOUBLE_PRECISION, right, 4, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1), &
                      ierror)
  call MPI_Precv_init(in, 2, 3_MPI_COUNT_KIND, MPI_DOUBLE_PRECISION, left, 4, MPI_COMM_WORLD, MPI_INFO_NULL, requests(2), ierror)
  call MPI_Startall(2, requests, ierror)
  do i = 0, 2
    call MPI_Pready(i, requests(1), ierror)
  end do
  call MPI_Waitall(2, requests, statuses, ierror)
  if (any(in /= [(left * 100d0 + i, i = 1, 6)])) errors = errors + 1
  do i = 1, 2
    call MPI_Request_free(requests(i), ierror)
  end do
end subroutine

subroutine with_mpi_f08(errors)
  use mpi_f08
  implicit none
  integer, intent(inout) :: errors
  integer :: rank, ranks, right, left, i
  integer(MPI_COUNT_KIND) :: each
  type(MPI_Request) :: requests(2)
  integer :: out(6), in(6)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  right = mod(rank + 1, ranks)
  left = mod(rank + ranks - 1, ranks)
  out = [(rank * 100 + i, i = 1, 6)]
  in = 0
  each = 3
  call MPI_Psend_init(out, 2, each, MPI_INTEGER, right, 5, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1))
  call MPI_Precv_init(in, 2, each, MPI_INTEGER, left, 5, MPI_COMM_WORLD, MPI_INFO_NULL, requests(2))
  call MPI_Startall(2, requests)
  call MPI_Pready_range(0, 1, requests(1))
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  if (any(in /= [(left * 100 + i, i = 1, 6)])) errors = errors + 1
  do i = 1, 2
    call MPI_Request_free(requests(i))
  end do
end subroutine

program partitioned
  use mpi_f08
  implicit none
  integer :: errors = 0, all, rank
  call MPI_Init()
  call with_mpi(errors)
  call with_mpi_f08(errors)
  call MPI_Allreduce(errors, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  if (rank == 0 .and. all == 0) print '(a)', 'ok'
  call MPI_Finalize()
end program
