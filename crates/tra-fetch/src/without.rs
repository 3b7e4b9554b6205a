//! Stands in for `place.rs` in a build without the feature `hub`, which has no network code.

use std::path::PathBuf;

use crate::sets::Set;
use crate::{FetchError, Observer, Request};

/// Returns an error that names the feature `hub`, and how to fetch the files by hand.
pub fn get(request: &Request, _: &mut dyn Observer) -> Result<Vec<PathBuf>, FetchError> {
    let set = Set::by_name(request.name)?;
    Err(FetchError::NotBuilt { name: set.name, by_hand: set.by_hand(request.out) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_feature_is_named_in_one_line() {
        let request = |name| Request::new(name, Path::new("data"));
        let error = get(&request("wikitext-2"), &mut ()).unwrap_err().to_string();
        let expected =
            "wikitext-2: this build cannot download; build with --features hub, or supply";
        assert!(error.starts_with(expected) && error.lines().count() == 1, "{error}");
        assert!(
            get(&request("wikitext-9"), &mut ()).unwrap_err().to_string().contains("there are")
        );
    }
}
