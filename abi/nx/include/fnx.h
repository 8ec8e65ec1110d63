! fnx.h: the NX message-passing library, Margay.
! Printed by `cargo xtask header`; see docs/nx.md.
      integer masktrap
      external masktrap
      integer infotype
      external infotype
      integer infocount
      external infocount
      integer infonode
      external infonode
      integer infoptype
      external infoptype
      integer infopid
      external infopid
      integer csendrecv
      external csendrecv
      integer isend
      external isend
      integer irecv
      external irecv
      integer irecvx
      external irecvx
      integer isendrecv
      external isendrecv
      integer iprobe
      external iprobe
      integer iprobex
      external iprobex
      integer msgdone
      external msgdone
      integer msgmerge
      external msgmerge
      integer nx_mkpart
      external nx_mkpart
      integer nx_mkpart_attr
      external nx_mkpart_attr
      integer nx_mkpart_rect
      external nx_mkpart_rect
      integer nx_mkpart_map
      external nx_mkpart_map
      integer nx_rmpart
      external nx_rmpart
      integer nx_chpart_epl
      external nx_chpart_epl
      integer nx_chpart_mod
      external nx_chpart_mod
      integer nx_chpart_name
      external nx_chpart_name
      integer nx_chpart_owner
      external nx_chpart_owner
      integer nx_chpart_rq
      external nx_chpart_rq
      integer nx_chpart_sched
      external nx_chpart_sched
      integer nx_part_attr
      external nx_part_attr
      integer nx_part_nodes
      external nx_part_nodes
      integer nx_pspart
      external nx_pspart
      integer nx_empty_nodes
      external nx_empty_nodes
      integer nx_failed_nodes
      external nx_failed_nodes
      integer nx_node_attr
      external nx_node_attr
      integer mynode
      external mynode
      integer numnodes
      external numnodes
      integer myhost
      external myhost
      integer myptype
      external myptype
      integer mypid
      external mypid
      integer myphysnode
      external myphysnode
      integer nx_initve
      external nx_initve
      integer nx_initve_rect
      external nx_initve_rect
      integer nx_initve_attr
      external nx_initve_attr
      integer nx_nfork
      external nx_nfork
      integer nx_load
      external nx_load
      integer nx_waitall
      external nx_waitall
      integer nx_pri
      external nx_pri
      integer nx_app_rect
      external nx_app_rect
      integer nx_app_nodes
      external nx_app_nodes
      integer nodedim
      external nodedim
      integer gray
      external gray
      integer ginv
      external ginv
      integer cubeinfo
      external cubeinfo
      double precision dclock
      external dclock
      integer mclock
      external mclock
      integer iomode
      external iomode
      integer iread
      external iread
      integer iwrite
      external iwrite
      integer iodone
      external iodone
      integer iseof
      external iseof
      integer lsize
      external lsize
      integer ecmp
      external ecmp
      integer ediv
      external ediv
      integer emod
      external emod
      integer INVALID_PTYPE
      parameter (INVALID_PTYPE = -1)
      integer FORCE_TYPE
      parameter (FORCE_TYPE = 1073741824)
      integer NX_STD
      parameter (NX_STD = 0)
      integer NX_GANG
      parameter (NX_GANG = 1)
      integer NX_SPS
      parameter (NX_SPS = 2)
      integer M_UNIX
      parameter (M_UNIX = 0)
      integer M_LOG
      parameter (M_LOG = 1)
      integer M_SYNC
      parameter (M_SYNC = 2)
      integer M_RECORD
      parameter (M_RECORD = 3)
      integer M_GLOBAL
      parameter (M_GLOBAL = 4)
      integer M_ASYNC
      parameter (M_ASYNC = 5)
      integer SIZE_SET
      parameter (SIZE_SET = 0)
      integer SIZE_CUR
      parameter (SIZE_CUR = 1)
      integer SIZE_END
      parameter (SIZE_END = 2)
      integer HWHZ
      parameter (HWHZ = 10000000)
      integer NX_ATTR_END
      parameter (NX_ATTR_END = -1)
      integer NX_ATTR_SZ
      parameter (NX_ATTR_SZ = 1)
      integer NX_ATTR_RECT
      parameter (NX_ATTR_RECT = 2)
      integer NX_ATTR_MAP
      parameter (NX_ATTR_MAP = 3)
      integer NX_ATTR_ANCHOR
      parameter (NX_ATTR_ANCHOR = 4)
      integer NX_ATTR_SCHED
      parameter (NX_ATTR_SCHED = 5)
      integer NX_ATTR_RELAXED
      parameter (NX_ATTR_RELAXED = 6)
      integer NX_ATTR_EPL
      parameter (NX_ATTR_EPL = 7)
      integer NX_ATTR_RQ
      parameter (NX_ATTR_RQ = 8)
      integer NX_ATTR_MOD
      parameter (NX_ATTR_MOD = 9)
      integer NX_ATTR_SEL
      parameter (NX_ATTR_SEL = 10)
      integer NX_ATTR_PRI
      parameter (NX_ATTR_PRI = 11)
      integer NX_ATTR_PKT
      parameter (NX_ATTR_PKT = 12)
      integer NX_ATTR_MBF
      parameter (NX_ATTR_MBF = 13)
      integer NX_ATTR_MEX
      parameter (NX_ATTR_MEX = 14)
      integer NX_ATTR_MEA
      parameter (NX_ATTR_MEA = 15)
      integer NX_ATTR_NOC
      parameter (NX_ATTR_NOC = 16)
      integer NX_ATTR_STH
      parameter (NX_ATTR_STH = 17)
      integer NX_ATTR_SCT
      parameter (NX_ATTR_SCT = 18)
      integer NX_ATTR_GTH
      parameter (NX_ATTR_GTH = 19)
      integer NX_ATTR_PLK
      parameter (NX_ATTR_PLK = 20)
      integer NX_ATTR_ACCT
      parameter (NX_ATTR_ACCT = 21)
      integer NX_ATTR_GUEST
      parameter (NX_ATTR_GUEST = 22)
      integer EQBLEN
      parameter (EQBLEN = 1001)
      integer EQFAULT
      parameter (EQFAULT = 1002)
      integer EQHND
      parameter (EQHND = 1003)
      integer EQMID
      parameter (EQMID = 1004)
      integer EQMSGLONG
      parameter (EQMSGLONG = 1005)
      integer EQNODE
      parameter (EQNODE = 1006)
      integer EQNOMID
      parameter (EQNOMID = 1007)
      integer EQNOPROC
      parameter (EQNOPROC = 1008)
      integer EQPARAM
      parameter (EQPARAM = 1009)
      integer EQPID
      parameter (EQPID = 1010)
      integer EQTYPE
      parameter (EQTYPE = 1011)
      integer EQPARTITION
      parameter (EQPARTITION = 1012)
      integer EQPATH
      parameter (EQPATH = 1013)
      integer EQSTATE
      parameter (EQSTATE = 1014)
