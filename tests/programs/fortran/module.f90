! MPI through `use mpi`.
program module_mpi
  use mpi
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: rank, ranks, ierr, n, comm, type, request, status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 3)
  integer :: requests(3), weights(1), sources(1), destinations(1), flags, p
  integer(MPI_ADDRESS_KIND) :: address, extent, lb
  type(c_ptr) :: pointer
  real, pointer :: memory(:)
  real :: matrix(6, 6), copy(6, 6)
  integer, allocatable :: all(:)
  logical :: weighted, flag
  type(MPI_Status) :: f08_status
  integer(8) :: wide
  complex(8) :: z(3)

  call MPI_Init_thread(MPI_THREAD_FUNNELED, p, ierr)
  call check(p >= MPI_THREAD_FUNNELED, 'thread level')
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)

  ! Buffers of any type and rank; a section is copied to an array without gaps for the time of a call.
  allocate (all(ranks))
  call MPI_Allgather(rank, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  call check(all(ranks) == ranks - 1, 'allgather')
  matrix = rank
  copy = -1
  call MPI_Sendrecv(matrix(1:6:2, 2), 3, MPI_REAL, 0, 1, copy(2:6:2, 3), 3, MPI_REAL, merge(0, MPI_PROC_NULL, rank == 0), 1, &
                    MPI_COMM_SELF, status, ierr)
  if (rank == 0) call check(all_of(copy(2:6:2, 3), 0.0) .and. copy(1, 3) == -1, 'sections')

  ! Three requests, statuses as rows.
  do n = 1, 3
    call MPI_Isend(n, 1, MPI_INTEGER, mod(rank + 1, ranks), n, MPI_COMM_WORLD, requests(n), ierr)
  end do
  do n = 1, 3
    call MPI_Recv(p, 1, MPI_INTEGER, MPI_ANY_SOURCE, n, MPI_COMM_WORLD, status, ierr)
  end do
  call MPI_Waitall(3, requests, statuses, ierr)
  call check(all_null(requests), 'waitall')

  ! Statuses of both kinds.
  call MPI_Status_f2f08(status, f08_status, ierr)
  call check(f08_status%MPI_TAG == 3, 'f2f08')
  status = 0
  call MPI_Status_f082f(f08_status, status, ierr)
  call check(status(MPI_TAG) == 3, 'f082f')

  ! Memory by a C pointer and by an integer.
  call MPI_Alloc_mem(40_MPI_ADDRESS_KIND, MPI_INFO_NULL, pointer, ierr)
  call c_f_pointer(pointer, memory, [10])
  memory = 1
  call MPI_Free_mem(memory, ierr)
  call MPI_Alloc_mem(40_MPI_ADDRESS_KIND, MPI_INFO_NULL, address, ierr)
  call check(address /= 0, 'alloc_mem')

  ! Types by precision, and sizes.
  call MPI_Type_create_f90_real(12, 100, type, ierr)
  call MPI_Type_size(type, n, ierr)
  call check(n == 8, 'f90_real')
  call MPI_Sizeof(z, n, ierr)
  call check(n == 16, 'sizeof array')
  call MPI_Sizeof(wide, n, ierr)
  call check(n == 8, 'sizeof')
  call MPI_Type_create_resized(MPI_REAL, 0_MPI_ADDRESS_KIND, 24_MPI_ADDRESS_KIND, type, ierr)
  call MPI_Type_get_extent(type, lb, extent, ierr)
  call check(extent == 24, 'extent')
  call MPI_Type_free(type, ierr)
  call check(type == MPI_DATATYPE_NULL, 'freed type')

  ! A graph without weights, and with.
  sources(1) = mod(rank + ranks - 1, ranks)
  destinations(1) = mod(rank + 1, ranks)
  call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, sources, MPI_UNWEIGHTED, 1, destinations, MPI_UNWEIGHTED, &
                                      MPI_INFO_NULL, .false., comm, ierr)
  call MPI_Dist_graph_neighbors_count(comm, n, p, weighted, ierr)
  call check(.not. weighted .and. n == 1, 'unweighted')
  call MPI_Comm_free(comm, ierr)
  weights = 3
  call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, sources, weights, 1, destinations, weights, MPI_INFO_NULL, &
                                      .false., comm, ierr)
  call MPI_Dist_graph_neighbors_count(comm, n, p, weighted, ierr)
  call check(weighted, 'weighted')

  ! Each neighbor with its own datatype.
  call MPI_Neighbor_alltoallw([rank], [1], [0_MPI_ADDRESS_KIND], [MPI_INTEGER], n, [1], [0_MPI_ADDRESS_KIND], &
                              [MPI_INTEGER], comm, ierr)
  call check(n == sources(1), 'neighbor_alltoallw')
  call MPI_Comm_free(comm, ierr)

  call MPI_Ibarrier(MPI_COMM_WORLD, request, ierr)
  flag = .false.
  do while (.not. flag)
    call MPI_Test(request, flag, MPI_STATUS_IGNORE, ierr)
  end do
  call MPI_Initialized(flag, ierr)
  call check(flag, 'initialized')
  call MPI_Abi_get_fortran_info(n, ierr)
  call check(n /= MPI_INFO_NULL, 'fortran info')
  call MPI_Abi_get_fortran_booleans(4, p, flags, flag, ierr)
  call check(flag .and. p == transfer(.true., p) .and. flags == transfer(.false., p), 'booleans')
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a)', 'ok'
  call MPI_Finalize(ierr)

contains

  subroutine check(right, what)
    logical, intent(in) :: right
    character(*), intent(in) :: what
    if (right) return
    print *, 'wrong: ', what
    error stop
  end subroutine

  logical function all_of(values, value)
    real, intent(in) :: values(:), value
    all_of = all_equal(size(values), count(values == value))
  end function

  logical function all_null(list)
    integer, intent(in) :: list(:)
    all_null = all_equal(size(list), count(list == MPI_REQUEST_NULL))
  end function

  logical function all_equal(a, b)
    integer, intent(in) :: a, b
    all_equal = a == b
  end function
end program
