! Sections of arrays as buffers of mpi_f08: blocking, nonblocking, persistent, with derived types, in collectives.
program sections
  use mpi_f08
  implicit none
  type :: cell
    sequence
    integer :: number
    real :: weight
  end type
  integer :: rank, ranks, i, n, other
  type(MPI_Request) :: request, requests(2)
  type(MPI_Status) :: status
  type(MPI_Datatype) :: pairs, gapped
  integer, asynchronous :: cube(5, 6, 7), image(5, 6, 7), line(42)
  integer, allocatable :: all_in(:, :), column(:)
  type(cell) :: cells(8)
  complex :: z(9), y(9)
  character(4) :: words(6), heard(6)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  other = mod(rank + 1, ranks)
  cube = reshape([(i, i=1, 210)], [5, 6, 7])

  ! Three dimensions, backwards in one; what is not a part stays as it is.
  image = 0
  call MPI_Irecv(image(1:5:2, 6:1:-2, 2:7:3), 18, MPI_INTEGER, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, request)
  call MPI_Send(cube(1:5:2, 6:1:-2, 2:7:3), 18, MPI_INTEGER, other, 1, MPI_COMM_WORLD)
  call MPI_Wait(request, status)
  call check(all(image(1:5:2, 6:1:-2, 2:7:3) == cube(1:5:2, 6:1:-2, 2:7:3)), 'section')
  call check(sum(image) == sum(cube(1:5:2, 6:1:-2, 2:7:3)), 'gaps')
  call MPI_Get_count(status, MPI_INTEGER, n)
  call check(n == 18, 'count')

  ! A part of a section, not at the end of a column, to an array without gaps.
  call MPI_Sendrecv(cube(2:4, 2:5, 3:4), 17, MPI_INTEGER, other, 2, line, 17, MPI_INTEGER, MPI_ANY_SOURCE, 2, &
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  call check(all(line(:17) == pack_of(cube(2:4, 2:5, 3:4), 17)), 'part')

  ! Components, and elements larger than the datatype.
  cells%number = -1
  cells%weight = 0.5
  call MPI_Sendrecv(cube(1, 1:6, 1), 6, MPI_INTEGER, other, 3, cells(2:7)%number, 6, MPI_INTEGER, MPI_ANY_SOURCE, 3, &
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  call check(all(cells(2:7)%number == cube(1, :, 1)) .and. cells(1)%number == -1 .and. all(cells%weight == 0.5), 'components')
  z = [(cmplx(i, -i), i=1, 9)]
  y = 0
  call MPI_Sendrecv(z(1:9:2), 9, MPI_REAL, other, 4, y(1:9:2), 9, MPI_REAL, MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &
                    MPI_STATUS_IGNORE)
  call check(all(y(1:7:2) == z(1:7:2)) .and. real(y(9)) == 9 .and. aimag(y(9)) == 0 .and. y(2) == 0, 'parts of elements')
  words = [character(4) :: 'one', 'two', 'tree', 'four', 'five', 'six']
  heard = '????'
  call MPI_Sendrecv(words(2:6:2), 12, MPI_CHARACTER, other, 5, heard(1:5:2)(:), 12, MPI_CHARACTER, MPI_ANY_SOURCE, 5, &
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  call check(all(heard(1:5:2) == words(2:6:2)) .and. heard(2) == '????', 'words')

  ! Datatypes with more than one element of the section each, and with gaps of their own.
  call MPI_Type_contiguous(2, MPI_INTEGER, pairs)
  call MPI_Type_commit(pairs)
  call MPI_Type_vector(2, 1, 2, MPI_INTEGER, gapped)
  call MPI_Type_commit(gapped)
  line = 0
  call MPI_Sendrecv(cube(1:5:2, 1, :), 10, pairs, other, 6, line(1:40:2), 10, pairs, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &
                    MPI_STATUS_IGNORE)
  call check(all(line(1:40:2) == pack_of(cube(1:5:2, 1:1, :), 20)) .and. sum(line(2:40:2)) == 0, 'pairs')
  line = 0
  call MPI_Sendrecv(cube(1:5:2, 1, :), 2, gapped, other, 7, line, 4, MPI_INTEGER, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &
                    MPI_STATUS_IGNORE)
  call check(all(line(:4) == [1, 5, 31, 35]), 'gaps in gaps')

  ! Persistent.
  image = 0
  call MPI_Send_init(cube(2, :, 1:7:3), 18, MPI_INTEGER, other, 8, MPI_COMM_WORLD, requests(1))
  call MPI_Recv_init(image(3, :, 2:7:2), 18, MPI_INTEGER, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, requests(2))
  do i = 1, 2
    cube(2, 1, 1) = i
    call MPI_Startall(2, requests)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    call check(image(3, 1, 2) == i .and. all(image(3, :, 2:7:2) == cube(2, :, 1:7:3)), 'persistent')
  end do
  call MPI_Request_free(requests(1))
  call MPI_Request_free(requests(2))

  ! Collectives: with blocks of each rank, and with reductions.
  allocate (all_in(6, ranks), column(2 * ranks))
  all_in = -1
  call MPI_Allgather(cube(1:5:4, 1, 1) + rank, 2, MPI_INTEGER, all_in(2:6:4, :), 2, MPI_INTEGER, MPI_COMM_WORLD)
  call check(all(all_in(2, :) == [(1 + i, i=0, ranks - 1)]) .and. all(all_in(6, :) == [(5 + i, i=0, ranks - 1)]) &
             .and. all(all_in(1, :) == -1) .and. all(all_in(3:5, :) == -1), 'allgather')
  image = 0
  call MPI_Allreduce(cube(1:5:2, 2, 3), image(2:4, 3, 4), 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call check(all(image(2:4, 3, 4) == ranks * cube(1:5:2, 2, 3)), 'allreduce')
  image = 0
  call MPI_Iallreduce(cube(1:5:2, 2, 3), image(1:5:2, 3, 4), 3_MPI_COUNT_KIND, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call check(all(image(1:5:2, 3, 4) == ranks * cube(1:5:2, 2, 3)) .and. image(2, 3, 4) == 0, 'iallreduce')
  call MPI_Allreduce_init(cube(1:5:2, 1, 1), image(1:5:2, 1, 1), 3, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL, request)
  do i = 1, 2
    cube(3, 1, 1) = 1000 * i + rank
    call MPI_Start(request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call check(image(3, 1, 1) == 1000 * i + ranks - 1, 'allreduce_init')
  end do
  call MPI_Request_free(request)
  line = rank
  call MPI_Bcast(line(1:20:3), 7, MPI_INTEGER, 0, MPI_COMM_WORLD)
  call check(all(line(1:20:3) == 0) .and. line(2) == rank, 'bcast')

  ! Arrays of assumed size, parts without gaps, single elements.
  call plain(cube)
  call MPI_Type_free(pairs)
  call MPI_Type_free(gapped)
  call MPI_Barrier(MPI_COMM_WORLD)
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

  function pack_of(section, n)
    integer, intent(in) :: section(:, :, :), n
    integer :: pack_of(n), flat(size(section))
    flat = reshape(section, [size(section)])
    pack_of = flat(:n)
  end function

  subroutine plain(array)
    integer :: array(*), to(10)
    call MPI_Sendrecv(array, 10, MPI_INTEGER, 0, 1, to, 10, MPI_INTEGER, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE)
    call check(all(to == array(1:10)), 'assumed size')
    call MPI_Sendrecv(array(7), 10, MPI_INTEGER, 0, 1, to(1), 10, MPI_INTEGER, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE)
    call check(all(to == array(7:16)), 'element')
  end subroutine
end program
