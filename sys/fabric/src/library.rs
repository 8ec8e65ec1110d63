//! Loading the library, and what it offers on this host.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::io;
use std::path::Path;
use std::ptr::{NonNull, null};

use margay_sys_os::symbols::Library;

use crate::raw;

/// The library, where the user names no other one.
const LIBRARY: &str = "libfabric.so.1";
/// What every endpoint is for.
const MESSAGES: u64 = raw::MSG | raw::SEND | raw::RECV;
/// A provider that reaches processes of the same host only.
const WITHIN_A_HOST: &str = "shm";

/// What an endpoint shall be of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// The library's file; the system's where there is none.
    pub library: Option<&'a Path>,
    /// The provider; the first that reaches other hosts where there is none.
    pub provider: Option<&'a str>,
    /// The domain of the provider, which for most is a device; its first where there is none.
    pub domain: Option<&'a str>,
}

/// Why there is no endpoint.
#[derive(Debug)]
pub enum OpenError {
    /// The library does not load, or is none.
    Library(String),
    /// There is no such provider or domain here, but these.
    NoProvider {
        /// What was wanted.
        wanted: String,
        /// What there is.
        there: Vec<String>,
    },
    /// A call of the provider fails.
    Failed {
        /// The provider.
        provider: String,
        /// What failed.
        call: &'static str,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Library(error) => write!(f, "libfabric does not load: {error}"),
            OpenError::NoProvider { wanted, there } if there.is_empty() => {
                write!(
                    f,
                    "libfabric offers nothing on this host, and {wanted} was asked for"
                )
            }
            OpenError::NoProvider { wanted, there } => write!(
                f,
                "libfabric has no {wanted} on this host, but: {}",
                there.join(", ")
            ),
            OpenError::Failed {
                provider,
                call,
                error,
            } => write!(
                f,
                "{call} fails with libfabric's provider {provider}: {error}"
            ),
        }
    }
}

impl std::error::Error for OpenError {}

/// The functions of a library that is loaded.
pub(crate) struct Functions {
    get_info: raw::GetInfo,
    free_info: raw::FreeInfo,
    duplicate_info: raw::DupInfo,
    pub(crate) open_fabric: raw::OpenFabric,
}

/// Information of the library's, with all that follows it.
pub(crate) struct Found {
    first: NonNull<raw::Info>,
    free: raw::FreeInfo,
}

impl Found {
    pub(crate) fn pointer(&self) -> *mut raw::Info {
        self.first.as_ptr()
    }

    fn each(&self) -> impl Iterator<Item = &raw::Info> {
        // SAFETY: the list and all in it live until `first` is freed.
        let first = unsafe { self.first.as_ref() };
        std::iter::successors(Some(first), |info| {
            // SAFETY: as above; the last one has a null pointer.
            unsafe { info.next.as_ref() }
        })
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: it is the library's, and nothing else refers to it.
        unsafe { (self.free)(self.first.as_ptr()) };
    }
}

/// A text of the library's.
pub(crate) fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: the library's texts end with a zero byte.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

/// The provider of some information.
pub(crate) fn provider_of(info: &raw::Info) -> String {
    // SAFETY: information that the library has returned has all of its parts.
    unsafe { info.fabric_attr.as_ref() }.map_or_else(String::new, |a| text(a.provider))
}

/// The domain of some information.
pub(crate) fn domain_of(info: &raw::Info) -> String {
    // SAFETY: as above.
    unsafe { info.domain_attr.as_ref() }.map_or_else(String::new, |a| text(a.name))
}

impl Functions {
    pub(crate) fn load(path: Option<&Path>) -> Result<Functions, OpenError> {
        let path = path.unwrap_or(Path::new(LIBRARY));
        // SAFETY: the library of that name is made to be loaded at any time.
        let library = unsafe { Library::open(path) }.map_err(OpenError::Library)?;
        let symbol = |name: &CStr, version: &CStr| {
            let symbol = library.symbol_of(name, version);
            symbol.ok_or_else(|| {
                let (name, version) = (name.to_string_lossy(), version.to_string_lossy());
                OpenError::Library(format!(
                    "{} has no {name} of version {version}",
                    path.display()
                ))
            })
        };
        // SAFETY: functions of these types in these versions of the symbols.
        unsafe {
            Ok(Functions {
                get_info: function(symbol(c"fi_getinfo", c"FABRIC_1.3")?),
                free_info: function(symbol(c"fi_freeinfo", c"FABRIC_1.3")?),
                duplicate_info: function(symbol(c"fi_dupinfo", c"FABRIC_1.3")?),
                open_fabric: function(symbol(c"fi_fabric", c"FABRIC_1.1")?),
            })
        }
    }

    /// What the library offers for messages to other hosts: the first that is as `wanted`, and
    /// nothing else of it.
    ///
    /// Where it can read memory as well, it is opened for that.
    pub(crate) fn find(&self, wanted: &Wanted<'_>) -> Result<Found, OpenError> {
        let all = self.ask(wanted.provider, MESSAGES);
        let is_wanted = |info: &&raw::Info| {
            let reaches = wanted.provider.is_some() || provider_of(info) != WITHIN_A_HOST;
            reaches && wanted.domain.is_none_or(|domain| domain_of(info) == domain)
        };
        if let Some(all) = &all
            && let Some(info) = all.each().find(is_wanted)
        {
            let provider = provider_of(info);
            let reading = self.ask(Some(&provider), MESSAGES | raw::READING);
            let is_same = |other: &&raw::Info| {
                provider_of(other) == provider && domain_of(other) == domain_of(info)
            };
            let reads = reading.as_ref().and_then(|all| all.each().find(is_same));
            // SAFETY: the call copies what the pointer refers to, without what follows.
            let copy = unsafe { (self.duplicate_info)(reads.unwrap_or(info)) };
            return NonNull::new(copy)
                .map(|first| Found {
                    first,
                    free: self.free_info,
                })
                .ok_or_else(|| OpenError::Failed {
                    provider: provider_of(info),
                    call: "fi_dupinfo",
                    error: io::ErrorKind::OutOfMemory.into(),
                });
        }
        // Where the provider is there, its domains; else the providers.
        let mut there: Vec<String> = match (&all, wanted.provider) {
            (Some(all), Some(provider)) => {
                let domains = all.each().map(domain_of);
                domains
                    .map(|domain| format!("{provider}:{domain}"))
                    .collect()
            }
            _ => match self.ask(None, MESSAGES) {
                Some(all) => all.each().map(provider_of).collect(),
                None => Vec::new(),
            },
        };
        let mut seen = Vec::new();
        there.retain(|name| {
            let is_new = !seen.contains(name);
            if is_new {
                seen.push(name.clone());
            }
            is_new
        });
        let named = match (wanted.provider, wanted.domain) {
            (Some(provider), Some(domain)) => format!("provider {provider}:{domain}"),
            (Some(provider), None) => format!("provider {provider}"),
            (None, Some(domain)) => format!("provider with a domain {domain}"),
            (None, None) => "provider that reaches other hosts".into(),
        };
        Err(OpenError::NoProvider {
            wanted: named,
            there,
        })
    }

    /// All that a provider offers with these capabilities, or all that all offer; none where that
    /// is nothing.
    fn ask(&self, provider: Option<&str>, caps: u64) -> Option<Found> {
        // A name with a zero byte is that of none.
        let provider = provider.map(CString::new).transpose().ok()?;
        // SAFETY: without something to copy the call makes information with all of its parts, which
        // are filled here with what is wanted. The provider's name is taken out again before the
        // information is freed.
        unsafe {
            let hints = NonNull::new((self.duplicate_info)(null()))?.as_ptr();
            let own = Found {
                first: NonNull::new(hints)?,
                free: self.free_info,
            };
            (*hints).caps = caps;
            (*hints).mode = raw::MODE_CONTEXT | raw::MODE_CONTEXT2;
            (*(*hints).ep_attr).kind = raw::EP_RDM;
            (*(*hints).tx_attr).msg_order = raw::ORDER_SAS;
            (*(*hints).rx_attr).msg_order = raw::ORDER_SAS;
            let domain = (*hints).domain_attr;
            (*domain).threading = raw::THREAD_DOMAIN;
            (*domain).control_progress = raw::PROGRESS_MANUAL;
            (*domain).data_progress = raw::PROGRESS_MANUAL;
            (*domain).resource_mgmt = raw::RM_ENABLED;
            (*domain).mr_mode = raw::MR_LOCAL
                | raw::MR_VIRT_ADDR
                | raw::MR_ALLOCATED
                | raw::MR_PROV_KEY
                | raw::MR_ENDPOINT;
            let place = &raw mut (*(*hints).fabric_attr).provider;
            if let Some(name) = &provider {
                *place = name.as_ptr().cast_mut();
            }
            let mut found = std::ptr::null_mut();
            let code: c_int =
                (self.get_info)(raw::VERSION, null(), null(), 0, hints, &raw mut found);
            *place = std::ptr::null_mut();
            drop(own);
            if code != 0 {
                return None;
            }
            NonNull::new(found).map(|first| Found {
                first,
                free: self.free_info,
            })
        }
    }
}

/// # Safety
/// `F` is the type of that function.
unsafe fn function<F: Copy>(symbol: NonNull<std::ffi::c_void>) -> F {
    const { assert!(size_of::<F>() == size_of::<*const ()>()) };
    // SAFETY: a pointer to a function, of that type by the caller's promise.
    unsafe { std::mem::transmute_copy(&symbol.as_ptr()) }
}
