! Sends one message to itself.
program sender
  use mpi
  implicit none
  integer :: ierror, request, got
  call MPI_Init(ierror)
  call MPI_Irecv(got, 1, MPI_INTEGER, 0, 1, MPI_COMM_SELF, request, ierror)
  call MPI_Send(5, 1, MPI_INTEGER, 0, 1, MPI_COMM_SELF, ierror)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
  call MPI_Finalize(ierror)
end program
