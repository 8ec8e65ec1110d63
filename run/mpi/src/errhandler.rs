//! Error handlers, error classes and codes of the program, and the last message of each class.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::constants::errhandler::*;
use crate::error::*;
use crate::{Mpi, fail};

/// An error handler that the program wrote.
pub trait Callback: Send + Sync {
    /// Called with the handle of the communicator or window and the error code, with no lock held.
    /// Returns the code that the function returns in which the error was raised: the handler may
    /// change it.
    fn call(&self, on: u32, code: i32) -> i32;
}

/// What to do about an error.
pub enum Action {
    /// Tell it and abort the job.
    Fatal,
    /// Return the code.
    Return,
    /// Call the program's handler for this communicator or window, then return the code that it
    /// leaves.
    Call(Arc<dyn Callback>, u32),
}

/// An error handler of the program and its references: the handles given out and the communicators
/// that use it.
pub(crate) struct Handler {
    callback: Arc<dyn Callback>,
    references: usize,
}

/// Error classes and codes that the program added.
#[derive(Default)]
pub(crate) struct Codes {
    /// Class of each added code; a class is its own class.
    added: BTreeMap<i32, i32>,
    texts: BTreeMap<i32, String>,
    /// The last message of each class, for `MPI_Error_string`.
    last: BTreeMap<i32, String>,
    /// `MPI_LASTUSEDCODE`; never shrinks.
    pub last_used: i32,
}

impl Codes {
    pub(crate) fn new() -> Codes {
        Codes {
            last_used: MPI_ERR_LASTCODE,
            ..Codes::default()
        }
    }
}

impl Mpi {
    /// `MPI_Comm_create_errhandler`.
    ///
    /// # Errors
    /// When there are too many objects.
    pub fn errhandler_create(&self, callback: Arc<dyn Callback>) -> Result<u32> {
        let handler = Handler {
            callback,
            references: 1,
        };
        let handle = self.objects().errhandlers.insert(handler);
        handle.ok_or_else(|| {
            Error::new(
                MPI_ERR_OTHER,
                "a million error handlers exist; free some with MPI_Errhandler_free",
            )
        })
    }

    /// `MPI_Errhandler_free`: the handler lives on while a communicator uses it.
    ///
    /// # Errors
    /// When the handle is not of an error handler.
    pub fn errhandler_free(&self, handle: u32) -> Result<()> {
        if is_predefined(handle) {
            return Ok(());
        }
        self.errhandler_release(handle)
    }

    /// `MPI_Comm_set_errhandler`.
    ///
    /// # Errors
    /// When a handle is invalid.
    pub fn comm_set_errhandler(&self, comm: u32, handle: u32) -> Result<()> {
        let comm = self.comm(comm)?;
        self.errhandler_replace(handle, |new| {
            std::mem::replace(&mut comm.state().errhandler, new)
        })
    }

    /// `MPI_Comm_get_errhandler`: a handle that the program has to free.
    ///
    /// # Errors
    /// When the communicator is invalid.
    pub fn comm_get_errhandler(&self, comm: u32) -> Result<u32> {
        let handle = self.comm(comm)?.state().errhandler;
        self.errhandler_share(handle)
    }

    /// Gives an object another handler; `exchange` enters its handle and returns the one before.
    ///
    /// # Errors
    /// When the handle is not of an error handler.
    pub fn errhandler_replace(&self, handle: u32, exchange: impl FnOnce(u32) -> u32) -> Result<()> {
        let new = self.errhandler_share(handle)?;
        let old = exchange(new);
        let _ = self.errhandler_release(old);
        Ok(())
    }

    /// Returns the handle for one more user.
    ///
    /// # Errors
    /// When the handle is not of an error handler.
    pub fn errhandler_share(&self, handle: u32) -> Result<u32> {
        self.errhandler_retain(handle)?;
        Ok(handle)
    }

    /// Enters another user of the handler.
    ///
    /// # Errors
    /// When the handle is not of an error handler.
    pub fn errhandler_retain(&self, handle: u32) -> Result<()> {
        if is_predefined(handle) {
            return Ok(());
        }
        match self.objects().errhandlers.get_mut(handle) {
            Some(handler) => {
                handler.references += 1;
                Ok(())
            }
            None => Err(unknown(handle)),
        }
    }

    /// One user less.
    ///
    /// # Errors
    /// When the handle is not of an error handler.
    pub fn errhandler_release(&self, handle: u32) -> Result<()> {
        if is_predefined(handle) {
            return Ok(());
        }
        let mut objects = self.objects();
        let Some(handler) = objects.errhandlers.get_mut(handle) else {
            return Err(unknown(handle));
        };
        handler.references -= 1;
        if handler.references == 0 {
            objects.errhandlers.remove(handle);
        }
        Ok(())
    }

    /// Returns what to do about an error on the communicator or session `comm`. Errors without a
    /// valid communicator go to the handler of `MPI_COMM_SELF`, or, as long as that is the default
    /// one, to that of `MPI_COMM_WORLD`, for the many programs written before MPI 4.
    #[must_use]
    pub fn error_action(&self, comm: Option<u32>) -> Action {
        if let Some(handle) = comm
            && let Ok(errhandler) = self.with_session(handle, |s| s.errhandler)
        {
            return self.action_of(errhandler, handle);
        }
        let comm = comm.and_then(|c| self.comm(c).ok()).unwrap_or_else(|| {
            // Without a world they keep the initial handler.
            let own = self.comm_self();
            if own.state().errhandler == MPI_ERRORS_ARE_FATAL {
                self.comm_world().clone()
            } else {
                own.clone()
            }
        });
        let errhandler = comm.state().errhandler;
        self.action_of(errhandler, comm.handle())
    }

    /// Returns what an error handler does about an error on the object with the handle `on`.
    #[must_use]
    pub fn action_of(&self, errhandler: u32, on: u32) -> Action {
        match errhandler {
            MPI_ERRORS_RETURN => Action::Return,
            MPI_ERRORS_ARE_FATAL | MPI_ERRORS_ABORT => Action::Fatal,
            _ => match self.objects().errhandlers.get(errhandler) {
                Some(handler) => Action::Call(handler.callback.clone(), on),
                None => Action::Fatal,
            },
        }
    }

    /// Keeps the message of an error for [`Mpi::error_string`].
    pub fn remember_error(&self, code: i32, text: &str) {
        self.codes().last.insert(code, text.into());
    }

    /// `MPI_Add_error_class` and, with a class, `MPI_Add_error_code`.
    ///
    /// # Errors
    /// When the class does not exist.
    pub fn add_error_code(&self, class: Option<i32>) -> Result<i32> {
        let mut codes = self.codes();
        if let Some(class) = class
            && class_text(class).is_none()
            && !codes.added.contains_key(&class)
        {
            fail!(MPI_ERR_ARG, "{class} is not an error class");
        }
        let code = codes.last_used + 1;
        codes.last_used = code;
        codes.added.insert(code, class.unwrap_or(code));
        Ok(code)
    }

    /// `MPI_Add_error_string`.
    ///
    /// # Errors
    /// When the program did not add the code.
    pub fn add_error_string(&self, code: i32, text: &str) -> Result<()> {
        let mut codes = self.codes();
        if !codes.added.contains_key(&code) {
            fail!(
                MPI_ERR_ARG,
                "{code} is not an error code that the program added"
            );
        }
        codes.texts.insert(code, text.into());
        Ok(())
    }

    /// `MPI_Remove_error_class` and `MPI_Remove_error_code`.
    ///
    /// # Errors
    /// When the program did not add it, when it still has codes, or when it still has a string.
    pub fn remove_error_code(&self, code: i32, is_class: bool) -> Result<()> {
        let mut codes = self.codes();
        match codes.added.get(&code) {
            Some(&class) if (class == code) == is_class => {}
            _ => fail!(
                MPI_ERR_ARG,
                "{code} is not an error {} that the program added",
                if is_class { "class" } else { "code" }
            ),
        }
        if codes
            .added
            .iter()
            .any(|(&c, &class)| c != code && class == code)
        {
            fail!(MPI_ERR_ARG, "class {code} still has error codes");
        }
        if codes.texts.contains_key(&code) {
            fail!(MPI_ERR_ARG, "{code} still has an error string");
        }
        codes.added.remove(&code);
        Ok(())
    }

    /// `MPI_Remove_error_string`.
    ///
    /// # Errors
    /// When the program did not add a string to the code.
    pub fn remove_error_string(&self, code: i32) -> Result<()> {
        match self.codes().texts.remove(&code) {
            Some(_) => Ok(()),
            None => fail!(MPI_ERR_ARG, "{code} has no error string of the program"),
        }
    }

    /// `MPI_Error_class`.
    ///
    /// # Errors
    /// When there is no such code.
    pub fn error_class(&self, code: i32) -> Result<i32> {
        if class_text(code).is_some() {
            return Ok(code);
        }
        match self.codes().added.get(&code) {
            Some(&class) => Ok(class),
            None => fail!(MPI_ERR_ARG, "{code} is not an error code"),
        }
    }

    /// `MPI_Error_string`: the text of a code; for the standard's classes also the last message of
    /// that class, which says what happened.
    ///
    /// # Errors
    /// When there is no such code.
    pub fn error_string(&self, code: i32) -> Result<String> {
        let codes = self.codes();
        if let Some(text) = class_text(code) {
            return Ok(match codes.last.get(&code) {
                Some(last) => format!("{text} - {last}"),
                None => text.into(),
            });
        }
        if !codes.added.contains_key(&code) {
            fail!(MPI_ERR_ARG, "{code} is not an error code");
        }
        Ok(codes.texts.get(&code).cloned().unwrap_or_default())
    }

    /// Returns the name of a code for messages.
    #[must_use]
    pub fn error_name(&self, code: i32) -> String {
        match class_text(code) {
            Some(_) => class_name(code).into(),
            None => format!("error {code}"),
        }
    }

    /// `MPI_LASTUSEDCODE`
    #[must_use]
    pub fn last_used_code(&self) -> i32 {
        self.codes().last_used
    }

    /// `MPI_Comm_call_errhandler` is raising an error of the program.
    ///
    /// # Errors
    /// Always, unless the communicator is invalid, which is another error.
    pub fn call_errhandler(&self, comm: u32, code: i32) -> Error {
        let text = match self.comm(comm) {
            Err(error) => return error,
            Ok(comm) => format!(
                "the program raised {} on {}",
                self.error_name(code),
                comm.describe()
            ),
        };
        Error::new(code, text)
    }
}

fn is_predefined(handle: u32) -> bool {
    matches!(
        handle,
        MPI_ERRORS_ARE_FATAL | MPI_ERRORS_ABORT | MPI_ERRORS_RETURN
    )
}

#[cold]
fn unknown(handle: u32) -> Error {
    let text = match handle {
        MPI_ERRHANDLER_NULL => "the error handler is MPI_ERRHANDLER_NULL".to_string(),
        _ => format!("{handle:#x} is not an error handler; was it freed?"),
    };
    Error::new(MPI_ERR_ERRHANDLER, text)
}
