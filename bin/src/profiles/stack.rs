//! Where a thread is: the addresses of its stack, innermost first, found as the unwinder of panics finds them.
//!
//! Safe in a signal handler once it was called elsewhere: glibc from 2.35 on finds tables without a lock
//! (`_dl_find_object`), and the unwinder allocates nothing.

use std::ffi::{c_int, c_void};

/// Most addresses of a stack; what is further out is left out.
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

/// From which frame on a stack is wanted.
#[derive(Clone, Copy)]
pub enum From {
    /// After so many, of which that of [`fill`] is the first.
    Frame(usize),
    /// The one that a signal interrupted.
    Interrupted,
}

struct Walk<'a> {
    frames: &'a mut [usize; DEPTH],
    len: usize,
    from: From,
}

/// Writes the stack of the calling thread, and says how many addresses it has. They are of calls, not of returns.
#[inline(never)]
pub fn fill(frames: &mut [usize; DEPTH], from: From) -> usize {
    let mut walk = Walk { frames, len: 0, from };
    // SAFETY: `each` gets the pointer as long as the call takes, and does not unwind.
    unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
    walk.len
}

extern "C" fn each(context: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: it is what `fill` gave, which waits.
    let walk = unsafe { &mut *argument.cast::<Walk>() };
    let mut is_before = 0;
    // SAFETY: the unwinder's own context.
    let address = unsafe { _Unwind_GetIPInfo(context, &raw mut is_before) };
    match walk.from {
        From::Frame(0) => {}
        From::Frame(left) => {
            walk.from = From::Frame(left - 1);
            return GO_ON;
        }
        From::Interrupted if is_before == 0 => return GO_ON,
        From::Interrupted => walk.from = From::Frame(0),
    }
    if address == 0 {
        return END;
    }
    let Some(frame) = walk.frames.get_mut(walk.len) else { return END };
    // The address after a call may belong to another function.
    *frame = if is_before == 0 { address - 1 } else { address };
    walk.len += 1;
    GO_ON
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::names::Names;

    #[inline(never)]
    fn caller_of_fill() -> Vec<usize> {
        let mut frames = [0; DEPTH];
        let len = fill(&mut frames, From::Frame(1));
        std::hint::black_box(frames[..len].to_vec())
    }

    #[inline(never)]
    fn caller_of_caller() -> Vec<usize> {
        let frames = caller_of_fill();
        std::hint::black_box(frames)
    }

    #[test]
    fn a_stack_begins_with_the_caller_and_has_names() {
        let frames = caller_of_caller();
        let names = Names::of(&frames.iter().copied().collect());
        let found: Vec<&str> = frames.iter().filter_map(|&frame| names.name(frame)).collect();
        assert!(found[0].ends_with("::caller_of_fill"), "{found:?}");
        assert!(found[1].ends_with("::caller_of_caller"), "{found:?}");
    }
}
