//! Symbols by name, in the running program and in libraries that it loads; the code of a library
//! that is loaded.

use std::ffi::{CStr, CString, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;

/// A library that stays loaded as long as the process.
#[derive(Debug)]
pub struct Library(NonNull<c_void>);

// SAFETY: the handle is the loader's, any of whose functions any thread may call.
unsafe impl Send for Library {}

impl Library {
    /// Loads a library, with the symbols that it needs resolved when they are used.
    ///
    /// # Safety
    /// What the library runs when it is loaded may run in this process, as far as it has come.
    ///
    /// # Errors
    /// What the loader says.
    pub unsafe fn open(path: &Path) -> Result<Library, String> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the path ends with a zero byte; what the library runs, by the caller's promise.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        NonNull::new(handle)
            .map(Library)
            .ok_or_else(|| last_error().unwrap_or_default())
    }

    /// The address of a symbol of the library.
    #[must_use]
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: a handle that `dlopen` has returned and nobody closes; the name ends with a zero
        // byte.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` is the type of that function.
    ///
    /// # Errors
    /// The library has none of this name.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, String> {
        const { assert!(size_of::<F>() == size_of::<*const ()>()) };
        let symbol = self.symbol(name);
        let symbol = symbol.ok_or_else(|| format!("it has no {}", name.to_string_lossy()))?;
        // SAFETY: a pointer to a function, of that type by the caller's promise.
        Ok(unsafe { std::mem::transmute_copy(&symbol.as_ptr()) })
    }

    /// The address of a symbol of the library in one of its versions.
    #[must_use]
    pub fn symbol_of(&self, name: &CStr, version: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: as above; the version ends with a zero byte, too.
        NonNull::new(unsafe { libc::dlvsym(self.0.as_ptr(), name.as_ptr(), version.as_ptr()) })
    }
}

/// What the loader says about its last error.
fn last_error() -> Option<String> {
    // SAFETY: the text is valid until the next call of the loader by this thread.
    let text = unsafe { libc::dlerror().as_ref() }?;
    // SAFETY: as above; it ends with a zero byte.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into())
}

/// The address of a symbol of the program or of a library that it has loaded, in the loader's
/// order.
#[must_use]
pub fn find(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the name ends with a zero byte.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// The program or library in which an address is: where it was loaded, and its path. None where no
/// file lies. The program's path is that of the kernel, which does not depend on how it was
/// started.
#[must_use]
pub fn module_of(address: usize) -> Option<(usize, Vec<u8>)> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the loader only compares the address, and fills what it is given.
    let is_known = unsafe { libc::dladdr(address as *const c_void, found.as_mut_ptr()) } != 0;
    // SAFETY: zeros are a value of the type, too.
    let found = unsafe { found.assume_init() };
    if !is_known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a text of the loader, which ends with a zero byte and lives as long as the library.
    let name = unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes();
    let path = match name.first() {
        Some(b'/') => name.to_vec(),
        _ => {
            let own = std::fs::read_link("/proc/self/exe").ok()?;
            own.as_os_str().as_bytes().to_vec()
        }
    };
    Some((found.dli_fbase.addr(), path))
}

/// The addresses of the instructions that are mapped together with the one at `address`; empty when
/// there are none.
#[must_use]
pub fn code_around(address: usize) -> Range<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines()
        .filter_map(crate::process::mapped_range)
        .find(|range| range.contains(&address))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_found_by_name() {
        assert!(find(c"getpid").is_some());
        assert!(find(c"margay_has_no_such_symbol").is_none());
        // SAFETY: there is no such library.
        let error = unsafe { Library::open(Path::new("/nowhere/libnothing.so")) }.unwrap_err();
        assert!(error.contains("libnothing"), "{error}");
    }

    #[test]
    fn addresses_have_a_module() {
        let here = (symbols_are_found_by_name as *const ()).addr();
        let (base, path) = module_of(here).unwrap();
        assert!(base < here && path.starts_with(b"/"), "{path:?}");
        assert!(module_of(1).is_none());
    }

    #[test]
    fn code_is_around_functions() {
        let here = (symbols_are_found_by_name as *const ()).addr();
        assert!(code_around(here).contains(&here));
        assert!(code_around(1).is_empty());
    }
}
