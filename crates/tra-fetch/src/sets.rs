//! The data sets, and which files of their repositories belong to them.

#[cfg(feature = "hub")]
use std::path::Component;
use std::path::Path;

use crate::FetchError;
#[cfg(feature = "hub")]
use crate::notes::NOTES;

/// A data set on the hub.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    about: &'static str,
    /// The repository.
    pub(crate) repository: &'static str,
    /// The folder in the repository, with its slash; empty for the whole repository.
    #[cfg_attr(not(feature = "hub"), expect(dead_code, reason = "only `hub` lists files"))]
    pub(crate) prefix: &'static str,
    /// The files to put into the output folder by hand.
    files: &'static str,
    /// What to do with the output folder after that.
    then: &'static str,
}

const WIKITEXT: &str = "Salesforce/wikitext";
const PASS: &str = " and pass that folder to --text";

static SETS: [Set; 3] = [
    Set {
        name: "wikitext-103",
        about: "103 million words of Wikipedia, raw text in parquet",
        repository: WIKITEXT,
        prefix: "wikitext-103-raw-v1/",
        files: "the parquet files of wikitext-103-raw-v1",
        then: PASS,
    },
    Set {
        name: "wikitext-2",
        about: "2 million words of Wikipedia, raw text in parquet",
        repository: WIKITEXT,
        prefix: "wikitext-2-raw-v1/",
        files: "the parquet files of wikitext-2-raw-v1",
        then: PASS,
    },
    Set {
        name: "flipflop",
        about: "flip-flop language as its authors published it",
        repository: "synthseq/flipflop",
        prefix: "",
        files: "its data files",
        then: "",
    },
];

/// What is known of a data set before it is downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetInfo {
    /// The name that users type.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
}

/// Lists the data sets.
pub fn sets() -> impl Iterator<Item = SetInfo> {
    SETS.iter().map(|set| SetInfo { name: set.name, about: set.about })
}

impl Set {
    pub(crate) fn by_name(name: &str) -> Result<&'static Self, FetchError> {
        SETS.iter().find(|set| set.name == name).ok_or_else(|| FetchError::UnknownName {
            name: name.into(),
            known: sets().map(|set| set.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Returns the address of the page for people.
    pub(crate) fn page(&self) -> String {
        format!("{}/datasets/{}", crate::HUB, self.repository)
    }

    /// Returns how to get the files without this program.
    pub(crate) fn by_hand(&self, out: &Path) -> String {
        format!(
            "supply the files by hand: put {} into {}{}; they are at {}",
            self.files,
            out.display(),
            self.then,
            self.page()
        )
    }

    /// Returns the name in the output folder of a file of the repository, or `None` if it is not data.
    #[cfg(feature = "hub")]
    pub(crate) fn local_name<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(self.prefix).filter(|name| is_data(name))
    }
}

/// Returns whether a file is data, and not a description of it. Names come from the hub: a name that
/// leads out of the output folder, or to a file of ours, is not data either.
#[cfg(feature = "hub")]
fn is_data(name: &str) -> bool {
    let path = Path::new(name);
    let plain = path.components().all(|part| {
        matches!(part, Component::Normal(part) if !part.as_encoded_bytes().starts_with(b"."))
    });
    let file = path.file_name().and_then(|file| file.to_str()).unwrap_or("").to_lowercase();
    let describes = ["readme", "license"].iter().any(|start| file.starts_with(start))
        || [".md", ".py"].iter().any(|end| file.ends_with(end));
    plain && !file.is_empty() && !describes && name != NOTES
}

#[cfg(all(test, feature = "hub"))]
mod tests {
    use super::*;

    #[test]
    fn the_folder_picks_the_files() {
        let set = Set::by_name("wikitext-2").unwrap();
        let name = |path| set.local_name(path);
        assert_eq!(name("wikitext-2-raw-v1/test-0.parquet"), Some("test-0.parquet"));
        assert_eq!(name("wikitext-2-v1/test-0.parquet"), None);
        assert_eq!(name("wikitext-103-raw-v1/test-0.parquet"), None);
        assert_eq!(name("README.md"), None);
    }

    #[test]
    fn descriptions_and_ways_out_are_no_data() {
        let set = Set::by_name("flipflop").unwrap();
        for good in ["train.csv", "data/val.json", "sparse.tar.gz", "notes.txt"] {
            assert_eq!(set.local_name(good), Some(good));
        }
        for bad in [
            "README.md",
            ".gitattributes",
            "LICENSE",
            "make.py",
            "../train.csv",
            "a/../../train.csv",
            "/etc/passwd",
            ".download/lock",
            "checksums.json",
            "",
        ] {
            assert_eq!(set.local_name(bad), None, "{bad}");
        }
    }
}
