! MPI through mpif.h, in fixed form: what programs of the 1990s call.
      program classic
      implicit none
      include 'mpif.h'
      integer ierr, rank, ranks, left, right, i, index, count, key
      integer outcount, indices(2), length, comm, sub
      integer status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE,2)
      integer requests(2), op, codes, handler, type, big(2), class
      integer dims(2), coords(2)
      logical flag, periods(2), remain(2), got(2)
      integer(kind=MPI_ADDRESS_KIND) value, found, address, extra
      double precision a(10), b(10), t
      integer old, oldkey
      character*12 name
      character*4 small
      character*(MPI_MAX_ERROR_STRING) text
      character*3 key3
      external longest, handle, copy_attr, delete_attr, old_copy
      integer calls, deleted
      common /counts/ calls, deleted

      calls = 0
      deleted = 0
      call mpi_init(ierr)
      t = mpi_wtime()
      call mpi_comm_rank(MPI_COMM_WORLD, rank, ierr)
      call mpi_comm_size(MPI_COMM_WORLD, ranks, ierr)
      right = mod(rank + 1, ranks)
      left = mod(rank + ranks - 1, ranks)

! Indices count from 1; a null request is not complete first.
      do i = 1, 10
        a(i) = i + 100 * rank
      end do
      requests(1) = MPI_REQUEST_NULL
      call mpi_irecv(b, 10, MPI_DOUBLE_PRECISION, left, 7,
     &  MPI_COMM_WORLD, requests(2), ierr)
      call mpi_send(a, 10, MPI_DOUBLE_PRECISION, right, 7,
     &  MPI_COMM_WORLD, ierr)
      call mpi_waitany(2, requests, index, status, ierr)
      call check(index .eq. 2, 'waitany')
      call check(status(MPI_SOURCE) .eq. left, 'source')
      call check(status(MPI_TAG) .eq. 7, 'tag')
      call check(b(10) .eq. 10 + 100 * left, 'data')
      call mpi_get_count(status, MPI_DOUBLE_PRECISION, count, ierr)
      call check(count .eq. 10, 'count')
      call mpi_waitany(2, requests, index, MPI_STATUS_IGNORE, ierr)
      call check(index .eq. MPI_UNDEFINED, 'no request')
      call mpi_irecv(b, 10, MPI_DOUBLE_PRECISION, left, 8,
     &  MPI_COMM_WORLD, requests(2), ierr)
      call mpi_send(a, 10, MPI_DOUBLE_PRECISION, right, 8,
     &  MPI_COMM_WORLD, ierr)
      call mpi_waitsome(2, requests, outcount, indices, statuses, ierr)
      call check(outcount .eq. 1 .and. indices(1) .eq. 2, 'waitsome')
      call check(statuses(MPI_TAG, 1) .eq. 8, 'waitsome tag')
      call check(requests(2) .eq. MPI_REQUEST_NULL, 'request')
      call mpi_waitall(2, requests, MPI_STATUSES_IGNORE, ierr)

! Reductions: predefined, in place, and by a function of the program.
      big(1) = rank
      big(2) = -rank
      call mpi_allreduce(MPI_IN_PLACE, big, 2, MPI_INTEGER, MPI_MAX,
     &  MPI_COMM_WORLD, ierr)
      call check(big(1) .eq. ranks - 1 .and. big(2) .eq. 0, 'in place')
      call mpi_op_create(longest, .true., op, ierr)
      call mpi_op_commutative(op, flag, ierr)
      call check(flag, 'commutative')
      call mpi_allreduce(a, b, 10, MPI_DOUBLE_PRECISION, op,
     &  MPI_COMM_WORLD, ierr)
      call check(b(3) .eq. 3 + 100 * (ranks - 1), 'own operation')
      call mpi_op_free(op, ierr)
      got(1) = rank .eq. 0
      got(2) = .true.
      call mpi_allreduce(MPI_IN_PLACE, got, 2, MPI_LOGICAL, MPI_LAND,
     &  MPI_COMM_WORLD, ierr)
      call check(got(2) .and. (got(1) .eqv. ranks .eq. 1), 'logical')

! Texts: padded, cut, without the blanks at their end.
      call mpi_comm_dup(MPI_COMM_WORLD, comm, ierr)
      call mpi_comm_set_name(comm, 'rows   ', ierr)
      name = '????????????'
      call mpi_comm_get_name(comm, name, length, ierr)
      call check(name .eq. 'rows' .and. length .eq. 4, 'name')
      call mpi_comm_set_name(comm, 'columns', ierr)
      call mpi_comm_get_name(comm, small, length, ierr)
      call check(small .eq. 'colu', 'name that is cut')
      call mpi_info_create(i, ierr)
      call mpi_info_set(i, ' key ', '  a value  ', ierr)
      call mpi_info_get(i, 'key', 12, name, flag, ierr)
      call check(flag .and. name .eq. 'a value', 'info')
      call mpi_info_get_nthkey(i, 0, key3, ierr)
      call check(key3 .eq. 'key', 'nth key')
      length = 12
      call mpi_info_get_string(i, 'key', length, name, flag, ierr)
      call check(length .eq. 7 .and. name .eq. 'a value', 'string')
      call mpi_info_free(i, ierr)

! Topologies with logicals.
      dims(1) = 0
      dims(2) = 1
      call mpi_dims_create(ranks, 2, dims, ierr)
      call check(dims(1) .eq. ranks, 'dims')
      periods(1) = .true.
      periods(2) = .false.
      call mpi_cart_create(comm, 2, dims, periods, .false., i, ierr)
      periods(1) = .false.
      periods(2) = .true.
      call mpi_cart_get(i, 2, dims, periods, coords, ierr)
      call check(periods(1) .and. .not. periods(2), 'periods')
      call check(coords(1) .eq. rank, 'coordinates')
      remain(1) = .false.
      remain(2) = .true.
      call mpi_cart_sub(i, remain, sub, ierr)
      call mpi_comm_size(sub, count, ierr)
      call check(count .eq. 1, 'cart_sub')
      call mpi_comm_free(sub, ierr)
      call mpi_comm_free(i, ierr)

! Attributes, of both generations.
      extra = 17
      call mpi_comm_create_keyval(copy_attr, delete_attr, key, extra,
     &  ierr)
      value = 5000000000_MPI_ADDRESS_KIND
      call mpi_comm_set_attr(comm, key, value, ierr)
      call mpi_comm_dup(comm, sub, ierr)
      call mpi_comm_get_attr(sub, key, found, flag, ierr)
      call check(flag .and. found .eq. value + 17, 'copied attribute')
      call mpi_comm_free(sub, ierr)
      call check(deleted .eq. 1, 'deleted attribute')
      call mpi_comm_free_keyval(key, ierr)
      call mpi_keyval_create(old_copy, MPI_NULL_DELETE_FN, oldkey, 3,
     &  ierr)
      call mpi_attr_put(comm, oldkey, 40, ierr)
      call mpi_comm_dup(comm, sub, ierr)
      call mpi_attr_get(sub, oldkey, old, flag, ierr)
      call check(flag .and. old .eq. 43, 'attribute of MPI 1')
      call mpi_comm_free(sub, ierr)
      call mpi_attr_get(MPI_COMM_WORLD, MPI_TAG_UB, old, flag, ierr)
      call check(flag .and. old .ge. 32767, 'tag_ub')

! Errors: returned, and given to a handler of the program.
      call mpi_comm_set_errhandler(comm, MPI_ERRORS_RETURN, ierr)
      call mpi_send(a, 1, MPI_INTEGER, ranks, 0, comm, codes)
      call mpi_error_class(codes, class, ierr)
      call check(class .eq. MPI_ERR_RANK, 'error class')
      call mpi_error_string(codes, text, length, ierr)
      call check(length .gt. 0 .and. text(length:length) .ne. ' ' .and.
     &  text(length+1:) .eq. ' ', 'error string')
      call mpi_comm_create_errhandler(handle, handler, ierr)
      call mpi_comm_set_errhandler(comm, handler, ierr)
      call mpi_errhandler_free(handler, ierr)
      call mpi_send(a, 1, MPI_INTEGER, ranks, 0, comm, codes)
      call check(calls .eq. 1, 'error handler')

! Datatypes with absolute addresses.
      call mpi_get_address(a(2), address, ierr)
      call mpi_type_create_hindexed(1, (/ 3 /), (/ address /),
     &  MPI_DOUBLE_PRECISION, type, ierr)
      call mpi_type_commit(type, ierr)
      call mpi_sendrecv(MPI_BOTTOM, 1, type, right, 1, b, 3,
     &  MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD,
     &  MPI_STATUS_IGNORE, ierr)
      call check(b(1) .eq. 2 + 100 * left, 'bottom')
      call mpi_type_free(type, ierr)
      call check(mpi_aint_diff(mpi_aint_add(address, value), address)
     &  .eq. value, 'aint')
      call check(mpi_wtime() .ge. t, 'time')

      call mpi_comm_free(comm, ierr)
      call mpi_barrier(MPI_COMM_WORLD, ierr)
      if (rank .eq. 0) print '(a)', 'ok'
      call mpi_finalize(ierr)
      end

      subroutine check(right, what)
      logical right
      character*(*) what
      if (.not. right) then
        print *, 'wrong: ', what
        stop 1
      end if
      end

      subroutine longest(in, inout, n, type)
      integer n, type, i
      double precision in(n), inout(n)
      include 'mpif.h'
      call check(type .eq. MPI_DOUBLE_PRECISION, 'type of operation')
      do i = 1, n
        inout(i) = max(in(i), inout(i))
      end do
      end

      subroutine handle(comm, code)
      integer comm, code
      integer calls, deleted
      common /counts/ calls, deleted
      calls = calls + 1
      end

      subroutine copy_attr(comm, key, extra, in, out, flag, ierr)
      include 'mpif.h'
      integer comm, key, ierr
      integer(kind=MPI_ADDRESS_KIND) extra, in, out
      logical flag
      out = in + extra
      flag = .true.
      ierr = MPI_SUCCESS
      end

      subroutine delete_attr(comm, key, value, extra, ierr)
      include 'mpif.h'
      integer comm, key, ierr
      integer(kind=MPI_ADDRESS_KIND) extra, value
      integer calls, deleted
      common /counts/ calls, deleted
      call check(extra .eq. 17, 'extra state')
      deleted = deleted + 1
      ierr = MPI_SUCCESS
      end

      subroutine old_copy(comm, key, extra, in, out, flag, ierr)
      include 'mpif.h'
      integer comm, key, extra, in, out, ierr
      logical flag
      out = in + extra
      flag = .true.
      ierr = MPI_SUCCESS
      end
