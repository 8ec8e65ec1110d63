! A load from an array into which a message may still come. gfortran's library has a handler for
! SIGTRAP. With the argument `trap` rank 0 ends by a trap of its own.
program loads
  use mpi
  implicit none
  integer :: ierror, rank, request
  integer, asynchronous :: values(4)
  character(len=8) :: word
  interface
    function raise(number) bind(c)
      use iso_c_binding
      integer(c_int), value :: number
      integer(c_int) :: raise
    end function
  end interface

  values = 0
  call get_command_argument(1, word)
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  if (rank == 0) then
    call MPI_Irecv(values, 4, MPI_INTEGER, 1, 7, MPI_COMM_WORLD, request, ierror) ! LINE received into
    if (word == 'trap') then
      ierror = raise(5) ! LINE trap
    end if
    ierror = values(2) ! LINE loaded
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
  else if (rank == 1) then
    call MPI_Send(values, 4, MPI_INTEGER, 0, 7, MPI_COMM_WORLD, ierror)
  end if
  call MPI_Finalize(ierror)
end program loads
