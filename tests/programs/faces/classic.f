! A program of the 1990s, compiled with another MPI's mpif.h: everything whose value or form differs between ABIs.
      program classic
      implicit none
      include 'mpif.h'
      integer e, rank, ranks, left, right, i, n, buffer(10), got
      integer status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE,2)
      integer requests(2), op, comm, copy, handler, class, key, size
      integer file, info, win, seen_by_c
      integer(kind=MPI_ADDRESS_KIND) value
      integer(kind=MPI_OFFSET_KIND) offset
      logical flag
      double precision x(3), a(4)
      character*(MPI_MAX_ERROR_STRING) text
      character*24 name
      external add, handle, copy_attr, drop_attr, seen_by_c
      integer handled
      common /calls/ handled

      handled = 0
      call mpi_init(e)
      call mpi_comm_rank(MPI_COMM_WORLD, rank, e)
      call mpi_comm_size(MPI_COMM_WORLD, ranks, e)
      right = mod(rank + 1, ranks)
      left = mod(rank + ranks - 1, ranks)

! Marks and predefined handles.
      do i = 1, 10
        buffer(i) = i * (rank + 1)
      end do
      call mpi_allreduce(MPI_IN_PLACE, buffer, 10, MPI_INTEGER, MPI_SUM,
     &  MPI_COMM_WORLD, e)
      call check(buffer(10) .eq. 5 * ranks * (ranks + 1), 'in place')
      call mpi_type_size(MPI_LOGICAL, size, e)
      call check(size .eq. 4, 'logical')
      call mpi_type_size(MPI_2DOUBLE_PRECISION, size, e)
      call check(size .eq. 16, 'pair')

! Requests and statuses.
      call mpi_isend(rank, 1, MPI_INTEGER, right, 7, MPI_COMM_WORLD,
     &  requests(1), e)
      call mpi_irecv(got, 1, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG,
     &  MPI_COMM_WORLD, requests(2), e)
      call mpi_waitall(2, requests, statuses, e)
      call check(got .eq. left, 'data')
      call check(statuses(MPI_SOURCE, 2) .eq. left, 'source')
      call check(statuses(MPI_TAG, 2) .eq. 7, 'tag')
      call mpi_get_count(statuses(1, 2), MPI_INTEGER, n, e)
      call check(n .eq. 1, 'count')
      call check(requests(1) .eq. MPI_REQUEST_NULL, 'request')
      call mpi_recv(got, 1, MPI_INTEGER, MPI_PROC_NULL, 0,
     &  MPI_COMM_WORLD, status, e)
      call check(status(MPI_SOURCE) .eq. MPI_PROC_NULL, 'nobody')
      call mpi_sendrecv(rank, 1, MPI_INTEGER, 0, 1, got, 1,
     &  MPI_INTEGER, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE, e)
      call check(got .eq. rank, 'to oneself')

! Functions of the program get handles as integers.
      call mpi_op_create(add, .true., op, e)
      x(1) = rank + 1
      x(2) = 1
      x(3) = -1
      call mpi_allreduce(MPI_IN_PLACE, x, 3, MPI_DOUBLE_PRECISION, op,
     &  MPI_COMM_WORLD, e)
      call check(x(1) .eq. ranks * (ranks + 1) / 2, 'reduction')
      call mpi_op_free(op, e)
      call check(op .eq. MPI_OP_NULL, 'no reduction')
      call mpi_comm_dup(MPI_COMM_WORLD, comm, e)
      call mpi_comm_create_errhandler(handle, handler, e)
      call mpi_comm_set_errhandler(comm, handler, e)
      call mpi_send(x, 1, MPI_INTEGER, ranks + 5, 3, comm, e)
      call check(handled .eq. 1, 'handler')
      call mpi_error_class(e, class, e)
      call check(class .eq. MPI_ERR_RANK, 'class')
      call mpi_error_string(MPI_ERR_RANK, text, n, e)
      call check(n .gt. 3 .and. text(n:n) .ne. ' ', 'text')
      value = 5
      call mpi_comm_create_keyval(copy_attr, drop_attr, key, value, e)
      value = 77
      call mpi_comm_set_attr(comm, key, value, e)
      call mpi_comm_dup(comm, copy, e)
      call mpi_comm_get_attr(copy, key, value, flag, e)
      call check(flag .and. value .eq. 78, 'attribute')
      call mpi_comm_free(copy, e)
      call mpi_comm_get_attr(comm, MPI_TAG_UB, value, flag, e)
      call check(flag .and. value .ge. 32767, 'largest tag')

! Handles in C and in Fortran, of what is predefined and of what is not.
      call check(seen_by_c(MPI_COMM_WORLD, MPI_DOUBLE_PRECISION,
     &  statuses(1, 2)) .eq. ranks * 1000 + 8, 'predefined in C')
      call check(seen_by_c(comm, MPI_INTEGER, statuses(1, 2)) .eq.
     &  ranks * 1000 + 4, 'handle in C')
      call mpi_comm_free(comm, e)
      call check(comm .eq. MPI_COMM_NULL, 'no communicator')
      call mpi_comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, comm, e)
      call check(comm .eq. MPI_COMM_NULL, 'not split')

! Texts, windows, files.
      call mpi_info_create(info, e)
      call mpi_info_set(info, ' key', 'a value  ', e)
      call mpi_info_get(info, 'key ', 24, name, flag, e)
      call check(flag .and. name .eq. 'a value', 'information')
      call mpi_info_free(info, e)
      call check(info .eq. MPI_INFO_NULL, 'no information')
      value = 32
      call mpi_win_create(a, value, 8, MPI_INFO_NULL, MPI_COMM_WORLD,
     &  win, e)
      call mpi_win_get_attr(win, MPI_WIN_SIZE, value, flag, e)
      call check(flag .and. value .eq. 32, 'size of window')
      call mpi_win_fence(0, win, e)
      x(1) = rank
      value = 2
      call mpi_put(x, 1, MPI_DOUBLE_PRECISION, right, value, 1,
     &  MPI_DOUBLE_PRECISION, win, e)
      call mpi_win_fence(0, win, e)
      call check(a(3) .eq. left, 'put')
      call mpi_win_free(win, e)
      call mpi_file_open(MPI_COMM_WORLD, 'classic.out ', MPI_MODE_CREATE
     &  + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, file,
     &  e)
      call check(e .eq. MPI_SUCCESS, 'file')
      offset = 40 * rank
      call mpi_file_write_at_all(file, offset, buffer, 10, MPI_INTEGER,
     &  status, e)
      call mpi_get_count(status, MPI_INTEGER, n, e)
      call check(n .eq. 10, 'written')
      call mpi_file_get_size(file, offset, e)
      call check(offset .le. 40 * ranks, 'size of file')
      call mpi_file_close(file, e)
      call check(file .eq. MPI_FILE_NULL, 'no file')

! One body serves both names.
      call pmpi_barrier(MPI_COMM_WORLD, e)
      call check(e .eq. MPI_SUCCESS, 'pmpi')
      if (rank .eq. 0) print '(a)', 'ok'
      call mpi_finalize(e)
      end

      subroutine check(good, what)
      logical good
      character*(*) what
      if (good) return
      print *, 'wrong: ', what
      call abort
      end

      subroutine add(in, inout, n, type)
      include 'mpif.h'
      integer n, type, i
      double precision in(n), inout(n)
      call check(type .eq. MPI_DOUBLE_PRECISION, 'type of reduction')
      do i = 1, n
        inout(i) = in(i) + inout(i)
      end do
      end

      subroutine handle(comm, code)
      include 'mpif.h'
      integer comm, code, ranks, e
      integer handled
      common /calls/ handled
      call mpi_comm_size(comm, ranks, e)
      call check(e .eq. MPI_SUCCESS, 'communicator of handler')
      call check(code .ne. MPI_SUCCESS, 'code of handler')
      handled = handled + 1
      end

      subroutine copy_attr(comm, key, extra, in, out, flag, e)
      include 'mpif.h'
      integer comm, key, e, ranks
      integer(kind=MPI_ADDRESS_KIND) extra, in, out
      logical flag
      call mpi_comm_size(comm, ranks, e)
      call check(extra .eq. 5, 'extra state')
      out = in + 1
      flag = .true.
      e = MPI_SUCCESS
      end

      subroutine drop_attr(comm, key, value, extra, e)
      include 'mpif.h'
      integer comm, key, e
      integer(kind=MPI_ADDRESS_KIND) value, extra
      e = MPI_SUCCESS
      end
