c     Most calls of NX from Fortran, in fixed form.
      subroutine fail(n)
      integer n
      print *, 'check', n, 'failed'
      call exit(1)
      end

      subroutine received(type, count, node, ptype)
      integer type, count, node, ptype
      integer calls, noted
      common /handled/ calls, noted
      noted = 1000 * type + count
      calls = calls + 1
      end

      subroutine twice(params)
      integer params(2)
      params(2) = 2 * params(1)
      end

      integer function larger(x, work)
      double precision x, work
      if (work .gt. x) x = work
      larger = 0
      end

      program classic
      include 'fnx.h'
      integer me, nodes, right, left, mid, info(8), i, n(3), iwork(3)
      integer lens(64), all(64), got, rows, cols, other, params(2)
      integer done, list(64)
      double precision x(2), work(2), before
      real s(2), swork(2)
      integer calls, noted
      common /handled/ calls, noted
c     What changes during other calls lies in common.
      common /watched/ done, other
      integer larger
      external received, twice, larger, fail

      before = dclock()
      me = mynode()
      nodes = numnodes()
      right = mod(me + 1, nodes)
      left = mod(me + nodes - 1, nodes)
      if (myhost() .ne. nodes) call fail(1)

      mid = irecv(5, other, 4)
      call csend(5, me, 4, right, 0)
      call msgwait(mid)
      if (other .ne. left .or. infonode() .ne. left) call fail(2)
      if (infocount() .ne. 4 .or. infotype() .ne. 5) call fail(3)
      got = csendrecv(6, me, 4, right, 0, 6, other, 4)
      if (got .ne. 4) call fail(4)
      if (other .ne. left) call fail(5)
      call csend(7, me, 4, right, 0)
      call cprobex(-1, left, 0, info)
      if (info(1) .ne. 7 .or. info(2) .ne. 4) call fail(6)
      if (info(3) .ne. left .or. info(4) .ne. 0) call fail(7)
      info(3) = -1
      call crecvx(7, other, 4, left, 0, info)
      if (info(3) .ne. left) call fail(8)
      info(2) = -1
      mid = irecvx(8, other, 4, left, -1, info)
      call msgwait(isend(8, me, 4, right, 0))
 10   if (msgdone(mid) .eq. 0) goto 10
      if (info(2) .ne. 4 .or. other .ne. left) call fail(9)
      call csend(FORCE_TYPE + 1, me, 4, me, 0)
      if (iprobe(-1073741824) .ne. 0) call fail(10)
      call crecv(FORCE_TYPE + 1, other, 4)
      mid = isendrecv(9, me, 4, left, 0, 9, other, 4)
      call msgwait(msgmerge(-1, mid))
      if (other .ne. right) call fail(11)
      call csend(10, me, 4, me, 0)
      call flushmsg(10, -1, -1)
      if (iprobe(10) .ne. 0) call fail(12)
      do 20 i = 1, nodes
 20   list(i) = i - 1
      if (me .eq. 0) call gsendx(11, me, 4, list, nodes)
      call crecv(11, other, 4)
      if (other .ne. 0) call fail(13)

      calls = 0
      call hrecv(12, other, 4, received)
      call gsync()
      call csend(12, me, 4, right, 0)
 30   call flick()
      if (calls .eq. 0) goto 30
      if (noted .ne. 12004 .or. other .ne. left) call fail(14)
      if (masktrap(1) .ne. 0) call fail(15)
      if (masktrap(0) .ne. 1) call fail(16)

      do 40 i = 1, 3
 40   n(i) = me + i
      call gisum(n, 3, iwork)
      if (n(3) .ne. nodes * (nodes - 1) / 2 + 3 * nodes) call fail(17)
      n(1) = me
      call gihigh(n, 1, iwork)
      if (n(1) .ne. nodes - 1) call fail(18)
      x(1) = me
      x(2) = -me
      call gdlow(x, 2, work)
      if (x(1) .ne. 0 .or. x(2) .ne. 1 - nodes) call fail(19)
      s(1) = 1
      s(2) = 2
      call gssum(s, 2, swork)
      if (s(2) .ne. 2 * nodes) call fail(20)
      x(1) = me
      call gopf(x, 8, work, larger)
      if (x(1) .ne. nodes - 1) call fail(21)
      call gcol(me, 4, all, 256, got)
      if (got .ne. 4 * nodes .or. all(nodes) .ne. nodes - 1)
     +  call fail(22)
      do 50 i = 1, nodes
      all(i) = -1
 50   lens(i) = 4
      call gcolx(me, lens, all)
      if (all(1) .ne. 0 .or. all(nodes) .ne. nodes - 1) call fail(23)

      params(1) = 21
      call cop(twice, params, done)
 60   call flick()
      if (done .eq. 0) goto 60
      if (params(2) .ne. 42) call fail(24)

      call mypart(rows, cols)
      if (rows * cols .ne. nodes) call fail(25)
      if (ginv(gray(5)) .ne. 5) call fail(26)
      call setptype(3)
      if (myptype() .ne. 3) call fail(27)
      call led(1)
      if (dclock() .lt. before) call fail(28)
      call gsync()
      if (me .eq. 0) print '(a)', 'ok'
      end
