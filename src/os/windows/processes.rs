//! Processes in jobs of their own: started, read from until they end, and ended with all that they started. A
//! job ends with the process that made it, so nothing outlives the bridge.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, PipeReader, Read};
use std::mem::zeroed;
use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};
use std::os::windows::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::ptr::{from_ref, null};
use std::sync::Once;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{HANDLE, WAIT_OBJECT_0};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_BREAKAWAY_OK,
    JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectExtendedLimitInformation, SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, CREATE_SUSPENDED, DETACHED_PROCESS, GetCurrentProcess, INFINITE,
    WaitForSingleObject,
};

use super::done;

/// The exit code of what was ended by us.
const ENDED: u32 = 1;
/// Exit codes from here on are those of exceptions.
const EXCEPTION: u32 = 0xc000_0000;
/// How long what a program printed may be on its way once nothing runs that could print more.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Pieces of output that may wait to be taken.
const EVENTS: usize = 8;
/// The stack of a thread that waits.
const STACK: usize = 128 << 10;

#[link(name = "ntdll")]
unsafe extern "system" {
    /// Lets all threads of a process go on. The documented way looks through all threads of the machine for
    /// the one that the standard library has just made and forgotten.
    fn NtResumeProcess(process: HANDLE) -> i32;
}

/// The number of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pid(u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How firmly a program is asked to end. Here all of them end at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(i32);

impl Signal {
    /// It may tidy up before.
    pub const TERM: Signal = Signal(15);
    /// At once.
    pub const KILL: Signal = Signal(9);

    /// Its number.
    pub fn as_raw(self) -> i32 {
        self.0
    }
}

/// A program and all that it starts, but for what asks to leave its job.
#[derive(Debug)]
pub struct Group {
    job: OwnedHandle,
    pid: Pid,
}

impl Group {
    /// Starts a program in a job. It does not run before it is in: all that it starts is in, too.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<(Child, Group)> {
        let job = new_job()?;
        // Of a process group of its own: the keys of the console are for us.
        let mut child =
            command.creation_flags(CREATE_SUSPENDED | CREATE_NEW_PROCESS_GROUP).spawn()?;
        let process = child.as_raw_handle();
        // SAFETY: both handles are open.
        let started = unsafe {
            done(AssignProcessToJobObject(job.as_raw_handle(), process)).and_then(|()| {
                match NtResumeProcess(process) {
                    0.. => Ok(()),
                    status => Err(io::Error::other(format!("not resumed: {status:#x}"))),
                }
            })
        };
        if let Err(error) = started {
            let _ = child.kill();
            return Err(error);
        }
        let pid = Pid(child.id());
        Ok((child, Group { job, pid }))
    }

    /// The number of its first process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Ends all of it.
    pub fn end(&self, _: Signal) {
        // SAFETY: the handle is open.
        unsafe { TerminateJobObject(self.job.as_raw_handle(), ENDED) };
    }
}

/// A job whose processes end when its last handle is closed, by our end at the latest.
fn new_job() -> io::Result<OwnedHandle> {
    // SAFETY: plain numbers, as long as the call is told; the new handle is ours alone.
    unsafe {
        let job = CreateJobObjectW(null(), null());
        done(i32::from(!job.is_null()))?;
        let job = OwnedHandle::from_raw_handle(job);
        let mut limits: JOBOBJECT_EXTENDED_LIMIT_INFORMATION = zeroed();
        // What asks to leave is a daemon that outlives its link on purpose, a cache's server, say.
        limits.BasicLimitInformation.LimitFlags =
            JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_BREAKAWAY_OK;
        done(SetInformationJobObject(
            job.as_raw_handle(),
            JobObjectExtendedLimitInformation,
            from_ref(&limits).cast(),
            size_of_val(&limits) as u32,
        ))?;
        Ok(job)
    }
}

/// What this process starts from now on ends with it, even in the moment between its start and its job.
pub fn end_children_with_us() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Ok(job) = new_job() else { return };
        // SAFETY: the handle is open. It must stay so: with it, we would end too.
        unsafe { AssignProcessToJobObject(job.as_raw_handle(), GetCurrentProcess()) };
        std::mem::forget(job);
    });
}

/// Keeps a helper away from the keys of the console, and from its end.
pub fn separate(command: &mut Command) {
    command.creation_flags(DETACHED_PROCESS);
}

/// This program.
///
/// # Errors
/// The system does not tell.
pub fn own_program() -> io::Result<impl AsRef<OsStr>> {
    std::env::current_exe()
}

/// Makes room for what `programs` at once need; here there is enough.
pub fn allow_programs(_: usize) {}

/// Lets no program inherit what this process has inherited itself; here nothing is started that outlives us.
pub fn keep_descriptors() {}

/// Gives this thread, and all programs that it starts, less of the CPU; here a program's share is not its
/// starter's.
pub fn be_nicer(_: u8) {}

/// What ended a program that did not exit by itself.
pub fn killed_by(status: ExitStatus) -> Option<String> {
    let code = status.code()?.cast_unsigned();
    (code >= EXCEPTION).then(|| format!("exception {code:#x}"))
}

/// Gets what a program printed.
pub type Take<'a> = &'a mut dyn FnMut(&[u8]);

/// What a program prints, as it comes. Two threads tell: here nothing waits for a pipe and for a process at once.
pub struct Reading {
    events: Receiver<Event>,
    /// Of the thread that tells of the end, which is started once.
    sender: Option<SyncSender<Event>>,
}

enum Event {
    Printed(Vec<u8>),
    AllPrinted,
    Ended,
}

impl Reading {
    /// From the reading end of its pipe.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(mut reader: PipeReader) -> io::Result<Self> {
        let (sender, events) = sync_channel(EVENTS);
        let tell = sender.clone();
        let read = move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                // Nobody listens any more once the program and its group have ended.
                if tell.send(Event::Printed(buffer[..length].to_vec())).is_err() {
                    return;
                }
            }
            let _ = tell.send(Event::AllPrinted);
        };
        thread::Builder::new().name("output".into()).stack_size(STACK).spawn(read)?;
        Ok(Reading { events, sender: Some(sender) })
    }

    /// Reads until the program itself has ended: a grandchild that keeps the pipe does not hold us. False if it
    /// had not at the deadline.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn until_end(
        &mut self,
        child: &Child,
        deadline: Option<Instant>,
        take: Take<'_>,
    ) -> io::Result<bool> {
        if let Some(tell) = self.sender.take() {
            let process = child.as_handle().try_clone_to_owned()?;
            let wait = move || {
                ended_within(process.as_raw_handle(), INFINITE);
                let _ = tell.send(Event::Ended);
            };
            thread::Builder::new().name("end".into()).stack_size(STACK).spawn(wait)?;
        }
        loop {
            let event = match deadline {
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(deadline) => {
                    self.events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
                }
            };
            match event {
                Ok(Event::Printed(text)) => take(&text),
                Ok(Event::AllPrinted) => {}
                // Both threads are gone when both have told.
                Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => return Ok(true),
                Err(RecvTimeoutError::Timeout) => return Ok(false),
            }
        }
    }

    /// What is still on its way once the program's group was ended. What left that may keep the pipe open.
    pub fn finish(self, take: Take<'_>) {
        let until = Instant::now() + LAST_WORDS;
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(Event::Printed(text)) = self.events.recv_timeout(left()) {
            take(&text);
        }
    }
}

/// The process of a handle ends within so many milliseconds.
pub(super) fn ended_within(process: RawHandle, milliseconds: u32) -> bool {
    // SAFETY: the callers have the handle open.
    unsafe { WaitForSingleObject(process, milliseconds) == WAIT_OBJECT_0 }
}

/// Processes of a link that a guard was told of; here they end with their jobs.
#[derive(Debug, Default)]
pub struct Told(());

impl Told {
    /// One was started.
    pub fn add(&mut self, _: i32) {}

    /// It has ended.
    pub fn remove(&mut self, _: i32) {}

    /// Ends those that are left.
    pub fn end(&self) {}
}

/// Ends the processes in whose environment `variable` begins with this value; here they end with their jobs.
pub fn end_marked(_: &str, _: &str) {}

/// Ends the processes that have `NAME=value` in their environment; here they end with their jobs.
pub fn end_carrying(_: &str) {}
