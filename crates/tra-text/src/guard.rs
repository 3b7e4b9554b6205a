//! Turns panics of other libraries into errors.
//!
//! `parquet` and `tokenizers` panic on some broken files, deep inside, where no check beforehand
//! reaches. A broken file is the user's, not a bug of ours, so it is reported as one. This is for
//! calls of other libraries only: our own mistakes stay panics.
//!
//! This changes the panic hook of the process, which a library should not do. There is no other way:
//! the hook prints a panic before anyone can catch it, and Rust has one hook per process, which takes
//! no value from the caller. The hook here is set once, at the first guarded call. It is silent only
//! on a thread that is inside such a call; everything else goes to the hook that was there before.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Calls another library; its panic becomes an error with the panic's message.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            if !GUARDED.get() {
                others(about);
            }
        }));
    });
    let before = GUARDED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(before);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        format!("it is damaged ({})", text.lines().next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_one_line_and_is_not_printed() {
        assert_eq!(guarded(|| 7), Ok(7));
        let error = guarded(|| panic!("index {}\nand more", 3)).unwrap_err();
        assert_eq!(error, "it is damaged (index 3)");
        assert!(!GUARDED.get());
        // What is not guarded is a panic as ever.
        assert!(panic::catch_unwind(|| panic!("ours")).is_err());
    }
}
