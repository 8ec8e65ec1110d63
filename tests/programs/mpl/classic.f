c     Most calls of MPL from Fortran, in fixed form.
      subroutine fail(n)
      integer n
      print *, 'check', n, 'failed'
      call exit(1)
      end

      subroutine come(id)
      integer id, n, calls, length, source, type, value
      common /called/ calls, length, source, type, value
      call mp_wait(id, n)
      length = n
      calls = calls + 1
      end

      subroutine larger(a, b, c, len)
      integer len
      double precision a(*), b(*), c(*)
      c(1) = max(a(1), b(1))
      end

      program classic
      integer tasks, me, right, left, n, id, id2, i, q(4), other
      integer gid, gsize, rank, label, list(64), all(64), old
      double precision x(2), y(2)
      integer calls, length, source, type, value
      common /called/ calls, length, source, type, value
      external come, larger, d_vadd, i_vmax, fail
      call mp_environ(tasks, me)
      call mp_task_query(q, 4, 3)
      right = mod(me + 1, tasks)
      left = mod(me + tasks - 1, tasks)
      source = left
      type = q(1)
      call mp_recv(other, 4, source, type, id)
      call mp_send(me, 4, right, 9, id2)
      call mp_wait(id, n)
      if (n .ne. 4 .or. other .ne. left .or. type .ne. 9) call fail(1)
      call mp_wait(id2, n)
      source = q(1)
      call mp_bsendrecv(me, 4, right, 10, other, 4, source, n)
      if (source .ne. left .or. other .ne. left) call fail(2)
      call mp_bsend(me, 4, me, 11)
      source = me
      type = 11
 10   call mp_probe(source, type, n)
      if (n .lt. 0) goto 10
      if (n .ne. 4) call fail(3)
      call mp_brecv(other, 4, source, type, n)
      if (other .ne. me) call fail(4)
      call mp_sync(0)
      source = left
      type = 12
      calls = 0
      call mp_rcvncall(value, 4, source, type, id, come)
      call mp_bsend(me, 4, right, 12)
 30   call mp_lockrnc(0, old)
      if (calls .eq. 0) goto 30
      if (length .ne. 4 .or. value .ne. left) call fail(5)
      x(1) = me
      call mp_combine(x, y, 8, d_vadd, 0)
      if (y(1) .ne. tasks * (tasks - 1) / 2) call fail(6)
      call mp_combine(x, y, 8, larger, 0)
      if (y(1) .ne. tasks - 1) call fail(7)
      do 40 i = 1, tasks
 40   list(i) = tasks - i
      call mp_group(tasks, list, 3, gid)
      call mp_getrank(rank, me, gid)
      call mp_getsize(gsize, gid)
      call mp_getlabel(label, gid)
      if (rank .ne. tasks - 1 - me .or. gsize .ne. tasks) call fail(8)
      if (label .ne. 3) call fail(9)
      call mp_concat(me, all, 4, gid)
      if (all(1) .ne. tasks - 1) call fail(10)
      call mp_partition(0, 0, mod(me, 2), gid)
      call mp_gettaskid(0, other, gid)
      if (other .ne. mod(me, 2)) call fail(11)
      call mp_shift(me, other, 4, 1, 1, 0)
      if (other .ne. left) call fail(12)
      call mp_nlights(n)
      if (n .ne. 8) call fail(13)
      call mp_marker(n - 1, 3, 'a text   ')
      call mp_isatty(1, n)
      if (n .ne. 0) call fail(14)
      call mp_setintrdelay(100)
      call mp_queryintrdelay(n)
      if (n .ne. 100) call fail(15)
      call mp_enableintr()
      call mp_queryintr(n)
      if (n .ne. 1) call fail(16)
      call mp_disableintr()
      call mp_sync(0)
      if (me .eq. 0) print '(a)', 'ok'
      call mp_flush(1)
      end
