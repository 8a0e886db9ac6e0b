//! Stacks of threads. A stack is a list of code addresses, innermost first. The unwinder that panics use
//! finds the addresses.
//!
//! A call in a signal handler is safe after a first call outside of a signal handler: glibc 2.35 and later
//! finds the unwind tables without a lock (`_dl_find_object`), and the unwinder does not allocate.

use std::ffi::{c_int, c_void};

/// Maximum number of addresses in a stack. Further outer frames are left out.
pub const DEPTH: usize = 48;

/// Results of a callback of the unwinder (Itanium C++ ABI, level I).
const GO_ON: c_int = 0;
const END: c_int = 5;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(context: *mut c_void, argument: *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, is_before: *mut c_int) -> usize;
}

/// The frame with which a stack begins.
#[derive(Clone, Copy)]
pub enum FirstFrame {
    /// The stack begins after this number of frames. The first skipped frame is the frame of [`fill`].
    Frame(usize),
    /// The stack begins with the frame that a signal interrupted.
    Interrupted,
}

struct Walk<'a> {
    frames: &'a mut [usize; DEPTH],
    len: usize,
    from: FirstFrame,
}

/// Writes the stack of the calling thread into `frames`, and returns the number of addresses. An address is
/// the address of a call, not the return address.
#[inline(never)]
pub fn fill(frames: &mut [usize; DEPTH], from: FirstFrame) -> usize {
    let mut walk = Walk { frames, len: 0, from };
    // SAFETY: `each` uses the pointer only during the call, and does not unwind.
    unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
    walk.len
}

extern "C" fn each(context: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: the pointer comes from `fill`, which waits for this call.
    let walk = unsafe { &mut *argument.cast::<Walk>() };
    let mut is_before = 0;
    // SAFETY: the context comes from the unwinder.
    let address = unsafe { _Unwind_GetIPInfo(context, &raw mut is_before) };
    match walk.from {
        FirstFrame::Frame(0) => {}
        FirstFrame::Frame(left) => {
            walk.from = FirstFrame::Frame(left - 1);
            return GO_ON;
        }
        FirstFrame::Interrupted if is_before == 0 => return GO_ON,
        FirstFrame::Interrupted => walk.from = FirstFrame::Frame(0),
    }
    if address == 0 {
        return END;
    }
    let Some(frame) = walk.frames.get_mut(walk.len) else { return END };
    // Use an address inside of the call instruction, because the instruction after the call may belong to
    // another function.
    *frame = if is_before == 0 { address - 1 } else { address };
    walk.len += 1;
    GO_ON
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::profiles::names::Names;

    #[inline(never)]
    fn caller_of_fill() -> Vec<usize> {
        let mut frames = [0; DEPTH];
        let len = fill(&mut frames, FirstFrame::Frame(1));
        std::hint::black_box(frames[..len].to_vec())
    }

    #[inline(never)]
    fn caller_of_caller() -> Vec<usize> {
        let frames = caller_of_fill();
        std::hint::black_box(frames)
    }

    #[test]
    fn a_captured_stack_begins_with_the_caller_and_has_names() {
        let frames = caller_of_caller();
        let names = Names::for_addresses(&frames.iter().copied().collect());
        let found: Vec<&str> = frames.iter().filter_map(|&frame| names.name(frame)).collect();
        assert!(found[0].ends_with("::caller_of_fill"), "{found:?}");
        assert!(found[1].ends_with("::caller_of_caller"), "{found:?}");
    }
}
