! Fortran and C in one program, see mixed.c.
program mixed
  use mpi_f08
  implicit none
  interface
    integer function size_of(comm)
      import :: MPI_Comm
      type(MPI_Comm) :: comm
    end function
    subroutine three(type)
      import :: MPI_Datatype
      type(MPI_Datatype) :: type
    end subroutine
    integer function retag(status)
      import :: MPI_Status
      type(MPI_Status) :: status
    end function
    integer function put(comm)
      import :: MPI_Comm
      type(MPI_Comm) :: comm
    end function
    integer(MPI_ADDRESS_KIND) function where()
      import :: MPI_ADDRESS_KIND
    end function
    integer(MPI_ADDRESS_KIND) function fetch(comm, key)
      import :: MPI_Comm, MPI_ADDRESS_KIND
      type(MPI_Comm) :: comm
      integer :: key
    end function
  end interface
  integer :: rank, ranks, key, numbers(3)
  type(MPI_Comm) :: comm, copy
  type(MPI_Datatype) :: type
  type(MPI_Status) :: status
  integer(MPI_ADDRESS_KIND) :: value
  logical :: flag

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  call MPI_Comm_size(comm, ranks)
  call check(size_of(comm) == ranks, 'communicator')
  call three(type)
  numbers = 0
  call MPI_Sendrecv([1, 2, 3], 1, type, rank, 5, numbers, 1, type, rank, 5, comm, status)
  call check(all(numbers == [1, 2, 3]), 'datatype')
  call check(retag(status) == 5 .and. status%MPI_TAG == 99 .and. status%MPI_SOURCE == rank, 'status')
  call MPI_Type_free(type)

  ! Fortran sees the address that C has put, also in a copy.
  key = put(comm)
  call MPI_Comm_get_attr(comm, key, value, flag)
  call check(flag .and. value == where(), 'attribute of C')
  call MPI_Comm_dup(comm, copy)
  call MPI_Comm_get_attr(copy, key, value, flag)
  call check(flag .and. value == where(), 'copied attribute of C')
  call MPI_Comm_free(copy)

  ! C sees the address of what Fortran has put, also in a copy, and also under C's key.
  call MPI_Comm_set_attr(comm, key, 31_MPI_ADDRESS_KIND)
  call check(fetch(comm, key) == 31, 'attribute of Fortran under a key of C')
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(comm, key, 5000000001_MPI_ADDRESS_KIND)
  call MPI_Comm_dup(comm, copy)
  call MPI_Comm_delete_attr(comm, key)
  call check(fetch(copy, key) == 5000000001_8 .and. fetch(comm, key) == -1, 'attribute of Fortran')
  call MPI_Comm_free(copy)
  call MPI_Comm_free(comm)
  if (rank == 0) print '(a)', 'ok'
  call MPI_Finalize()

contains

  subroutine check(right, what)
    logical, intent(in) :: right
    character(*), intent(in) :: what
    if (right) return
    print *, 'wrong: ', what
    error stop
  end subroutine
end program
