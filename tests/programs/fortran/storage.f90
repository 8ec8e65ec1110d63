! Windows, files and started processes from mpi_f08.
program storage
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: rank, ranks, i, n, codes(2)
  type(MPI_Comm) :: parent, children
  type(MPI_Win) :: win
  type(MPI_File) :: file
  type(MPI_Status) :: status
  type(MPI_Request) :: request
  type(MPI_Datatype) :: etype, filetype
  type(c_ptr) :: base
  integer, pointer, asynchronous :: memory(:)
  integer, asynchronous :: table(4, 6), back(4, 6)
  integer(MPI_ADDRESS_KIND) :: value, size
  integer(MPI_OFFSET_KIND) :: offset
  logical :: flag
  character(200) :: program_name, argument
  character(12) :: words(3)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call MPI_Comm_get_parent(parent)
  if (parent /= MPI_COMM_NULL) then
    ! A child tells its parent what it was called with.
    call get_command_argument(1, argument)
    call MPI_Send(argument, 12, MPI_CHARACTER, 0, command_argument_count(), parent)
    call MPI_Comm_disconnect(parent)
    call MPI_Finalize()
    stop
  end if

  ! A window: every rank puts a column with gaps to its neighbor.
  call MPI_Win_allocate(24_MPI_ADDRESS_KIND * 4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, win)
  call c_f_pointer(base, memory, [24])
  memory = -1
  table = reshape([(i + 100 * rank, i=1, 24)], [4, 6])
  call MPI_Win_fence(0, win)
  call MPI_Put(table(2, 1:6:2), 3, MPI_INTEGER, mod(rank + 1, ranks), 5_MPI_ADDRESS_KIND, 3, MPI_INTEGER, win)
  call MPI_Win_fence(0, win)
  n = mod(rank + ranks - 1, ranks)
  call check(all(memory(6:8) == [2, 10, 18] + 100 * n) .and. memory(9) == -1, 'put')
  back = 0
  call MPI_Get(back(1:4:3, 2), 2, MPI_INTEGER, rank, 5_MPI_ADDRESS_KIND, 2, MPI_INTEGER, win)
  call MPI_Win_fence(0, win)
  call check(back(1, 2) == memory(6) .and. back(4, 2) == memory(7) .and. back(2, 2) == 0, 'get')
  call MPI_Win_get_attr(win, MPI_WIN_BASE, value, flag)
  call check(flag .and. value == transfer(base, value), 'base')
  call MPI_Win_get_attr(win, MPI_WIN_SIZE, size, flag)
  call check(flag .and. size == 96, 'size')
  call MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, value, flag)
  call check(flag .and. value == 4, 'unit')
  call MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, value, flag)
  call check(flag .and. value == MPI_WIN_FLAVOR_ALLOCATE, 'flavor')
  call MPI_Win_set_name(win, 'memory')
  call MPI_Win_get_name(win, words(1), n)
  call check(words(1) == 'memory' .and. n == 6, 'name')
  call MPI_Win_free(win)
  call check(win == MPI_WIN_NULL, 'freed window')

  ! A file: sections go out and come in.
  call get_command_argument(1, argument)
  call MPI_File_open(MPI_COMM_WORLD, argument, MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file)
  offset = 48_MPI_OFFSET_KIND * rank
  call MPI_File_write_at_all(file, offset, table(:, 1:6:2), 12, MPI_INTEGER, status)
  call MPI_Get_count(status, MPI_INTEGER, n)
  call check(n == 12, 'written')
  back = 0
  call MPI_File_iread_at(file, offset, back(:, 6:1:-2), 12_MPI_COUNT_KIND, MPI_INTEGER, request)
  call MPI_Wait(request, status)
  call check(all(back(:, 6:1:-2) == table(:, 1:6:2)) .and. all(back(:, 1) == 0), 'read')
  call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_INTEGER, MPI_INTEGER, 'native', MPI_INFO_NULL)
  call MPI_File_get_view(file, offset, etype, filetype, words(2))
  call check(words(2) == 'native' .and. offset == 0 .and. etype == MPI_INTEGER .and. filetype == MPI_INTEGER, 'view')
  call MPI_File_set_atomicity(file, .true.)
  call MPI_File_get_atomicity(file, flag)
  call check(flag, 'atomicity')
  call MPI_File_close(file)

  ! Processes with arguments: blanks around them do not count, a blank one ends them.
  call get_command_argument(0, program_name)
  words = [character(12) :: '  one word', 'two', ' ']
  call MPI_Comm_spawn(program_name, words, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, children, MPI_ERRCODES_IGNORE)
  call MPI_Recv(words(3), 12, MPI_CHARACTER, 0, 2, children, status)
  call check(words(3) == 'one word', 'argument')
  call MPI_Comm_disconnect(children)
  call MPI_Comm_spawn(program_name, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, children, codes)
  call MPI_Recv(words(3), 12, MPI_CHARACTER, 0, 0, children, status)
  call check(words(3) == ' ' .and. codes(1) == MPI_SUCCESS, 'no argument')
  call MPI_Comm_disconnect(children)
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
