! A message whose datatypes differ, with its lines in Fortran.
program wrong
  use mpi
  implicit none
  integer :: ierror, rank, values(4)

  values = 0
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  if (rank == 0) then
    call MPI_Send(values, 4, MPI_INTEGER, 1, 7, MPI_COMM_WORLD, ierror)
  else if (rank == 1) then
    call MPI_Recv(values, 4, MPI_REAL, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
  end if
  call MPI_Finalize(ierror)
end program
