//! An endpoint of libfabric for messages: buffers that are sent and received, and what has become
//! of them. Where the provider can, memory of the program's is read as well. The library is loaded
//! when an endpoint is opened.
//!
//! | module | |
//! | --- | --- |
//! | `raw` | the library's structures in C |
//! | `library` | loading it, and finding a provider |
//! | `endpoint` | [`Endpoint`]: buffers, addresses of peers, completions |
//! | `memory` | reading memory of other processes |
//!
//! Endpoints are reliable and not connected (`FI_EP_RDM`), their messages are not tagged, and those
//! from one endpoint to another come in the order of sending. The endpoint owns the memory of all
//! messages: a buffer that the library has is out of reach until it comes back with a completion,
//! so that nothing here is unsafe to call.

mod endpoint;
mod library;
mod memory;
mod raw;

pub use endpoint::{Done, Endpoint, Peer};
pub use library::{OpenError, Wanted};
pub use memory::Offered;
