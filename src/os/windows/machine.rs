//! What the system says of this machine.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::windows::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr::null_mut;

use windows_sys::Win32::Foundation::ERROR_SUCCESS;
use windows_sys::Win32::System::Registry::{
    HKEY_LOCAL_MACHINE, RRF_RT_REG_SZ, RRF_SUBKEY_WOW6432KEY, RRF_SUBKEY_WOW6464KEY, RegGetValueW,
};
use windows_sys::Win32::System::WindowsProgramming::GetComputerNameW;

use super::wide;

/// What a compiler printed, as standard error takes it: a console takes UTF-8 alone.
pub fn printable(text: &[u8]) -> Cow<'_, [u8]> {
    if !std::io::stderr().is_terminal() {
        return text.into();
    }
    match String::from_utf8_lossy(text) {
        Cow::Borrowed(text) => text.as_bytes().into(),
        Cow::Owned(text) => text.into_bytes().into(),
    }
}

/// A user and a host as they are called here.
pub fn user_and_host() -> (String, String) {
    let mut name = [0; 64];
    let mut length = name.len() as u32;
    // SAFETY: the buffer is as long as the call is told, and the call says how much of it is the name.
    let known = unsafe { GetComputerNameW(name.as_mut_ptr(), &mut length) } != 0;
    let host = if known { String::from_utf16_lossy(&name[..length as usize]) } else { "?".into() };
    ("a user of Windows".into(), host)
}

/// A program of Incredibuild that is not on `PATH`, in the folder that its installer notes in the registry: a
/// 32-bit program, it did so in that view for long.
pub fn find_incredibuild(name: &str) -> Option<PathBuf> {
    if !["xgConsole", "IBConsole"].iter().any(|known| name.eq_ignore_ascii_case(known)) {
        return None;
    }
    [RRF_SUBKEY_WOW6464KEY, RRF_SUBKEY_WOW6432KEY]
        .into_iter()
        .find_map(|view| machine_text(r"SOFTWARE\Xoreax\IncrediBuild\Builder", "Folder", view))
        .map(|folder| PathBuf::from(folder).join(name).with_extension("exe"))
        .filter(|program| program.is_file())
}

/// This user may do everything; nothing here needs to know.
pub fn is_root() -> bool {
    false
}

/// A text of the registry's part for the whole machine.
fn machine_text(key: &str, value: &str, view: u32) -> Option<OsString> {
    let (key, value) = (wide(key), wide(value));
    let mut text = [0_u16; 1024];
    let mut bytes = size_of_val(&text) as u32;
    // SAFETY: both names end with 0, and the buffer is as long as the call is told.
    let result = unsafe {
        RegGetValueW(
            HKEY_LOCAL_MACHINE,
            key.as_ptr(),
            value.as_ptr(),
            RRF_RT_REG_SZ | view,
            null_mut(),
            text.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    let found = text.iter().position(|&unit| unit == 0).filter(|&end| end > 0);
    found.filter(|_| result == ERROR_SUCCESS).map(|end| OsString::from_wide(&text[..end]))
}
