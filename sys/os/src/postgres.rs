//! The client of PostgreSQL: the few functions that statements take, of libpq, which is loaded when
//! it is wanted. Passwords, TLS and names of services are its own, with its files and variables.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::ptr::{NonNull, null, null_mut};
use std::time::{Duration, Instant};

use crate::descriptor::PollSet;
use crate::symbols::Library;

/// The library's name; Debian's package is `libpq5`.
pub const LIBRARY: &str = "libpq.so.5";

/// How long the server may say nothing before the connection counts as broken.
const HEARD_WITHIN: Duration = Duration::from_secs(30);

/// What is said to the library beside what the user says: a dead server is noticed.
const OPTIONS: [(&CStr, &CStr); 7] = [
    (c"connect_timeout", c"5"),
    (c"keepalives_idle", c"2"),
    (c"keepalives_interval", c"1"),
    (c"keepalives_count", c"4"),
    (c"tcp_user_timeout", c"6000"),
    (c"client_encoding", c"UTF8"),
    (c"application_name", c"margay"),
];

/// `CONNECTION_OK`, `PGRES_COMMAND_OK` and `PGRES_TUPLES_OK`.
const CONNECTION_OK: c_int = 0;
const COMMAND_OK: c_int = 1;
const TUPLES_OK: c_int = 2;

/// `PG_DIAG_SQLSTATE` and `PG_DIAG_MESSAGE_PRIMARY`.
const FIELD_STATE: c_int = b'C' as c_int;
const FIELD_TEXT: c_int = b'M' as c_int;

macro_rules! functions {
    ($($name:ident = $symbol:literal: $type:ty;)*) => {
        /// The functions of the library.
        // Fields: one for each function.
        struct Functions { $($name: $type,)* }

        impl Functions {
            fn of(library: &Library) -> Result<Functions, String> {
                // SAFETY: the types are those of libpq's header, which have not changed since 7.4.
                unsafe { Ok(Functions { $($name: library.function($symbol)?,)* }) }
            }
        }
    };
}

/// The library's connection and result, of which only it knows more.
type Handle = *mut c_void;
type Answer = *mut c_void;
type Words = *const *const c_char;

functions! {
    connect = c"PQconnectdbParams": unsafe extern "C" fn(Words, Words, c_int) -> Handle;
    status = c"PQstatus": unsafe extern "C" fn(Handle) -> c_int;
    error = c"PQerrorMessage": unsafe extern "C" fn(Handle) -> *const c_char;
    finish = c"PQfinish": unsafe extern "C" fn(Handle);
    socket = c"PQsocket": unsafe extern "C" fn(Handle) -> c_int;
    needs_password = c"PQconnectionNeedsPassword": unsafe extern "C" fn(Handle) -> c_int;
    used_password = c"PQconnectionUsedPassword": unsafe extern "C" fn(Handle) -> c_int;
    set_nonblocking = c"PQsetnonblocking": unsafe extern "C" fn(Handle, c_int) -> c_int;
    send = c"PQsendQuery": unsafe extern "C" fn(Handle, *const c_char) -> c_int;
    send_values = c"PQsendQueryParams": unsafe extern "C" fn(
        Handle, *const c_char, c_int, *const c_uint, Words, *const c_int, *const c_int, c_int,
    ) -> c_int;
    flush = c"PQflush": unsafe extern "C" fn(Handle) -> c_int;
    consume = c"PQconsumeInput": unsafe extern "C" fn(Handle) -> c_int;
    is_busy = c"PQisBusy": unsafe extern "C" fn(Handle) -> c_int;
    take = c"PQgetResult": unsafe extern "C" fn(Handle) -> Answer;
    result_status = c"PQresultStatus": unsafe extern "C" fn(Answer) -> c_int;
    field = c"PQresultErrorField": unsafe extern "C" fn(Answer, c_int) -> *const c_char;
    rows = c"PQntuples": unsafe extern "C" fn(Answer) -> c_int;
    columns = c"PQnfields": unsafe extern "C" fn(Answer) -> c_int;
    value = c"PQgetvalue": unsafe extern "C" fn(Answer, c_int, c_int) -> *const c_char;
    is_null = c"PQgetisnull": unsafe extern "C" fn(Answer, c_int, c_int) -> c_int;
    clear = c"PQclear": unsafe extern "C" fn(Answer);
}

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The library is not there, with the loader's reason.
    NoLibrary(String),
    /// The server wants a password, and there is none or a wrong one.
    Password(String),
    /// There is no connection, or none any more.
    Connection(String),
    /// The server refuses a statement: with SQL's five letters for the reason, and the text.
    Refused { state: String, text: String },
}

/// A connection to a server, on which one statement after the other is executed.
pub struct Connection {
    functions: Functions,
    handle: NonNull<c_void>,
    /// An answer did not come in time, so nothing that comes now is known to be of what was asked.
    is_broken: Cell<bool>,
}

// SAFETY: the library lets any thread use a connection, one at a time.
unsafe impl Send for Connection {}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// A text of the library, without the spaces around it and on one line.
///
/// # Safety
/// It is null, or ends with a zero byte.
unsafe fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: by the caller's promise.
    let text = unsafe { CStr::from_ptr(from) }.to_string_lossy();
    let lines: Vec<&str> = text.split_whitespace().collect();
    lines.join(" ")
}

fn word(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|error| Failure::Connection(error.to_string()))
}

impl Connection {
    /// Connects to the server of a URL, or of other words that libpq takes for a connection.
    ///
    /// # Errors
    /// What the loader, the library or the server says.
    pub fn open(url: &str) -> Result<Connection, Failure> {
        let url = word(url)?;
        // SAFETY: the library of that name is made to be loaded at any time.
        let library = unsafe { Library::open(Path::new(LIBRARY)) }.map_err(Failure::NoLibrary)?;
        let functions = Functions::of(&library).map_err(Failure::NoLibrary)?;
        // What the user says comes last and counts more.
        let (mut names, mut values): (Vec<_>, Vec<_>) = OPTIONS
            .iter()
            .map(|(name, value)| (name.as_ptr(), value.as_ptr()))
            .unzip();
        names.extend([c"dbname".as_ptr(), null()]);
        values.extend([url.as_ptr(), null()]);
        // SAFETY: two lists of texts that end with a null, which the call copies.
        let handle = unsafe { (functions.connect)(names.as_ptr(), values.as_ptr(), 1) };
        let Some(handle) = NonNull::new(handle) else {
            return Err(Failure::Connection("no memory for a connection".into()));
        };
        let connection = Connection {
            functions,
            handle,
            is_broken: Cell::new(false),
        };
        let (raw, functions) = (handle.as_ptr(), &connection.functions);
        // SAFETY: the handle is open until the value is dropped.
        unsafe {
            if (functions.status)(raw) == CONNECTION_OK && (functions.set_nonblocking)(raw, 1) == 0
            {
                return Ok(connection);
            }
            let text = connection.error();
            let wants = (functions.needs_password)(raw) != 0 || (functions.used_password)(raw) != 0;
            Err(match wants {
                true => Failure::Password(text),
                false => Failure::Connection(text),
            })
        }
    }

    /// Whether nothing can be asked any more.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        // SAFETY: the handle is open.
        self.is_broken.get()
            || unsafe { (self.functions.status)(self.handle.as_ptr()) } != CONNECTION_OK
    }

    /// What the library says about its last error.
    fn error(&self) -> String {
        // SAFETY: the handle is open; the text is valid until its next use.
        unsafe { text((self.functions.error)(self.handle.as_ptr())) }
    }

    fn broken(&self, why: &str) -> Failure {
        self.is_broken.set(true);
        let said = self.error();
        Failure::Connection(match said.as_str() {
            "" => why.into(),
            _ => said,
        })
    }

    /// Executes statements that have no values and no rows: all of them or none.
    ///
    /// # Errors
    /// What the server says.
    pub fn script(&self, sql: &str) -> Result<(), Failure> {
        let sql = word(sql)?;
        // SAFETY: the handle is open; the text ends with a zero byte, and is copied.
        let sent = unsafe { (self.functions.send)(self.handle.as_ptr(), sql.as_ptr()) };
        self.answer(sent).map(|_| ())
    }

    /// Executes a statement, in which `$1` is the first value, and returns its rows.
    ///
    /// # Errors
    /// What the server says.
    pub fn query(&self, sql: &str, values: &[&str]) -> Result<Rows<'_>, Failure> {
        let sql = word(sql)?;
        let values: Vec<CString> = values.iter().map(|v| word(v)).collect::<Result<_, _>>()?;
        let pointers: Vec<*const c_char> = values.iter().map(|v| v.as_ptr()).collect();
        // SAFETY: the handle is open; all texts end with a zero byte, and are copied. Without
        // types, lengths and formats the values are texts whose types the server finds.
        let sent = unsafe {
            (self.functions.send_values)(
                self.handle.as_ptr(),
                sql.as_ptr(),
                pointers.len() as c_int,
                null(),
                pointers.as_ptr(),
                null(),
                null(),
                0,
            )
        };
        self.answer(sent)
    }

    /// Waits for the answer to what was sent.
    fn answer(&self, sent: c_int) -> Result<Rows<'_>, Failure> {
        if self.is_broken.get() || sent != 1 {
            return Err(self.broken("the statement cannot be sent"));
        }
        let raw = self.handle.as_ptr();
        let mut last = Rows {
            connection: self,
            answer: null_mut(),
        };
        let mut failure = None;
        loop {
            self.wait()?;
            // SAFETY: the handle is open, and what it returns is cleared by its new owner.
            let answer = unsafe { (self.functions.take)(raw) };
            let rows = Rows {
                connection: self,
                answer,
            };
            if rows.answer.is_null() {
                break;
            }
            if let Some(why) = rows.failure() {
                failure.get_or_insert(why);
            }
            last = rows;
        }
        match failure {
            // The server's last words before it ends a connection are those of a refusal.
            Some(_) if self.is_broken() => Err(self.broken("the connection has ended")),
            Some(failure) => Err(failure),
            None => Ok(last),
        }
    }

    /// Sends what waits to be sent, and hears until an answer is complete.
    fn wait(&self) -> Result<(), Failure> {
        let raw = self.handle.as_ptr();
        let mut poll = PollSet::default();
        let mut heard = Instant::now();
        loop {
            // SAFETY: the handle is open.
            let (unsent, socket) =
                unsafe { ((self.functions.flush)(raw), (self.functions.socket)(raw)) };
            if unsent < 0 || socket < 0 {
                return Err(self.broken("the connection has ended"));
            }
            // SAFETY: as above.
            if unsent == 0 && unsafe { (self.functions.is_busy)(raw) } == 0 {
                return Ok(());
            }
            // SAFETY: the library keeps it open as long as the handle, and nothing here closes it.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            poll.clear();
            let readable = poll.add_readable(socket);
            let writable = (unsent == 1).then(|| poll.add_writable(socket));
            if poll.wait(Some(HEARD_WITHIN)).is_err() {
                continue;
            }
            let ready = poll.ready(readable);
            let can_write = writable.is_some_and(|place| poll.ready(place).writable);
            if can_write || ready.readable || ready.hung_up {
                heard = Instant::now();
            } else if heard.elapsed() >= HEARD_WITHIN {
                self.is_broken.set(true);
                let seconds = HEARD_WITHIN.as_secs();
                let text = format!("the server does not answer within {seconds} s");
                return Err(Failure::Connection(text));
            }
            // SAFETY: as above.
            if (ready.readable || ready.hung_up) && unsafe { (self.functions.consume)(raw) } == 0 {
                return Err(self.broken("the connection has ended"));
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and nobody uses it any more: rows borrow the connection.
        unsafe { (self.functions.finish)(self.handle.as_ptr()) }
    }
}

/// Rows that a statement has given.
#[derive(Debug)]
pub struct Rows<'a> {
    connection: &'a Connection,
    answer: Answer,
}

impl Rows<'_> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        // SAFETY: an answer that is not yet cleared, or null, of which it is 0.
        let count = unsafe { (self.connection.functions.rows)(self.answer) };
        usize::try_from(count).unwrap_or(0)
    }

    /// A value of a row; none where it is null, or there is no such place.
    #[must_use]
    pub fn get(&self, row: usize, column: usize) -> Option<&str> {
        let functions = &self.connection.functions;
        // SAFETY: an answer that is not yet cleared; the text ends with a zero byte and is valid
        // until then. Its places are compared with what it has.
        let value = unsafe {
            let columns = usize::try_from((functions.columns)(self.answer)).unwrap_or(0);
            if row >= self.count() || column >= columns {
                return None;
            }
            let (row, column) = (row as c_int, column as c_int);
            if (functions.is_null)(self.answer, row, column) != 0 {
                return None;
            }
            CStr::from_ptr((functions.value)(self.answer, row, column))
        };
        value.to_str().ok()
    }

    fn failure(&self) -> Option<Failure> {
        let functions = &self.connection.functions;
        // SAFETY: an answer that is not yet cleared; its texts are copied.
        unsafe {
            let status = (functions.result_status)(self.answer);
            if matches!(status, COMMAND_OK | TUPLES_OK) {
                return None;
            }
            let field = |field| text((functions.field)(self.answer, field));
            Some(Failure::Refused {
                state: field(FIELD_STATE),
                text: field(FIELD_TEXT),
            })
        }
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody else clears it; of null nothing is done.
        unsafe { (self.connection.functions.clear)(self.answer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_not_there_is_an_error() {
        match Connection::open("postgresql:///none?host=/nowhere") {
            Err(Failure::NoLibrary(text)) => assert!(text.contains(LIBRARY), "{text}"),
            Err(Failure::Connection(text)) => assert!(text.contains("/nowhere"), "{text}"),
            other => panic!("{other:?}"),
        }
        let zero = Connection::open("postgresql:///\0").unwrap_err();
        assert!(matches!(zero, Failure::Connection(_)), "{zero:?}");
    }
}
