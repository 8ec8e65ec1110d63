//! Requests of a program on the direct way of a parallel file system, in order and of any bytes:
//! each has an answer, and the file has what was written.
#![no_main]

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use margay_core_stripes::Layout;
use margay_fs_storage::direct::wire::{
    ANSWER, Answer, Invitation, MOST, PLACES, REQUEST, Request, socket_name,
};
use margay_fs_stripes::{Disk, Folder, Making, ROOT, Setting, Store, StoreMaking, kind};
use margay_sys_os::packets::{Packets, map};
use margay_sys_os::user::Mem;

const DISKS: usize = 3;

/// Where what is written here ends; other places are read, and written to only far behind.
const END: usize = 1 << 20;
const FAR: u64 = 1 << 40;

#[derive(Arbitrary, Debug)]
enum Step {
    /// Bytes as they are.
    Any([u8; REQUEST]),
    Move {
        writes: bool,
        maps: bool,
        follows: bool,
        thread: u32,
        offset: u32,
        len: u32,
        place: bool,
        byte: u8,
    },
}

struct Guest {
    store: Arc<Store>,
    ino: u64,
    line: Packets,
    memory: Mem,
    model: Vec<u8>,
    size: u64,
    /// Whether the last write was not done.
    is_short: bool,
    _folder: tempfile::TempDir,
}

fn guest() -> Guest {
    let folder = tempfile::tempdir().expect("a place");
    let mut disks: Vec<Arc<dyn Disk>> = Vec::new();
    for n in 0..DISKS {
        let disk = Folder::create(&folder.path().join(n.to_string()));
        disks.push(Arc::new(disk.expect("a directory")));
    }
    let making = StoreMaking {
        name: "fuzz".into(),
        layout: Layout::new(DISKS, 1, 64 << 10).expect("a layout"),
        members: (0..DISKS as u64).map(|n| (n.to_string(), n + 1)).collect(),
        id: 7,
        uid: 0,
        gid: 0,
    };
    let store = Store::create(&making, disks, Arc::new(|| 1_000_000));
    let store = Arc::new(store.expect("a new one"));
    let how = Making {
        mode: kind::FILE | 0o644,
        ..Making::default()
    };
    let ino = store.make(ROOT, b"file", &how).expect("a new name").ino;
    let bytes = margay_svc_pfs::heard::invitation(&store, ino).expect("an invitation");
    let invitation = Invitation::from_bytes(&bytes).expect("an invitation");
    let line = Packets::connect(&socket_name(invitation.hall), Duration::from_secs(10));
    let line = line.expect("it listens");
    line.send(&invitation.ticket).expect("it listens");
    let memory = line.receive_descriptor().expect("memory");
    let memory = map(memory.as_fd(), PLACES * MOST).expect("memory");
    Guest {
        store,
        ino,
        line,
        memory,
        model: vec![0; END],
        size: 0,
        is_short: false,
        _folder: folder,
    }
}

impl Guest {
    fn begin(&mut self) {
        let empty = self.store.setattr(self.ino, &Setting::default(), Some(0));
        empty.expect("it is there");
        self.model.fill(0);
        self.size = 0;
    }

    fn say(&self, bytes: &[u8]) -> Answer {
        self.line.send(bytes).expect("the service goes on");
        let mut answer = [0; ANSWER];
        assert_eq!(self.line.receive(&mut answer).expect("an answer"), ANSWER);
        Answer::from_bytes(&answer)
    }

    fn step(&mut self, step: &Step) {
        let (request, byte) = match *step {
            Step::Any(mut bytes) => {
                let Some(mut request) = Request::from_bytes(&bytes) else {
                    assert_eq!(self.say(&bytes), Answer::Refused);
                    return;
                };
                if request.writes {
                    request.offset |= FAR;
                    bytes = request.to_bytes();
                    request = Request::from_bytes(&bytes).expect("it is one");
                }
                (request, 0)
            }
            Step::Move {
                writes,
                maps,
                follows,
                thread,
                offset,
                len,
                place,
                byte,
            } => {
                let offset = offset as usize % END;
                let request = Request {
                    writes,
                    maps,
                    follows,
                    thread,
                    offset: offset as u64,
                    len: (len as usize % 300_000).min(END - offset) as u32,
                    place: u32::from(place),
                };
                (request, byte)
            }
        };
        let (len, at) = (request.len as usize, request.place as usize * MOST);
        self.memory.write(at as i64, &vec![byte; len]);
        let end = request.offset.checked_add(len as u64);
        let answer = self.say(&request.to_bytes());
        if request.writes && request.follows && self.is_short {
            // The one before it was not done.
            assert_eq!(answer, Answer::Done(0));
            return;
        }
        if request.writes {
            self.is_short = matches!(answer, Answer::Failed(_));
            match end.filter(|end| i64::try_from(*end).is_ok()) {
                None => assert!(matches!(answer, Answer::Failed(_))),
                Some(end) => {
                    let len = request.len;
                    let grows = request.maps && end > self.size;
                    let is_done =
                        answer == Answer::Done(len) || grows && answer == Answer::Grown(len);
                    assert!(is_done, "{request:?}: {answer:?}");
                    if len > 0 {
                        self.size = self.size.max(end);
                    }
                    if end <= END as u64 {
                        self.model[request.offset as usize..end as usize].fill(byte);
                    }
                }
            }
            return;
        }
        let left = self.size.saturating_sub(request.offset).min(len as u64);
        assert_eq!(answer, Answer::Done(left as u32));
        if request.offset < FAR {
            let mut got = vec![0; left as usize];
            self.memory.read(at as i64, &mut got);
            let from = (request.offset as usize).min(END);
            let there = &self.model[from..(from + got.len()).min(END)];
            assert!(got[..there.len()] == *there && got[there.len()..].iter().all(|b| *b == 0));
        }
    }
}

thread_local! {
    static GUEST: RefCell<Guest> = RefCell::new(guest());
}

fuzz_target!(|steps: Vec<Step>| {
    GUEST.with_borrow_mut(|guest| {
        guest.begin();
        for step in steps.iter().take(40) {
            guest.step(step);
        }
    });
});
