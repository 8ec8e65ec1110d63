c     Each call on partitions and cubes, from Fortran.
      program parts
      include 'fnx.h'
      integer info(11), node(7), nodes(4096), list(6, 16), attr(32)
      integer cube(4), n, all, i

      call same('part_attr', nx_part_attr('.compute', info), 0)
      all = info(7)
      call same('mkpart', nx_mkpart('f', -1, NX_STD), all)
      call same('mkpart a', nx_mkpart('f.a', 1, NX_GANG), 1)
      call same('rect', nx_mkpart_rect('f.b', 1, 1, NX_SPS), 1)
      nodes(1) = 0
      call same('map', nx_mkpart_map('f.c', 1, nodes, NX_STD), 1)
      attr(1) = NX_ATTR_SZ
      attr(2) = all + 5
      attr(3) = NX_ATTR_RELAXED
      attr(4) = 1
      attr(5) = NX_ATTR_EPL
      attr(6) = 3
      attr(7) = NX_ATTR_END
      call same('relaxed', nx_mkpart_attr('f.d', attr), all)
      attr(1) = NX_ATTR_MAP
      attr(2) = 1
      attr(3) = 0
      attr(4) = NX_ATTR_SCHED
      attr(5) = NX_GANG
      attr(6) = NX_ATTR_RQ
      attr(7) = 700
      attr(8) = NX_ATTR_END
      call same('listed', nx_mkpart_attr('f.e', attr), 1)
      call same('attr e', nx_part_attr('f.e', info), 0)
      call same('quantum', info(5), 700)
      attr(1) = NX_ATTR_RECT
      attr(2) = 1
      attr(3) = 1
      attr(4) = NX_ATTR_ANCHOR
      attr(5) = 0
      attr(6) = NX_ATTR_MOD
      attr(7) = 448
      attr(8) = NX_ATTR_END
      call same('rect attr', nx_mkpart_attr('f.g', attr), 1)
      call same('epl', nx_chpart_epl('f.c', 2), 0)
      call same('mod', nx_chpart_mod('f.c', 457), 0)
      call same('name', nx_chpart_name('f.c', 'z'), 0)
      call same('owner', nx_chpart_owner('f.z', -1, -1), 0)
      call same('rq', nx_chpart_rq('f.z', 250), 0)
      call same('attr z', nx_part_attr('f.z', info), 0)
      call same('access', info(3), 457)
      call same('epl is', info(6), 2)
      call same('rq is', info(5), 250)
      call same('sched', nx_chpart_sched('f.z', NX_SPS), 0)
      n = 4096
      call same('nodes', nx_part_nodes('f.z', nodes, n), 0)
      call same('n', n, 1)
      call same('node', nodes(1), 0)
c     Less room than there is: as many as fit, and how many there are.
      n = 0
      call same('no room', nx_part_nodes('f', nodes, n), 0)
      call same('all', n, all)
      n = 16
      call same('pspart', nx_pspart('f', list, n), 0)
      call same('none', n, 0)
      n = 4096
      call same('empty', nx_empty_nodes(nodes, n), 0)
      call same('all empty', n, all)
      n = 4096
      call same('failed', nx_failed_nodes(nodes, n), 0)
      call same('none failed', n, 0)
      call same('node_attr', nx_node_attr(0, node), 0)
      call same('it', node(1), 0)
      call same('its row', node(3), 0)
      if (node(5) .lt. 5) call same('its partitions', node(5), 5)
      call same('its state', node(7), 0)
      call same('rmpart', nx_rmpart('f', 1, 1), 0)

c     As hosts of the iPSC.
      call same('no cube', cubeinfo(cube, 1, 0), 0)
      call getcube('mine', '2', ' ', 0)
      call attachcube('mine')
      call same('a cube', cubeinfo(cube, 1, 0), 1)
      call same('its size', cube(1), 2)
      call same('numnodes', numnodes(), 2)
      call setpid(3)
      call load('./node', -1, 5)
      call waitall(0, 5)
      call waitall(-1, -1)
      call waitcube()
      call killcube(-1, -1)
      call relcube('mine')
      call same('gone', cubeinfo(cube, 1, 0), 0)

c     And as programs of the Paragon.
      attr(1) = NX_ATTR_SZ
      attr(2) = 3
      attr(3) = NX_ATTR_END
      call same('initve', nx_initve_attr('', attr), 3)
      call same('three', numnodes(), 3)
      nodes(1) = 2
      call same('load', nx_load(nodes, 1, 0, list, './node'), 1)
      call same('waited', nx_waitall(), 0)
      print '(a)', 'all right'
      end

      subroutine same(what, is, wanted)
      character*(*) what
      integer is, wanted
      if (is .ne. wanted) then
         print *, what, ': ', is, ' and not ', wanted
         call exit(1)
      end if
      end
