//! The structures of libfabric's C interface, as far as an endpoint for messages needs them: those
//! of the symbols' version 1.3 (libfabric 1.8 and later, which keep that version).
//!
//! Tables of functions are read up to the last field here; libraries may have longer ones.

use std::ffi::{c_char, c_int, c_void};

/// The interface that this process asks for.
pub(crate) const VERSION: u32 = 1 << 16 | 9;

pub(crate) const MSG: u64 = 1 << 1;
pub(crate) const RMA: u64 = 1 << 2;
pub(crate) const READ: u64 = 1 << 8;
pub(crate) const REMOTE_READ: u64 = 1 << 12;
/// What an endpoint needs that reads memory of others.
pub(crate) const READING: u64 = RMA | READ | REMOTE_READ;
/// The key of a region that has none in one word.
pub(crate) const NO_KEY: u64 = u64::MAX;
pub(crate) const RECV: u64 = 1 << 10;
pub(crate) const SEND: u64 = 1 << 11;
pub(crate) const MODE_CONTEXT: u64 = 1 << 59;
pub(crate) const MODE_CONTEXT2: u64 = 1 << 52;
pub(crate) const ORDER_SAS: u64 = 1 << 8;
pub(crate) const MR_LOCAL: c_int = 1 << 2;
pub(crate) const MR_VIRT_ADDR: c_int = 1 << 4;
pub(crate) const MR_ALLOCATED: c_int = 1 << 5;
pub(crate) const MR_PROV_KEY: c_int = 1 << 6;
pub(crate) const MR_ENDPOINT: c_int = 1 << 9;
pub(crate) const PROGRESS_MANUAL: c_int = 2;
pub(crate) const THREAD_DOMAIN: c_int = 3;
pub(crate) const RM_ENABLED: c_int = 2;
pub(crate) const EP_RDM: c_int = 3;
pub(crate) const AV_UNSPEC: c_int = 0;
pub(crate) const AV_TABLE: c_int = 2;
pub(crate) const CQ_FORMAT_MSG: c_int = 2;
pub(crate) const WAIT_NONE: c_int = 0;
pub(crate) const WAIT_FD: c_int = 3;
pub(crate) const GETWAIT: c_int = 5;
pub(crate) const ENABLE: c_int = 6;
pub(crate) const ADDR_UNSPEC: u64 = u64::MAX;

pub(crate) const EAGAIN: c_int = 11;
/// An error waits in the queue of completions.
pub(crate) const EAVAIL: c_int = 259;

#[repr(C)]
pub(crate) struct TxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub traffic_class: u32,
}

#[repr(C)]
pub(crate) struct RxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

#[repr(C)]
pub(crate) struct EpAttr {
    pub kind: c_int,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
}

/// The beginning of the attributes of a domain.
#[repr(C)]
pub(crate) struct DomainAttr {
    pub domain: *mut c_void,
    pub name: *mut c_char,
    pub threading: c_int,
    pub control_progress: c_int,
    pub data_progress: c_int,
    pub resource_mgmt: c_int,
    pub av_type: c_int,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
}

#[repr(C)]
pub(crate) struct FabricAttr {
    pub fabric: *mut c_void,
    pub name: *mut c_char,
    pub provider: *mut c_char,
    pub provider_version: u32,
    pub api_version: u32,
}

#[repr(C)]
pub(crate) struct Info {
    pub next: *mut Info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut c_void,
    pub tx_attr: *mut TxAttr,
    pub rx_attr: *mut RxAttr,
    pub ep_attr: *mut EpAttr,
    pub domain_attr: *mut DomainAttr,
    pub fabric_attr: *mut FabricAttr,
    pub nic: *mut c_void,
}

pub(crate) type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *mut Info,
) -> c_int;
pub(crate) type FreeInfo = unsafe extern "C" fn(*mut Info);
pub(crate) type DupInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
pub(crate) type OpenFabric =
    unsafe extern "C" fn(*mut FabricAttr, *mut *mut Fabric, *mut c_void) -> c_int;

#[repr(C)]
pub(crate) struct FidOps {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

/// What every object begins with.
#[repr(C)]
pub(crate) struct Fid {
    pub class: usize,
    pub context: *mut c_void,
    pub ops: *const FidOps,
}

#[repr(C)]
pub(crate) struct FabricOps {
    pub size: usize,
    pub domain:
        unsafe extern "C" fn(*mut Fabric, *mut Info, *mut *mut Domain, *mut c_void) -> c_int,
    pub passive_ep: *const c_void,
    pub eq_open: *const c_void,
    pub wait_open: *const c_void,
    pub trywait: unsafe extern "C" fn(*mut Fabric, *mut *mut Fid, c_int) -> c_int,
}

#[repr(C)]
pub(crate) struct Fabric {
    pub fid: Fid,
    pub ops: *const FabricOps,
}

#[repr(C)]
pub(crate) struct DomainOps {
    pub size: usize,
    pub av_open: unsafe extern "C" fn(*mut Domain, *mut AvAttr, *mut *mut Av, *mut c_void) -> c_int,
    pub cq_open: unsafe extern "C" fn(*mut Domain, *mut CqAttr, *mut *mut Cq, *mut c_void) -> c_int,
    pub endpoint: unsafe extern "C" fn(*mut Domain, *mut Info, *mut *mut Ep, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct MrOps {
    pub size: usize,
    pub reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut Mr,
        *mut c_void,
    ) -> c_int,
}

#[repr(C)]
pub(crate) struct Domain {
    pub fid: Fid,
    pub ops: *const DomainOps,
    pub mr: *const MrOps,
}

#[repr(C)]
pub(crate) struct Mr {
    pub fid: Fid,
    pub descriptor: *mut c_void,
    pub key: u64,
}

#[repr(C)]
pub(crate) struct AvAttr {
    pub kind: c_int,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
pub(crate) struct AvOps {
    pub size: usize,
    pub insert:
        unsafe extern "C" fn(*mut Av, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
    pub insert_service: *const c_void,
    pub insert_symmetric: *const c_void,
    pub remove: unsafe extern "C" fn(*mut Av, *mut u64, usize, u64) -> c_int,
}

#[repr(C)]
pub(crate) struct Av {
    pub fid: Fid,
    pub ops: *const AvOps,
}

#[repr(C)]
pub(crate) struct CqAttr {
    pub size: usize,
    pub flags: u64,
    pub format: c_int,
    pub wait_object: c_int,
    pub signaling_vector: c_int,
    pub wait_condition: c_int,
    pub wait_set: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CqEntry {
    pub context: *mut c_void,
    pub flags: u64,
    pub len: usize,
}

#[repr(C)]
pub(crate) struct CqError {
    pub context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buffer: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub error: c_int,
    pub provider_error: c_int,
    pub error_data: *mut c_void,
    pub error_data_size: usize,
}

#[repr(C)]
pub(crate) struct CqOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(*mut Cq, *mut c_void, usize) -> isize,
    pub read_from: *const c_void,
    pub read_error: unsafe extern "C" fn(*mut Cq, *mut CqError, u64) -> isize,
}

#[repr(C)]
pub(crate) struct Cq {
    pub fid: Fid,
    pub ops: *const CqOps,
}

/// Functions that end operations and read options are not used.
#[repr(C)]
pub(crate) struct CmOps {
    pub size: usize,
    pub set_name: *const c_void,
    pub get_name: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
}

#[repr(C)]
pub(crate) struct MsgOps {
    pub size: usize,
    pub recv:
        unsafe extern "C" fn(*mut Ep, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
    pub recv_vector: *const c_void,
    pub recv_message: *const c_void,
    pub send:
        unsafe extern "C" fn(*mut Ep, *const c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
}

#[repr(C)]
pub(crate) struct RmaOps {
    pub size: usize,
    pub read: unsafe extern "C" fn(
        *mut Ep,
        *mut c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
}

#[repr(C)]
pub(crate) struct Ep {
    pub fid: Fid,
    pub ops: *const c_void,
    pub cm: *const CmOps,
    pub msg: *const MsgOps,
    pub rma: *const RmaOps,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// The numbers that a C compiler prints for the headers of libfabric 1.17.
    #[test]
    fn structures_are_as_the_librarys() {
        assert_eq!(size_of::<Info>(), 120);
        assert_eq!(offset_of!(Info, fabric_attr), 104);
        assert_eq!(size_of::<TxAttr>(), 80);
        assert_eq!(size_of::<RxAttr>(), 64);
        assert_eq!(offset_of!(EpAttr, max_msg_size), 16);
        assert_eq!(offset_of!(DomainAttr, mr_mode), 36);
        assert_eq!(offset_of!(FabricAttr, provider), 16);
        assert_eq!(offset_of!(FabricOps, trywait), 40);
        assert_eq!(offset_of!(Domain, mr), 32);
        assert_eq!(offset_of!(Mr, descriptor), 24);
        assert_eq!(size_of::<AvAttr>(), 48);
        assert_eq!(offset_of!(AvOps, remove), 32);
        assert_eq!(size_of::<CqAttr>(), 40);
        assert_eq!(size_of::<CqEntry>(), 24);
        assert_eq!(size_of::<CqError>(), 80);
        assert_eq!(offset_of!(CqOps, read_error), 24);
        assert_eq!(offset_of!(CmOps, get_name), 16);
        assert_eq!(offset_of!(MsgOps, send), 32);
        assert_eq!(offset_of!(Ep, msg), 40);
        assert_eq!(offset_of!(Ep, rma), 48);
        assert_eq!(offset_of!(Mr, key), 32);
        assert_eq!(offset_of!(DomainAttr, mr_key_size), 40);
    }
}
