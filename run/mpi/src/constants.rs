//! The values of the standard ABI of MPI 5.0: handles, constants and error classes.
//!
//! This is the only place that holds them. The header `mpi.h` is printed from these modules by
//! `cargo xtask header`: the module's documentation becomes a comment, the constant's type decides
//! how it is written in C. Names are those of the standard.
#![allow(missing_docs)] // The standard documents its constants; a sentence for each would repeat it.

/// A handle value as `MPI_Op` holds it.
pub type OpHandle = u32;
/// A handle value as `MPI_Comm` holds it.
pub type CommHandle = u32;
/// A handle value as `MPI_Group` holds it.
pub type GroupHandle = u32;
/// A handle value as `MPI_Win` holds it.
pub type WinHandle = u32;
/// A handle value as `MPI_File` holds it.
pub type FileHandle = u32;
/// A handle value as `MPI_Session` holds it.
pub type SessionHandle = u32;
/// A handle value as `MPI_Message` holds it.
pub type MessageHandle = u32;
/// A handle value as `MPI_Info` holds it.
pub type InfoHandle = u32;
/// A handle value as `MPI_Errhandler` holds it.
pub type ErrhandlerHandle = u32;
/// A handle value as `MPI_Request` holds it.
pub type RequestHandle = u32;
/// A handle value as `MPI_Datatype` holds it.
pub type DatatypeHandle = u32;
/// An address constant, `void *` in C.
pub type Address = usize;
/// An array constant, `int *` in C.
pub type IntArray = usize;
/// A constant that C code may need in preprocessor conditions or as an array size.
pub type Define = usize;
/// A displacement constant, `MPI_Offset` in C.
pub type OffsetConstant = i64;

#[doc = "Predefined operations."]
pub mod op {
    use super::OpHandle;
    pub const MPI_OP_NULL: OpHandle = 0x20;
    pub const MPI_SUM: OpHandle = 0x21;
    pub const MPI_MIN: OpHandle = 0x22;
    pub const MPI_MAX: OpHandle = 0x23;
    pub const MPI_PROD: OpHandle = 0x24;
    pub const MPI_BAND: OpHandle = 0x28;
    pub const MPI_BOR: OpHandle = 0x29;
    pub const MPI_BXOR: OpHandle = 0x2a;
    pub const MPI_LAND: OpHandle = 0x30;
    pub const MPI_LOR: OpHandle = 0x31;
    pub const MPI_LXOR: OpHandle = 0x32;
    pub const MPI_MINLOC: OpHandle = 0x38;
    pub const MPI_MAXLOC: OpHandle = 0x39;
    pub const MPI_REPLACE: OpHandle = 0x3c;
    pub const MPI_NO_OP: OpHandle = 0x3d;
}
#[doc = "Predefined communicators."]
pub mod comm {
    use super::CommHandle;
    pub const MPI_COMM_NULL: CommHandle = 0x100;
    pub const MPI_COMM_WORLD: CommHandle = 0x101;
    pub const MPI_COMM_SELF: CommHandle = 0x102;
}
#[doc = "Predefined groups."]
pub mod group {
    use super::GroupHandle;
    pub const MPI_GROUP_NULL: GroupHandle = 0x108;
    pub const MPI_GROUP_EMPTY: GroupHandle = 0x109;
}
#[doc = "The null window."]
pub mod win {
    use super::WinHandle;
    pub const MPI_WIN_NULL: WinHandle = 0x110;
}
#[doc = "The null file."]
pub mod file {
    use super::FileHandle;
    pub const MPI_FILE_NULL: FileHandle = 0x118;
}
#[doc = "The null session."]
pub mod session {
    use super::SessionHandle;
    pub const MPI_SESSION_NULL: SessionHandle = 0x120;
}
#[doc = "Predefined messages."]
pub mod message {
    use super::MessageHandle;
    pub const MPI_MESSAGE_NULL: MessageHandle = 0x128;
    pub const MPI_MESSAGE_NO_PROC: MessageHandle = 0x129;
}
#[doc = "Predefined info objects."]
pub mod info {
    use super::InfoHandle;
    pub const MPI_INFO_NULL: InfoHandle = 0x130;
    pub const MPI_INFO_ENV: InfoHandle = 0x131;
}
#[doc = "Predefined error handlers."]
pub mod errhandler {
    use super::ErrhandlerHandle;
    pub const MPI_ERRHANDLER_NULL: ErrhandlerHandle = 0x140;
    pub const MPI_ERRORS_ARE_FATAL: ErrhandlerHandle = 0x141;
    pub const MPI_ERRORS_ABORT: ErrhandlerHandle = 0x142;
    pub const MPI_ERRORS_RETURN: ErrhandlerHandle = 0x143;
}
#[doc = "The null request."]
pub mod request {
    use super::RequestHandle;
    pub const MPI_REQUEST_NULL: RequestHandle = 0x180;
}
#[doc = "Predefined datatypes."]
pub mod datatype {
    use super::DatatypeHandle;
    pub const MPI_DATATYPE_NULL: DatatypeHandle = 0x200;
    pub const MPI_AINT: DatatypeHandle = 0x201;
    pub const MPI_COUNT: DatatypeHandle = 0x202;
    pub const MPI_OFFSET: DatatypeHandle = 0x203;
    pub const MPI_PACKED: DatatypeHandle = 0x207;
    pub const MPI_SHORT: DatatypeHandle = 0x208;
    pub const MPI_INT: DatatypeHandle = 0x209;
    pub const MPI_LONG: DatatypeHandle = 0x20a;
    pub const MPI_LONG_LONG: DatatypeHandle = 0x20b;
    pub const MPI_LONG_LONG_INT: DatatypeHandle = MPI_LONG_LONG;
    pub const MPI_UNSIGNED_SHORT: DatatypeHandle = 0x20c;
    pub const MPI_UNSIGNED: DatatypeHandle = 0x20d;
    pub const MPI_UNSIGNED_LONG: DatatypeHandle = 0x20e;
    pub const MPI_UNSIGNED_LONG_LONG: DatatypeHandle = 0x20f;
    pub const MPI_FLOAT: DatatypeHandle = 0x210;
    pub const MPI_C_FLOAT_COMPLEX: DatatypeHandle = 0x212;
    pub const MPI_C_COMPLEX: DatatypeHandle = MPI_C_FLOAT_COMPLEX;
    pub const MPI_CXX_FLOAT_COMPLEX: DatatypeHandle = 0x213;
    pub const MPI_DOUBLE: DatatypeHandle = 0x214;
    pub const MPI_C_DOUBLE_COMPLEX: DatatypeHandle = 0x216;
    pub const MPI_CXX_DOUBLE_COMPLEX: DatatypeHandle = 0x217;
    pub const MPI_LOGICAL: DatatypeHandle = 0x218;
    pub const MPI_INTEGER: DatatypeHandle = 0x219;
    pub const MPI_REAL: DatatypeHandle = 0x21a;
    pub const MPI_COMPLEX: DatatypeHandle = 0x21b;
    pub const MPI_DOUBLE_PRECISION: DatatypeHandle = 0x21c;
    pub const MPI_DOUBLE_COMPLEX: DatatypeHandle = 0x21d;
    pub const MPI_CHARACTER: DatatypeHandle = 0x21e;
    pub const MPI_LONG_DOUBLE: DatatypeHandle = 0x220;
    pub const MPI_C_LONG_DOUBLE_COMPLEX: DatatypeHandle = 0x224;
    pub const MPI_CXX_LONG_DOUBLE_COMPLEX: DatatypeHandle = 0x225;
    pub const MPI_FLOAT_INT: DatatypeHandle = 0x228;
    pub const MPI_DOUBLE_INT: DatatypeHandle = 0x229;
    pub const MPI_LONG_INT: DatatypeHandle = 0x22a;
    pub const MPI_2INT: DatatypeHandle = 0x22b;
    pub const MPI_SHORT_INT: DatatypeHandle = 0x22c;
    pub const MPI_LONG_DOUBLE_INT: DatatypeHandle = 0x22d;
    pub const MPI_2REAL: DatatypeHandle = 0x230;
    pub const MPI_2DOUBLE_PRECISION: DatatypeHandle = 0x231;
    pub const MPI_2INTEGER: DatatypeHandle = 0x232;
    pub const MPI_C_BOOL: DatatypeHandle = 0x238;
    pub const MPI_CXX_BOOL: DatatypeHandle = 0x239;
    pub const MPI_WCHAR: DatatypeHandle = 0x23c;
    pub const MPI_INT8_T: DatatypeHandle = 0x240;
    pub const MPI_UINT8_T: DatatypeHandle = 0x241;
    pub const MPI_CHAR: DatatypeHandle = 0x243;
    pub const MPI_SIGNED_CHAR: DatatypeHandle = 0x244;
    pub const MPI_UNSIGNED_CHAR: DatatypeHandle = 0x245;
    pub const MPI_BYTE: DatatypeHandle = 0x247;
    pub const MPI_INT16_T: DatatypeHandle = 0x248;
    pub const MPI_UINT16_T: DatatypeHandle = 0x249;
    pub const MPI_INT32_T: DatatypeHandle = 0x250;
    pub const MPI_UINT32_T: DatatypeHandle = 0x251;
    pub const MPI_INT64_T: DatatypeHandle = 0x258;
    pub const MPI_UINT64_T: DatatypeHandle = 0x259;
    pub const MPI_LOGICAL1: DatatypeHandle = 0x2c0;
    pub const MPI_INTEGER1: DatatypeHandle = 0x2c1;
    pub const MPI_LOGICAL2: DatatypeHandle = 0x2c8;
    pub const MPI_INTEGER2: DatatypeHandle = 0x2c9;
    pub const MPI_REAL2: DatatypeHandle = 0x2ca;
    pub const MPI_LOGICAL4: DatatypeHandle = 0x2d0;
    pub const MPI_INTEGER4: DatatypeHandle = 0x2d1;
    pub const MPI_REAL4: DatatypeHandle = 0x2d2;
    pub const MPI_COMPLEX4: DatatypeHandle = 0x2d3;
    pub const MPI_LOGICAL8: DatatypeHandle = 0x2d8;
    pub const MPI_INTEGER8: DatatypeHandle = 0x2d9;
    pub const MPI_REAL8: DatatypeHandle = 0x2da;
    pub const MPI_COMPLEX8: DatatypeHandle = 0x2db;
    pub const MPI_LOGICAL16: DatatypeHandle = 0x2e0;
    pub const MPI_INTEGER16: DatatypeHandle = 0x2e1;
    pub const MPI_REAL16: DatatypeHandle = 0x2e2;
    pub const MPI_COMPLEX16: DatatypeHandle = 0x2e3;
    pub const MPI_COMPLEX32: DatatypeHandle = 0x2eb;
}
#[doc = "Error classes. Codes of the tools interface stand above 1000."]
pub mod error_class {
    pub const MPI_SUCCESS: i32 = 0;
    pub const MPI_ERR_BUFFER: i32 = 1;
    pub const MPI_ERR_COUNT: i32 = 2;
    pub const MPI_ERR_TYPE: i32 = 3;
    pub const MPI_ERR_TAG: i32 = 4;
    pub const MPI_ERR_COMM: i32 = 5;
    pub const MPI_ERR_RANK: i32 = 6;
    pub const MPI_ERR_REQUEST: i32 = 7;
    pub const MPI_ERR_ROOT: i32 = 8;
    pub const MPI_ERR_GROUP: i32 = 9;
    pub const MPI_ERR_OP: i32 = 10;
    pub const MPI_ERR_TOPOLOGY: i32 = 11;
    pub const MPI_ERR_DIMS: i32 = 12;
    pub const MPI_ERR_ARG: i32 = 13;
    pub const MPI_ERR_UNKNOWN: i32 = 14;
    pub const MPI_ERR_TRUNCATE: i32 = 15;
    pub const MPI_ERR_OTHER: i32 = 16;
    pub const MPI_ERR_INTERN: i32 = 17;
    pub const MPI_ERR_PENDING: i32 = 18;
    pub const MPI_ERR_IN_STATUS: i32 = 19;
    pub const MPI_ERR_ACCESS: i32 = 20;
    pub const MPI_ERR_AMODE: i32 = 21;
    pub const MPI_ERR_ASSERT: i32 = 22;
    pub const MPI_ERR_BAD_FILE: i32 = 23;
    pub const MPI_ERR_BASE: i32 = 24;
    pub const MPI_ERR_CONVERSION: i32 = 25;
    pub const MPI_ERR_DISP: i32 = 26;
    pub const MPI_ERR_DUP_DATAREP: i32 = 27;
    pub const MPI_ERR_FILE_EXISTS: i32 = 28;
    pub const MPI_ERR_FILE_IN_USE: i32 = 29;
    pub const MPI_ERR_FILE: i32 = 30;
    pub const MPI_ERR_INFO_KEY: i32 = 31;
    pub const MPI_ERR_INFO_NOKEY: i32 = 32;
    pub const MPI_ERR_INFO_VALUE: i32 = 33;
    pub const MPI_ERR_INFO: i32 = 34;
    pub const MPI_ERR_IO: i32 = 35;
    pub const MPI_ERR_KEYVAL: i32 = 36;
    pub const MPI_ERR_LOCKTYPE: i32 = 37;
    pub const MPI_ERR_NAME: i32 = 38;
    pub const MPI_ERR_NO_MEM: i32 = 39;
    pub const MPI_ERR_NOT_SAME: i32 = 40;
    pub const MPI_ERR_NO_SPACE: i32 = 41;
    pub const MPI_ERR_NO_SUCH_FILE: i32 = 42;
    pub const MPI_ERR_PORT: i32 = 43;
    pub const MPI_ERR_QUOTA: i32 = 44;
    pub const MPI_ERR_READ_ONLY: i32 = 45;
    pub const MPI_ERR_RMA_ATTACH: i32 = 46;
    pub const MPI_ERR_RMA_CONFLICT: i32 = 47;
    pub const MPI_ERR_RMA_RANGE: i32 = 48;
    pub const MPI_ERR_RMA_SHARED: i32 = 49;
    pub const MPI_ERR_RMA_SYNC: i32 = 50;
    pub const MPI_ERR_SERVICE: i32 = 51;
    pub const MPI_ERR_SIZE: i32 = 52;
    pub const MPI_ERR_SPAWN: i32 = 53;
    pub const MPI_ERR_UNSUPPORTED_DATAREP: i32 = 54;
    pub const MPI_ERR_UNSUPPORTED_OPERATION: i32 = 55;
    pub const MPI_ERR_WIN: i32 = 56;
    pub const MPI_ERR_RMA_FLAVOR: i32 = 57;
    pub const MPI_ERR_PROC_ABORTED: i32 = 58;
    pub const MPI_ERR_VALUE_TOO_LARGE: i32 = 59;
    pub const MPI_ERR_SESSION: i32 = 60;
    pub const MPI_ERR_ERRHANDLER: i32 = 61;
    pub const MPI_ERR_ABI: i32 = 62;
    pub use super::recovery::*;
    pub const MPI_T_ERR_CANNOT_INIT: i32 = 1001;
    pub const MPI_T_ERR_NOT_ACCESSIBLE: i32 = 1002;
    pub const MPI_T_ERR_NOT_INITIALIZED: i32 = 1003;
    pub const MPI_T_ERR_NOT_SUPPORTED: i32 = 1004;
    pub const MPI_T_ERR_MEMORY: i32 = 1005;
    pub const MPI_T_ERR_INVALID: i32 = 1006;
    pub const MPI_T_ERR_INVALID_INDEX: i32 = 1007;
    pub const MPI_T_ERR_INVALID_ITEM: i32 = 1008;
    pub const MPI_T_ERR_INVALID_SESSION: i32 = 1009;
    pub const MPI_T_ERR_INVALID_HANDLE: i32 = 1010;
    pub const MPI_T_ERR_INVALID_NAME: i32 = 1011;
    pub const MPI_T_ERR_OUT_OF_HANDLES: i32 = 1012;
    pub const MPI_T_ERR_OUT_OF_SESSIONS: i32 = 1013;
    pub const MPI_T_ERR_CVAR_SET_NOT_NOW: i32 = 1014;
    pub const MPI_T_ERR_CVAR_SET_NEVER: i32 = 1015;
    pub const MPI_T_ERR_PVAR_NO_WRITE: i32 = 1016;
    pub const MPI_T_ERR_PVAR_NO_STARTSTOP: i32 = 1017;
    pub const MPI_T_ERR_PVAR_NO_ATOMIC: i32 = 1018;
    pub const MPI_ERR_LASTCODE: i32 = 16383;
}
#[doc = "Wildcards, special ranks and the value of undefined results."]
pub mod sentinel {
    pub const MPI_ANY_SOURCE: i32 = -1;
    pub const MPI_ANY_TAG: i32 = -2;
    pub const MPI_PROC_NULL: i32 = -3;
    pub const MPI_ROOT: i32 = -4;
    pub const MPI_UNDEFINED: i32 = -32766;
}
#[doc = "Levels of thread support, in their order."]
pub mod thread {
    pub const MPI_THREAD_SINGLE: i32 = 0;
    pub const MPI_THREAD_FUNNELED: i32 = 1024;
    pub const MPI_THREAD_SERIALIZED: i32 = 2048;
    pub const MPI_THREAD_MULTIPLE: i32 = 4096;
}
#[doc = "Storage order and distribution of arrays."]
pub mod array {
    pub const MPI_ORDER_C: i32 = 12;
    pub const MPI_ORDER_FORTRAN: i32 = 15;
    pub const MPI_DISTRIBUTE_NONE: i32 = 16;
    pub const MPI_DISTRIBUTE_BLOCK: i32 = 17;
    pub const MPI_DISTRIBUTE_CYCLIC: i32 = 18;
    pub const MPI_DISTRIBUTE_DFLT_DARG: i32 = 19;
}
#[doc = "How a datatype was made."]
pub mod combiner {
    pub const MPI_COMBINER_NAMED: i32 = 101;
    pub const MPI_COMBINER_DUP: i32 = 102;
    pub const MPI_COMBINER_CONTIGUOUS: i32 = 103;
    pub const MPI_COMBINER_VECTOR: i32 = 104;
    pub const MPI_COMBINER_HVECTOR: i32 = 105;
    pub const MPI_COMBINER_INDEXED: i32 = 106;
    pub const MPI_COMBINER_HINDEXED: i32 = 107;
    pub const MPI_COMBINER_INDEXED_BLOCK: i32 = 108;
    pub const MPI_COMBINER_HINDEXED_BLOCK: i32 = 109;
    pub const MPI_COMBINER_STRUCT: i32 = 110;
    pub const MPI_COMBINER_SUBARRAY: i32 = 111;
    pub const MPI_COMBINER_DARRAY: i32 = 112;
    pub const MPI_COMBINER_F90_REAL: i32 = 113;
    pub const MPI_COMBINER_F90_COMPLEX: i32 = 114;
    pub const MPI_COMBINER_F90_INTEGER: i32 = 115;
    pub const MPI_COMBINER_RESIZED: i32 = 116;
    pub const MPI_COMBINER_VALUE_INDEX: i32 = 117;
}
#[doc = "Classes of Fortran types."]
pub mod typeclass {
    pub const MPI_TYPECLASS_INTEGER: i32 = 192;
    pub const MPI_TYPECLASS_REAL: i32 = 193;
    pub const MPI_TYPECLASS_COMPLEX: i32 = 194;
}
#[doc = "Results of comparing communicators or groups."]
pub mod comparison {
    pub const MPI_IDENT: i32 = 201;
    pub const MPI_CONGRUENT: i32 = 202;
    pub const MPI_SIMILAR: i32 = 203;
    pub const MPI_UNEQUAL: i32 = 204;
}
#[doc = "Kinds of virtual topology."]
pub mod topology {
    pub const MPI_CART: i32 = 211;
    pub const MPI_GRAPH: i32 = 212;
    pub const MPI_DIST_GRAPH: i32 = 213;
}
#[doc = "Kinds of splitting a communicator by hardware."]
pub mod split {
    pub const MPI_COMM_TYPE_SHARED: i32 = 221;
    pub const MPI_COMM_TYPE_HW_UNGUIDED: i32 = 222;
    pub const MPI_COMM_TYPE_HW_GUIDED: i32 = 223;
    pub const MPI_COMM_TYPE_RESOURCE_GUIDED: i32 = 224;
}
#[doc = "Keys of predefined attributes."]
pub mod keyval {
    pub const MPI_KEYVAL_INVALID: i32 = 0;
    pub const MPI_TAG_UB: i32 = 501;
    pub const MPI_IO: i32 = 502;
    pub const MPI_HOST: i32 = 503;
    pub const MPI_WTIME_IS_GLOBAL: i32 = 504;
    pub const MPI_APPNUM: i32 = 505;
    pub const MPI_LASTUSEDCODE: i32 = 506;
    pub const MPI_UNIVERSE_SIZE: i32 = 507;
    pub const MPI_WIN_BASE: i32 = 601;
    pub const MPI_WIN_DISP_UNIT: i32 = 602;
    pub const MPI_WIN_SIZE: i32 = 603;
    pub const MPI_WIN_CREATE_FLAVOR: i32 = 604;
    pub const MPI_WIN_MODEL: i32 = 605;
}
#[doc = "File modes and window assertions, to be combined by or."]
pub mod mode {
    pub const MPI_MODE_APPEND: i32 = 1;
    pub const MPI_MODE_CREATE: i32 = 2;
    pub const MPI_MODE_DELETE_ON_CLOSE: i32 = 4;
    pub const MPI_MODE_EXCL: i32 = 8;
    pub const MPI_MODE_RDONLY: i32 = 16;
    pub const MPI_MODE_RDWR: i32 = 32;
    pub const MPI_MODE_SEQUENTIAL: i32 = 64;
    pub const MPI_MODE_UNIQUE_OPEN: i32 = 128;
    pub const MPI_MODE_WRONLY: i32 = 256;
    pub const MPI_MODE_NOCHECK: i32 = 1024;
    pub const MPI_MODE_NOPRECEDE: i32 = 2048;
    pub const MPI_MODE_NOPUT: i32 = 4096;
    pub const MPI_MODE_NOSTORE: i32 = 8192;
    pub const MPI_MODE_NOSUCCEED: i32 = 16384;
}
#[doc = "Lock types, flavors and memory models of windows."]
pub mod window {
    pub const MPI_LOCK_EXCLUSIVE: i32 = 301;
    pub const MPI_LOCK_SHARED: i32 = 302;
    pub const MPI_WIN_FLAVOR_CREATE: i32 = 311;
    pub const MPI_WIN_FLAVOR_ALLOCATE: i32 = 312;
    pub const MPI_WIN_FLAVOR_DYNAMIC: i32 = 313;
    pub const MPI_WIN_FLAVOR_SHARED: i32 = 314;
    pub const MPI_WIN_UNIFIED: i32 = 321;
    pub const MPI_WIN_SEPARATE: i32 = 322;
}
#[doc = "Starting points of file positions."]
pub mod seek {
    pub const MPI_SEEK_CUR: i32 = 401;
    pub const MPI_SEEK_END: i32 = 402;
    pub const MPI_SEEK_SET: i32 = 403;
}
#[doc = "Size of a status in Fortran integers and the places of its fields."]
pub mod fortran {
    pub const MPI_F_STATUS_SIZE: i32 = 8;
    pub const MPI_F_SOURCE: i32 = 0;
    pub const MPI_F_TAG: i32 = 1;
    pub const MPI_F_ERROR: i32 = 2;
}
#[doc = "The tools interface: verbosity, binding, scope, classes of performance variables."]
pub mod tools {
    pub const MPI_T_VERBOSITY_USER_BASIC: i32 = 9;
    pub const MPI_T_VERBOSITY_USER_DETAIL: i32 = 10;
    pub const MPI_T_VERBOSITY_USER_ALL: i32 = 12;
    pub const MPI_T_VERBOSITY_TUNER_BASIC: i32 = 17;
    pub const MPI_T_VERBOSITY_TUNER_DETAIL: i32 = 18;
    pub const MPI_T_VERBOSITY_TUNER_ALL: i32 = 20;
    pub const MPI_T_VERBOSITY_MPIDEV_BASIC: i32 = 33;
    pub const MPI_T_VERBOSITY_MPIDEV_DETAIL: i32 = 34;
    pub const MPI_T_VERBOSITY_MPIDEV_ALL: i32 = 36;
    pub const MPI_T_BIND_NO_OBJECT: i32 = 1;
    pub const MPI_T_BIND_MPI_COMM: i32 = 2;
    pub const MPI_T_BIND_MPI_DATATYPE: i32 = 3;
    pub const MPI_T_BIND_MPI_ERRHANDLER: i32 = 4;
    pub const MPI_T_BIND_MPI_FILE: i32 = 5;
    pub const MPI_T_BIND_MPI_GROUP: i32 = 6;
    pub const MPI_T_BIND_MPI_OP: i32 = 7;
    pub const MPI_T_BIND_MPI_REQUEST: i32 = 8;
    pub const MPI_T_BIND_MPI_WIN: i32 = 9;
    pub const MPI_T_BIND_MPI_MESSAGE: i32 = 10;
    pub const MPI_T_BIND_MPI_INFO: i32 = 11;
    pub const MPI_T_BIND_MPI_SESSION: i32 = 12;
    pub const MPI_T_SCOPE_CONSTANT: i32 = 1;
    pub const MPI_T_SCOPE_READONLY: i32 = 2;
    pub const MPI_T_SCOPE_LOCAL: i32 = 3;
    pub const MPI_T_SCOPE_GROUP: i32 = 4;
    pub const MPI_T_SCOPE_GROUP_EQ: i32 = 5;
    pub const MPI_T_SCOPE_ALL: i32 = 6;
    pub const MPI_T_SCOPE_ALL_EQ: i32 = 7;
    pub const MPI_T_PVAR_CLASS_STATE: i32 = 1;
    pub const MPI_T_PVAR_CLASS_LEVEL: i32 = 2;
    pub const MPI_T_PVAR_CLASS_SIZE: i32 = 3;
    pub const MPI_T_PVAR_CLASS_PERCENTAGE: i32 = 4;
    pub const MPI_T_PVAR_CLASS_HIGHWATERMARK: i32 = 5;
    pub const MPI_T_PVAR_CLASS_LOWWATERMARK: i32 = 6;
    pub const MPI_T_PVAR_CLASS_COUNTER: i32 = 7;
    pub const MPI_T_PVAR_CLASS_AGGREGATE: i32 = 8;
    pub const MPI_T_PVAR_CLASS_TIMER: i32 = 9;
    pub const MPI_T_PVAR_CLASS_GENERIC: i32 = 10;
}
#[doc = "Special buffer addresses."]
pub mod address {
    use super::Address;
    pub const MPI_BOTTOM: Address = 0;
    pub const MPI_IN_PLACE: Address = 1;
    pub const MPI_BUFFER_AUTOMATIC: Address = 2;
}
#[doc = "Special arrays of weights."]
pub mod weights {
    use super::IntArray;
    pub const MPI_UNWEIGHTED: IntArray = 10;
    pub const MPI_WEIGHTS_EMPTY: IntArray = 11;
}
#[doc = "Longest strings in bytes, with the final zero, and the space that a buffered message takes besides its data."]
pub mod limit {
    use super::Define;
    pub const MPI_MAX_DATAREP_STRING: Define = 128;
    pub const MPI_MAX_ERROR_STRING: Define = 512;
    pub const MPI_MAX_INFO_KEY: Define = 256;
    pub const MPI_MAX_INFO_VAL: Define = 1024;
    pub const MPI_MAX_LIBRARY_VERSION_STRING: Define = 8192;
    pub const MPI_MAX_OBJECT_NAME: Define = 128;
    pub const MPI_MAX_PORT_NAME: Define = 1024;
    pub const MPI_MAX_PROCESSOR_NAME: Define = 256;
    pub const MPI_MAX_STRINGTAG_LEN: Define = 1024;
    pub const MPI_MAX_PSET_NAME_LEN: Define = 1024;
    pub const MPI_BSEND_OVERHEAD: Define = 512;
}
#[doc = "Versions of the standard and of its ABI."]
pub mod version {
    use super::Define;
    pub const MPI_VERSION: Define = 5;
    pub const MPI_SUBVERSION: Define = 0;
    pub const MPI_ABI_VERSION: Define = 1;
    pub const MPI_ABI_SUBVERSION: Define = 0;
}
#[doc = "Kinds of devices, for MPIX_GPU_query_support; the values are MPICH's."]
pub mod device {
    pub const MPIX_GPU_SUPPORT_CUDA: i32 = 0;
    pub const MPIX_GPU_SUPPORT_ZE: i32 = 1;
    pub const MPIX_GPU_SUPPORT_HIP: i32 = 2;
}
#[doc = "What MPI-3 removed and the standard ABI has no values for. Those of the datatypes are above the standard's, which end with 0xfff, and below those of objects."]
pub mod removed {
    use super::DatatypeHandle;
    #[doc = "Successor: MPI_Type_create_resized"]
    pub const MPI_LB: DatatypeHandle = 0x1204;
    #[doc = "Successor: MPI_Type_create_resized"]
    pub const MPI_UB: DatatypeHandle = 0x1205;
    #[doc = "Successor: MPI_COMBINER_HVECTOR"]
    pub const MPI_COMBINER_HVECTOR_INTEGER: i32 = 1105;
    #[doc = "Successor: MPI_COMBINER_HINDEXED"]
    pub const MPI_COMBINER_HINDEXED_INTEGER: i32 = 1107;
    #[doc = "Successor: MPI_COMBINER_STRUCT"]
    pub const MPI_COMBINER_STRUCT_INTEGER: i32 = 1110;
}
#[doc = "Error classes of the recovery from failures; beside the standard's, and those of MPICH."]
pub mod recovery {
    pub const MPIX_ERR_PROC_FAILED: i32 = 101;
    pub const MPIX_ERR_PROC_FAILED_PENDING: i32 = 102;
    pub const MPIX_ERR_REVOKED: i32 = 103;
}
#[doc = "The current displacement of a file."]
pub mod displacement {
    use super::OffsetConstant;
    pub const MPI_DISPLACEMENT_CURRENT: OffsetConstant = -1;
}
