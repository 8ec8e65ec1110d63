      program files
      include 'fnx.h'
      integer me, n, i, id, e(2), f(2), buf(100)
      external eseek, eadd, esize
      me = mynode()
      n = numnodes()
      call gopen(11, 'fortran.data', M_RECORD)
      do i = 1, 100
        buf(i) = me * 1000 + i
      end do
      call cwrite(11, buf, 400)
      id = iwrite(11, buf, 400)
      call iowait(id)
      call gsync()
      call setiomode(11, M_SYNC)
      if (iomode(11) .ne. M_SYNC) stop 1
      e(1) = 0
      e(2) = 0
      call eseek(11, e, SIZE_SET, f)
      if (f(1) .ne. 0 .or. f(2) .ne. 0) stop 2
      buf = 0
      call cread(11, buf, 400)
      do i = 1, 100
        if (buf(i) .ne. me * 1000 + i) stop 3
      end do
      call cread(11, buf, 400)
      if (iseof(11) .ne. 1) stop 4
      call gsync()
      if (lsize(11, 0, SIZE_END) .ne. n * 800) stop 5
      e(1) = -1
      e(2) = 0
      f(1) = 1
      f(2) = 0
      call eadd(e, f, e)
      if (e(1) .ne. 0 .or. e(2) .ne. 1) stop 6
      if (me .eq. 0) print *, 'all right'
      end
