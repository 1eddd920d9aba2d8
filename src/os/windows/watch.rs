//! The keys of the console that interrupt, and the end of the process that started us.

use std::collections::HashMap;
use std::io;
use std::mem::zeroed;
use std::os::windows::io::{FromRawHandle, OwnedHandle};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use windows_sys::Win32::Foundation::{
    FILETIME, HANDLE, INVALID_HANDLE_VALUE, WAIT_FAILED, WAIT_TIMEOUT,
};
use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};
use windows_sys::Win32::System::Threading::{
    ExitProcess, GetCurrentProcess, GetProcessTimes, OpenProcess,
    PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE, WaitForMultipleObjects,
};

use super::done;
use super::processes::ended_within;

/// The numbers that C programs here know: SIGHUP for the console's end, SIGINT, SIGBREAK.
const HANGUP: i32 = 1;
const INTERRUPT: i32 = 2;
const BREAK: i32 = 21;
/// STATUS_CONTROL_C_EXIT: how programs end that are interrupted.
const INTERRUPTED: u32 = 0xc000_013a;
/// The system ends a process whose console was closed when the handler returns, after 5 seconds at the latest.
const FAREWELL: Duration = Duration::from_secs(5);

/// More wrappers than these are no wrappers.
const MOST_CALLERS: usize = 8;

type Tell = Box<dyn Fn(i32) + Send>;
static TELL: Mutex<Vec<Tell>> = Mutex::new(Vec::new());

/// Calls `tell` with each event of the console that asks to stop.
///
/// # Errors
/// The handler cannot be set.
pub fn signals(tell: impl Fn(i32) + Send + 'static) -> io::Result<()> {
    let mut all = TELL.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(Box::new(tell));
    // One handler tells all.
    if all.len() > 1 {
        return Ok(());
    }
    // SAFETY: the handler lives for ever.
    unsafe { done(SetConsoleCtrlHandler(Some(handle), 1)) }
}

/// Called by the system in a thread of its own.
unsafe extern "system" fn handle(event: u32) -> i32 {
    let signal = match event {
        CTRL_C_EVENT => INTERRUPT,
        CTRL_BREAK_EVENT => BREAK,
        _ => HANGUP,
    };
    let all = TELL.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().for_each(|tell| tell(signal));
    drop(all);
    if signal == HANGUP {
        thread::sleep(FAREWELL);
    }
    1
}

/// Ends as a program does that was interrupted: the caller of LLD sees what ended the link.
pub fn raise_again(_: i32) {
    // SAFETY: all is written by now, and no other thread has anything to finish.
    unsafe { ExitProcess(INTERRUPTED) }
}

/// Who started us: a handle that is open for as long as we live, as a number that threads can share; none
/// where the process had ended already, or is hidden from us.
#[derive(Clone, Copy, Debug)]
pub struct Parent(Option<isize>);

impl Parent {
    /// To be called first of all.
    pub fn seen_at_start() -> Self {
        Parent(callers().first().map(|handle| handle.expose_provenance().cast_signed()))
    }

    /// It is still there, as far as can be told.
    pub fn lives(self) -> bool {
        self.0.is_none_or(|handle| !ended_within(handle as HANDLE, 0))
    }
}

/// Our parent and, as long as these are interpreters of commands, as for a distributor that is a `.bat`, their
/// parents. Behind other wrappers the missing job file tells.
pub struct Callers(Vec<HANDLE>);

impl Callers {
    /// All that there are; the handles stay open.
    pub fn of(_: Parent, _: &Path) -> Self {
        Callers(callers())
    }

    /// Waits for the end of one of them; false if none has ended so far.
    pub fn wait(&self, limit: Duration) -> bool {
        if self.0.is_empty() {
            thread::sleep(limit);
            return false;
        }
        let (count, limit) = (self.0.len() as u32, limit.as_millis() as u32);
        // SAFETY: so many open handles.
        let ended = unsafe { WaitForMultipleObjects(count, self.0.as_ptr(), 0, limit) };
        ended != WAIT_TIMEOUT && ended != WAIT_FAILED
    }
}

/// Those who wait for us. A number may be another process's by now: then that one is younger than its child.
fn callers() -> Vec<HANDLE> {
    let processes = processes();
    let mut found = Vec::new();
    // SAFETY: handles that were opened here, or that stand for this process.
    unsafe {
        let mut child = (std::process::id(), started(GetCurrentProcess()));
        while let Some((parent, _)) = processes.get(&child.0) {
            let wanted = PROCESS_SYNCHRONIZE | PROCESS_QUERY_LIMITED_INFORMATION;
            let handle = OpenProcess(wanted, 0, *parent);
            if handle.is_null() || started(handle) > child.1 || found.len() == MOST_CALLERS {
                break;
            }
            found.push(handle);
            child = (*parent, started(handle));
            if !processes.get(parent).is_some_and(|(_, name)| name.eq_ignore_ascii_case("cmd.exe"))
            {
                break;
            }
        }
    }
    found
}

/// When a process was started, in the system's own count.
///
/// # Safety
/// The handle is open.
unsafe fn started(process: HANDLE) -> Option<u64> {
    // SAFETY: the caller says that the handle is open; the times are plain numbers, which the call fills.
    unsafe {
        let mut times: [FILETIME; 4] = zeroed();
        let [created, exit, kernel, user] = &mut times;
        done(GetProcessTimes(process, created, exit, kernel, user)).ok()?;
        Some(u64::from(created.dwHighDateTime) << 32 | u64::from(created.dwLowDateTime))
    }
}

/// Each process's parent and the name of its program.
fn processes() -> HashMap<u32, (u32, String)> {
    let mut found = HashMap::new();
    // SAFETY: the list is open until it is dropped; the entry says its own size.
    unsafe {
        let list = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
        if list == INVALID_HANDLE_VALUE {
            return found;
        }
        let _closed_at_the_end = OwnedHandle::from_raw_handle(list);
        let mut entry: PROCESSENTRY32W = zeroed();
        entry.dwSize = size_of::<PROCESSENTRY32W>() as u32;
        let mut more = Process32FirstW(list, &mut entry);
        while more != 0 {
            let name = entry.szExeFile.split(|&unit| unit == 0).next().unwrap_or_default();
            let name = String::from_utf16_lossy(name);
            found.insert(entry.th32ProcessID, (entry.th32ParentProcessID, name));
            more = Process32NextW(list, &mut entry);
        }
    }
    found
}
