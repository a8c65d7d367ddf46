//! How an array is opened: flags, and what is seldom needed.

use crate::array::mdspace_array;
use crate::error::{attempt, code, mdspace_error};
use crate::foreign;
use mdspace::Options;
use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::ptr;

/// Flag of mdspace_open(): the array may be written to. Its members are locked exclusively, otherwise shared with other
/// readers.
pub const MDSPACE_WRITE: u32 = 1;
/// Flag: assemble an array that may have lost data, as `--force` of the command. What may be lost is in the `warnings` of
/// the status.
pub const MDSPACE_FORCE: u32 = 2;
/// Flag: open an array with fewer members than it needs. What these hold is read, everything else fails with MDSPACE_IO.
/// Only for reading.
pub const MDSPACE_PARTIAL: u32 = 4;

/// How an array is opened.
pub struct mdspace_options(Options);

/// Options from flags, without anything else.
pub(crate) fn from_flags(flags: u32) -> Result<Options, mdspace_error> {
    if flags & !(MDSPACE_WRITE | MDSPACE_FORCE | MDSPACE_PARTIAL) != 0 {
        return Err(mdspace_error::invalid(&format!("unknown flags: {flags:#x}")));
    }
    let has = |flag: u32| flags & flag != 0;
    Ok(Options::new().write(has(MDSPACE_WRITE)).force(has(MDSPACE_FORCE)).partial(has(MDSPACE_PARTIAL)))
}

/// Options with these flags, 0 or more of MDSPACE_WRITE, MDSPACE_FORCE and MDSPACE_PARTIAL; to be freed with
/// mdspace_options_free().
#[no_mangle]
pub unsafe extern "C" fn mdspace_options_new(flags: u32, error: *mut *mut mdspace_error) -> *mut mdspace_options {
    // SAFETY: as for the caller.
    let options = unsafe { attempt(error, || from_flags(flags)) };
    options.map_or(ptr::null_mut(), |options| Box::into_raw(Box::new(mdspace_options(options))))
}

/// Changes `options` by a string.
unsafe fn change(
    options: *mut mdspace_options,
    value: *const c_char,
    error: *mut *mut mdspace_error,
    change: impl FnOnce(Options, PathBuf) -> Result<Options, mdspace_error>,
) -> c_int {
    // SAFETY: as for the caller: the handle is this call's alone, and the value is a string or null.
    let changed = unsafe {
        attempt(error, || {
            let value = foreign::path(value)?;
            let options =
                options.as_mut().ok_or_else(|| mdspace_error::invalid("a null pointer in place of options"))?;
            options.0 = change(options.0.clone(), value)?;
            Ok(())
        })
    };
    code(changed)
}

/// Opens something inside of the array: the number of a partition, `GROUP/VOLUME` of LVM, or the name or UUID of an array
/// inside. The members may be of several arrays then.
#[no_mangle]
pub unsafe extern "C" fn mdspace_options_inner(
    options: *mut mdspace_options,
    name: *const c_char,
    error: *mut *mut mdspace_error,
) -> c_int {
    let set = |options: Options, name: PathBuf| match name.to_str() {
        Some(name) => Ok(options.inner(name)),
        None => Err(mdspace_error::invalid("a name that is not UTF-8")),
    };
    // SAFETY: as for the caller.
    unsafe { change(options, name, error, set) }
}

/// The directory that takes every write, so that members stay as they are: `--overlay` of the command.
#[no_mangle]
pub unsafe extern "C" fn mdspace_options_overlay(
    options: *mut mdspace_options,
    directory: *const c_char,
    error: *mut *mut mdspace_error,
) -> c_int {
    // SAFETY: as for the caller.
    unsafe { change(options, directory, error, |options, directory| Ok(options.overlay(directory))) }
}

/// The file with the write-intent bitmap, if the array has its bitmap in a file. Only writing needs it.
#[no_mangle]
pub unsafe extern "C" fn mdspace_options_bitmap(
    options: *mut mdspace_options,
    file: *const c_char,
    error: *mut *mut mdspace_error,
) -> c_int {
    // SAFETY: as for the caller.
    unsafe { change(options, file, error, |options, file| Ok(options.bitmap(file))) }
}

/// The file that `mdadm --grow --backup-file` named, for reading an array in the middle of a reshape.
#[no_mangle]
pub unsafe extern "C" fn mdspace_options_backup_file(
    options: *mut mdspace_options,
    file: *const c_char,
    error: *mut *mut mdspace_error,
) -> c_int {
    // SAFETY: as for the caller.
    unsafe { change(options, file, error, |options, file| Ok(options.backup_file(file))) }
}

/// The map of a member that is the image of a failing disk: the mapfile of GNU ddrescue. What it does not call finished
/// comes from the other members. May be called for several images.
#[no_mangle]
pub unsafe extern "C" fn mdspace_options_map(
    options: *mut mdspace_options,
    image: *const c_char,
    mapfile: *const c_char,
    error: *mut *mut mdspace_error,
) -> c_int {
    // SAFETY: as for the caller: `mapfile` is a string or null.
    unsafe { change(options, image, error, |options, image| Ok(options.map(image, foreign::path(mapfile)?))) }
}

/// Opens an array with these options, which may be used again. Otherwise as mdspace_open().
#[no_mangle]
pub unsafe extern "C" fn mdspace_options_open(
    options: *const mdspace_options,
    members: *const *const c_char,
    count: usize,
    error: *mut *mut mdspace_error,
) -> *mut mdspace_array {
    // SAFETY: as for the caller.
    unsafe { mdspace_array::open(|| Ok(foreign::handle(options)?.0.clone()), members, count, error) }
}

/// Frees options. NULL is none.
#[no_mangle]
pub unsafe extern "C" fn mdspace_options_free(options: *mut mdspace_options) {
    if !options.is_null() {
        // SAFETY: by the contract it is from `mdspace_options_new` and not freed yet.
        drop(unsafe { Box::from_raw(options) });
    }
}
