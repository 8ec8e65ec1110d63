! MPI through `use mpi_f08`: handles as types, optional errors, functions of the program, large counts.
module functions
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: copies = 0, deletes = 0, errors = 0, queries = 0, frees = 0

contains

  subroutine check(right, what)
    logical, intent(in) :: right
    character(*), intent(in) :: what
    if (right) return
    print *, 'wrong: ', what
    error stop
  end subroutine

  subroutine longest(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    real(8), pointer :: a(:), b(:)
    call check(datatype == MPI_REAL8, 'datatype of an operation')
    call c_f_pointer(invec, a, [len])
    call c_f_pointer(inoutvec, b, [len])
    b = max(a, b)
  end subroutine

  subroutine longest_c(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer(MPI_COUNT_KIND) :: len
    type(MPI_Datatype) :: datatype
    real(8), pointer :: a(:), b(:)
    call check(datatype == MPI_REAL8, 'datatype of a large operation')
    call c_f_pointer(invec, a, [len])
    call c_f_pointer(inoutvec, b, [len])
    b = max(a, b)
  end subroutine

  subroutine copy_type(oldtype, type_keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    type(MPI_Datatype) :: oldtype
    integer :: type_keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    copies = copies + 1
    attribute_val_out = attribute_val_in * extra_state
    flag = oldtype /= MPI_DATATYPE_NULL .and. type_keyval /= MPI_KEYVAL_INVALID
    ierror = MPI_SUCCESS
  end subroutine

  subroutine delete_type(datatype, type_keyval, attribute_val, extra_state, ierror)
    type(MPI_Datatype) :: datatype
    integer :: type_keyval, ierror
    integer(MPI_ADDRESS_KIND) :: attribute_val, extra_state
    deletes = deletes + 1
    ierror = merge(MPI_SUCCESS, MPI_ERR_OTHER, extra_state == 3 .and. attribute_val >= 14 &
                   .and. datatype /= MPI_DATATYPE_NULL .and. type_keyval /= MPI_KEYVAL_INVALID)
  end subroutine

  subroutine handler(comm, error_code)
    type(MPI_Comm) :: comm
    integer :: error_code
    if (comm == MPI_COMM_SELF .and. error_code /= MPI_SUCCESS) errors = errors + 1
  end subroutine

  subroutine query(extra_state, status, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    type(MPI_Status) :: status
    integer :: ierror
    queries = queries + 1
    call MPI_Status_set_elements(status, MPI_INTEGER, int(extra_state))
    call MPI_Status_set_cancelled(status, .false.)
    status%MPI_SOURCE = 0
    status%MPI_TAG = 44
    ierror = MPI_SUCCESS
  end subroutine

  subroutine free_request(extra_state, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    frees = frees + int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine cancel(extra_state, complete, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
    ierror = merge(MPI_SUCCESS, MPI_ERR_OTHER, complete .or. extra_state == 0)
  end subroutine
end module

program modern
  use functions
  implicit none
  integer :: rank, ranks, n, key, ierror, outcount, indices(2)
  type(MPI_Comm) :: comm
  type(MPI_Datatype) :: type, copied
  type(MPI_Errhandler) :: errhandler
  type(MPI_Group) :: world, some
  type(MPI_Info) :: info
  type(MPI_Message) :: message
  type(MPI_Op) :: op
  type(MPI_Request) :: request, requests(2)
  type(MPI_Status) :: status, statuses(2)
  character(10) :: text
  character(MPI_MAX_LIBRARY_VERSION_STRING) :: version
  integer(MPI_ADDRESS_KIND) :: value, lb, extent
  integer(MPI_COUNT_KIND) :: count, size
  logical :: flag
  real(8) :: a(4), b(4)
  character(5) :: words(2), heard(2)
  ! Volatile, because a compiler may know that nobody else has the address of a buffer.
  type(c_ptr), volatile :: pointer, back
  integer :: buffer(100 + MPI_BSEND_OVERHEAD)
  target :: buffer
  asynchronous :: n

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call check(MPI_SUBARRAYS_SUPPORTED .and. MPI_ASYNC_PROTECTS_NONBLOCKING, 'properties')

  ! Handles.
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  call check(comm /= MPI_COMM_WORLD .and. comm == MPI_Comm(comm%MPI_VAL), 'comparison')
  call MPI_Comm_group(comm, world)
  call MPI_Group_range_incl(world, 1, reshape([0, ranks - 1, 2], [3, 1]), some)
  call MPI_Group_size(some, n)
  call check(n == (ranks + 1) / 2, 'ranges')
  call MPI_Group_free(some)
  call MPI_Group_free(world)
  call check(world == MPI_GROUP_NULL, 'freed group')

  ! Small and large counts by one name, matched messages, texts as data.
  words = ['one  ', 'two  ']
  call MPI_Isend(words, 10_MPI_COUNT_KIND, MPI_CHARACTER, mod(rank + 1, ranks), 5, comm, request)
  call MPI_Mprobe(MPI_ANY_SOURCE, 5, comm, message, status)
  call MPI_Get_count(status, MPI_CHARACTER, count)
  call check(count == 10, 'large count')
  call MPI_Mrecv(heard, 10, MPI_CHARACTER, message, MPI_STATUS_IGNORE)
  call check(heard(2) == 'two' .and. message == MPI_MESSAGE_NULL, 'mrecv')
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  call MPI_Type_size(MPI_REAL8, size)
  call MPI_Type_size(MPI_REAL8, n)
  call check(size == 8 .and. n == 8, 'two sizes')
  call MPI_Type_contiguous(3000000000_MPI_COUNT_KIND, MPI_BYTE, type)
  call MPI_Type_get_extent(type, lb, extent)
  call check(extent == 3000000000_8, 'large type')
  call MPI_Type_free(type)

  ! Functions of the program.
  a = rank + [1, 2, 3, 4]
  call MPI_Op_create(longest, .true., op)
  call MPI_Allreduce(a, b, 4, MPI_REAL8, op, comm)
  call check(all(b == ranks - 1 + [1, 2, 3, 4]), 'own operation')
  call MPI_Op_free(op)
  call MPI_Op_create_c(longest_c, .true., op)
  call MPI_Allreduce(a, b, 4_MPI_COUNT_KIND, MPI_REAL8, op, comm)
  call check(all(b == ranks - 1 + [1, 2, 3, 4]), 'own large operation')
  call MPI_Op_free(op)
  call MPI_Type_create_keyval(copy_type, delete_type, key, 3_MPI_ADDRESS_KIND)
  call MPI_Type_contiguous(2, MPI_INTEGER, type)
  call MPI_Type_set_attr(type, key, 14_MPI_ADDRESS_KIND)
  call MPI_Type_dup(type, copied)
  call MPI_Type_get_attr(copied, key, value, flag)
  call check(flag .and. value == 42 .and. copies == 1, 'copied attribute')
  call MPI_Type_free(copied)
  call MPI_Type_free(type)
  call check(deletes == 2, 'deleted attributes')
  call MPI_Type_free_keyval(key)
  call check(key == MPI_KEYVAL_INVALID, 'freed key')
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(MPI_COMM_SELF, key, -1_MPI_ADDRESS_KIND)
  call MPI_Comm_get_attr(MPI_COMM_SELF, key, value, flag)
  call check(flag .and. value == -1, 'attribute')
  call MPI_Comm_create_errhandler(handler, errhandler)
  call MPI_Comm_set_errhandler(MPI_COMM_SELF, errhandler)
  call MPI_Send(rank, 1, MPI_INTEGER, 1, 0, MPI_COMM_SELF, ierror)
  call check(errors == 1 .and. ierror /= MPI_SUCCESS, 'error handler')
  call MPI_Errhandler_free(errhandler)
  call MPI_Grequest_start(query, free_request, cancel, 6_MPI_ADDRESS_KIND, request)
  call MPI_Test(request, flag, status)
  call check(.not. flag, 'generalized request')
  call MPI_Grequest_complete(request)
  call MPI_Wait(request, status)
  call MPI_Get_elements(status, MPI_INTEGER, n)
  call check(n == 6 .and. status%MPI_TAG == 44 .and. queries == 1 .and. frees == 6, 'query and free')

  ! Texts.
  call MPI_Info_create(info)
  call MPI_Info_set(info, 'color', 'blue')
  n = len(text)
  call MPI_Info_get_string(info, 'color', n, text, flag)
  call check(flag .and. text == 'blue' .and. n == 4, 'info')
  n = 0
  call MPI_Info_get_string(info, 'color', n, text, flag)
  call check(flag .and. n == 4, 'length of a value')
  call MPI_Info_get_string(info, 'nothing', n, text, flag)
  call check(.not. flag, 'no such key')
  call MPI_Info_free(info)
  call MPI_Get_library_version(version, n)
  call check(n > 0 .and. version(n + 1:) == ' ', 'version')
  n = 0
  call MPI_Pack_external_size('external32', 3, MPI_INTEGER, value)
  call check(value == 12, 'external32')
  lb = 0
  call MPI_Pack_external('external32', [1, 2, 3], 3, MPI_INTEGER, buffer, 12_MPI_ADDRESS_KIND, lb)
  call check(lb == 12 .and. buffer(1) == 16777216, 'pack_external')

  ! Persistent requests, some of them.
  call MPI_Send_init(rank, 1, MPI_INTEGER, mod(rank + 1, ranks), 9, comm, requests(1))
  call MPI_Recv_init(n, 1, MPI_INTEGER, MPI_ANY_SOURCE, 9, comm, requests(2))
  call MPI_Startall(2, requests)
  ierror = 0
  do while (ierror < 2)
    call MPI_Waitsome(2, requests, outcount, indices, statuses)
    call check(all(indices(:outcount) >= 1 .and. indices(:outcount) <= 2), 'indices')
    ierror = ierror + outcount
  end do
  call check(n == mod(rank + ranks - 1, ranks), 'persistent')
  call MPI_Request_free(requests(1))
  call MPI_Request_free(requests(2))

  ! A buffer comes back as a C pointer.
  pointer = c_loc(buffer)
  call MPI_Buffer_attach(buffer, 400 + 4 * MPI_BSEND_OVERHEAD)
  call MPI_Bsend(rank, 1, MPI_INTEGER, rank, 3, comm)
  call MPI_Recv(n, 1, MPI_INTEGER, rank, 3, comm, MPI_STATUS_IGNORE)
  call MPI_Buffer_detach(back, n)
  call check(c_associated(back, pointer) .and. n == 400 + 4 * MPI_BSEND_OVERHEAD, 'detached buffer')

  call MPI_Sizeof(b, n)
  call check(n == 8, 'sizeof')
  call MPI_Comm_free(comm)
  call MPI_Barrier(MPI_COMM_WORLD)
  if (rank == 0) print '(a)', 'ok'
  call MPI_Finalize()
end program
